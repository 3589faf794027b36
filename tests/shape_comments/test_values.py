"""What a comment is compared with, and what is then said of it."""

import pytest
import torch

from shape_comments.comments import FALSE, TWO_SIZES

# A source, and of each line with a comment: how often it was true, the levels, or why not.
SOURCES = {
    "a value of each kind": (
        """
        x = ones(2, 3)              # (b, n)
        x.T                         # (n, b)
        y: object = x[..., None]    # (b, n, 1)
        a, c = x                    # (n,)
        p = x, ones(2, 4)           # (b, n), (b, m)
        x.shape; z = x              # (b, n)
        """,
        dict.fromkeys(range(2, 8), 1),
    ),
    "variables": (
        """
        def f(x, y=None, *, z):
            y, z = z, x             # y: (m, 3), z: (b, n)
            x.sum()                 # x: (b, n)
            return y                # z: (m, 3)
        f(ones(2, 5), z=ones(7, 3))
        """,
        {3: 2, 4: 1, 5: 1},
    ),
    "a wrong rank, number and variable": (
        """
        n = 4
        x = ones(2, 3)              # (a, b, c)
        x = ones(2, 3)              # (a, 5)
        x = ones(2, 3)              # (a, n)
        x = ones(2, 3)              # (a, n + 1)
        x = ones(2, 3)              # (n // 2, ?)
        x = ones(2, 3)              # (n / 3, 3), rounded
        x = ones(2, 3)              # (2 * k, -1)
        x = ones(2, 3)              # (..., k, 3)
        """,
        {3: {FALSE}, 4: {FALSE}, 5: {FALSE}, 6: {FALSE}, 7: 1, 8: 1, 9: 1, 10: {TWO_SIZES}},
    ),
    "one letter for two sizes, after which all are free again": (
        """
        x = ones(2, 3)              # (b, n)
        x = ones(3, 2)              # (b, n)
        x = ones(4, 4)              # (b, n)
        x = ones(3, 4)              # (k, k)
        """,
        {2: 1, 3: {TWO_SIZES}, 4: 1, 5: {TWO_SIZES}},
    ),
    "letters of one call, and of one turn": (
        """
        def f(x):
            x = x[1:]               # (B, T)
            for _ in range(2):
                for _ in range(2):
                    y = x + 0       # (B, S)
                    x = np.append(x, x[:, :1], 1)  # (B, S + 1)
            if len(x) > 1:
                f(x)
            return x                # (B, T + 4)
        f(ones(4, 3)), f(ones(3, 2))
        """,
        {3: 5, 6: 20, 7: 20, 10: 5},
    ),
    "nothing shows in a function's locals": (
        """
        def f(n):
            x = ones(2, 2)          # (m, m)
            y = ones(3, 3)          # (m, m)
            return locals()
        assert set(f(1)) == {"n", "x", "y"}
        """,
        {3: 1, 4: {TWO_SIZES}},
    ),
    "alternatives": (
        """
        for x in (ones(2, 3), ones(3)):
            y = x + 0               # (b, 3) or (3,)
        z = ones(4)                 # (b, 3) or (3,)
        """,
        {3: 2, 4: {FALSE}},
    ),
    "one of several values": (
        """
        x = ones(2, 3), None        # (b, n)
        x = [ones(2), ones(2, 4)]   # (b, n)
        x = [ones(2), ones(2)]      # (b, n)
        x = ones(2, 3), 4           # (b, n), ()
        x = ones(2), ones(2)        # (b, n), (b, n), (b, n)
        x = [0] * 1000              # (b, n)
        """,
        {
            2: 1,
            3: {TWO_SIZES},
            4: "none of 2 values has so many axes",
            5: 1,
            6: "3 shapes for 2 values",
            7: "list has no shape",
        },
    ),
    "no value": (
        """
        from math import pi         # (b, n)
        x: int                      # (b, n)
        x = 1                       # (b, n)
        a, *b = ones(2, 3)          # (b, n)
        a, c = 1, 2                 # (b, n), (b, n), (b, n)
        def f(x):                   # (b, n)
            x[0] += 1               # (b, n)
        if x:                       # (b, n)
            max(1,                  # (b, n)
                2)
        """,
        {
            **dict.fromkeys([2, 3, 4, 7, 8, 9, 10], "this shape comment stands where no value is"),
            5: "none of 2 values has so many axes",
            6: "no shapes",
        },
    ),
    "a generator, and what is never reached": (
        """
        def f(x):
            x = x + 0               # (b, n)
            yield
            x = x.T                 # (b, n)
        async def g(x):
            return x + 0            # (b, n)
        next(f(ones(2, 3)))
        """,
        {3: 1, 5: 0, 7: 0},
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_comment_is_compared_with_the_value_of_its_line(code, name):
    source, expected = SOURCES[name]
    assert code(source).said == expected


@pytest.mark.parametrize(
    ("own_lines", "compared"), [("", set()), ("above", {5}), ("below", {7, 8, 11})]
)
def test_own_line_belongs_to_the_line_above_or_below_if_that_is_wanted(code, own_lines, compared):
    source = """
        def f():
            x = ones(2, 3)
            # as it was
            # (2, 3)

            # (2, 4)
            # x: (2, 4)
            x = ones(2, 4)
            return x
        # (2, 4)
        f()
        """
    said = code(source, own_lines=own_lines).said
    assert {line for line, what in said.items() if what == 1} == compared


def test_message_says_all_that_is_known(code):
    module = code(
        """
        def f(x, n):
            x = x + 0               # (b, n)
            return x.T              # (b, d)
        f(ones(2, 3), 3)
        """
    )
    (text,) = (text for x in module.checker.comments for text in x.failed.values())
    assert text == (
        "code.py:4: the comment says (b, d) with b = 2, but the shape is (3, 2)\n"
        "    return x.T              # (b, d)\n    b is bound in line 3"
    )


def test_what_is_traced_is_left_as_it_is_and_what_raises_is_not_compared(code):
    module = code(
        """
        class Strange:
            shape = property(lambda self: 1 / 0)
        Strange()                   # (b, n)
        def f(x):
            return x.T              # (b, n, 7)
        """
    )
    assert module.said == {4: "division by zero", 6: 0}
    graph = torch.fx.symbolic_trace(module["f"]).graph
    assert [node.op for node in graph.nodes] == ["placeholder", "call_function", "output"]
    assert module.said[6] == "Attribute has no shape"
    with pytest.deprecated_call():
        traced = torch.jit.trace(module["f"], torch.ones(2, 3), check_trace=False)
    compiled = torch.compile(module["f"], fullgraph=True, backend="eager")
    assert traced(torch.ones(2, 3)).shape == compiled(torch.ones(2, 3)).shape == (3, 2)
    assert module.said[6] == "Attribute has no shape"
    module["f"](torch.ones(2, 3))
    assert module.said[6] == {FALSE}

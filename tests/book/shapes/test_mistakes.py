"""What is false, or cannot be checked, is caught, and the message says where and why."""

import pytest
import torch

from book.shapes import ShapeCommentError

Q, K, WIDE = torch.randn(2, 3, 6), torch.randn(2, 5, 6), torch.randn(2, 3, 24)
SCORE = """def f(q, k):
    '''Score.

    Args:
        q: (b, n, d), one row per query.
        k: (b, m, d), one row per key.
    '''
"""


def one(argument):
    """Give a function of one argument, whose docstring claims a shape."""
    return f"def f(x, h=4):\n    '''Copy.\n\n    Args:\n        x: {argument}.\n    '''\n"


# A source, what it is called with, and how the message begins.
PLANTED = {
    "a wrong letter": (
        SCORE + "    scores = q @ k.mT  # (b, n, d) x (b, d, m) -> (b, n, n)",
        (Q, K),
        "code.py:8: the comment says (b, n, n) with b = 2, n = 3, but the shape is (2, 3, 5)\n"
        "    scores = q @ k.mT  # (b, n, d) x (b, d, m) -> (b, n, n)\n"
        "    b is bound in line 5\n    n is bound in line 5",
    ),
    "swapped letters": (
        SCORE + "    return q @ k.mT  # (b, m, n)",
        (Q, K),
        "code.py:8: the comment says (b, m, n) with b = 2, m = 5, n = 3, "
        "but the shape is (2, 3, 5)\n    return q @ k.mT  # (b, m, n)",
    ),
    "swapped letters in the docstring": (
        "n = 3\n" + one("(b, d, n)") + "    return x[:n].clone()",
        (Q,),
        "code.py:6: the docstring says (b, d, n) with b = 2, d = 3, n = 3, "
        "but the shape is (2, 3, 6)\n    x: (b, d, n).",
    ),
    "a wrong argument, and then one that fits": (
        SCORE.replace("(b, n, d)", "(n, d)") + "    return q.clone()",
        (Q, K),
        "code.py:5: the docstring says (n, d), but the shape is (2, 3, 6)",
    ),
    "a wrong argument, and then a wrong value": (
        one("(b, n)") + "    return x + 0  # (b, n, 7)",
        (Q,),
        "code.py:5: the docstring says (b, n), but the shape is (2, 3, 6)",
    ),
    "h * d and n exchanged": (
        one("(b, n, h * d)")
        + "    y = x.unflatten(-1, (h, -1))  # (b, n, h, d)\n"
        + "    return y.flatten(-2)  # (b, h * d, n)",
        (WIDE,),
        "code.py:8: the comment says (b, h * d, n) with b = 2, h = 4, d = 6, n = 3, "
        "but the shape is (2, 3, 24)",
    ),
    "a product that no longer holds": (
        "def f(x):\n    y = x + 0  # (b, n, h * d)\n    h = 3\n"
        "    return y.unflatten(-1, (4, 6))[:, :, :3]  # (b, n, h, d)",
        (WIDE,),
        "code.py:4: the comment says (b, n, h, d) with b = 2, n = 3, h = 3, d = 6, "
        "but the shape is (2, 3, 3, 6), and h * d was 24 in line 2",
    ),
    "a product whose factors come later": (
        "def f(x):\n    y = x + 0  # (b, n, h * d)\n    h = 4\n    torch.ones(h)  # (h,)\n"
        "    del h\n    return torch.ones(7)  # (d,)",
        (WIDE,),
        "code.py:6: the comment says (d,) with d = 6, but the shape is (7,)\n"
        "    return torch.ones(7)  # (d,)\n    d is bound in line 4",
    ),
    "a product before its factors": (
        "def f(x):\n    return torch.ones(23, 4, 6)  # (h * d, h, d)",
        (WIDE,),
        "code.py:2: the comment says (h * d, h, d) with h = 4, d = 6, but the shape is (23, 4, 6)",
    ),
    "a product that does not divide": (
        "def f(x, h):\n    return x + 0  # (b, n, h * d)",
        (WIDE, 7),
        "code.py:2: the comment says (b, n, h * d) with b = 2, n = 3, h = 7, "
        "but the shape is (2, 3, 24), and h * d cannot be 24",
    ),
    "a product with nothing": (
        "def f(x, h):\n    return x + 0  # (b, n, h * d)",
        (WIDE, 0),
        "code.py:2: the comment says (b, n, h * d) with b = 2, n = 3, h = 0, "
        "but the shape is (2, 3, 24), and h * d cannot be 24",
    ),
    "a letter with two values": (
        "def f(q, k):\n    a = q + 0  # (b, n, d)\n    c = k + 0  # (b, n, d)",
        (Q, K),
        "code.py:3: the comment says (b, n, d) with b = 2, n = 3, d = 6, "
        "but the shape is (2, 5, 6)\n    c = k + 0  # (b, n, d)\n"
        "    b is bound in line 2\n    n is bound in line 2",
    ),
    "a letter whose variable says otherwise": (
        "def f(q, k):\n    a = q + 0  # (b, n, d)\n    n = 5\n    return k + 0  # (b, n, d)",
        (Q, K),
        "code.py:4: n is used with two values: 3 since line 2, and 5, "
        "the value of the variable n\n    return k + 0  # (b, n, d)",
    ),
    "a stale integer": (
        "def f(x):\n    return x * 2  # (2, 3, 8)",
        (Q,),
        "code.py:2: the comment says (2, 3, 8), but the shape is (2, 3, 6)",
    ),
    "a stale variable": (
        "def f(x, d):\n    y = x * 2  # (b, 3, d)",
        (Q, 7),
        "code.py:2: the comment says (b, 3, d) with b = 2, d = 7, but the shape is (2, 3, 6)",
    ),
    "a wrong return": (
        "def f(q, k):\n    return q @ k.mT, q  # (b, n, 3), (b, n, d)",
        (Q, K),
        "code.py:2: the comment says (b, n, 3) with b = 2, n = 3, "
        "but the shape of value 1 is (2, 3, 5)",
    ),
    "a wrong tuple assignment": (
        "def f(q, k):\n    a, c = q * 2, k * 2  # (b, n, d), (b, n, d)",
        (Q, K),
        "code.py:2: the comment says (b, n, d) with b = 2, n = 3, d = 6, "
        "but the shape of value 2 is (2, 5, 6)",
    ),
    "a wrong unpacking": (
        "def f(q, k):\n    a, c = q  # (d, n)\n    return a, c  # (n, 7)",
        (Q, K),
        "code.py:3: the comment says (n, 7) with n = 6, but the shape of value 1 is (3, 6)",
    ),
    "a wrong augmented item": (
        "def f(q, k):\n    q[0] += 1  # (d, 3)",
        (Q.clone(), K),
        "code.py:2: the comment says (d, 3) with d = 3, but the shape is (3, 6)",
    ),
    "a wrong attribute": (
        "def f(q, k):\n    f.weight = q  # (b, n)",
        (Q, K),
        "code.py:2: the comment says (b, n), but the shape is (2, 3, 6)",
    ),
    "a wrong expression": (
        "def f(q, k):\n    q @ k.mT  # (b, n, 6)",
        (Q, K),
        "code.py:2: the comment says (b, n, 6) with b = 2, n = 3, but the shape is (2, 3, 5)",
    ),
    "a wrong number of axes behind the dots": (
        "def f(x):\n    return x[0, 0]  # (..., n, d)",
        (Q,),
        "code.py:2: the comment says (..., n, d), but the shape is (6,)",
    ),
    "no shape": (
        "def f(q, k):\n    return q, None  # (b, n, d)",
        (Q, K),
        "code.py:2: the comment says (b, n, d), but the value of value 2 has no shape",
    ),
    "nothing at all": ("def f():\n    heads = []  # (b, n)", (), "code.py:2: the value is empty"),
    "two shapes for one value": (
        "def f(q, k):\n    return q + 0  # (b, n, d), (b, m, d)",
        (Q, K),
        "code.py:2: the comment has 2 shapes for one value",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistake_is_caught(code, name):
    source, arguments, message = PLANTED[name]
    module = code(source)
    for _ in range(2):  # the second time from what is known of the first
        with pytest.raises(ShapeCommentError) as caught:
            module["f"](*arguments)
        assert str(caught.value).startswith(message)
    assert module.checker.mismatches == [str(caught.value)] * 2


def test_what_fitted_once_is_no_excuse_for_another_comment_or_value(code):
    module = code("""
        def f(x, flat):
            if flat:
                return x  # (n, d)
            return x  # (b, n, d)

        def g(x):
            return x  # ()
    """)
    module["f"](Q[0], True)
    module["g"](Q.sum())
    for wrong in (lambda: module["f"](Q[0], False), lambda: module["g"](())):
        with pytest.raises(ShapeCommentError):
            wrong()


MISPLACED = {
    "on its own line": ("x = 1\n# (n, d)\ny = 2\n", 2),
    "on a def": ("def f(x):  # (n, d)\n    return x\n", 1),
    "on an if": ("x = 1\nif x:  # (n, d)\n    x = 2\n", 2),
    "on a for": ("for x in ():  # (n, d)\n    pass\n", 1),
    "on a with": ("with open(__file__) as f:  # (n, d)\n    pass\n", 1),
    "on an import": ("import math  # (n, d)\n", 1),
    "on a parameter": ("def f(\n    x,  # (n, d)\n    y,\n):\n    return x\n", 2),
    "inside a statement": ("x = max(\n    1,  # (n, d)\n    2,\n)\n", 2),
    "on a bare annotation": ("x: int  # (n, d)\n", 1),
    "on a bare return": ("def f():\n    return  # (n, d)\n", 2),
    "on a docstring": ('"""Text."""  # (n, d)\n', 1),
    "on a pass": ("pass  # (n, d)\n", 1),
    "in a class's docstring": (
        'class A:\n    """A.\n\n    Args:\n        x: (n, d).\n    """\n',
        5,
    ),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_comment_without_value_is_refused(code, name):
    source, line = MISPLACED[name]
    with pytest.raises(ShapeCommentError, match=rf"^code.py:{line}: this shape comment stands wh"):
        code(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a, *b = f()  # (n, d)", "nested or starred target"),
        ("a, (b, c) = f()  # (n, d)", "nested or starred target"),
        ("a, b = f()  # (n, d), (n, d), (n, d)", "3 shapes for 2 targets"),
        ("a[f()] += 1  # (n, d)", "evaluated twice"),
        ("a = f()  # (n)", r"write \(n,\)"),
        ("def f(x):\n    '''F.\n\n    Args:\n        y: (n, d).\n    '''", "has no argument y"),
    ],
)
def test_statement_that_cannot_be_checked_is_refused(code, source, message):
    with pytest.raises(ShapeCommentError, match=message):
        code(source)

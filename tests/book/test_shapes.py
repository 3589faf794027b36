"""The shape-comment checker: what it must catch, what it must leave alone, and where it works."""

import importlib
import inspect
import itertools
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from book import shapes
from book.shapes import CHECK, Checker, ShapeCommentError, parse_comment

B, N, M, H, D = 2, 3, 5, 4, 6
Q, K = torch.randn(B, N, D), torch.randn(B, M, D)
WIDE = torch.randn(B, N, H * D)


class Code:
    """A source run with checks, as the file code.py."""

    def __init__(self, tmp_path, source):
        self.checker = Checker(tmp_path)
        self.path = tmp_path / "code.py"
        self.path.write_text(textwrap.dedent(source))
        self.names = {CHECK: self.checker.function, "torch": torch, "nn": nn}
        exec(compile(self.checker.read(self.path), str(self.path), "exec"), self.names)

    def __getitem__(self, name):
        return self.names[name]


@pytest.fixture
def code(tmp_path):
    """Run a source with checks."""
    return lambda source: Code(tmp_path, source)


# --- The grammar ----------------------------------------------------------------------------


def shown(comment):
    parsed = parse_comment(comment)
    return parsed and [shapes._show(shape) for shape in parsed]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# (n, d)", ["(n, d)"]),
        ("# (n, d) x (d, m) -> (n, m)", ["(n, m)"]),
        ("# (n, d) -> (n, h, d) -> (h, n, d), one each", ["(h, n, d)"]),
        ("# (n, d), (m, d_v)", ["(n, d)", "(m, d_v)"]),
        ("# -> (..., n, h * d)", ["(..., n, h * d)"]),
        ("# (3 * e, n + 1, 24, vocab_size, d_k)", ["(3 * e, n + 1, 24, vocab_size, d_k)"]),
        ("# (n,)", ["(n,)"]),
        ("# a scalar: ()", ["()"]),
        ("# the weights (Vaswani et al.)", None),
        ("# section 3 (2017), (query, key), q.view(n, d), f()", None),
        ("# no tuple", None),
    ],
)
def test_comment_is_read(comment, expected):
    assert shown(comment) == expected


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("# (n)", r"write \(n,\)"),
        ("# (h * d)", r"write \(h \* d,\)"),
        ("# (n, d) (see chapter 4)", "no other parentheses"),
        ("# ((n, d), m)", "no other parentheses"),
        ("# (n, d) of f(x)", "no other parentheses"),
        ("# (n, d) ->", "no shape stands after"),
        ("# (..., n, ...)", "more than once"),
        ("# (n, d / 2)", "d / 2 is no axis"),
        ("# (-1, d)", "-1 is no axis"),
    ],
)
def test_malformed_comment_is_refused(comment, reason):
    with pytest.raises(ValueError, match=reason):
        parse_comment(comment)


# --- Planted mistakes -----------------------------------------------------------------------

PLANTED = {
    "a wrong letter": (
        """
        def f(q, k):
            '''Score.

            Args:
                q: (b, n, d), one row per query.
                k: (b, m, d), one row per key.
            '''
            scores = q @ k.mT  # (b, n, d) x (b, d, m) -> (b, n, n)
            return scores
        """,
        (Q, K),
        "code.py:9: the comment says (b, n, n) with b = 2, n = 3, but the shape is (2, 3, 5)\n"
        "    scores = q @ k.mT  # (b, n, d) x (b, d, m) -> (b, n, n)\n"
        "    b is bound in line 6\n    n is bound in line 6",
    ),
    "swapped letters": (
        """
        def f(q, k):
            '''Score.

            Args:
                q: (b, n, d), one row per query.
                k: (b, m, d), one row per key.
            '''
            return q @ k.mT  # (b, m, n)
        """,
        (Q, K),
        "code.py:9: the comment says (b, m, n) with b = 2, m = 5, n = 3, "
        "but the shape is (2, 3, 5)\n    return q @ k.mT  # (b, m, n)",
    ),
    "swapped letters in the docstring": (
        """
        def f(x, n):
            '''Copy.

            Args:
                x: (b, d, n), one row per token.
                n: tokens.
            '''
            return x.clone()
        """,
        (Q, N),
        "code.py:6: the docstring says (b, d, n) with b = 2, d = 3, n = 3, "
        "but the shape is (2, 3, 6)\n    x: (b, d, n), one row per token.",
    ),
    "h * d and n exchanged": (
        """
        def f(x, h):
            '''Split.

            Args:
                x: (b, n, h * d), one row per token.
            '''
            y = x.unflatten(-1, (h, -1))  # (b, n, h, d)
            return y.flatten(-2)  # (b, h * d, n)
        """,
        (WIDE, H),
        "code.py:9: the comment says (b, h * d, n) with b = 2, h = 4, d = 6, n = 3, "
        "but the shape is (2, 3, 24)",
    ),
    "h * d and n exchanged, met before h is known": (
        """
        def f(x, heads):
            '''Split.

            Args:
                x: (b, h * d, n), one row per token.
            '''
            h = heads
            return x.unflatten(-1, (h, -1))  # (b, n, h, d)
        """,
        (WIDE, H),
        "code.py:9: the comment says (b, n, h, d) with b = 2, n = 24, h = 4, "
        "but the shape is (2, 3, 4, 6)",
    ),
    "a product that no longer holds": (
        """
        def f(x):
            y = x + 0  # (b, n, h * d)
            h = 3
            return y.unflatten(-1, (4, 6))[:, :, :3]  # (b, n, h, d)
        """,
        (WIDE,),
        "code.py:5: the comment says (b, n, h, d) with b = 2, n = 3, h = 3, d = 6, "
        "but the shape is (2, 3, 3, 6), and h * d was 24 in line 3",
    ),
    "a product whose factors come later": (
        """
        def f(x):
            y = x + 0  # (b, n, h * d)
            h = 4
            torch.ones(h)  # (h,)
            del h
            return torch.ones(7)  # (d,)
        """,
        (WIDE,),
        "code.py:7: the comment says (d,) with d = 6, but the shape is (7,)\n"
        "    return torch.ones(7)  # (d,)\n    d is bound in line 5",
    ),
    "a product before its factors": (
        """
        def f(x):
            return torch.ones(23, 4, 6)  # (h * d, h, d)
        """,
        (WIDE,),
        "code.py:3: the comment says (h * d, h, d) with h = 4, d = 6, but the shape is (23, 4, 6)",
    ),
    "a product that does not divide": (
        """
        def f(x, h):
            return x + 0  # (b, n, h * d)
        """,
        (WIDE, 7),
        "code.py:3: the comment says (b, n, h * d) with b = 2, n = 3, h = 7, "
        "but the shape is (2, 3, 24), and h * d cannot be 24",
    ),
    "a letter with two values": (
        """
        def f(q, k):
            a = q + 0  # (b, n, d)
            c = k + 0  # (b, n, d)
        """,
        (Q, K),
        "code.py:4: the comment says (b, n, d) with b = 2, n = 3, d = 6, "
        "but the shape is (2, 5, 6)\n    c = k + 0  # (b, n, d)\n"
        "    b is bound in line 3\n    n is bound in line 3",
    ),
    "a letter whose variable says otherwise": (
        """
        def f(q, k):
            a = q + 0  # (b, n, d)
            n = k.size(1)
            return k + 0  # (b, n, d)
        """,
        (Q, K),
        "code.py:5: n is used with two values: 3 since line 3, and 5, "
        "the value of the variable n\n    return k + 0  # (b, n, d)",
    ),
    "a stale integer": (
        """
        def f(x):
            return x * 2  # (2, 3, 8)
        """,
        (Q,),
        "code.py:3: the comment says (2, 3, 8), but the shape is (2, 3, 6)\n"
        "    return x * 2  # (2, 3, 8)",
    ),
    "a stale variable": (
        """
        def f(x, d):
            y = x * 2  # (b, n, d)
        """,
        (Q, 7),
        "code.py:3: the comment says (b, n, d) with b = 2, n = 3, d = 7, "
        "but the shape is (2, 3, 6)",
    ),
    "a wrong return": (
        """
        def f(q, k):
            n = q.size(1)
            m = k.size(1)
            return q @ k.mT, q  # (b, m, n), (b, n, d)
        """,
        (Q, K),
        "code.py:5: the comment says (b, m, n) with b = 2, m = 5, n = 3, "
        "but the shape of value 1 is (2, 3, 5)\n    return q @ k.mT, q  # (b, m, n), (b, n, d)",
    ),
    "a wrong tuple assignment": (
        """
        def f(q, k):
            a, c = q * 2, k * 2  # (b, n, d), (b, n, d)
        """,
        (Q, K),
        "code.py:3: the comment says (b, n, d) with b = 2, n = 3, d = 6, "
        "but the shape of value 2 is (2, 5, 6)",
    ),
    "a wrong unpacking": (
        """
        def f(q, k):
            a, c = q  # (d, n)
            return a, c  # (n, 7)
        """,
        (Q, K),
        "code.py:4: the comment says (n, 7) with n = 6, but the shape of value 1 is (3, 6)",
    ),
    "a wrong augmented assignment": (
        """
        def f(q, k):
            n, m = q.size(1), k.size(1)
            q += 1  # (b, m, d)
        """,
        (Q.clone(), K),
        "code.py:4: the comment says (b, m, d) with b = 2, m = 5, but the shape is (2, 3, 6)\n"
        "    q += 1  # (b, m, d)",
    ),
    "a wrong augmented item": (
        """
        def f(q, k):
            q[0] += 1  # (d, 3)
        """,
        (Q.clone(), K),
        "code.py:3: the comment says (d, 3) with d = 3, but the shape is (3, 6)",
    ),
    "a wrong attribute": (
        """
        def f(q, k):
            f.weight = q  # (b, n)
        """,
        (Q, K),
        "code.py:3: the comment says (b, n), but the shape is (2, 3, 6)",
    ),
    "a wrong expression": (
        """
        def f(q, k):
            q @ k.mT  # (b, n, 6)
        """,
        (Q, K),
        "code.py:3: the comment says (b, n, 6) with b = 2, n = 3, but the shape is (2, 3, 5)",
    ),
    "a wrong number of axes behind the dots": (
        """
        def f(x):
            return x[0, 0]  # (..., n, d)
        """,
        (Q,),
        "code.py:3: the comment says (..., n, d), but the shape is (6,)",
    ),
    "no shape": (
        """
        def f(q, k):
            return q, None  # (b, n, d)
        """,
        (Q, K),
        "code.py:3: the comment says (b, n, d), but the value of value 2 has no shape",
    ),
    "nothing at all": (
        """
        def f(q, k):
            heads = []  # (b, n, d)
        """,
        (Q, K),
        "code.py:3: the value is empty",
    ),
    "two shapes for one value": (
        """
        def f(q, k):
            return q + 0  # (b, n, d), (b, m, d)
        """,
        (Q, K),
        "code.py:3: the comment has 2 shapes for one value",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistake_is_caught(code, name):
    source, arguments, message = PLANTED[name]
    module = code(source)
    with pytest.raises(ShapeCommentError) as caught:
        module["f"](*arguments)
    assert str(caught.value).startswith(message)
    assert module.checker.mismatches == [str(caught.value)]


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


# --- What is right passes, and works as before ----------------------------------------------


def test_true_comments_pass_and_bind_for_one_call_only(code):
    module = code(
        """
        WIDTH = 24
        e = 7
        def f(x, h):
            '''Split.

            Args:
                x: (..., n, h * d), one row per token.
                h: heads.
            '''
            y = z = x.unflatten(-1, (h, -1))  # (..., n, h * d) -> (..., n, h, d)
            b, n, *_ = y.shape
            first, second = y.unbind(0)  # (n, h, d)
            tail = (
                first + second
            )  # (n, h, d)
            q, k, v = torch.ones(3, n, 6)  # (n, d)
            r, s = (t for t in (q, k))  # (n, d), (n, d)
            cut: object = y[..., :-1]  # (b, n, h, d - 1)
            one = y.sum()  # ()
            one += 1  # ()
            wide = torch.ones(WIDTH, 5)  # (WIDTH, e)
            parts = [q, k]  # (n, d)
            torch.ones(2 * h + 1)  # (2 * h + 1,)
            a = 1; u = q  # (n, d)
            for w in (2, 3):
                torch.ones(w)  # (w,)
            class Small: part = torch.ones(2)  # (k,)
            class Large: part = torch.ones(3)  # (k,)
            # One head (h) at a time.
            if h: return y.transpose(-3, -2), wide  # (b, h, n, d), (24, e)
        """
    )
    for n in (3, 5):
        out, _ = module["f"](torch.randn(2, n, 24), 4)
        assert out.shape == (2, 4, n, 6)
    assert module.checker.unreached() == []


def test_global_counts_only_where_the_code_uses_it(code):
    module = code(
        """
        n, d = 9, 6
        def free(x): return x + 0  # (b, n, d)
        def used(x):
            return x + 0 * d  # (b, n, d)
        """
    )
    assert module["free"](K).shape == K.shape
    assert module["used"](K).shape == K.shape
    module.names["d"] = 7
    assert module["free"](K).shape == K.shape
    with pytest.raises(ShapeCommentError, match=r"d = 7, .*\n.*\n.*\n.*\n    d is a variable"):
        module["used"](K)


def test_true_and_false_are_no_sizes(code):
    module = code("def f(x, b): return x + 0  # (b, n, d)\n")
    assert module["f"](Q, True).shape == Q.shape


def test_calls_do_not_share_letters(code):
    module = code(
        """
        def f(x, deep):
            y = x[1:] + 0  # (n, d)
            if deep and len(y):
                f(y, deep)
            return y + 0  # (n, d)
        def outer(x):
            a = x + 0  # (n, d)
            def inner(x):
                return x + 0  # (n, d)
            inner(x.mT)
            return a + 0  # (n, d)
        def many(x):
            for i in range(2):
                yield x + 0  # (n, d)
        """
    )
    assert module["f"](torch.ones(5, 6), True).shape == (4, 6)
    assert module["outer"](Q[0]).shape == (3, 6)
    both = zip(module["many"](Q[0]), module["many"](K[0]), strict=True)
    assert [(len(a), len(b)) for a, b in both] == [(3, 5), (3, 5)]


def test_enclosing_variable_is_in_scope_where_used(code):
    module = code(
        """
        def f(x, n):
            def g():
                return x[:n]  # (n, d)
            return g()
        """
    )
    assert module["f"](K[0], 3).shape == (3, 6)
    with pytest.raises(ShapeCommentError, match="n = 9"):
        module["f"](K[0], 9)


def test_argument_may_be_none_or_one_of_several_shapes(code):
    module = code(
        """
        def f(x, mask=None):
            '''Mask.

            Args:
                x: (b, n, d), one row per token.
                mask: (n, d), or (b, n, d), True hides.
                    (also, this) line is prose, (k, k) too, and
                    x: (k, k) as well.

            Returns:
                y: (k, k), not checked.
            '''
            return x if mask is None else x * mask
        """
    )
    assert [len(c.shapes) for c in module.checker.comments] == [1, 2]
    assert all(module["f"](Q, mask).shape == Q.shape for mask in (None, Q, Q[0]))
    with pytest.raises(ShapeCommentError, match=r"code.py:7: the docstring says \(n, d\)"):
        module["f"](Q, Q[0, 0])


def test_argument_that_the_function_refuses_is_its_own_affair(code):
    module = code(
        """
        def f(x):
            '''Refuse.

            Args:
                x: (b, n, d), one row per token.
            '''
            if x.dim() != 3:
                raise ValueError("three axes")
        """
    )
    with pytest.raises(ValueError, match="three axes"):
        module["f"](Q[0])
    module["f"](Q)
    assert module.checker.mismatches == []


def test_wrong_argument_is_caught_where_the_function_just_ends(code):
    module = code('def f(x):\n    """F.\n\n    Args:\n        x: (n, d).\n    """\n    x.sum()\n')
    with pytest.raises(ShapeCommentError, match=r"code\.py:5: the docstring says"):
        module["f"](Q)


MODULE = """
class Base(nn.Module):
    def forward(self, x):
        return self.proj(x)  # (b, n, 2 * e)

class Net(Base):
    size = torch.ones(3)  # (3,)

    def __init__(self, e):
        super().__init__()
        self.proj = nn.Linear(e, 2 * e)
        self.scale = nn.Parameter(torch.ones(e))  # (e,)

    def forward(self, x):
        '''Project.

        Args:
            x: (b, n, e), one row per token.
        '''
        y = super().forward(x)  # (b, n, e) -> (b, n, 2 * e)
        first, second = y.chunk(2, -1)  # (b, n, e), (b, n, e)
        total = first * self.scale  # (b, n, e)
        total += second  # (b, n, e)
        out = self.mix(total)  # (b, e, n)
        return out, __class__.__name__

    def mix(self, x):
        h = 2

        def parts():
            return x.unflatten(-1, (h, -1))  # (b, n, h, d)

        return parts().flatten(-2).mT  # (b, h * d, n)
"""


def test_module_methods_are_checked(code):
    module = code(MODULE)
    out, name = module["Net"](6)(Q)
    assert (out.shape, name) == ((2, 6, 3), "Net")
    assert module.checker.unreached() == []
    wrong = code(MODULE.replace("(b, e, n)", "(b, n, e)"))
    with pytest.raises(ShapeCommentError, match=r"code.py:24: .*e = 6, but the shape is \(2, 6, 3"):
        wrong["Net"](6)(Q)


def test_nothing_is_evaluated_twice(code):
    module = code(
        """
        seen = []
        def note(x):
            seen.append(1)
            return x
        def f(x):
            note(x)  # (b, n, d)
            box = {}
            box[note(0)] = note(x)  # (b, n, d)
            y = note(x)  # (b, n, d)
            y += note(1)  # (b, n, d)
            return note(y)  # (b, n, d)
        """
    )
    y = Q.clone()
    assert module["f"](y) is y
    assert len(module["seen"]) == 6
    assert inspect.getsource(module["note"]).startswith("def note(x):\n")


def test_traceback_names_the_line(code):
    module = code(
        """
        def f(x):
            '''Fail.

            Args:
                x: (n,), anything.
            '''
            y = x + 0  # (n,)
            return (
                y / (1 / 0)
            )  # (n,)
        """
    )
    with pytest.raises(ZeroDivisionError) as caught:
        module["f"](torch.ones(3))
    last = caught.traceback[-1]
    assert (last.path.name, last.lineno + 1) == ("code.py", 10)


# --- torch.compile, export, vmap ------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_graph_break_and_checks_while_tracing(code, backend, dynamic):
    torch.compiler.reset()
    module = code(MODULE)
    net = module["Net"](6)
    compiled = torch.compile(net, fullgraph=True, backend=backend, dynamic=dynamic)
    torch.testing.assert_close(compiled(Q)[0], net(Q)[0])
    compiled(Q)[0].sum().backward()
    assert net.scale.grad is not None


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("# (b, e, n)", "# (b, n, e)", r"code.py:24: the comment says \(b, n, e\)"),
        (
            "x: (b, n, e)",
            "x: (b, e, n)",
            r"code.py:20: .* with b = 2, n = 6, e = 3, but the shape is \(2, 3, 12\)",
        ),
        ("# (b, n, h, d)", "# (b, h, n, d)", r"code.py:31: .* with b = 2, h = 2, .*\(2, 3, 2, 3"),
        ("# (b, n, e), (b, n, e)", "# (b, n, 7)", r"code.py:21: .* of value 1 is \(2, 3, 6\)"),
    ],
)
def test_wrong_comment_in_compiled_code_is_caught(code, right, wrong, message, dynamic):
    torch.compiler.reset()
    module = code(MODULE.replace(right, wrong))
    compiled = torch.compile(module["Net"](6), fullgraph=True, backend="eager", dynamic=dynamic)
    with pytest.raises(Exception, match=message):
        compiled(Q)
    assert module.checker.mismatches


def test_compiled_run_reaches_comments(code):
    torch.compiler.reset()
    module = code(MODULE)
    torch.compile(module["Net"](6), fullgraph=True, backend="eager")(Q)
    assert module.checker.unreached() == []


@pytest.mark.parametrize("strict", [False, True])
def test_export_stays_dynamic_and_adds_nothing_to_the_graph(code, strict):
    torch.compiler.reset()
    plain = {"nn": nn, "torch": torch, "__name__": "plain"}
    exec(MODULE, plain)
    module = code(MODULE)
    sizes = []
    for names in (plain, module.names):
        names["Net"].forward.__annotations__.clear()
        net = names["Net"](6)
        axes = {"x": {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", min=2)}}
        program = torch.export.export(Only(net), (Q,), dynamic_shapes=axes, strict=strict)
        sizes.append(len(program.graph.nodes))
        assert program.module()(torch.randn(7, 9, 6)).shape == (7, 6, 9)
    assert sizes[0] == sizes[1]


class Only(nn.Module):
    """The tensor alone, of what a module returns."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        """Return the first of the outputs."""
        return self.net(x)[0]


def test_vmap_and_autograd_work(code):
    module = code("def f(x):\n    y = x * 2  # (n, d)\n    return y.sum()  # ()\n")
    assert torch.vmap(module["f"])(Q).shape == (2,)
    grad = torch.func.grad(module["f"])(Q[0])
    torch.testing.assert_close(grad, torch.full((3, 6), 2.0))


# --- The import hook ------------------------------------------------------------------------

names = (f"planted_{i}" for i in itertools.count())


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a package of two modules, of which the second is wrong, with the hook in place."""
    name = next(names)
    folder = tmp_path / "src" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"from {name}.right import f\n")
    (folder / "right.py").write_text("def f(x):\n    return x + 0  # (n, d)\n")
    (folder / "wrong.py").write_text("def g(x):\n    return x + 0  # (n,)\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(folder.parent)
    checker = shapes.install_import_hook(name, tmp_path)
    yield SimpleNamespace(name=name, folder=folder, checker=checker)
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def test_hook_checks_every_module_and_leaves_no_bytecode(package):
    right = importlib.import_module(package.name)
    assert right.f(Q[0]).shape == (3, 6)
    wrong = importlib.import_module(f"{package.name}.wrong")
    with pytest.raises(
        ShapeCommentError, match=rf"src/{package.name}/wrong.py:2: the comment says"
    ):
        wrong.g(Q)
    assert list(package.folder.rglob("*.pyc")) == []
    assert inspect.getsource(right.f) == "def f(x):\n    return x + 0  # (n, d)\n"


def test_module_never_imported_counts_as_unreached(package):
    importlib.import_module(package.name)
    where = f"src/{package.name}"
    says = "no run reaches this shape comment: return x + 0"
    assert package.checker.unreached() == [
        f"{where}/right.py:2: {says}  # (n, d)",
        f"{where}/wrong.py:2: {says}  # (n,)",
    ]


def test_hook_after_the_import_is_refused(package):
    importlib.import_module(package.name)
    with pytest.raises(RuntimeError, match="was imported before"):
        shapes.install_import_hook(package.name)


# --- The test session -----------------------------------------------------------------------

PROJECT = {
    "pyproject.toml": """
        [tool.pytest.ini_options]
        testpaths = ["tests"]
        addopts = "--import-mode=importlib -p no:cacheprovider"
        pythonpath = ["src"]
        """,
    "src/annotated_attention/__init__.py": """
        def f(x, wide=False):
            if wide:
                return x[..., None]  # (n, d, 1)
            return x + 0  # (n, d)
        """,
    "tests/test_f.py": """
        import torch
        from annotated_attention import f

        def test_f():
            assert f(torch.ones(3, 6)).shape == (3, 6)
        """,
}
SWALLOWING = """
    import torch
    from annotated_attention import f

    def test_swallowed():
        try:
            f(torch.ones(3))
        except AssertionError:
            pass
    """
REACHING = """
    import torch
    from annotated_attention import f

    def test_wide():
        assert f(torch.ones(3, 6), wide=True).dim() == 3
    """
FILE = "src/annotated_attention/__init__.py"
SAYS = f"{FILE}:4: no run reaches this shape comment: return x[..., None]  # (n, d, 1)"
SWALLOWED = f"{FILE}:5: the comment says (n, d), but the shape is (3,)"


@pytest.fixture
def session(pytester, monkeypatch):
    """Run pytest on a small project whose conftest is this one's."""
    conftest = (Path(__file__).parents[1] / "conftest.py").read_text()
    for name in [name for name in sys.modules if name.split(".")[0] == "annotated_attention"]:
        monkeypatch.delitem(sys.modules, name)
    others = [finder for finder in sys.meta_path if not isinstance(finder, shapes._Finder)]
    monkeypatch.setattr(sys, "meta_path", others)

    def run(*arguments, **tests):
        for name, text in {**PROJECT, **{f"tests/{x}.py": tests[x] for x in tests}}.items():
            path = pytester.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        (pytester.path / "tests" / "conftest.py").write_text(conftest)
        done = pytester.runpytest_inprocess(*arguments)
        return done.ret, done.stdout.str() + done.stderr.str()

    return run


@pytest.mark.parametrize("arguments", [[], ["."], ["tests"]])
def test_full_run_fails_over_an_unreached_comment(session, arguments):
    status, output = session(*arguments)
    assert "1 passed" in output
    assert SAYS in output
    assert "__init__.py:5" not in output
    assert status == 1


@pytest.mark.parametrize(
    "arguments",
    [["-k", "test_"], ["tests/test_f.py"], ["--deselect", "tests/test_none.py"], ["--co"]],
)
def test_partial_run_says_nothing_about_unreached_comments(session, arguments):
    status, output = session(*arguments)
    assert "shape comments" not in output
    assert status == 0


def test_run_that_a_plugin_cuts_short_is_partial(session):
    hook = "def pytest_collection_modifyitems(config, items):\n"
    _, output = session(
        **{"sub/conftest": hook + "    config.hook.pytest_deselected(items=[items.pop()])\n"},
        **{"sub/test_g": REACHING},
    )
    assert "1 deselected" in output
    assert "shape comments" not in output


def test_failing_run_says_nothing_about_unreached_comments(session):
    status, output = session(test_g="def test_g():\n    assert 0\n")
    assert "1 failed, 1 passed" in output
    assert "shape comments" not in output
    assert status == 1


def test_full_run_passes_where_all_is_reached(session):
    status, output = session(test_wide=REACHING)
    assert "2 passed" in output
    assert "shape comments" not in output
    assert status == 0


@pytest.mark.parametrize("arguments", [[], ["-k", "swallowed"]])
def test_swallowed_mismatch_fails_any_run(session, arguments):
    status, output = session(*arguments, test_g=SWALLOWING)
    assert "failed" not in output
    assert SWALLOWED in output
    assert status == 1


def test_workers_say_what_they_saw(session):
    pytest.importorskip("xdist")
    status, output = session("-n", "1", "-p", "xdist", test_g=SWALLOWING)
    assert "2 passed" in output
    assert SAYS in output
    assert SWALLOWED in output
    assert "__init__.py:5: no run" not in output
    assert status == 1


# --- Chapters -------------------------------------------------------------------------------


@pytest.fixture
def shell(monkeypatch):
    """Start an IPython shell that leaves nothing behind."""
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setattr(HistoryManager, "enabled", False)
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)
    shell = InteractiveShell()
    shell.displays = []
    monkeypatch.setattr(
        type(shell.displayhook), "__call__", lambda self, x: shell.displays.append(x)
    )
    return shell


CHAPTER = [
    ("import torch\nx = torch.ones(3, 6)  # (n, d)", 1, False),
    ("%precision 3\n\nx = x + 0  # (n, d)\nx.shape", 1, False),
    ("y = torch.zeros(1)  # (n, n, n)", 1, True),
    ("x = torch.ones(5, 7)  # (n, d)\nx += 1  # (n, d)", 2, False),
    ("def f(x):\n    return x + 0  # (n, d)\n\nf(x)[:2]  # (2, d)", 2, False),
    ("def never(x):\n    return x  # (n, d)", 2, False),
    ("f(torch.ones(4, 4));", 2, False),
]


def chapter(cells):
    """Number the lines as a file would in which each cell has a marker line above."""
    line, made = 1, []
    for source, section, exempt in cells:
        made.append({"source": source, "line": line + 1, "section": section, "exempt": exempt})
        line += source.count("\n") + 2
    return made


def run(shell, cells):
    """Run cells the way an executor does, with hidden code between them."""
    results = []
    for source, *_ in cells:
        shell.run_cell("hidden = 1  # (n, d)", store_history=False, silent=True)
        results.append(shell.run_cell(source, store_history=True))
        shell.run_cell("hidden = 1  # (n, d)", store_history=False)
    return results


def test_chapter_is_checked_and_unreached_comments_are_reported(shell, tmp_path):
    shapes.install_in_kernel(shell, chapter(CHAPTER), "notebooks/01_one_head.py", tmp_path)
    for result in run(shell, CHAPTER):
        result.raise_error()
    assert shapes.unreached_report() == [
        "notebooks/01_one_head.py:21: no run reaches this shape comment: return x  # (n, d)"
    ]
    # Only what each cell evaluates is shown; a check behind `x += 1` adds nothing.
    assert [tuple(x.shape) for x in shell.displays if hasattr(x, "shape")] == [(2, 7), (4, 4)]


def test_chapter_mismatch_surfaces_in_its_cell(shell, tmp_path, capsys):
    cells = [*CHAPTER[:4], ("z = x * 2  # (d, n)", 2, False)]
    shapes.install_in_kernel(shell, chapter(cells), "notebooks/01_one_head.py", tmp_path)
    *_, last = run(shell, cells)
    with pytest.raises(ShapeCommentError) as caught:
        last.raise_error()
    assert str(caught.value).startswith(
        "notebooks/01_one_head.py:15: the comment says (d, n) with d = 7, n = 5, "
        "but the shape is (5, 7)\n    z = x * 2  # (d, n)\n    d is bound in line 12"
    )
    assert "ShapeCommentError" in capsys.readouterr().out


def test_chapter_letter_binds_once_per_section(shell, tmp_path):
    cells = [CHAPTER[0], ("x = torch.ones(5, 7)  # (n, d)", 1, False)]
    shapes.install_in_kernel(shell, chapter(cells), "notebooks/01_one_head.py", tmp_path)
    with pytest.raises(ShapeCommentError, match=r"01_one_head.py:5: .* n = 3, d = 6, .* is .5, 7"):
        run(shell, cells)[1].raise_error()


def test_chapter_variables_count(shell, tmp_path):
    cells = [("import torch\nn = 4\nx = torch.ones(3, 6)  # (n, d)", 1, False)]
    shapes.install_in_kernel(shell, chapter(cells), "notebooks/01_one_head.py", tmp_path)
    with pytest.raises(ShapeCommentError, match=r"01_one_head.py:4: .* n = 4.*\n.*\n    n is a v"):
        run(shell, cells)[0].raise_error()


def test_chapter_cells_that_run_out_of_order_stay_unreached(shell, tmp_path):
    cells = [("x = 1", 1, False), *CHAPTER[:1]]
    shapes.install_in_kernel(shell, chapter(cells), "notebooks/01_one_head.py", tmp_path)
    shell.run_cell(CHAPTER[0][0], store_history=True).raise_error()
    assert len(shapes.unreached_report()) == 1


def test_malformed_comment_in_a_chapter_is_refused_before_it_runs(shell, tmp_path):
    cells = chapter([("x = 1", 1, False), ("\ny = 2\n# (n, d)", 1, False)])
    with pytest.raises(ShapeCommentError, match=r"^notebooks/01_one_head\.py:6: this shape"):
        shapes.install_in_kernel(shell, cells, "notebooks/01_one_head.py", tmp_path)

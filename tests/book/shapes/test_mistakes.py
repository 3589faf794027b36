"""What is false, or cannot be checked, is caught, and the message says where and why."""

import pytest
import torch

from book.shapes import ShapeCommentError

B, N, M, H, D = 2, 3, 5, 4, 6
Q, K = torch.randn(B, N, D), torch.randn(B, M, D)
WIDE = torch.randn(B, N, H * D)

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
    "two wrong arguments": (
        """
        def f(q, k):
            '''Copy.

            Args:
                q: (n, d), one row per query.
                k: (m, d), one row per key.
            '''
            return q.clone()
        """,
        (Q, K),
        "code.py:6: the docstring says (n, d), but the shape is (2, 3, 6)",
    ),
    "a wrong argument, and then one that fits": (
        """
        def f(q, k):
            '''Copy.

            Args:
                q: (n, d), one row per query.
                k: (b, m, d), one row per key.
            '''
            return q.clone()
        """,
        (Q, K),
        "code.py:6: the docstring says (n, d), but the shape is (2, 3, 6)",
    ),
    "a wrong argument, and then a wrong value": (
        """
        def f(x):
            '''Copy.

            Args:
                x: (b, n), one row per token.
            '''
            return x + 0  # (b, n, 7)
        """,
        (Q,),
        "code.py:6: the docstring says (b, n), but the shape is (2, 3, 6)",
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
    "a product with nothing": (
        """
        def f(x, h):
            return x + 0  # (b, n, h * d)
        """,
        (WIDE, 0),
        "code.py:3: the comment says (b, n, h * d) with b = 2, n = 3, h = 0, "
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

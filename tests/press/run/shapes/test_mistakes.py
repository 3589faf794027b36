"""What is false, or cannot be checked, is caught, and the message says where and why."""

import pytest
import torch

from shape_comments.comments import ShapeCommentError

Q, K, WIDE = torch.randn(2, 3, 6), torch.randn(2, 5, 6), torch.randn(2, 3, 24)
HEAD = "def f(q, k=None, h=4):\n"
SCORE = """def f(q, k):
    '''Score.

    Args:
        q: (b, n, d), one row per query.
        k: (b, m, d), one row per key.
    '''
"""


def said(code, source, *arguments):
    """Call f twice, the second time with what is known of the first; give what is said."""
    module = code(source)
    for _ in range(2):
        with pytest.raises(ShapeCommentError) as caught:
            module["f"](*arguments)
    assert module.said() == [str(caught.value)]
    return str(caught.value)


def test_a_message_says_all_that_is_known(code):
    wrong = "    scores = q @ k.mT  # (b, n, d) x (b, d, m) -> (b, n, n)"
    assert said(code, SCORE + wrong, Q, K) == (
        "code.py:8: the comment says (b, n, n) with b = 2, n = 3, but the shape is (2, 3, 5)\n"
        f"{wrong}\n    b is bound in line 5\n    n is bound in line 5"
    )
    wrong = SCORE.replace("q: (b, n, d)", "q: (b, d, 3)") + "    n = 5\n    return k.clone()"
    assert said(code, wrong, Q, K) == (
        "code.py:5: the docstring says (b, d, 3) with b = 2, d = 3, but the shape is (2, 3, 6)\n"
        "    q: (b, d, 3), one row per query.\n    b is bound in line 5\n    d is bound in line 5"
    )


# The lines of a function, what it is called with, and what is said of which line.
PLANTED = {
    "an argument, then one that fits and a wrong value": (
        [SCORE.replace("q: (b, n, d)", "q: (n, d)"), "return q + 0  # (b, n, 7)"],
        (Q, K),
        5,
        "the docstring says (n, d), but the shape is (2, 3, 6)",
    ),
    "a product that no longer holds": (
        ["y = q + 0  # (b, n, i * d)", "i = 3", "y.view(2, 3, 4, 6)[:, :, :3]  # (b, n, i, d)"],
        (WIDE,),
        4,
        "the comment says (b, n, i, d) with b = 2, n = 3, i = 3, d = 6, but the shape "
        "is (2, 3, 3, 6), and i * d was 24 in line 2",
    ),
    "a product whose factors come later": (
        ["y = q + 0  # (b, n, i * d)", "torch.ones(4)  # (i,)", "return torch.ones(7)  # (d,)"],
        (WIDE,),
        4,
        "the comment says (d,) with d = 6, but the shape is (7,)",
    ),
    "a product before its factors": (
        ["return torch.ones(23, 4, 6)  # (i * d, i, d)"],
        (Q,),
        2,
        "the comment says (i * d, i, d) with i = 4, d = 6, but the shape is (23, 4, 6)",
    ),
    "a product that does not divide": (
        ["h = 7", "return q + 0  # (b, n, h * d)"],
        (WIDE,),
        3,
        "the comment says (b, n, h * d) with b = 2, n = 3, h = 7, but the shape is (2, 3, 24), "
        "and h * d cannot be 24",
    ),
    "a product with nothing": (
        ["h = 0", "return q + 0  # (n, h * d)"],
        (WIDE[0],),
        3,
        "the comment says (n, h * d) with n = 3, h = 0, but the shape is (3, 24), and h * d can",
    ),
    "a letter whose variable says otherwise": (
        ["a = q + 0  # (b, n, d)", "n = 5", "return k + 0  # (b, n, d)"],
        (Q, K),
        4,
        "n is used with two values: 3 since line 2, and 5, the value of the variable n\n",
    ),
    "a tuple assignment": (
        ["a, c = q * 2, k * 2  # (b, n, d), (b, n, d)"],
        (Q, K),
        2,
        "the comment says (b, n, d) with b = 2, n = 3, d = 6, but the shape of value 2 is (2, 5",
    ),
    "an unpacking": (
        ["a, c = q  # (d, n)", "return a, c  # (n, 7)"],
        (Q,),
        3,
        "the comment says (n, 7) with n = 6, but the shape of value 1 is (3, 6)",
    ),
    "too few axes behind the dots": (
        ["return q[0, 0]  # (..., n, d)"],
        (Q,),
        2,
        "the comment says (..., n, d), but the shape is (6,)",
    ),
    "no shape": (
        ["return q, None  # (b, n, d)"],
        (Q,),
        2,
        "the comment says (b, n, d), but the value of value 2 has no shape, it is a NoneType",
    ),
    "nothing at all": (["heads = []  # (b, n)"], (Q,), 2, "the value is empty"),
    "two shapes for one value": (
        ["return q + 0  # (b, n, d), (b, m, d)"],
        (Q,),
        2,
        "the comment has 2 shapes for one value",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistake_is_caught(code, name):
    (first, *lines), arguments, line, message = PLANTED[name]
    head = first if first.startswith("def") else f"{HEAD}    {first}\n"
    source = head + "".join(f"    {text}\n" for text in lines)
    assert said(code, source, *arguments).startswith(f"code.py:{line}: {message}")


STANDS_WRONG = "this shape comment stands where no value is"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n# (n, d)\ny = 2\n", f"2: {STANDS_WRONG}"),
        ("x = max(\n    1,  # (n, d)\n    2,\n)\n", f"2: {STANDS_WRONG}"),
        ("x: int  # (n, d)\n", f"1: {STANDS_WRONG}"),
        ("x = [1]\nx[0] += 1  # (n, d)\n", f"2: {STANDS_WRONG}"),
        ('"""Text."""  # (n, d)\n', f"1: {STANDS_WRONG}"),
        ("class A:\n    '''A.\n\n    Args:\n        x: (n, d).\n    '''", f"5: {STANDS_WRONG}"),
        ("a, *b = f()  # (n, d)", "1: a nested or starred target"),
        ("a, b = f()  # (n, d), (n, d), (n, d)", "1: the comment has 3 shapes for 2 targets"),
        (
            "def f(x):\n    '''F.\n\n    Args:\n        y: (n, d).\n    '''",
            "5: f has no argument y",
        ),
    ],
)
def test_comment_that_cannot_be_checked_is_refused(code, source, message):
    with pytest.raises(ShapeCommentError, match=f"^code.py:{message}"):
        code(source)

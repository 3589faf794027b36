"""What is right passes and works as before.

Compiled, exported, traced or under vmap, the tests of the packages run it.
"""

import inspect

import pytest
import torch

from shape_comments.comments import ShapeCommentError

Q, K = torch.randn(2, 3, 6), torch.randn(2, 5, 6)


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
            wide = torch.ones(WIDTH, 5)  # (WIDTH, e)
            parts = [q, k]  # (n, d)
            torch.ones(2 * h + 1)  # (2 * h + 1,)
            whole = r, s = torch.ones(2, 6)  # (2, d)
            a = 1; u = q  # (n, d)
            match h:
                case 4: u = k  # (n, d)
            for w in (2, 3):
                torch.ones(w)  # (w,)
            # One head (h) at a time.
            if h: return y.transpose(-3, -2), wide  # (b, h, n, d), (24, e)
        """
    )
    for n in (3, 5):
        out, _ = module["f"](torch.randn(2, n, 24), 4)
        assert out.shape == (2, 4, n, 6)
    assert module.checker.unreached() == []


def test_a_letter_is_a_variable_where_the_code_uses_it(code):
    module = code(
        """
        n, d = 9, 6
        def free(x): return x + 0  # (b, n, d)
        def used(x):
            return x + 0 * d  # (b, n, d)
        def unset(x):
            y = x + 1  # (n, m)
            n, _ = x.shape
            return y.reshape(n, -1)  # (n, m)
        def outer(x, n):
            def inner():
                return x[:n]  # (n, m)
            return inner()
        """
    )
    assert module["free"](K).shape == module["used"](K).shape == K.shape
    assert module["unset"](K[0]).shape == K[0].shape
    assert module["outer"](K[0], 3).shape == (3, 6)
    with pytest.raises(ShapeCommentError, match="n = 9"):
        module["outer"](K[0], 9)
    module.names["d"] = 7
    assert module["free"](K).shape == K.shape
    with pytest.raises(ShapeCommentError, match=r"d = 7, .*\n.*\n.*\n.*\n    d is a variable"):
        module["used"](K)
    module.names["d"] = True  # no size
    assert module["used"](K).shape == K.shape


def test_calls_do_not_share_letters(code):
    module = code(
        """
        def f(x, deep):
            y = x[1:] + 0  # (n, d)
            if deep and len(y):
                f(y, deep)
            return y + 0  # (n, d)
        def many(x):
            for i in range(2):
                x = x + 0  # (n, d)
                yield x
        """
    )
    assert module["f"](torch.ones(5, 6), True).shape == (4, 6)
    both = zip(module["many"](Q[0]), module["many"](K[0]), strict=True)
    assert [(len(a), len(b)) for a, b in both] == [(3, 5), (3, 5)]


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
    assert [len(c.claim.shapes) for c in module.checker.comments] == [1, 2]
    assert all(module["f"](Q, mask).shape == Q.shape for mask in (None, Q, Q[0]))
    with pytest.raises(ShapeCommentError, match=r"code.py:7: the docstring says \(n, d\)"):
        module["f"](Q, Q[0, 0])


@pytest.mark.parametrize("refuses", [True, False])
def test_a_wrong_argument_counts_once_the_function_has_accepted_it(code, refuses):
    module = code(
        f"""
        def f(x):
            '''Refuse, or just end.

            Args:
                x: (b, n, d), one row per token.
            '''
            if x.dim() != 3 and {refuses}:
                raise ValueError("three axes")
            x.sum()
        """
    )
    module["f"](Q)
    with pytest.raises(ValueError if refuses else ShapeCommentError):
        module["f"](Q[0])
    assert len(module.said()) == (not refuses)


def test_function_that_is_left_to_others_has_no_call_to_reach(code):
    ends = {"f": "raise NotImplementedError", "g": "pass", "h": "return None"}
    module = code(
        "".join(
            f"def {name}(x):\n    '''Do.\n\n    Args:\n        x: (n, d).\n    '''\n    {end}\n"
            for name, end in ends.items()
        )
    )
    assert [comment.line for comment in module.checker.comments] == [19]


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
            y += note(1)
            return note(y)  # (b, n, d)
        """
    )
    y = Q.clone()
    assert module["f"](y) is y
    assert len(module["seen"]) == 6
    assert inspect.getsource(module["note"]).startswith("def note(x):\n")

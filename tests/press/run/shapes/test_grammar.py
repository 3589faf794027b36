"""What the grammar of shape comments takes, and what it refuses."""

import pytest

from press.run.shapes import read_comment as parse_comment
from shape_comments import grammar


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
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
    parsed = parse_comment(comment)
    assert (parsed and [grammar.show(shape) for shape in parsed[0].shapes]) == (expected or [])


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("# (n)", r"write \(n,\)"),
        ("# (h * d)", r"write \(h \* d,\)"),
        ("# (n, d) (see chapter 4)", "no other parentheses"),
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

"""What is read as a shape, what is prose, and what is not clear."""

import re

import pytest

from shape_comments.comments import find_comments
from shape_comments.grammar import read_comment, show

# The comment, and the shapes that it claims: of the line's value, or by the name of a variable.
READ = [
    ("(B, T, C)", ["(B, T, C)"]),
    ("[batch_size, n, 3 * d]", ["(batch_size, n, 3 * d)"]),
    ("[B]", ["(B,)"]),
    ("(n,) one per token", ["(n,)"]),
    ("a scalar: ()", ["()"]),
    ("B x T x 2C", ["(B, T, 2C)"]),
    ("[B x N x (H*W)]", ["(B, N, (H*W))"]),
    ("BxNx3", ["(B, N, 3)"]),
    ("2 × N × (H * W)", ["(2, N, (H * W))"]),
    ("B, T, C // 8", ["(B, T, C // 8)"]),
    ("bs, n, ...", ["(bs, n, ...)"]),
    ("(*, -1, ?, T')", ["(..., ?, ?, T')"]),
    ("(3, 224, 224)", ["(3, 224, 224)"]),
    ("(cfg.width, grid ** 2)", ["(cfg.width, grid ** 2)"]),
    ("(B, T) x (T, C) -> (B, C), by einsum", ["(B, C)"]),
    ("moved -> B, C, T", ["(B, C, T)"]),
    ("output shape: (B, T).", ["(B, T)"]),
    ("token embeddings of shape (b, t, n_embd)", ["(b, t, n_embd)"]),
    ("(B, T), (B, S)", ["(B, T)", "(B, S)"]),
    ("(B, T) or (T,)", ["(B, T) | (T,)"]),
    ("x: (B, T), y: (T,)", ["x: (B, T)", "y: (T,)"]),
    ("x.shape = [B, T]", ["x: (B, T)"]),
    ("z: [bs x nvars x d_model]", ["z: (bs, nvars, d_model)"]),
]
PROSE = [
    "TODO",
    "one head (h) at a time",
    "the weights (Vaswani et al., 2017)",
    "see f(x, y), q[i, j], [1, 2, 3] and [CLS]",
    "first, second and third",
    "the point (x, y)",
    "a box [x1, y1, x2, y2]",
    "(cx, cy, w, h)",
    "(mean, std)",
    "in [0, 2*pi]",
    "from (-1, 1)",
    "3x3, then a ReLU",
    "Hello, World",
    "sizes of all that is called (height, width) here",
]
UNCLEAR = {
    "(B, T or so)": "(B, T or so) is no shape: T or so is no axis",
    "(..., B, ...)": "has ... more than once",
    "(B, T) @ (T, C)": "it is a formula",
    "(B, T) * 2": "it is a formula",
    "(BxN - Bx1)/Bx1 -> BxN or (N,)": "it does not say what this line always gives",
    "(B, T) if it is batched": "it does not say what this line always gives",
    "TODO: (B, T)": "it does not say what this line always gives",
    "was (B, T)": "it does not say what this line always gives",
    "this is no longer what it was with (B, T) here": "it stands in a sentence",
    "(B, T) for one and (T,) for the other": "it has several shapes",
}


@pytest.mark.parametrize("comment", dict(READ))
def test_shape_is_read(comment):
    claims = read_comment(f"# {comment}")
    said = [x.name + ": " * bool(x.name) + " | ".join(map(show, x.shapes)) for x in claims]
    if not claims[0].name and not claims[0].either:
        said = [show(shape) for shape in claims[0].shapes]
    assert said == dict(READ)[comment]


@pytest.mark.parametrize("comment", PROSE)
def test_prose_is_none(comment):
    assert read_comment(f"# {comment}") == []


@pytest.mark.parametrize("comment", UNCLEAR)
def test_what_is_not_clear_is_said(comment):
    with pytest.raises(ValueError, match=re.escape(UNCLEAR[comment])):
        read_comment(f"# {comment}")


def test_of_a_line_of_its_own_nothing_but_shapes_is_read():
    assert read_comment("# x: (B, T)", whole=True)
    assert read_comment("# (B, T) -> (T, B)", whole=True)
    for comment in ("now (B, T)", "(B, T), as before", "moved -> (B, T)"):
        assert read_comment(f"# {comment}", whole=True) == []


def test_what_stands_in_a_string_is_no_comment():
    source = '''
x = "# (b, n)" + '# (b, n)'  # (b, n) of 'both
y = f"""
  {x}  # (b, n)
  # (n,) \\\\""" # (n,) "
# (b, n)
'''
    places = find_comments(source, read_comment, "")
    assert [(x.line, show(x.claim.shapes[0])) for x in places] == [(2, "(b, n)"), (5, "(n,)")]

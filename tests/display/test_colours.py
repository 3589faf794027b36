"""Dimension letters get their colour inside shapes, the same as in figures."""

import re
from importlib import resources

import pytest

from annotated_attention.display import COLOURS
from annotated_attention.display.colours import colour_shapes


@pytest.mark.parametrize(
    "shape",
    [
        "([b], [n], [d])",
        "(..., [n], [h] * [d])",
        "(…, [n], [h]·[d])",
        "(2, [n], e, d_v, n_q)",
        "([d],)",
        "([n],[m])",
        "([b], [n]) x (3, [d]) -&gt; ([b], [n], [d]), ([n], [m])",
        "read (see ([n], [m])) again",
    ],
)
def test_letters_in_shapes(shape):
    """Every spelling of a shape that the chapters use, in each of the three places."""
    for start, end in (
        ('<span class="c1"># ', "</span>"),
        ('<span class="sd">    x: ', ".</span>"),
        ("<code>", "</code>"),
    ):
        coloured = re.sub(r"\[([bnmhd])\]", r'<b class="dim dim-\1">\1</b>', shape)
        once = colour_shapes(start + re.sub(r"[\[\]]", "", shape) + end)
        assert once == start + coloured + end
        assert colour_shapes(once) == once


COMMENTS = [
    "(no mask)", "(n)", "(a) and (b)", "(n, see above)", "(n; m)", "(n + 1, d)", "(,)", "f(n, m)",
    "x[0](n, m)", "n, m", "(n, m", "(dim, head, nm, N, d_v)",
]  # fmt: skip


@pytest.mark.parametrize(
    "html",
    [
        *(f'<span class="c1"># {text}</span>' for text in COMMENTS),
        '<span class="s2">&quot;(b, n, d)&quot;</span>',
        "<p>between (n, m) and here</p>",
        "<pre><code>(n, m)</code></pre>",
        '<code><span class="n">f</span>(n, m)</code>',
    ],
)
def test_everything_else_stays(html):
    assert colour_shapes(html) == html


def test_figures_have_the_colours_of_the_stylesheet():
    css = resources.files("annotated_attention.display").joinpath("display.css").read_text()
    light = css[: css.index("}")]  # the first of its blocks; a browser measures the contrasts
    assert dict(re.findall(r"--aa-([bnmhd]): (#\w{6});", light)) == COLOURS

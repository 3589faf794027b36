"""Dimension letters get their colour inside shapes, and every colour can be read."""

import re
from importlib import resources

import pytest

from annotated_book.display import COLOURS
from annotated_book.display.colours import colour_shapes


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
    "(no mask)",
    "(n)",
    "(a) and (b)",
    "(n, see above)",
    "(n; m)",
    "(n + 1, d)",
    "(,)",
    "f(n, m)",
    "x[0](n, m)",
    "n, m",
    "(n, m",
    "(dim, head, nm, N, d_v)",
]


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


PAGES = {"light": ["#ffffff", "#f5f5f5"], "dark": ["#111111", "#212121", "#1e2129", "#272a35"]}


CSS = resources.files("annotated_book.display").joinpath("display.css").read_text()
BLOCKS = re.findall(r"\{([^{}]*--aa-b:[^{}]*)\}", CSS)[:2]
SCHEMES = [dict(re.findall(r"--aa-([\w-]+): (#\w{6});", block)) for block in BLOCKS]


def luminance(colour):
    """Return the relative luminance of #rrggbb as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(
    ("colours", "pages"), [*zip(SCHEMES, PAGES.values(), strict=True)], ids=PAGES
)
def test_text_is_readable_on_the_page_and_on_changed_lines(colours, pages):
    """Every text colour against every background it can meet: axe passes over single letters."""
    for text in [x for x in colours if not x.startswith(("add", "del"))]:
        for ground in [*pages, colours["add"], colours["del"]]:
            dark, light = sorted(map(luminance, (colours[text], ground)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


def test_figures_have_the_colours_of_the_stylesheet():
    assert {letter: SCHEMES[0][letter] for letter in "bnmhd"} == COLOURS

"""Dimension letters get their colour inside shapes, and nothing else changes."""

import re
from importlib import resources

import pytest

from annotated_attention.display import colour_shapes


def dims(text: str) -> str:
    """Write what colouring should give: [n] stands for the element around n."""
    return re.sub(r"\[([bnmhd])\]", r'<b class="dim dim-\1">\1</b>', text)


@pytest.mark.parametrize(
    "shape",
    [
        "([b], [n], [d])",
        "([b], [h], [n], [m])",
        "(..., [n], [h] * [d])",
        "(…, [n], [h]·[d])",
        "(2, [n], e, d_v, n_q)",
        "([d],)",
        "([n],[m])",
        "( [n], 4 * [d] )",
        "([b], [n]) x (3, [d]) -&gt; ([b], [n], [d]), ([n], [m])",
        "read (see ([n], [m])) again",
    ],
)
def test_letters_in_shapes(shape: str) -> None:
    """Every spelling of a shape that the chapters use, in each of the three places."""
    for start, end in (
        ('<span class="c1"># ', "</span>"),
        ('<span class="sd">    x: ', ".</span>"),
        ("<code>", "</code>"),
    ):
        plain = start + re.sub(r"[\[\]]", "", shape) + end
        assert colour_shapes(plain) == start + dims(shape) + end


@pytest.mark.parametrize(
    "text",
    [
        "(no mask)",
        "(n)",
        "(a) and (b)",
        "(n, see above)",
        "(n; m)",
        "(n + 1, d)",
        "()",
        "(,)",
        "f(n, m)",
        "x[0](n, m)",
        "n, m",
        "[n, m]",
        "(n, m",
        "(dim, head, nm, N, d_v)",
    ],
)
def test_everything_else_in_a_comment_stays(text: str) -> None:
    """Asides, calls and other names are no shapes with letters of ours."""
    html = f'<span class="c1"># {text}</span>'
    assert colour_shapes(html) == html


@pytest.mark.parametrize(
    "html",
    [
        '<span class="s2">&quot;(b, n, d)&quot;</span>',
        '<span class="p">(</span><span class="n">b</span>(n, m)<span class="p">)</span>',
        "<p>between (n, m) and here</p>",
        '<span class="c">(n, m)</span>',
        "<pre><code>(n, m)</code></pre>",
        "<pre><span></span><code>(n, m)</code></pre>",
        '<code><span class="n">f</span>(n, m)</code>',
    ],
)
def test_other_places_stay(html: str) -> None:
    """Strings, code, prose and blocks are not looked into."""
    assert colour_shapes(html) == html


def test_colouring_twice_changes_nothing() -> None:
    """The site colours blocks that source() has coloured already."""
    html = '<span class="c1"># (b, n) x (n, d)</span> <code>(b, n)</code>'
    once = colour_shapes(html)
    assert once.count("<b ") == 6
    assert colour_shapes(once) == once


# What the letters and the code are read on, and the least contrast that is readable (WCAG AA).
LIGHT_PAGES = ["#ffffff", "#f5f5f5"]
DARK_PAGES = ["#111111", "#212121", "#1e2129", "#272a35"]
READABLE = 4.5


def schemes() -> list[dict[str, str]]:
    """Read the colours of the light and of the dark scheme from the stylesheet."""
    css = resources.files("annotated_attention.display").joinpath("display.css").read_text()
    blocks = re.findall(r"([^{}]*)\{([^{}]*--aa-b:[^{}]*)\}", css)
    assert [re.sub(r"/\*.*?\*/|\s", "", selector) for selector, _ in blocks] == [
        ":root",
        '[data-md-color-scheme="slate"],body[data-jp-theme-light="false"]',
        '&:is(path[style*="fill:var"],.aa-weight)',  # areas of colour, which are not for reading
    ]
    return [dict(re.findall(r"--aa-([\w-]+): (#\w{6});", block)) for _, block in blocks[:2]]


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_the_known_one() -> None:
    """The measure itself, at its two ends and at a published value."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == 1
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_the_letters_have_the_colours_of_the_notation() -> None:
    """Figures and the notation table use the same five."""
    light, dark = schemes()
    assert [light[x] for x in "bnmhd"] == ["#5b6470", "#0067a5", "#007a5a", "#b34700", "#8a3f8f"]
    assert [dark[x] for x in "bnmhd"] == ["#a6b0bd", "#6db7f0", "#4ccfa4", "#ff9a57", "#d79be0"]


@pytest.mark.parametrize(("scheme", "pages"), [(0, LIGHT_PAGES), (1, DARK_PAGES)])
def test_text_is_readable_on_the_page_and_on_changed_lines(scheme: int, pages: list[str]) -> None:
    """Every text colour against every background it can meet, in both schemes."""
    colours = schemes()[scheme]
    backgrounds = [*pages, colours["add"], colours["del"]]
    texts = {"b", "n", "m", "h", "d", "text", "comment", "keyword", "string", "number", "name"}
    assert texts | {"add", "del", "add-edge", "del-edge"} == set(colours)
    low = {
        (text, page): round(contrast(colours[text], page), 2)
        for text in texts
        for page in backgrounds
        if contrast(colours[text], page) < READABLE
    }
    assert low == {}


def test_the_stylesheet_is_small_and_fetches_nothing() -> None:
    """It travels with every output of a notebook."""
    css = resources.files("annotated_attention.display").joinpath("display.css").read_text()
    assert len(css) < 6000
    assert not re.search(r"@import|url\(|</", css)
    for letter in "bnmhd":
        assert f".dim-{letter} {{ color: var(--aa-{letter}); }}" in css

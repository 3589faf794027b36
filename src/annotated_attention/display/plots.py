"""Figures drawn from live tensors, as SVG that follows the page's colours.

Matplotlib draws; this module makes the result fit to stand inside a page: the same bytes from
build to build, ids that no other figure has, text in the reader's font and colour, and the
colours of the dimensions as CSS variables.
"""

import io
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_attention.display._html import Output

# The letters' colours on a light page; display.css has those of a dark one under the same names.
COLOURS = {"b": "#5b6470", "n": "#0067a5", "m": "#007a5a", "h": "#b34700", "d": "#8a3f8f"}
FAINT = "#808080"  # grid lines and weights near zero, readable on both schemes
_STYLE: dict[Any, Any] = {
    "font.size": 12.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "annotated attention",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
}


def panels(
    width: float, height: float, columns: int = 1, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """Start a figure of panels, given row by row; sizes in CSS pixels.

    Examples:
        >>> from annotated_attention import display
        >>> drawing, axes = display.panels(360, 120, columns=2)
        >>> len(axes)
        2
    """
    with mpl.rc_context(_STYLE):
        drawing = Figure(figsize=(width / 72, height / 72), layout="constrained")
        axes = list(drawing.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.tick_params(labelcolor="black")
    return drawing, axes


def finish(drawing: Figure, *, name: str, alt: str, caption: str = "") -> Output:
    """Turn a matplotlib figure into one for the page.

    Args:
        drawing: a figure from ``panels``.
        name: unique in the book, letters and hyphens; the figure's anchor is ``#fig-<name>``.
        alt: what the figure shows, for those who do not see it.
        caption: HTML under the figure.

    Raises:
        ValueError: ``name`` is not made of letters, digits and hyphens, or ``alt`` is empty.

    Examples:
        >>> from annotated_attention import display
        >>> drawing, (axes,) = display.panels(360, 120)
        >>> line = axes.plot([0, 1, 4], color=display.COLOURS["n"])
        >>> display.finish(drawing, name="squares", alt="The squares of 0, 1 and 2.")
        Figure: The squares of 0, 1 and 2.
    """
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"name ({name!r}) must consist of a-z, 0-9 and hyphens")
    if not alt.strip():
        raise ValueError("alt must say what the figure shows")
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        drawing.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = _clean(buffer.getvalue(), name, alt)
    under = f"<figcaption>{caption}</figcaption>" if caption else ""
    html = f'<figure class="aa-figure" id="fig-{name}">{svg}{under}</figure>'
    return Output(f"Figure: {alt}", html)


def attention_map(
    weights: Tensor, queries: Sequence[str], keys: Sequence[str], *, name: str, caption: str = ""
) -> Output:
    """Draw one or several weight matrices as maps, a row per query and a column per key.

    Args:
        weights: (n, m), or (h, n, m) for one map per head.
        queries: n words.
        keys: m words.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure; a heading "head i" is added when there are several.

    Raises:
        ValueError: the words do not fit the weights.

    Examples:
        >>> import torch
        >>> from annotated_attention import display
        >>> weights = torch.tensor([[0.75, 0.25]])
        >>> display.attention_map(weights, ["it"], ["cat", "milk"], name="map")
        Figure: Attention weights, queries in rows and keys in columns. it looks at cat (0.75).
    """
    maps = weights.detach()
    maps = maps[None] if maps.dim() == 2 else maps
    h, n, m = maps.shape
    if (n, m) != (len(queries), len(keys)):
        raise ValueError(
            f"weights are {n} x {m}, but there are {len(queries)} queries and {len(keys)} keys"
        )
    slanted = max(map(len, keys)) > 5  # longer words would run into each other
    drawing, axes = panels((44 * m + 80) * h, 34 * n + (110 if slanted else 70), columns=h)
    for i, ax in enumerate(axes):
        title = f"head {i + 1}" if h > 1 else ""
        _draw_map(ax, maps[i], queries, keys, title, 40 if slanted else 0)
    strongest = [
        f"{'head ' + str(i + 1) + ': ' if h > 1 else ''}{query} looks at {keys[int(row.argmax())]}"
        f" ({row.max():.2f})"
        for i, weight_map in enumerate(maps)
        for query, row in zip(queries, weight_map, strict=True)
    ]
    alt = f"Attention weights, queries in rows and keys in columns. {'; '.join(strongest)}."
    return finish(drawing, name=name, alt=alt, caption=caption)


def _draw_map(
    ax: Axes,
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str,
    slant: int,
) -> None:
    n, m = weights.shape
    for i in range(n):
        for j in range(m):
            weight = float(weights[i, j])
            fill = to_rgba(COLOURS["n"], 0.6 * weight)
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor=FAINT, linewidth=0.4))
            shown = f"{weight:.2f}"[1:] if weight < 0.995 else f"{weight:.1f}"
            ax.text(j + 0.5, i + 0.5, shown, ha="center", va="center", fontsize=14)
    ax.set(xlim=(0, m), ylim=(n, 0), aspect="auto", title=title)
    ax.set_xticks([j + 0.5 for j in range(m)], keys, color=COLOURS["m"], fontsize=14)
    ax.set_yticks([i + 0.5 for i in range(n)], queries, color=COLOURS["n"], fontsize=14)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    if slant:
        for word in ax.get_xticklabels():
            word.set(rotation=slant, ha="left", rotation_mode="anchor")
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.set_xlabel("keys (m)", color=COLOURS["m"], fontsize=14)
    ax.set_ylabel("queries (n)", color=COLOURS["n"], fontsize=14)


def attention_lines(
    weights: Tensor, words: Sequence[str], query: int, *, name: str, caption: str = ""
) -> Output:
    """Draw attention within a sentence: a line per pair of words, as thick as the weight.

    Args:
        weights: (n, n).
        words: n words.
        query: the index of the word whose lines are lit and labelled.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.

    Raises:
        ValueError: the words do not fit the weights, or ``query`` is not one of them.

    Examples:
        >>> import torch
        >>> from annotated_attention import display
        >>> weights = torch.tensor([[1.0, 0.0], [0.75, 0.25]])
        >>> display.attention_lines(weights, ["cat", "it"], query=1, name="lines")
        Figure: The sentence “cat it” looks at itself. The weights of “it”: cat 0.75, it 0.25.
    """
    n = len(words)
    if weights.shape != (n, n):
        raise ValueError(f"weights must be {n} x {n} for {n} words, got {tuple(weights.shape)}")
    if not 0 <= query < n:
        raise ValueError(f"query ({query}) must be the index of one of the {n} words")
    rows = weights.detach().tolist()
    drawing, (ax,) = panels(50 * n, 210)
    ax.set(xlim=(-0.5, n - 0.5), ylim=(-0.3, 1.36))
    ax.axis("off")
    lit_last = sorted(range(n), key=lambda i: i == query)
    for i in lit_last:
        for j, weight in enumerate(rows[i]):
            _draw_line(ax, i, j, weight, lit=i == query)
    for j, word in enumerate(words):
        ax.text(j, 1.08, word, ha="center", color=COLOURS["m"], fontsize=12)
        ax.text(j, 1.24, f"{rows[query][j]:.2f}", ha="center", color=COLOURS["h"], fontsize=12)
        weight = "bold" if j == query else "normal"
        colour = COLOURS["h"] if j == query else COLOURS["n"]
        ax.text(j, -0.2, word, ha="center", color=colour, fontsize=12, fontweight=weight)
    looks = ", ".join(f"{word} {rows[query][j]:.2f}" for j, word in enumerate(words))
    alt = f"The sentence “{' '.join(words)}” looks at itself. The weights of “{words[query]}”: "
    return finish(drawing, name=name, alt=f"{alt}{looks}.", caption=caption)


def _draw_line(ax: Axes, query: int, key: int, weight: float, lit: bool) -> None:
    # An S-shaped curve from the query's word below to the key's word above.
    ax.add_patch(
        FancyArrowPatch(
            path=_curve(query, key),
            arrowstyle="-",
            linewidth=0.4 + 14 * weight if lit else 5 * weight,
            edgecolor=COLOURS["h"] if lit else COLOURS["b"],
            alpha=0.85 if lit else 0.3,
            capstyle="round",
        )
    )


def _curve(query: int, key: int) -> mpl.path.Path:
    points = [(query, 0.0), (query, 0.5), (key, 0.5), (key, 1.0)]
    code = mpl.path.Path
    return code(points, [code.MOVETO, code.CURVE4, code.CURVE4, code.CURVE4])


def _clean(svg: str, name: str, alt: str) -> str:
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    for letter, colour in COLOURS.items():
        svg = re.sub(colour, f"var(--aa-{letter}, {colour})", svg, flags=re.IGNORECASE)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg)
    svg = re.sub(r";? ?font-family: [^;\"]+", "", svg)  # the page's own
    svg = re.sub(r">\s+<", "><", svg)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert size is not None
    # No letter is shown smaller than 12 pixels: the figure grows, and on a phone it scrolls.
    letters = re.findall(r"\bfont(?:-size)?: [^;\"]*?([\d.]+)px", svg)
    narrowest = float(size[1]) * 12 / min(map(float, letters), default=16.0)
    width = max(float(size[1]), narrowest)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {size[1]} {size[2]}" width="{width:.0f}" role="img" '
        f'aria-label="{escape(alt)}" fill="currentColor" stroke-linejoin="round" '
        f'style="min-width: {narrowest:.0f}px">'
    )
    return head + svg[svg.index(">") + 1 :]

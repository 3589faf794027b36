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
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from torch import Tensor

from annotated_book.display._html import Output, figure

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
        >>> from annotated_book import display
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
        >>> from annotated_book import display
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
    made = _clean(buffer.getvalue(), name)
    label = f'role="img" aria-label="{escape(alt)}"'
    if len(drawing.axes) == 1:
        size = re.search(r'viewBox="([^"]+)"', made)
        assert size is not None
        parts = [_drawing(made[made.index(">") + 1 : -len("</svg>")], size[1], made, label)]
    else:
        inside = [
            _drawing(part, box, made, 'aria-hidden="true"')
            for part, box in zip(_apart(made), _boxes(drawing), strict=True)
        ]
        # As many beside each other as in the drawing, where there is room.
        grid: Any = drawing.axes[0].get_subplotspec()
        wide = (
            f"--columns: {grid.get_gridspec().ncols}; --wide: {drawing.get_figwidth() * 72:.0f}px"
        )
        parts = [f'<div class="aa-panels" style="{wide}" {label}>', *inside, "</div>"]
    return figure(name, "".join(parts), alt, caption)


def attention_lines(
    weights: Tensor, words: Sequence[str], query: int, *, name: str, caption: str = ""
) -> Output:
    """Draw attention within a sentence: a line per pair of words, as thick as the weight.

    Args:
        weights: (n, n), or (n,), those of one word alone.
        words: n words.
        query: the index of the word whose lines are lit and labelled.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> weights = torch.tensor([[1.0, 0.0], [0.75, 0.25]])
        >>> display.attention_lines(weights, ["cat", "it"], query=1, name="lines")
        Figure: The sentence “cat it” looks at itself. The weights of “it”: cat 0.75, it 0.25.
    """
    n, alone = len(words), weights.dim() == 1
    rows = {query: weights.tolist()} if alone else dict(enumerate(weights.tolist()))
    drawing, (ax,) = panels(43 * n, 210)
    ax.set(xlim=(-0.5, n - 0.5), ylim=(-0.3, 1.36))
    ax.axis("off")
    for i in sorted(rows, key=lambda i: i == query):  # the lit ones last
        for j, weight in enumerate(rows[i]):
            _draw_line(ax, i, j, weight, lit=i == query)
    looks = []
    for j, (word, weight) in enumerate(zip(words, rows[query], strict=True)):
        ax.text(j, 1.08, word, ha="center", color=COLOURS["m"], fontsize=12)
        ax.text(j, 1.24, f"{weight:.2f}", ha="center", color=COLOURS["h"], fontsize=12)
        colour, bold = (COLOURS["h"], "bold") if j == query else (COLOURS["n"], "normal")
        ax.text(j, -0.2, word, ha="center", color=colour, fontsize=12, fontweight=bold)
        looks.append(f"{word} {weight:.2f}")
    alt = f"The sentence “{' '.join(words)}” looks at itself. The weights of “{words[query]}”: "
    return finish(drawing, name=name, alt=f"{alt}{', '.join(looks)}.", caption=caption)


def _draw_line(ax: Axes, query: int, key: int, weight: float, lit: bool) -> None:
    """Draw an S-shaped curve from the query's word below to the key's word above."""
    path = Path(
        [(query, 0.0), (query, 0.5), (key, 0.5), (key, 1.0)],
        [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
    )
    ax.add_patch(
        FancyArrowPatch(
            path=path,
            arrowstyle="-",
            linewidth=0.4 + 14 * weight if lit else 5 * weight,
            edgecolor=COLOURS["h"] if lit else COLOURS["b"],
            alpha=0.85 if lit else 0.3,
            capstyle="round",
        )
    )


def _clean(svg: str, name: str) -> str:
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    for letter, colour in COLOURS.items():
        svg = re.sub(colour, f"var(--aa-{letter}, {colour})", svg, flags=re.IGNORECASE)
    svg = svg.replace("#000000", "currentColor")
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", svg)
    svg = re.sub(r";? ?font-family: [^;\"]+", "", svg)  # the page's own
    return re.sub(r">\s+<", "><", svg)


def _drawing(content: str, box: str, whole: str, label: str) -> str:
    """Draw what lies in a box, given as a ``viewBox``.

    No letter is shown smaller than 12 pixels: the drawing grows, and on a phone it may scroll.
    """
    letters = re.findall(r"\bfont(?:-size)?: [^;\"]*?([\d.]+)px", whole)
    drawn = float(box.split()[2])
    narrowest = drawn * 12 / min(map(float, letters), default=16.0)
    wide = f"{max(drawn, narrowest):.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box}" width="{wide}" {label} fill="currentColor" stroke-linejoin="round" '
        f'style="--drawn: {wide}px; min-width: {narrowest:.0f}px">{content}</svg>'
    )


def _apart(svg: str) -> list[str]:
    """Take a drawing's axes apart; what they refer to goes with the last."""
    starts = [found.start() for found in re.finditer(r'<g id="[\w-]+?-axes_\d+">', svg)]
    end = re.search(r"</g>((?:<defs>.*?</defs>)?)</svg>$", svg, flags=re.DOTALL)
    assert end is not None
    ends = [*starts[1:], end.start()]
    parts = [svg[start:stop] for start, stop in zip(starts, ends, strict=True)]
    return [*parts[:-1], parts[-1] + end[1]]


def _boxes(drawing: Figure) -> list[str]:
    """Give the ``viewBox`` of each of the axes, as high as the row in which they stand."""
    high, scale = drawing.get_figheight() * 72, 72 / drawing.dpi
    axes: list[Any] = drawing.axes
    tight = [ax.get_tightbbox() for ax in axes]
    rows = [ax.get_subplotspec().rowspan.start for ax in axes]
    found = []
    for row, box in zip(rows, tight, strict=True):
        beside = [other for other, its in zip(tight, rows, strict=True) if its == row]
        top = high - scale * max(other.y1 for other in beside) - 2
        bottom = high - scale * min(other.y0 for other in beside) + 2
        left, right = scale * box.x0 - 2, scale * box.x1 + 2
        found.append(f"{left:.1f} {top:.1f} {right - left:.1f} {bottom - top:.1f}")
    return found

"""Draws the picture that stands for the book where somebody shares a link to it."""

import io
import re

from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from PIL import Image

WIDTH, HEIGHT = 1200, 630  # what the sites that show such pictures ask for
MARGIN = 80
PROMISE = "Multi-head attention you can read, run and trust"
NUMBER = r"(-?[\d.]+)"
LINE = re.compile(
    rf"M {NUMBER} {NUMBER}\s+C {' '.join([NUMBER] * 6)}\s*\"[^>]*opacity: {NUMBER}; "
    rf"stroke: [^#]*(#\w{{6}})[^>]*stroke-width: {NUMBER}"
)
WORD = re.compile(
    rf"<text style=\"(font-weight: 700; )?font-size: {NUMBER}px;[^\"#]*(#\w{{6}})\)\" "
    rf"x=\"{NUMBER}\" y=\"{NUMBER}\"[^>]*>([^<]*)<"
)


def draw(svg: str) -> bytes:
    """Give the PNG of the card: name, promise, and the first figure of the book.

    Args:
        svg: that figure, as the README shows it.

    Raises:
        ValueError: it is drawn in another way than this module reads.
    """
    lines, words = LINE.findall(svg), WORD.findall(svg)
    size = re.search(rf'viewBox="0 0 {NUMBER} {NUMBER}"', svg)
    if not lines or not words or size is None:
        raise ValueError("the first figure of the book has no lines or no words")
    picture = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="white")
    ax = picture.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    ax.axis("off")
    scale = (WIDTH - 2 * MARGIN) / float(size[1])
    top = HEIGHT - 20 - scale * float(size[2])

    def place(x: str, y: str) -> tuple[float, float]:
        return MARGIN + scale * float(x), top + scale * float(y)

    for *points, opacity, colour, width in lines:
        corners = [place(*points[at : at + 2]) for at in range(0, 8, 2)]
        shape = Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        thick = scale * float(width) * 0.72  # an inch is 100 pixels and 72 points
        ax.add_patch(
            PathPatch(
                shape, facecolor="none", edgecolor=colour, alpha=float(opacity), linewidth=thick
            )
        )
    for bold, points_high, colour, x, y, word in words:
        weight = "bold" if bold else "normal"
        high = scale * float(points_high) * 0.72
        ax.text(*place(x, y), word, color=colour, fontsize=high, ha="center", weight=weight)
    ax.text(MARGIN, 100, "Annotated Attention", fontsize=46, weight="bold", color="#1d2733")
    ax.text(MARGIN, 148, PROMISE, fontsize=22, color="#5b6470")
    drawn, png = io.BytesIO(), io.BytesIO()
    picture.savefig(drawn, format="rgba")
    image = Image.frombytes("RGBA", (WIDTH, HEIGHT), drawn.getvalue()).convert("RGB")
    image.quantize(48).save(png, format="png", optimize=True)
    return png.getvalue()

"""Draw the flow of tensors: boxes with a name and a shape, and arrows between them."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_WIDTH, _HEIGHT = 150, 70  # of a place, in CSS pixels
_PHONE = 340  # all columns together


def flow(
    places: Mapping[str, tuple[float, float]],
    arrows: Sequence[tuple[str, str, str]],
    shapes: Mapping[str, Sequence[int]],
    letters: Mapping[int, str],
    *,
    name: str,
    caption: str = "",
) -> Output:
    """Draw tensors as boxes and steps as arrows, from top to bottom.

    Args:
        places: column and row of each box, by name, counted from 0.
        arrows: from which box to which, and the step's name or "".
        shapes: the shape of each box's tensor, as it was when it ran.
        letters: what each size is called. Sizes that all differ have one letter each.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.

    Examples:
        >>> from annotated_book import display
        >>> places, arrows = {"x": (0, 0), "q": (0, 1)}, [("x", "q", "W_Q")]
        >>> shapes, letters = {"x": (3, 24), "q": (3, 6)}, {3: "n", 24: "e", 6: "d"}
        >>> display.flow(places, arrows, shapes, letters, name="projection")
        Figure: Boxes, with their shapes: x (n, e); q (n, d). Arrows: x to q: W_Q.
    """
    written = {box: f"({', '.join(letters[size] for size in shapes[box])})" for box in places}
    columns, rows = (1 + max(place[axis] for place in places.values()) for axis in (0, 1))
    drawing, (ax,) = panels(min(_WIDTH * columns, _PHONE), _HEIGHT * rows)
    ax.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.65, -0.35))
    ax.axis("off")
    for start, end, step in arrows:
        (x0, y0), (x1, y1) = places[start], places[end]
        ends = ((x0, y0 + 0.27), (x1, y1 - 0.27))
        ax.add_patch(FancyArrowPatch(*ends, arrowstyle="->", mutation_scale=10, color=FAINT))
        # Left of its arrow, and below one that leads down to the right: no arrow crosses it.
        x, y = (x0 + x1) / 2 - 0.04, (y0 + y1) / 2 + (0.1 if x1 > x0 else -0.1)
        ax.text(x, y, step, ha="right", va="center", fontsize=12, style="italic")
    for box, (x, y) in places.items():
        # Blue where it has queries and no keys, green the other way round, grey for both or none.
        sides = [side for side in "nm" if f" {side}," in f" {written[box][1:-1]},"]
        edge = COLOURS[sides[0]] if len(sides) == 1 else FAINT
        ink = "black" if edge == FAINT else edge
        corner, style = (x - 0.36, y - 0.2), "round,pad=0.04"
        ax.add_patch(FancyBboxPatch(corner, 0.72, 0.4, style, ec=edge, fc="none", linewidth=1.5))
        ax.text(x, y - 0.1, box, ha="center", va="center", fontsize=12)
        ax.text(x, y + 0.12, written[box], ha="center", va="center", fontsize=12, color=ink)
    boxes = "; ".join(f"{box} {shape}" for box, shape in written.items())
    steps = "; ".join(f"{start} to {end}{': ' * bool(step)}{step}" for start, end, step in arrows)
    alt = f"Boxes, with their shapes: {boxes}. Arrows: {steps}."
    return finish(drawing, name=name, alt=alt, caption=caption)

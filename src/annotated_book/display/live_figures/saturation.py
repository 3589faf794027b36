"""Saturation: scores, weights and derivative of a softmax, divided and not, as heads get wider."""

import math
from collections.abc import Callable, Mapping

from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels

Measure = Callable[[Tensor], tuple[float, float, float]]


def saturation(
    products: Mapping[int, Tensor], measure: Measure, *, name: str, width: int, query: int
) -> Output:
    """Show what dividing by √d does to scores, weights and derivative; alive, by any power of d.

    Args:
        products: for each width d the scores of n queries and m keys, not divided.
        measure: gives the scores' deviation, the median size of the softmax's derivative, and the
            mean largest weight.
        name: the figure's name, see ``finish``.
        width: the width to begin with.
        query: the index of the query whose weights are shown first.
    """
    # What is drawn is computed from the numbers that the page is given.
    kept = {d: scores.double().round(decimals=3) for d, scores in products.items()}
    edge = math.ceil(max(float(scores.abs().max()) for scores in kept.values()) - 0.5) + 0.5
    drawing, (ax,) = panels(360, 210)
    alt = "Size of the softmax's derivative by width."
    for power, label, letter, line in (
        (0, "not divided", "h", "--"),
        (0.5, "divided by √d", "d", "-"),
    ):
        divided = {d: scores / d**power for d, scores in kept.items()}
        sizes = {d: measure(scores)[1] for d, scores in divided.items()}
        look = {"color": COLOURS[letter], "linestyle": line, "label": label}
        ax.semilogx(list(sizes), list(sizes.values()), marker="o", markersize=4, base=2, **look)
        share, key = divided[width][query].softmax(-1).max(-1)
        alt += (
            f" {label.capitalize()}, the scores of width {width} deviate by "
            f"{measure(divided[width])[0]:.2f}, query {query + 1} gives {share:.2f} to key "
            f"{key + 1}, and the size of the derivative by width is "
            f"{', '.join(f'{size:.3f} at {d}' for d, size in sizes.items())}."
        )
    ax.set(title="size of the derivative", xlabel="width d", ylim=(0, 0.5))
    ax.set_xticks(list(kept), [str(d) for d in kept])
    ax.legend(frameon=False, fontsize=9)
    data = {
        "products": [[d, scores.tolist()] for d, scores in kept.items()],
        "width": width,
        "query": query,
        "edge": edge,
    }
    static = finish(drawing, name=name, alt=alt)
    return live(static, "saturation", data, room=(392, 800))

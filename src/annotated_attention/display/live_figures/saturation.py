"""Saturation: scores, weights and derivative of a softmax, divided and not, as heads get wider."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from annotated_attention.display._html import Output
from annotated_attention.display._live import live
from annotated_attention.display.plots import COLOURS, finish, panels

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
    drawing, axes = panels(660, 210, columns=3)
    alt = "Histogram of the scores, weights of a query, size of the softmax's derivative."
    for power, look in _LOOKS.items():
        divided = {d: scores / d**power for d, scores in kept.items()}
        weights = divided[width][query].softmax(-1)
        sizes = {d: measure(scores)[1] for d, scores in divided.items()}
        _draw(axes, divided[width], edge, weights, sizes, look)
        alt += (
            f" {look['label'].capitalize()}, the scores of width {width} deviate by "
            f"{measure(divided[width])[0]:.2f}, query {query + 1} gives {weights.max():.2f} to key "
            f"{int(weights.argmax()) + 1}, and the size of the derivative by width is "
            f"{', '.join(f'{size:.3f} at {d}' for d, size in sizes.items())}."
        )
    _label(axes, query, list(kept))
    caption = "Dashed: not divided. Both histograms are drawn to the same height."
    data = {
        "products": [[d, scores.tolist()] for d, scores in kept.items()],
        "width": width,
        "query": query,
        "edge": edge,
    }
    static = finish(drawing, name=name, alt=alt, caption=caption)
    return live(static, "saturation", data, room=(392, 800))


# By the power of d that divides.
_LOOKS: dict[float, dict[str, Any]] = {
    0.0: {"label": "not divided", "color": COLOURS["h"], "linestyle": "--", "fill": False},
    0.5: {"label": "divided by √d", "color": COLOURS["d"], "linestyle": "-", "fill": True},
}


def histogram(scores: Tensor, edge: float) -> list[int]:
    """Count scores in bins 1 wide, from -edge to edge; half a bin over, so one is around zero."""
    counts, _ = torch.histogram(scores.flatten(), bins=round(2 * edge), range=(-edge, edge))
    return [int(count) for count in counts]


def _draw(
    axes: Sequence[Axes],
    scores: Tensor,
    edge: float,
    weights: Tensor,
    sizes: Mapping[int, float],
    look: dict[str, Any],
) -> None:
    left, middle, right = axes
    counts = histogram(scores, edge)
    heights = [count / max(counts) for count in counts]
    area = {"alpha": 0.6, "linewidth": 0} if look["fill"] else {"linewidth": 1.2}
    left.stairs(heights, [i - edge for i in range(len(heights) + 1)], **look | area)
    keys = range(1, len(weights) + 1)
    edges = {"edgecolor": look["color"], "linestyle": look["linestyle"]}
    middle.set_xlim(0.3, len(keys) + 0.7)
    middle.bar(keys, weights.tolist(), color=look["color"], fill=look["fill"], **edges | area)
    line = {key: look[key] for key in ("color", "linestyle", "label")}
    right.semilogx(list(sizes), list(sizes.values()), marker="o", markersize=4, base=2, **line)


def _label(axes: Sequence[Axes], query: int, widths: list[int]) -> None:
    left, middle, right = axes
    left.set(title="the scores", xlabel="scores", yticks=[], ylim=(0, 1))
    middle.set(title=f"weights of query {query + 1}", xlabel="its keys", ylim=(0, 1))
    middle.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    right.set(title="size of the derivative", xlabel="width d", ylim=(0, 0.5))
    right.set_xticks(widths, [str(d) for d in widths])
    right.set_yticks([0, 0.5], ["0", "0.5"])
    right.legend(frameon=False, fontsize=9)

"""One query's weights as a head gets wider, its scores divided by √d or not."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels


def divided(products: Mapping[int, Tensor], *, name: str, width: int, query: int) -> Output:
    """Show one query's weights; alive, the head gets wider, and its scores are divided or not.

    Args:
        products: for each width d the scores of n queries and m keys, not divided.
        name: the figure's name, see ``finish``.
        width: that of the still picture; alive, it begins with the first.
        query: the index of the query whose weights are shown.
    """
    of = {d: [(scores / by).softmax(-1) for by in (1, d**0.5)] for d, scores in products.items()}
    drawing, axes = panels(350, 190, columns=2)
    ways = (("h", f"width {width}, not divided"), ("d", "divided by √d"))
    for ax, (letter, title), weights in zip(axes, ways, of[width], strict=True):
        keys = range(1, weights.size(1) + 1)
        ax.bar(keys, weights[query].tolist(), color=COLOURS[letter], alpha=0.6)
        ax.set(ylim=(0, 1), title=title, xticks=[], xlabel=f"{len(keys)} keys")
    widths: list[dict[str, Any]] = [
        {
            "d": d,
            "weights": [(100 * w[query]).round().int().tolist() for w in both],
            "most": [f"{w[query].max():.2f}" for w in both],
            "usual": [f"{w.amax(-1).mean():.2f}" for w in both],
        }
        for d, both in of.items()
    ]
    queries = len(products[width])
    said = "; ".join(
        f"at width {each['d']}, {each['usual'][0]}, divided by √d {each['usual'][1]}"
        for each in widths
    )
    alt = f"The largest weight, on average over {queries} queries: {said}."
    data = {"widths": widths, "queries": queries}
    return live(finish(drawing, name=name, alt=alt), "divided", data, room=(318, 400))

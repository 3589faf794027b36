"""The mask merger: a padding mask and a mask of pairs, merged cell by cell."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_attention.display._html import Output
from annotated_attention.display._live import live
from annotated_attention.display.plots import COLOURS, FAINT, finish, panels
from annotated_attention.masks import block_future

_UNIT = 36  # of a cell, in CSS pixels


def mask_merger(words: Sequence[Sequence[str]], scores: Tensor, padding: Tensor) -> Output:
    """Show how padding and a causal mask are merged, and which weights are left; alive, as drawn.

    Args:
        words: n words for each sample, which are its queries and its keys.
        scores: (b, n, n).
        padding: (b, n), boolean, True for padding.
    """
    n = scores.size(-1)
    future = block_future(n)  # (n, n)
    blocked = padding[:, None] | future  # (b, n, n)
    weights = scores.masked_fill(blocked, -math.inf).softmax(-1)  # (b, n, n)
    counts = [f"{int(sample.sum())} in sample {i}" for i, sample in enumerate(blocked)]
    static = finish(
        _draw(words, weights.tolist(), padding.tolist(), future.tolist()),
        name="mask-merger",
        alt=f"Left, a strip of {n} keys per sample, p marks padding. Middle, {n} queries by {n} "
        "keys, a marks what attn_mask blocks. Right, both merged for each sample, with the weights "
        f"that are left. Blocked, of {n * n} cells: {', '.join(counts)}.",
        caption="Two masks, merged for each sample, and the weights that are left.",
    )
    data = {"words": [*words], "scores": scores.tolist(), "padding": padding.tolist()}
    return live(static, "mask_merger", data, room=(510, 1090))


def _draw(
    words: Sequence[Sequence[str]],
    weights: list[list[list[float]]],
    padding: list[list[bool]],
    future: list[list[bool]],
) -> Figure:
    n = len(future)
    wide, high = 3 * n + 5, len(words) * (n + 1.5) + 1
    middle = (high - 2.5) / 2
    drawing, (ax,) = panels(_UNIT * wide, _UNIT * (high + 1))
    pairs = [["a" * cell for cell in row] for row in future]
    _grid(ax, n + 2, middle - n / 2, pairs, [[""] * n] * n)
    left = 2 * n + 4.5
    for i, sentence in enumerate(words):
        top = i * (n + 1.5)
        tokens = ["p" * cell for cell in padding[i]]
        merged = [[p + a for p, a in zip(tokens, row, strict=True)] for row in pairs]
        _grid(ax, 0, top + n / 2 - 0.5, [tokens], [sentence])
        _grid(ax, left, top, merged, [list(map(written, row)) for row in weights[i]])
        ax.text(n / 2, top + n / 2 - 0.8, f"sample {i}", ha="center", fontsize=9)
        for j, word in enumerate(sentence):
            ax.text(left + j + 0.5, top - 0.2, word, ha="center", fontsize=8, color=COLOURS["m"])
            ax.text(left - 0.2, top + j + 0.6, word, ha="right", fontsize=8, color=COLOURS["n"])
    labels = ("(b, 1, 1, m)", "or", "(n, m)", "=", "(b, 1, n, m)")
    for place, text in enumerate(labels):
        x = (n / 2, n + 1, 1.5 * n + 2, 2 * n + 2.6, left + n / 2)[place]
        ax.text(x, middle if place % 2 else -1, text, ha="center", va="center")
    legend = "p: blocked as padding     a: blocked by attn_mask     a number is a weight"
    ax.text(wide / 2, high - 0.9, legend, ha="center", va="center")
    ax.set(xlim=(-0.2, wide - 0.3), ylim=(high - 0.5, -1.5), aspect="equal")
    ax.axis("off")
    return drawing


def _grid(
    ax: Axes, left: float, top: float, marks: list[list[str]], inside: Sequence[Sequence[str]]
) -> None:
    """Draw cells: in the corner why they are blocked, in the middle a word or a weight."""
    for i, row in enumerate(zip(marks, inside, strict=True)):
        for j, (mark, text) in enumerate(zip(*row, strict=True)):
            share = float(text) if text[:1] in (".", "1") else 0
            fill = to_rgba(COLOURS["b" if mark else "n"], 0.3 if mark else 0.6 * share)
            at = (left + j, top + i)
            ax.add_patch(Rectangle(at, 1, 1, facecolor=fill, edgecolor=FAINT, linewidth=0.5))
            ax.text(left + j + 0.07, top + i + 0.34, mark, fontsize=9, weight="bold")
            ax.text(left + j + 0.5, top + i + 0.66, text, ha="center", va="center", fontsize=9)


def written(weight: float) -> str:
    """Write a weight with two digits, and one that is exactly 0 without."""
    if not 0 < weight < 0.995:  # 0, 1, NaN
        return {0.0: "0"}.get(weight, "NaN" if math.isnan(weight) else "1.0")
    return f"{weight:.2f}"[1:]

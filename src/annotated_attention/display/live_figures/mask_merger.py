"""The mask merger: a padding mask and a mask of pairs, merged cell by cell."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_attention.display._live import Live, live
from annotated_attention.display.plots import COLOURS, FAINT, finish, panels
from annotated_attention.masks import block_future, merge_masks, padding_to_heads

_UNIT = 36  # of a cell, in CSS pixels


def mask_merger(
    queries: Sequence[Sequence[str]],
    keys: Sequence[Sequence[str]],
    scores: Tensor,
    padding: Tensor,
    attn_mask: Tensor,
) -> Live:
    """Show how two masks are merged, and which weights are left; interactive with JavaScript.

    Args:
        queries: n words for each sample.
        keys: m words for each sample.
        scores: (b, n, m).
        padding: (b, m), boolean, True for padding.
        attn_mask: (n, m), boolean, True where no query may see the key.

    Raises:
        ValueError: the words or the masks do not fit the scores.

    Examples:
        >>> import torch
        >>> from annotated_attention import block_future, block_padding, display
        >>> words = [["the", "cat", "drank"], ["it", "was", "-"]]
        >>> padding = block_padding(torch.tensor([3, 2]), m=3)
        >>> scores = torch.zeros(2, 3, 3)
        >>> figure = display.mask_merger(words, words, scores, padding, block_future(3))
        >>> figure.data["attn_mask"]
        'causal'
    """
    b, n, m = scores.shape
    sizes = ([len(words) for words in queries], [len(words) for words in keys])
    if sizes != ([n] * b, [m] * b) or padding.shape != (b, m) or attn_mask.shape != (n, m):
        raise ValueError(
            f"scores {(b, n, m)}, words {sizes}, padding {tuple(padding.shape)} and attn_mask "
            f"{tuple(attn_mask.shape)} must fit each other"
        )
    merged, _ = merge_masks(padding_to_heads(padding), attn_mask)
    assert merged is not None
    blocked = merged[:, 0]  # (b, n, m)
    weights = scores.masked_fill(blocked, -math.inf).softmax(-1)  # (b, n, m)
    counts = [f"{int(sample.sum())} in sample {i}" for i, sample in enumerate(blocked)]
    static = finish(
        _draw(queries, keys, weights, padding, attn_mask),
        name="mask-merger",
        alt=f"Left, a strip of {m} keys per sample, p marks padding. Middle, {n} queries by {m} "
        "keys, a marks what attn_mask blocks. Right, both merged for each sample, with the weights "
        f"that are left. Blocked, of {n * m} cells: {', '.join(counts)}.",
        caption="Two masks, merged for each sample, and the weights that are left.",
    )
    causal = attn_mask.equal(block_future(n, m))
    words = {"queries": [*map(list, queries)], "keys": [*map(list, keys)]}
    pairs = "causal" if causal else attn_mask.tolist()
    data = {"scores": scores.tolist(), "padding": padding.tolist(), "attn_mask": pairs}
    return live(static, "mask_merger", words | data, room=(510, 1090))


def _draw(
    queries: Sequence[Sequence[str]],
    keys: Sequence[Sequence[str]],
    weights: Tensor,
    padding: Tensor,
    attn_mask: Tensor,
) -> Figure:
    b, n, m = weights.shape
    wide, high = 3 * m + 5, b * (n + 1.5) + 1
    middle = (high - 2.5) / 2
    drawing, (ax,) = panels(_UNIT * wide, _UNIT * (high + 1))
    pairs = [["a" * cell for cell in row] for row in attn_mask.tolist()]
    _grid(ax, m + 2, middle - n / 2, pairs, [[""] * m] * n)
    left = 2 * m + 4.5
    for i in range(b):
        top = i * (n + 1.5)
        tokens = ["p" * cell for cell in padding[i].tolist()]
        merged = [[p + a for p, a in zip(tokens, row, strict=True)] for row in pairs]
        _grid(ax, 0, top + n / 2 - 0.5, [tokens], [keys[i]])
        _grid(ax, left, top, merged, [list(map(written, row)) for row in weights[i].tolist()])
        ax.text(m / 2, top + n / 2 - 0.8, f"sample {i}", ha="center", fontsize=9)
        for j, word in enumerate(keys[i]):
            ax.text(left + j + 0.5, top - 0.2, word, ha="center", fontsize=8, color=COLOURS["m"])
        for j, word in enumerate(queries[i]):
            ax.text(left - 0.2, top + j + 0.6, word, ha="right", fontsize=8, color=COLOURS["n"])
    labels = ("(b, 1, 1, m)", "or", "(n, m)", "=", "(b, 1, n, m)")
    for place, text in enumerate(labels):
        x = (m / 2, m + 1, 1.5 * m + 2, 2 * m + 2.6, left + m / 2)[place]
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
            box = Rectangle((left + j, top + i), 1, 1, facecolor=fill, linewidth=0.5)
            box.set_edgecolor(FAINT)
            ax.add_patch(box)
            ax.text(left + j + 0.07, top + i + 0.34, mark, fontsize=9, weight="bold")
            ax.text(left + j + 0.5, top + i + 0.66, text, ha="center", va="center", fontsize=9)


def written(weight: float) -> str:
    """Write a weight with two digits, and one that is exactly 0 without."""
    if not 0 < weight < 0.995:  # 0, 1, NaN
        return {0.0: "0"}.get(weight, "NaN" if math.isnan(weight) else "1.0")
    return f"{weight:.2f}"[1:]

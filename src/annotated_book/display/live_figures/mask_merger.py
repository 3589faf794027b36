"""The mask merger: a padding mask and a mask of pairs, merged cell by cell."""

import math
from collections.abc import Sequence

from torch import Tensor

from annotated_attention.masks import block_future
from annotated_book.display._html import Output, figure, scrolled, table, told
from annotated_book.display._live import live


def mask_merger(words: Sequence[Sequence[str]], scores: Tensor, padding: Tensor) -> Output:
    """Show how padding and a causal mask are merged, and which weights are left; alive, as drawn.

    Args:
        words: n words for each sentence, which are its queries and its keys.
        scores: (b, n, n).
        padding: (b, n), boolean, True for padding.
    """
    future = block_future(scores.size(-1))                        # (n, n)
    blocked = padding[:, None] | future                           # (b, n, n)
    weights = scores.masked_fill(blocked, -math.inf).softmax(-1)  # (b, n, n)
    drawn = ""
    for i, sentence in enumerate(words):
        rows = [[f"sentence {i + 1}", *sentence]]
        for word, row, later in zip(sentence, weights[i], future, strict=True):
            reasons = ["p" * p + "f" * f for p, f in zip(padding[i], later, strict=True)]
            rows.append([word, *(written(x) for x in row.tolist())])
            if not row.isnan().any():
                rows[-1][1:] = [a or b for a, b in zip(reasons, rows[-1][1:], strict=True)]
        drawn += table(rows)
    counts = [f"{int(sample.sum())} in sentence {i + 1}" for i, sample in enumerate(blocked)]
    said = (
        "Two masks, merged for each sentence, and the weights that are left: p, blocked as "
        "padding; f, blocked as future. "
        f"Blocked, of {future.numel()} cells: {', '.join(counts)}."
    )
    caption = "p: blocked as padding. f: blocked as future, by the staircase. A number: a weight."
    static = figure("mask-merger", told(scrolled(drawn, "masks merged"), said), said, caption)
    data = {"words": [*words], "scores": scores.tolist(), "padding": padding.tolist()}
    return live(static, "mask_merger", data, room=(305, 600))


def written(weight: float) -> str:
    """Write a weight with two digits, and one that is exactly 0 without."""
    if not 0 < weight < 0.995:  # 0, 1, NaN
        return {0.0: "0"}.get(weight, "NaN" if math.isnan(weight) else "1.0")
    return f"{weight:.2f}"[1:]

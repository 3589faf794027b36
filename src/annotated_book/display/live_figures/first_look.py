"""The first look: the book's sentence, whose last word can be exchanged; what a word collects."""

from typing import Any

import torch

from annotated_attention.attention import scaled_scores
from annotated_book.display import map
from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import attention_lines

FEATURES = ["animal", "food", "action", "quality"]
WORDS = map.WORDS[: map.LENGTH]
ENDINGS = {"thirsty": map.X[map.LENGTH - 1], "sweet": torch.tensor([0.0, 2, 0, 2])}
CAPTION = "A line is a share of attention, given by the word that asks."


def first_look(*, name: str) -> Output:
    """Show the sentence looking at itself; let the reader exchange its end, or ask another word.

    Args:
        name: the figure's name, see ``finish``.
    """
    x = torch.stack([torch.cat([map.X[: map.LENGTH - 1], end[None]]) for end in ENDINGS.values()])
    weights = scaled_scores(x, x).softmax(-1)  # the same numbers are queries and keys
    data: dict[str, Any] = {
        "words": WORDS,
        "endings": list(ENDINGS),
        "features": FEATURES,
        "weights": (100 * weights).round().int().tolist(),
        "collected": (100 * (weights @ x)).round().int().tolist(),
        "query": WORDS.index("it"),
    }
    still = attention_lines(weights[0], WORDS, data["query"], name=name, caption=CAPTION)
    return live(still, "first_look", data, room=(285, 442))

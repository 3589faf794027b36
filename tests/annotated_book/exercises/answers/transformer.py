"""Answers to the exercises of “The Transformer”."""

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

TURNS = torch.tensor([20.0, 2.0, 0.2, 0.02])


def by_sentence(model: Any, src: Tensor, max_new: int) -> Tensor:
    """Write all words first, and cut each sentence behind its end."""
    memory, written = model.encode(src), torch.full((len(src), 1), 1)
    for _ in range(max_new):
        following = model.decode(written, memory, src == 0)[:, -1].argmax(-1)
        written = torch.cat([written, following[:, None]], 1)
    behind = (written == 2).cumsum(1) - (written == 2).int() > 0
    last = int((~behind).sum(1).max())
    return written.masked_fill(behind, 0)[:, :last]


def short(model: Any, src: Tensor, max_new: int) -> Tensor:
    """Write a word less than was asked for."""
    return by_sentence(model, src, max_new - 1)


class Connected(nn.Module):
    """All of it folded into one line for each half."""

    def encode(self, src: Tensor) -> Tensor:
        return reduce(lambda x, layer: layer(x, src.eq(0)), self.encoder, self.words(src))

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        every = reduce(lambda x, layer: layer(x, memory, padding), self.decoder, self.words(tgt))
        return every @ self.words.table.mT

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, self.encode(src), src.eq(0))


class Unread(Connected):
    """The answer sees the words as they were before the encoder."""

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, self.words(src), src.eq(0))


class Crossed(Connected):
    """Reads what is written, and writes what is read."""

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(src, self.encode(tgt))


class Empty(Connected):
    """Nothing yet."""

    def forward(self, src: Tensor, tgt: Tensor) -> None:
        """Do nothing."""


class Half(Connected):
    """Whole by itself, but with no encoder to call."""

    def encode(self, src: Tensor) -> None:
        """Do nothing."""

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, super().encode(src), src.eq(0))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_angles": [
        (TURNS, "✓ "),
        (TURNS.sin(), "these are sines"),
        ([20, 2, 2, 0.02], "clock 3 has not turned by that. Divide 20 by 100"),
    ],
    "check_transformer": [
        (Connected, "✓ "),
        (Crossed, "your code raises"),
        (Empty, "not yet, it returns None"),
        (Connected(), "give the class itself"),
        (Half, "your code raises"),
        (Unread, "numbers are not"),
    ],
    "check_greedy_until_end": [
        (by_sentence, "✓ "),
        (lambda model, src, max_new: by_sentence(model, src, max_new)[:1], "(b, n)"),
        (short, "not with max_new = 4"),
    ],
}

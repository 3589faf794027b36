"""What one call is given, and what it gives: an answer, or the reason why there is none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Failed(Exception):
    """The implementation raised ``error``, or returned something of a wrong kind or shape."""

    def __init__(self, text: str, error: Exception | None = None) -> None:
        """Keep the message and the error."""
        super().__init__(text)
        self.error = error


class NotAsked(Exception):
    """A test does not apply, or cannot run; the message says why."""


@dataclass(frozen=True)
class Inputs:
    """Query, key and value of one call; in self-attention all three are one tensor.

    With kind ``"memory"`` key and value are one.
    """

    query: Tensor
    key: Tensor
    value: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """Change each tensor, one that is used twice or thrice only once."""
        if self.query is self.key is self.value:
            return Inputs(*(change(self.query),) * 3)
        value = change(self.value)
        key = value if self.key is self.value else change(self.key)
        return Inputs(change(self.query), key, value)

    def replaced(self, other: "Inputs", sample: slice | int, token: slice | int) -> "Inputs":
        """Put tokens of other inputs in the place of some keys and values."""
        chosen = torch.zeros(*self.key.shape[:2], 1, dtype=torch.bool)
        chosen[sample, token] = True
        key = torch.where(chosen, other.key, self.key)
        if self.query is self.key:
            return Inputs(key, key, key)
        value = key if self.key is self.value else torch.where(chosen, other.value, self.value)
        return Inputs(self.query, key, value)


class Answer(NamedTuple):
    """What one call gave."""

    output: Tensor
    rest: tuple[Tensor, ...]  # what was returned besides
    changed: frozenset[str]  # the arguments that are others after the call

    @property
    def weights(self) -> Tensor | None:
        """The first tensor that was returned besides."""
        return self.rest[0].detach() if self.rest else None

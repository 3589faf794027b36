"""What a call is given, and what keeps it from an answer."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


class Failed(Exception):
    """The implementation raised, or returned something of a wrong kind or shape.

    Attributes:
        error: the exception; None if the implementation returned something.
    """

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

"""Layouts of tokens and forms of masks, as a text says them; and what a call returns."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

MEANINGS = ("blocked", "allowed", "additive")
_DTYPES = ("int", "float")


class Layout(NamedTuple):
    """The axes of tokens, such as ``"nbe"``; and the number of heads where they have it."""

    axes: str
    heads: int | None = None

    @classmethod
    def read(cls, axes: str, heads: int | None) -> "Layout":
        """Check what is said.

        Raises:
            ValueError: these are no axes of tokens, or the number of heads is needed and not given.
        """
        if sorted(axes.replace("1", "")) not in (["b", "e", "n"], ["b", "d", "h", "n"]):
            said = "must have b, n and e, or h and d in place of e; and may have 1, of size one"
            raise ValueError(f"layout ({axes!r}) {said}")
        if "h" in axes and heads is None:
            raise ValueError(f"num_heads must be given for the layout {axes}")
        return cls(axes, heads)

    @property
    def _usual(self) -> str:
        return "bnhd" if "h" in self.axes else "bne"

    def into(self, x: Tensor) -> Tensor:
        """Make what is taken from (b, n, e)."""
        split = x.unflatten(-1, (self.heads or 1, -1)) if "h" in self.axes else x
        return arranged(split, self._usual, self.axes).contiguous()

    def back(self, output: Any) -> Any:
        """Make (b, n, e) from what is returned."""
        if not isinstance(output, Tensor) or output.dim() != len(self.axes):
            return output
        output = arranged(output, self.axes, self._usual)
        return output.flatten(-2) if "h" in self.axes else output


class MaskForm(NamedTuple):
    """The form of a mask, read from a text such as ``"b1nm allowed"``."""

    shape: str = "bnm"
    meaning: str = "blocked"
    dtype: str = "bool"
    required: bool = False

    @classmethod
    def read(cls, text: str) -> "MaskForm":
        """Read the words of a text, in any order.

        Raises:
            ValueError: a word says nothing about a mask.
        """
        form = cls()
        for word in text.split():
            if word in MEANINGS:
                form = form._replace(meaning=word)
            elif word in _DTYPES:
                form = form._replace(dtype=word)
            elif word == "always":
                form = form._replace(required=True)
            elif is_shape(word):
                form = form._replace(shape=word)
            else:
                raise ValueError(
                    f"mask ({text!r}) has {word!r}; words: its axes, such as bnm, b1nm, (bh)nm, "
                    f"nm or bm; {', '.join(MEANINGS)}; {', '.join(_DTYPES)}; always"
                )
        return form

    def make(self, blocked: Tensor, heads: int | None, dtype: torch.dtype) -> Tensor:
        """Make the mask from ``blocked``, (b, n, m), True = hidden."""
        if "h" in self.shape and heads is None:
            raise ValueError(f"num_heads must be given for a mask of {self.shape}")
        hidden = blocked[:, None].expand(-1, (heads or 1) if "h" in self.shape else 1, -1, -1)
        hidden = arranged(hidden, "bhnm", self.shape.strip("(").replace(")", ""))
        hidden = hidden.flatten(0, 1) if self.shape.startswith("(bh)") else hidden
        if self.meaning == "additive":
            low = -1e4 if self.dtype == "int" else float("-inf")
            return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, low)
        given = ~hidden if self.meaning == "allowed" else hidden
        return given.to({"bool": torch.bool, "int": torch.long, "float": dtype}[self.dtype])

    @property
    def masks(self) -> str:
        """Say which masks can be given so, as ``Adapted`` has it."""
        if "n" not in self.shape:
            return "padding"
        return "any" if "b" in self.shape else "shared"

    def __str__(self) -> str:
        """Give the text that it is read from."""
        words = [self.shape, self.meaning, self.dtype * (self.dtype != "bool")]
        return " ".join([*filter(None, words), *["always"] * self.required])


def is_shape(word: str) -> bool:
    """Tell whether a word names the axes of a mask."""
    letters = word.replace("(bh)", "bh").replace("1", "")
    return "m" in letters and {*letters} <= {*"bhnm"} and len({*letters}) == len(letters)


def arranged(x: Tensor, axes: str, wanted: str) -> Tensor:
    """Put axes into another order; of one that is not wanted, the first part stays; 1 is new."""
    for letter in [x for x in axes if x not in wanted]:
        x, axes = x.select(axes.index(letter), 0), axes.replace(letter, "", 1)
    x = x.permute([axes.index(letter) for letter in wanted if letter != "1"])
    for place in [i for i, letter in enumerate(wanted) if letter == "1"]:
        x = x.unsqueeze(place)
    return x


def output_of(result: object, shape: torch.Size) -> tuple[object, list[Tensor]]:
    """Find the output in what was returned: a tensor, or the first of this shape among several.

    Several stand in a tuple, a list, a dictionary or a dataclass. Gives the tensors besides, too.
    """
    if dataclasses.is_dataclass(result) and not isinstance(result, Mapping | type):
        result = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    if isinstance(result, Mapping):
        result = [*result.values()]
    if not isinstance(result, tuple | list) or not result:
        return result, []
    fits = [x for x in result if isinstance(x, Tensor) and x.shape == shape]
    output = fits[0] if fits else result[0]
    return output, [x for x in result if isinstance(x, Tensor) and x is not output]

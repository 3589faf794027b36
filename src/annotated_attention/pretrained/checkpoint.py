"""Reading checkpoints from files: a tensor that does not fit is named and refused unread."""

import importlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention._lazy import brought_by

Model = TypeVar("Model", bound=nn.Module)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class Config:
    """Reads ``config.json``, and names the field that does not fit."""

    def __init__(self, folder: str | os.PathLike[str], kind: str) -> None:
        """Read the file, and refuse a ``model_type`` other than ``kind``."""
        self.folder = Path(folder)
        self.path = _file(self.folder, "config.json")
        try:
            self.fields = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.path} is not JSON: {error}") from None
        if not isinstance(self.fields, dict):
            raise ValueError(f"{self.path} must hold an object, got {type(self.fields).__name__}")
        if (found := self.fields.get("model_type")) != kind:
            raise self.error("model_type", found, f"must be {kind!r}")

    def error(self, name: str, value: object, wanted: str) -> ValueError:
        """Make the error that says what a field must be."""
        return ValueError(f"{name} ({value!r}) {wanted}, in {self.path}")

    def require(self, **wanted: object) -> None:
        """Refuse fields that are there and have another value."""
        for name, value in wanted.items():
            if (found := self.fields.get(name, value)) != value:
                raise self.error(name, found, f"must be {value!r}")

    def size(self, name: str, at_least: int = 1) -> int:
        """Give a field that holds an integer."""
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise self.error(name, value, f"must be an integer of at least {at_least}")
        return value

    def heads(self, width: str, heads: str) -> int:
        """Give the number of heads, which divides the width."""
        e, h = self.size(width), self.size(heads)
        if e % h:
            raise self.error(width, e, f"must be divisible by {heads} ({h})")
        return h

    def number(self, name: str) -> float:
        """Give a field that holds a number above 0."""
        value = self.fields.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.error(name, value, "must be a number above 0")
        return float(value)

    def activation(self, name: str) -> Callable[[Tensor], Tensor]:
        """Give the function that a field names."""
        value = self.fields.get(name)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise self.error(name, value, f"must be one of {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]


@dataclass(frozen=True)
class Layout:
    """Which stored tensors make up each parameter, by the names of both."""

    outside: dict[str, str]
    layer: dict[str, tuple[str, ...]]  # several are put one below the other
    ours: str  # stands before the number of a layer in our names
    theirs: str
    prefix: str  # may stand before all names
    unread: str  # a pattern: may be there, and is not needed
    transposed: bool = False  # matrices of a layer are stored (in, out)


def with_bias(names: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Give each part's weight and bias; ``in_proj`` joins its own with an underscore."""
    return {
        f"{ours}{'_' if ours.endswith('in_proj') else '.'}{kind}": tuple(
            f"{name}.{kind}" for name in theirs
        )
        for ours, theirs in names.items()
        for kind in ("weight", "bias")
    }



def fill(model: Model, folder: Path, layout: Layout, layers: int) -> Model:
    """Fill a model without memory with its parameters, if each of them is stored and fits.

    Each tensor is copied out of the file, which is mapped into memory and let go at the end: the
    parameters are all that stays.
    """
    path = _file(folder, "model.safetensors")
    library = _needed("safetensors")
    try:
        with library.safe_open(path, framework="pt") as file:
            stored = set(file.keys())
            prefix = layout.prefix if any(x.startswith(layout.prefix) for x in stored) else ""
            names = _names(layout, layers, prefix)
            _check_names(path, stored, names, f"{re.escape(prefix)}({layout.unread})")
            state = model.state_dict()
            for name, part in _parts(state, names, layout):
                _check_part(path, name, file.get_slice(name), part)
            state = {name: torch.empty(x.shape, dtype=x.dtype) for name, x in state.items()}
            for name, part in _parts(state, names, layout):
                part.copy_(file.get_tensor(name))
    except library.SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
    model.load_state_dict(state, assign=True)  # strict: nothing is left without memory
    return model.eval()


def _names(layout: Layout, layers: int, prefix: str) -> dict[str, list[str]]:
    """List, for each parameter of ours, the stored tensors that make it up."""
    names = {ours: [prefix + theirs] for ours, theirs in layout.outside.items()}
    for i in range(layers):
        for ours, theirs in layout.layer.items():
            parts = [f"{prefix}{layout.theirs}{i}.{part}" for part in theirs]
            names[f"{layout.ours}{i}.{ours}"] = parts
    return names


def _check_names(path: Path, stored: set[str], names: dict[str, list[str]], unread: str) -> None:
    """Refuse a file that lacks a tensor, or holds one that has no place."""
    wanted = {name for parts in names.values() for name in parts}
    extra = {name for name in stored - wanted if not re.fullmatch(unread, name)}
    for what, found in (("lacks", wanted - stored), ("holds, beyond what fits,", extra)):
        if found:
            first, more = sorted(found)[:3], len(found) - 3
            also = f" and {more} more" if more > 0 else ""
            raise ValueError(f"{path} {what} {', '.join(first)}{also}")


def _parts(
    state: dict[str, Tensor], names: dict[str, list[str]], layout: Layout
) -> Iterator[tuple[str, Tensor]]:
    """Yield each stored tensor's name, and the part of a parameter that it belongs in."""
    for ours, theirs in names.items():
        parameter = state[ours]
        turned = layout.transposed and parameter.dim() == 2 and ours.startswith(layout.ours)
        for name, part in zip(theirs, parameter.chunk(len(theirs)), strict=True):
            yield name, part.mT if turned else part


def _check_part(path: Path, name: str, stored: Any, part: Tensor) -> None:
    """Refuse a tensor that does not fit its place; only the file's header is looked at."""
    found, wanted = tuple(stored.get_shape()), tuple(part.shape)
    if found != wanted:
        raise ValueError(f"{name} has shape {found}, and must have {wanted}, in {path}")
    if stored.get_dtype() not in ("F64", "F32", "F16", "BF16"):
        raise ValueError(f"{name} ({stored.get_dtype()}) must be floating point, in {path}")


def read_tokenizer(folder: Path, tokens: int) -> Any:
    """Read the tokeniser; padding and truncation are not left to it."""
    path = _file(folder, "tokenizer.json")
    library = _needed("tokenizers")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{path} is not a tokenizer: {error}") from None
    if (size := tokenizer.get_vocab_size()) > tokens:
        raise ValueError(f"{path} knows {size} tokens, and vocab_size is {tokens}")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
        also = "; pickled weights are never read" if pickled and name.endswith("tensors") else ""
        raise FileNotFoundError(f"there is no {name} in {folder}{also}")
    return path


def _needed(library: str) -> Any:
    with brought_by("trained"):
        return importlib.import_module(library)

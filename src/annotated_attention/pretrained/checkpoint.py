"""Reading checkpoints from files: a tensor that does not fit is named and refused unread."""

import importlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from annotated_attention._extras import brought_by

Model = TypeVar("Model", bound=nn.Module)
Option = TypeVar("Option")


class Config:
    """Reads ``config.json``, and names the field that does not fit."""

    def __init__(self, folder: str | os.PathLike[str], *kinds: str) -> None:
        """Read the file, and refuse a ``model_type`` that is none of ``kinds``."""
        self.folder = Path(folder)
        self.path = _file(self.folder, "config.json")
        try:
            self.fields = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.path} is not JSON: {error}") from None
        if not isinstance(self.fields, dict):
            raise ValueError(f"{self.path} must hold an object, got {type(self.fields).__name__}")
        if (found := self.fields.get("model_type")) not in kinds:
            raise self.error("model_type", found, f"must be {' or '.join(map(repr, kinds))}")

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

    def size_or(self, name: str, left_out: Any) -> Any:
        """Give a field that holds an integer of at least 1, or what stands for its absence."""
        return left_out if self.fields.get(name) is None else self.size(name)

    def flag(self, name: str, left_out: bool = False) -> bool:
        """Give a field that says yes or no; null is no answer."""
        value = self.fields.get(name)
        if not isinstance(value, bool | None):
            raise self.error(name, value, "must be true or false")
        return left_out if value is None else value

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

    def choice(self, name: str, options: Mapping[str, Option], left_out: str = "") -> Option:
        """Give what a field stands for, which names one of the options."""
        value = self.fields.get(name, left_out)
        if not isinstance(value, str) or value not in options:
            raise self.error(name, value, f"must be one of {', '.join(options)}")
        return options[value]


class Weights:
    """The tensors of a folder, in one file or several; those asked for are read, and no others."""

    def __init__(self, folder: Path, files: Mapping[Path, Any]) -> None:
        """Note what each of the open files holds."""
        self.folder, self._files = folder, files
        self.home = {name: path for path, file in files.items() for name in file.keys()}  # noqa: SIM118

    def header(self, name: str) -> tuple[tuple[int, ...], str]:
        """Give the shape of a tensor, and the name of its dtype."""
        stored = self._files[self.home[name]].get_slice(name)
        return tuple(stored.get_shape()), stored.get_dtype()

    def tensor(self, name: str) -> Tensor:
        """Read a tensor."""
        return self._files[self.home[name]].get_tensor(name)


@contextmanager
def open_weights(folder: Path) -> Iterator[Weights]:
    """Open ``model.safetensors``, or the files that ``model.safetensors.index.json`` names.

    They are mapped into memory, and let go when the block ends.
    """
    index = folder / "model.safetensors.index.json"
    single = (folder / "model.safetensors").is_file() or not index.is_file()
    homes = {} if single else _read_index(index)
    library = needed("safetensors")
    with ExitStack() as stack:
        files = {}
        for name in sorted({*homes.values()}) or ["model.safetensors"]:
            path = _file(folder, name)
            try:
                files[path] = stack.enter_context(library.safe_open(path, framework="pt"))
            except library.SafetensorError as error:
                raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
        weights = Weights(folder, files)
        if homes and homes != (stored := {name: path.name for name, path in weights.home.items()}):
            first = min(name for name, _ in homes.items() ^ stored.items())
            raise ValueError(f"{index} must name the file of each tensor; {first} is elsewhere")
        yield weights


def _read_index(path: Path) -> dict[str, str]:
    """Read which file each tensor is in; all of them are in the folder itself."""
    try:
        homes = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        files = {*homes.values()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{path} must be JSON, with a weight_map") from None
    if odd := [name for name in files if not re.fullmatch(r"[\w.-]+\.safetensors", str(name))]:
        raise ValueError(f"{path} names {odd[0]!r}, which is no safetensors file of its folder")
    return homes


def fill(model: Model, parts: Iterable[tuple[str, slice, Tensor]]) -> Model:
    """Give a model without memory its parameters, and copy them together part by part.

    Args:
        model: made under ``torch.device("meta")``.
        parts: the name of a parameter, some of its rows, and what these are to hold. Each tensor
            can be let go before the next one is made: the parameters are all that stays. Names and
            shapes are checked before, see ``check_names``.

    Returns:
        The model itself, in evaluation mode, on the CPU.
    """
    state = {name: torch.empty(x.shape, dtype=x.dtype) for name, x in model.state_dict().items()}
    for name, rows, x in parts:
        state[name][rows] = x
    model.load_state_dict(state, assign=True)  # strict: nothing is left without memory
    return model.eval()


def fill_stored(
    model: Model, weights: Weights, names: Mapping[str, Sequence[str]], unread: str
) -> Model:
    """Fill a model with stored tensors, if each of them is there and fits.

    Args:
        model: as in ``fill``.
        weights: where the tensors are.
        names: for each parameter the stored tensors that make it up, one below the other.
        unread: a pattern; tensors that may be there, and are not needed.
    """
    check_names(weights.folder, {*weights.home}, names, unread)
    parts = []
    for ours, parameter in model.state_dict().items():
        first = 0
        for name, part in zip(names[ours], parameter.chunk(len(names[ours])), strict=True):
            _check_part(weights, name, part)
            parts.append((ours, slice(first, first + len(part)), name))
            first += len(part)
    return fill(model, ((ours, rows, weights.tensor(name)) for ours, rows, name in parts))


def check_names(
    path: Path, stored: set[str], names: Mapping[str, Sequence[str]], unread: str
) -> None:
    """Refuse a file that lacks a tensor, or holds one that has no place.

    Args:
        path: the file or its folder, for the message.
        stored: the names of all tensors.
        names: for each parameter the stored tensors that make it up.
        unread: a pattern; tensors that may be there, and are not needed.
    """
    wanted = {name for parts in names.values() for name in parts}
    extra = {name for name in stored - wanted if not re.fullmatch(unread, name)}
    for what, found in (("lacks", wanted - stored), ("holds, beyond what fits,", extra)):
        if found:
            first, more = sorted(found)[:3], len(found) - 3
            also = f" and {more} more" if more > 0 else ""
            raise ValueError(f"{path} {what} {', '.join(first)}{also}")


def _check_part(weights: Weights, name: str, part: Tensor) -> None:
    """Refuse a tensor that does not fit its place; only the file's header is looked at."""
    (shape, kind), path = weights.header(name), weights.home[name]
    if shape != tuple(part.shape):
        raise ValueError(f"{name} has shape {shape}, and must have {tuple(part.shape)}, in {path}")
    if kind not in ("F64", "F32", "F16", "BF16"):
        raise ValueError(f"{name} ({kind}) must be floating point, in {path}")


def read_tokenizer(folder: Path, tokens: int) -> Any:
    """Read the tokeniser; padding and truncation are not left to it."""
    path = _file(folder, "tokenizer.json")
    library = needed("tokenizers")
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


def needed(library: str) -> Any:
    """Import a library of the extra ``trained``, or say how to get it."""
    with brought_by("trained"):
        return importlib.import_module(library)

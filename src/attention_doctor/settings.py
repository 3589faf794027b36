"""A configuration object that answers what a constructor reads."""

import argparse
import re
from collections.abc import Iterator
from typing import Any

from attention_doctor.names import plain_name, role_of, said_by, usual

# What a name says that has nothing to do with sizes: the first that is found in it.
_GUESSES: dict[str, Any] = {
    "attn_implementation": "eager", "eps": 1e-6, "theta": 10000.0, "rope_base": 10000.0,
    "norm_type": "layernorm", "act(ivation)?(_f|$)|act_": "gelu", "initializer_range": 0.02,
    "dtype": None, "device": None, r"(?<!context_)window": None, "type": None,
    "implementation": "eager",
    "scale": None, "layers": 1, "clip": None, "softcap": None, "alibi": False, "flash": False,
    "(rotary|rope)_(emb_)?(pct|percent|fraction)|partial_rotary": 1.0,
    "rotary": False, "rope": False, "depth": 1, "mode$": None, "ratio": 1, "rate": 1, "stride": 1,
    "kernel": 1, "dilation": 1, "expansion": 1, "std": 0.02,
    "spa[ct]ial_dim": 2,
}  # fmt: skip
_FLAGS = ("use_", "is_", "with_", "add_", "has_", "do_", "enable", "no_", "output_", "return_",
          "need_", "log_", "qk_norm", "gradient_", "tie_", "norm")  # fmt: skip
_UNKNOWN = object()


def guess(name: str, options: argparse.Namespace) -> Any:
    """Return what a setting of this name may be.

    Raises:
        KeyError: the name says nothing.
    """
    plain = plain_name(name)
    if role := role_of(name):
        found = usual(role, options)
        if found is not None:
            return found
    if re.match(r"scaled?_|use_scal", plain):
        return True
    flag = plain.startswith(_FLAGS) or plain.endswith(("_norm", "_flag"))
    if flag and said_by(name) != "heads":  # no_heads is their number
        return False
    for text, value in _GUESSES.items():
        if re.search(text, plain):
            return value
    if plain in ("r", "rank", "lora_rank"):
        return 2
    if plain.endswith("temperature"):
        return (options.embed_dim // options.num_heads) ** 0.5
    if role := said_by(name):
        return usual(role, options)
    raise KeyError(name)


class Settings:
    """Answers what is read from it, as attributes or as the items of a dictionary.

    A name with a usual role gets the value of that role, any other one the value of ``base``. What
    neither knows is missing at first, so that a default of the reader counts; ``settle`` guesses
    it, once a reader has failed without it.
    """

    def __init__(
        self, options: argparse.Namespace, given: dict[str, Any], base: object = None
    ) -> None:
        """Keep the sizes, what is given by name, and an object to ask for all else."""
        self.__dict__.update(given)
        self.__dict__["__asked__"] = (options, given, base, {})

    def __getattr__(self, name: str) -> Any:
        """Answer for an attribute that nobody has set."""
        found = _UNKNOWN if name.startswith("__") else self._answer(name)
        if found is _UNKNOWN:
            raise AttributeError(f"the configuration has no {name}", name=name, obj=self)
        return found

    def __getitem__(self, name: str) -> Any:
        """Answer for a key."""
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise Missing(name, self) from error

    def __setitem__(self, name: str, value: Any) -> None:
        """Set what a reader sets."""
        setattr(self, name, value)

    def __contains__(self, name: str) -> bool:
        """Tell whether there is an answer."""
        return hasattr(self, name)

    def __iter__(self) -> Iterator[str]:
        """Give the names that were answered."""
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Return the names that were answered."""
        return [name for name in self.__dict__ if not name.startswith("__")]

    def get(self, name: str, default: Any = None) -> Any:
        """Answer for a key, or give the default."""
        return getattr(self, name, default)

    def _answer(self, name: str) -> Any:
        options, given, base, read = self.__dict__["__asked__"]
        if name in read:
            return read[name]
        value = usual(role_of(name), options)
        value = getattr(base, name, _UNKNOWN) if value is None else value
        if hasattr(value, "__dict__") and not callable(value):  # a group of settings
            value = Settings(options, given, value)
        if value is not _UNKNOWN and not callable(value):
            read[name] = self.__dict__[name] = value
        return value

    def settle(self, name: str) -> None:
        """Guess an answer by the name: a group of settings where it says nothing.

        Args:
            name: what a reader asked for in vain.
        """
        options, given, _, read = self.__dict__["__asked__"]
        try:
            value = guess(name, options)
        except KeyError:
            value = Settings(options, given)
        read[name] = value
        setattr(self, name, value)

    def __repr__(self) -> str:
        """Show what was read."""
        _, given, _, read = self.__dict__["__asked__"]
        said = given | read
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in said.items())})"


class Missing(KeyError):
    """A key of ``Settings`` that has no answer yet.

    Attributes:
        name: the key.
        obj: the settings.
    """

    def __init__(self, name: str, obj: Settings) -> None:
        """Keep what was asked, and who was."""
        super().__init__(name)
        self.name, self.obj = name, obj


def settled(error: BaseException) -> bool:
    """Guess what a reader missed, if that is what the error is about; tell whether it is."""
    if isinstance(error, AttributeError | Missing) and isinstance(error.obj, Settings):
        name = str(error.name)
        if name in error.obj.__dict__["__asked__"][3]:
            return False
        error.obj.settle(name)
        return True
    return error.__cause__ is not None and settled(error.__cause__)

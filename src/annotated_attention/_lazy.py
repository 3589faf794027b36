"""Packages that import their public names on first use, and what an extra brings them."""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


@contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Let the error about a library that is missing name the extra that brings it.

    Args:
        extra: one of ``project.optional-dependencies`` in ``pyproject.toml``.

    Raises:
        ModuleNotFoundError: what is imported in the block is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install 'annotated-attention[{extra}]'",
            name=error.name,
        ) from None


def import_lazily(package: str, extra: str = "") -> None:
    """Let a package import each of its public names on first use.

    The package writes its imports under ``if TYPE_CHECKING:``, where type checkers and editors find
    them; ``import x as x`` needs no ``__all__`` beside it. They are read from there, so no name is
    entered twice, and become the package's ``__getattr__`` and ``__dir__`` (PEP 562), and its
    ``__all__`` if it has none.

    Args:
        package: the ``__name__`` of the package.
        extra: what brings the libraries that the names need, if they need any.
    """
    module: Any = sys.modules[package]
    guarded = [x for x in ast.parse(inspect.getsource(module)).body if isinstance(x, ast.If)]
    imports = [x for block in guarded for x in block.body if isinstance(x, ast.ImportFrom)]
    homes = {alias.name: str(x.module) for x in imports for alias in x.names}

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:  # a module of the package itself
            return importlib.import_module(f"{package}.{name}")
        with brought_by(extra) if extra else nullcontext():
            value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)  # found without asking from now on
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(module), *homes})

    module.__getattr__, module.__dir__ = __getattr__, __dir__
    vars(module).setdefault("__all__", sorted(homes))

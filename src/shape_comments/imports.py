"""Check the shape comments of files and folders as their modules are imported."""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

from shape_comments.checker import Checker
from shape_comments.rewrite import CHECK


class Finder:
    """Finds modules as the other finders do, and has those of some paths loaded with checks."""

    def __init__(self, checker: Checker, paths: Iterable[Path]) -> None:
        """Check what is imported from these paths from now on.

        Raises:
            FileNotFoundError: there is no such path.
        """
        checker.paths += [path.resolve(strict=True) for path in paths]
        self.checker = checker
        files = {name: getattr(x, "__file__", None) for name, x in [*sys.modules.items()]}
        # Modules that are imported already, and run unchecked.
        self.missed = [name for name, file in files.items() if file and self._is_ours(file)]
        sys.meta_path.insert(0, self)

    def _is_ours(self, file: str) -> bool:
        path = os.path.realpath(file) + os.sep
        return any(path.startswith(f"{x}{os.sep}") for x in self.checker.paths)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module."""
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]  # the others have been asked
        specs = (x.find_spec(name, path, target) for x in behind if hasattr(x, "find_spec"))
        spec = next((spec for spec in specs if spec), None)
        # A loader of another kind rewrites modules itself, and is left alone.
        if spec and type(spec.loader) is SourceFileLoader and self._is_ours(spec.loader.path):
            spec.loader = _Loader(name, spec.loader.path)
            spec.loader.checker = self.checker
        return spec


class _Loader(SourceFileLoader):
    """Loads a module with checks, past the bytecode cache: it neither reads nor writes any."""

    checker: Checker

    def exec_module(self, module: ModuleType) -> None:
        tree = self.checker.read(Path(self.path))
        if tree is None:
            super().exec_module(module)
        else:
            vars(module)[CHECK] = self.checker.function
            exec(compile(tree, self.path, "exec"), vars(module))

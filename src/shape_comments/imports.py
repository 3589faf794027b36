"""Check the shape comments of packages as their modules are imported."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from shape_comments.checker import ROOT, Checker
from shape_comments.rewrite import CHECK

PACKAGES = ("annotated_attention", "attention_doctor", "annotated_book")


def install_import_hook(packages: Sequence[str] = PACKAGES, root: Path = ROOT) -> Checker:
    """Check the comments of packages from now on; modules never imported count as unreached.

    Raises:
        RuntimeError: a package is already imported, and would run unchecked.
    """
    checker = Checker(root)
    for package in packages:
        if package in sys.modules:
            raise RuntimeError(f"{package} was imported before its shape comments could be checked")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"there is no package {package}", name=package)
        checker.packages += [Path(folder) for folder in spec.submodule_search_locations]
    sys.meta_path.insert(0, Finder(packages, checker))
    return checker


class Finder:
    """Finds packages' modules as the other finders do, and has them loaded with checks."""

    def __init__(self, packages: Sequence[str], checker: Checker) -> None:
        """Look for ``packages`` and what is in them."""
        self.packages, self.checker = packages, checker

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of the packages, and of no other."""
        if name.partition(".")[0] not in self.packages:
            return None
        specs = (x.find_spec(name, path, target) for x in sys.meta_path if x is not self)
        spec = next((spec for spec in specs if spec), None)
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
            spec.loader.checker = self.checker
        return spec


class _Loader(SourceFileLoader):
    """Loads a module with checks, past the bytecode cache: it neither reads nor writes any."""

    checker: Checker

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.checker.read(Path(self.path)), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[CHECK] = self.checker.function
        super().exec_module(module)

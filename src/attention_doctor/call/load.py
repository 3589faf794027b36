"""Import a file from anywhere, and find what it defines."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from attention_doctor.call.places import describe
from attention_doctor.call.roles import Unasked


def load(path: str, name: str) -> tuple[Any, dict[str, Any]]:
    """Import a file from anywhere: as part of its package, or with its folder on the path.

    Returns:
        What has this name, and all names of the file.

    Raises:
        Unasked: there is no such file or name, or importing it fails.
    """
    file = Path(path).resolve()
    if not file.is_file():
        remedy = f"Check the path: it starts at {Path.cwd()}."
        raise Unasked("import", f"there is no file {path}", remedy)
    root, in_package = dotted(file)
    sys.path.insert(0, str(root))
    sys.path += {str(Path.cwd())} - {*sys.path}  # what is imported from the top of a project
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing appears beside the file
    try:
        module = _run(file) if root == file.parent else importlib.import_module(in_package)
    except SystemExit as error:  # a file that is a script, and ends the interpreter
        remedy = 'Put what runs as a script under `if __name__ == "__main__":`.'
        raise Unasked("import", f"SystemExit: {error.code}", remedy) from None
    except Exception as error:
        remedy = "Run `python` on the file first: it must be importable on its own."
        if isinstance(error, ModuleNotFoundError) and error.name:
            remedy = f"Install {error.name} beside this package, or run from where it is found."
        raise Unasked("import", describe(error), remedy) from error
    finally:
        sys.dont_write_bytecode = kept
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            kinds = (type, FunctionType, nn.Module)
            public = {x: y for x, y in vars(target).items() if x[0] != "_" and isinstance(y, kinds)}
            own = [x for x, y in public.items() if getattr(y, "__module__", "") == module.__name__]
            remedy = f"Name one of: {', '.join(own)}." if own else "It defines none."
            raise Unasked("import", f"{path} has no class or function {name}", remedy)
        target = getattr(target, part)
    if not callable(target):
        kind = type(target).__name__
        remedy = "Name a class, a function or a module."
        raise Unasked("import", f"{name} is an object of type {kind}", remedy)
    return target, vars(module)


def dotted(file: Path) -> tuple[Path, str]:
    """Give the folder that a file is imported from, and its name there."""
    root, names = file.parent, [file.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    return root, ".".join(names)


def _run(file: Path) -> ModuleType:
    """Run a file as a module under a name that no other module has."""
    spec = importlib.util.spec_from_file_location(f"examined_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module

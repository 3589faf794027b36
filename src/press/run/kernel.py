"""What runs inside a chapter's kernel while the book is built, beside the chapter itself."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from shape_comments.cells import install_in_kernel
from shape_comments.checker import Checker
from shape_comments.imports import PACKAGES

_opened: set[Path] = set()
_elsewhere = False  # whether the packages run in another process, too
_root = Path()
_checker = Checker()


def start(script: str, root: str, cells: str) -> None:
    """Check the chapter's shape comments, and note which files of the checkout it opens.

    Args:
        script: the chapter's path.
        root: the checkout's path.
        cells: what ``install_in_kernel`` wants to know of each code cell, as JSON.
    """
    global _root, _checker
    from IPython import get_ipython

    _root = Path(root)
    _checker = install_in_kernel(get_ipython(), json.loads(cells), Path(script))
    sys.addaudithook(_note)


def report() -> str:
    """Give, as JSON, the files that the chapter depends on, and shape comments never reached."""
    needed = imported(_root) | {str(path) for path in [*_opened]}
    if _elsewhere:
        files = (path for name in PACKAGES for path in (_root / "src" / name).rglob("*.py"))
        needed |= {str(path.relative_to(_root)) for path in files}
    return json.dumps({"needed": sorted(needed), "unreached": _checker.unreached()})


def imported(root: Path) -> set[str]:
    """Give the files under ``src`` of which this process has imported modules."""
    files = {Path(getattr(module, "__file__", None) or "") for module in [*sys.modules.values()]}
    return {str(x.relative_to(root)) for x in files if x.is_relative_to(root / "src")}


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    global _elsewhere
    if event == "subprocess.Popen":
        _elsewhere |= any(name in str(arguments[1]) for name in PACKAGES)
    # Of what lies under src, modules are asked for when all is done, and the site links the rest.
    if event != "open" or not isinstance(arguments[0], str):
        return
    path, flags = Path(arguments[0]).absolute(), arguments[2]
    if flags & (os.O_WRONLY | os.O_RDWR):  # Python writes bytecode, for one
        return
    if path.is_relative_to(_root):
        path = path.relative_to(_root)
        of_the_site = path.suffix in {".css", ".js", ".py", ".pyc"} and path.parts[0] == "src"
        if not of_the_site and path.parts[0] not in {"build", "site"} and path.parts[0][0] != ".":
            _opened.add(path)

"""What runs inside a chapter's kernel while the book is built, beside the chapter itself."""

import json
import sys
from pathlib import Path
from typing import Any

from book import shapes

_opened: set[str] = set()
_watching = True
_root = Path()


def start(script: str, root: str, cells: str) -> None:
    """Check the chapter's shape comments, and note which files of the checkout it opens.

    Args:
        script: the chapter's path.
        root: the checkout's path.
        cells: what ``shapes.install_in_kernel`` wants to know of each code cell, as JSON.
    """
    global _root
    from IPython import get_ipython

    _root = Path(root)
    shapes.install_in_kernel(get_ipython(), json.loads(cells), Path(script))
    sys.addaudithook(_note_open)


def report() -> str:
    """Give, as JSON, the files that were opened and the shape comments never reached."""
    global _watching
    _watching = False
    return json.dumps({"opened": sorted(_opened), "unreached": shapes.unreached_report()})


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    # Code under src counts as a whole, so only chapters and data files are of interest.
    if event != "open" or not _watching or not isinstance(arguments[0], str):
        return
    path, mode = Path(arguments[0]).absolute(), arguments[1]
    if mode is not None and any(letter in mode for letter in "wax+"):
        return
    if path.is_relative_to(_root):
        relative = path.relative_to(_root)
        if relative.parts[0] not in {"src", "build", "site"} and relative.parts[0][0] != ".":
            _opened.add(str(relative))

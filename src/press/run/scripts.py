"""Reads chapters (percent scripts) and writes their paired notebooks.

The script is the source. Its pair has no outputs and cell ids that depend on nothing but the
cells, so that writing it twice gives the same bytes. A cell that links lead to has a name, which is
its id: JupyterLab finds it by ``#cell-id=…``.
"""

import copy
import hashlib
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[3]
CHAPTERS = ROOT / "notebooks"
EXECUTED = ROOT / "build" / "notebooks"
# Cells with one of these tags open in Jupyter with their source folded.
FOLDED = {"proof", "hide-input", "fold-input", "solution"}


@dataclass(frozen=True)
class CodeCell:
    """A code cell: its source, where it stands in the script, and how it is marked."""

    source: str
    line: int  # of the first source line, counted from 1
    section: int  # how many `##` headings stand above it
    tags: list[str]


def notebook(script: Path) -> NotebookNode:
    """Give the script as a notebook without outputs, with deterministic cell ids."""
    return copy.deepcopy(_parsed(script.read_text(encoding="utf-8")))


@cache  # a chapter is asked for many times, and parsing one takes a tenth of a second
def _parsed(text: str) -> NotebookNode:
    node = jupytext.reads(text, fmt="py:percent")
    seen: Counter[str] = Counter()
    for cell in node.cells:
        digest = hashlib.sha1(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
        seen[digest] += 1
        unnamed = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        cell.id = cell.metadata.get("name", unnamed)
        if FOLDED.intersection(cell.metadata.get("tags", [])):
            cell.metadata.jupyter = NotebookNode(source_hidden=True)
    node.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    node.nbformat, node.nbformat_minor = 4, 5
    return node


def executed(name: str) -> NotebookNode:
    """Give the notebook of a script as it ran last."""
    return nbformat.read(EXECUTED / f"{name}.ipynb", as_version=4)


def pair_text(script: Path) -> str:
    """Give the exact text of the ``.ipynb`` that belongs to a script."""
    return write(notebook(script))


def write(node: NotebookNode) -> str:
    """Give the text of a notebook's file."""
    return nbformat.writes(node, indent=1, ensure_ascii=False) + "\n"


def code_cells(script: Path) -> list[CodeCell]:
    """List the code cells of a script, in order, with their line numbers."""
    lines = script.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(r"# %%(?:\s|$)", line)]
    cells = notebook(script).cells
    if len(starts) != len(cells):
        raise ValueError(f"{script.name}: every cell must start with a line `# %%`")
    found, section = [], 0
    for start, cell in zip(starts, cells, strict=True):
        if cell.cell_type == "markdown":
            section += len(re.findall(r"^## ", cell.source, re.MULTILINE))
        elif cell.source:
            tags = cell.metadata.get("tags", [])
            found.append(CodeCell(cell.source, start + 2, section, tags))
    return found


def main() -> None:
    """Write the pair of each script named on the command line."""
    for name in sys.argv[1:]:
        script = Path(name)
        pair, text = script.with_suffix(".ipynb"), pair_text(script)
        if not pair.exists() or pair.read_text(encoding="utf-8") != text:
            pair.write_text(text, encoding="utf-8")
            print(f"{script.stem}: wrote {pair}", flush=True)
        os.utime(pair)


if __name__ == "__main__":
    main()

"""Check the shape comments of a chapter as the kernel runs its cells."""

import ast
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from book.shapes.checker import ROOT, Checker
from book.shapes.rewrite import CHECK


def install_in_kernel(
    shell: Any, cells: Sequence[Mapping[str, Any]], path: str | Path, root: Path = ROOT
) -> Checker:
    """Check a chapter's comments while this kernel runs it.

    Each cell gives its ``source``, the ``line`` of the chapter's file at which it starts, the
    ``section`` (cells with the same one share their letters), and its ``tags``: a stub, tagged
    ``exercise``, is exempt.

    Raises:
        ShapeCommentError: a comment is malformed, or stands where it cannot be checked.
    """
    checker = Checker(root)
    trees = [
        (
            source,
            None if "exercise" in cell["tags"] else _instrument(checker, shell, cell, root / path),
        )
        for cell in cells
        if (source := cell["source"].strip())
    ]
    shell.user_ns[CHECK] = checker.function
    swap = _Swap(trees)
    shell.events.register("pre_run_cell", swap.pre_run_cell)
    shell.ast_transformers.append(swap)
    return checker


def _instrument(
    checker: Checker, shell: Any, cell: Mapping[str, Any], path: Path
) -> ast.Module | None:
    """Put the checks into a cell; None if it is no Python, which IPython says when it runs."""
    source = cell["source"]
    # IPython turns magics into Python, line by line, and drops blank lines at the start.
    first = cell["line"] + source[: len(source) - len(source.lstrip())].count("\n")
    try:
        python = shell.transform_cell(source)
        return checker.instrument(python, path, line=first, section=cell["section"])
    except SyntaxError:
        return None


class _Swap:
    """Swaps the syntax tree of each cell for the one with checks, in the order of the chapter."""

    def __init__(self, cells: Iterable[tuple[str, ast.Module | None]]) -> None:
        self.cells = deque(cells)
        self.now: ast.Module | None = None

    def pre_run_cell(self, info: Any) -> None:
        """Take the next cell if this is the one; another is none of the chapter's."""
        if self.cells and info.raw_cell.strip() == self.cells[0][0]:
            self.now = self.cells.popleft()[1]

    def visit(self, tree: ast.Module) -> ast.Module:
        """Stand in for the tree that IPython has parsed."""
        tree, self.now = self.now or tree, None
        return tree

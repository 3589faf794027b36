"""Check the shape comments of a chapter as the kernel runs its cells."""

import ast
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shape_comments.checker import ROOT, Checker
from shape_comments.rewrite import CHECK


def install_in_kernel(
    shell: Any, cells: Iterable[Mapping[str, Any]], path: str | Path, root: Path = ROOT
) -> Checker:
    """Check a chapter's comments while this kernel runs it.

    Each cell gives its ``source``, the ``line`` of the chapter's file at which it starts, the
    ``section`` (cells with the same one share their letters), and its ``tags``: a stub, tagged
    ``exercise``, is exempt.

    Raises:
        ShapeCommentError: a comment is malformed, or stands where it cannot be checked.
    """
    checker = Checker(root)
    trees = deque[tuple[str, ast.Module]]()
    for cell in cells:
        source = cell["source"].lstrip()
        if not source or "exercise" in cell["tags"]:
            continue
        # IPython turns magics into Python, line by line, and drops blank lines at the start.
        first = cell["line"] + cell["source"].removesuffix(source).count("\n")
        with suppress(SyntaxError):  # which IPython says when it runs
            python = shell.transform_cell(cell["source"])
            checked = checker.instrument(python, root / path, line=first, section=cell["section"])
            trees.append((ast.dump(ast.parse(python)), checked))
    shell.user_ns[CHECK] = checker.function
    shell.ast_transformers.append(_Swap(trees))
    return checker


@dataclass
class _Swap:
    """Swaps the syntax tree of each cell for the one with checks, in the order of the chapter."""

    cells: deque[tuple[str, ast.Module]]  # as it is parsed, and with checks

    def visit(self, tree: ast.Module) -> ast.Module:
        """Take the next cell if this is the one; another is none of the chapter's."""
        if self.cells and ast.dump(tree) == self.cells[0][0]:
            return self.cells.popleft()[1]
        return tree

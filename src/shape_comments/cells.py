"""Check the shape comments of cells as IPython runs them."""

import ast
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from shape_comments.checker import Checker
from shape_comments.rewrite import CHECK


class Cells:
    """Swaps the syntax tree of each cell for the one with checks, in the order they are added."""

    def __init__(self, shell: Any, checker: Checker) -> None:
        """Begin."""
        self.shell, self.checker = shell, checker
        self.trees = deque[tuple[str, ast.Module]]()  # as a cell is parsed, and with checks
        self.told = set[tuple[str, str]]()  # the levels and the texts
        self.number = 1  # of the next cell
        shell.user_ns[CHECK] = checker.function
        shell.ast_transformers.append(self)

    def add(self, source: str, path: Path, line: int = 1, section: object = None) -> None:
        """Prepare a cell, which begins in a line of a file."""
        # IPython turns magics into Python, line by line, and drops blank lines at the start.
        first = line + source[: len(source) - len(source.lstrip())].count("\n")
        with suppress(SyntaxError):  # which IPython says when it runs
            python = self.shell.transform_cell(source)
            checked = self.checker.instrument(python, path, first, section)
            if checked is not None:
                self.trees.append((ast.dump(ast.parse(python)), checked))

    def visit(self, tree: ast.Module) -> ast.Module:
        """Take the next cell if this is the one; another is none of these."""
        if self.trees and ast.dump(tree) == self.trees[0][0]:
            return self.trees.popleft()[1]
        return tree

    def before(self, info: Any) -> None:
        """Prepare the cell that is about to run."""
        self.trees.clear()
        self.add(info.raw_cell, self.checker.root / f"cell {self.number}", section=self.number)

    def after(self, result: Any) -> None:
        """Say what was false in it, once."""
        said = {y for x in self.checker.comments for y in x.failed.items()}
        for level, text in said - self.told:
            print(f"✗ {level}: {text}", file=sys.stderr)
        self.told = said
        self.number = (result.execution_count or 0) + 1


def load_ipython_extension(shell: Any) -> None:
    """Check every cell from now on, and say below it what was false."""
    cells = Cells(shell, Checker(Path.cwd()))
    shell.events.register("pre_run_cell", cells.before)
    shell.events.register("post_run_cell", cells.after)

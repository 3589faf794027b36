"""The checker: it rewrites sources, checks what they compute, and knows what was reached."""

import ast
import importlib.util
import sys
from collections.abc import Callable
from contextlib import suppress
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

from shape_comments.comments import TWO_SIZES, Comment, ShapeCommentError, find_comments
from shape_comments.grammar import NOTHING, Claim, read_comment
from shape_comments.letters import Letters, compare, forget, pair
from shape_comments.rewrite import AGAIN, BEGIN, PLAIN, UNPACK, Rewriter
from shape_comments.values import find_shape, find_variables

UNBOUND = Letters()  # where every call and every section begins


class Checker:
    """Checks sources that belong together: a project, or a notebook. It notes what is false.

    What to read, to refuse, to compare and to raise are methods, for those who are stricter.
    """

    def __init__(self, root: Path, own_lines: str = "") -> None:
        """Start without comments; ``root`` is where the paths in messages begin."""
        self.root, self.own_lines = root, own_lines
        self.comments: list[Comment] = []
        self.files: set[Path] = set()  # read so far
        self.paths: list[Path] = []  # the files and folders that all count
        self.letters: dict[object, Letters] = {}  # what is bound in each place
        self.function = self._make_function()

    def read(self, path: Path) -> ast.Module | None:
        """Instrument a file; None if there is nothing to check."""
        self.files.add(path.resolve())
        return self.instrument(importlib.util.decode_source(path.read_bytes()), path)

    def read_all(self) -> None:
        """Read the files that nothing has imported."""
        for path in self.paths:
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                if file.resolve() not in self.files:
                    with suppress(SyntaxError, UnicodeDecodeError):
                        self.read(file)

    def instrument(
        self, source: str, path: Path, line: int = 1, section: object = None
    ) -> ast.Module | None:
        """Parse a source and put the checks in, if it has any comments.

        Args:
            source: the text.
            path: the file that it comes from.
            line: the number, in that file, of the first line of ``source``.
            section: what stands outside functions shares its letters with the same section.

        Raises:
            SyntaxError: the source is no Python.
        """
        places = [*find_comments(source, self.read_comment, self.own_lines)]
        if not places and not self.reads_all:
            return None
        lines = source.split("\n")
        path = path.resolve()
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        tree = ast.parse(source, str(path))

        def make(row: int, claim: Claim = NOTHING) -> Comment:
            where = name.as_posix(), row + line - 1, lines[row - 1].strip()
            return Comment(*where, claim=claim, section=(path, section))

        rewriter = self.rewriter(tree, source, make)
        for place in places:
            comment = make(place.line, place.claim)
            if reason := place.unclear or rewriter.attach(comment, place):
                self.refuse(comment, reason)
        rewriter.finish()
        return tree

    def seen(self) -> dict[str, Comment]:
        """Say what became of the comments of each line, in the order of the files."""
        found: dict[str, Comment] = {}
        for comment in sorted(self.comments, key=lambda x: (x.path, x.line)):
            line = Comment(comment.path, comment.line, comment.source)
            found.setdefault(comment.where, line).add(comment)
        return found

    read_comment = staticmethod(read_comment)
    pair = staticmethod(pair)
    reads_all = False  # also sources without such comments

    def rewriter(self, tree: ast.Module, source: str, make: Callable[..., Comment]) -> Rewriter:
        """Give what puts in the calls."""
        return Rewriter(tree, self.comments)

    def refuse(self, comment: Comment, reason: str) -> None:
        """Note that a comment cannot be checked."""
        comment.unclear = reason
        self.comments.append(comment)

    def fail(self, comment: Comment, error: Exception, frame: FrameType) -> None:
        """Note that a comment is false, or that there was nothing to compare it with."""
        if isinstance(error, ShapeCommentError):
            comment.failed.setdefault(error.level, str(error))
        else:  # a property of the value may raise, too
            comment.unclear = str(error)

    def _make_function(self) -> Callable[..., Any]:
        """Make the function that rewritten code calls. Dynamo traces it, so it holds little."""

        def check(number: int, value: Any, mode: int = PLAIN) -> Any:
            if mode == UNPACK and not isinstance(value, (tuple, list)):
                value = tuple(value)
            torch = sys.modules.get("torch")  # not imported for code that does without
            if not (torch and (torch.compiler.is_compiling() or torch.jit.is_tracing())):
                self.check(number, value, mode, sys._getframe(1))
            return value

        return check

    def check(self, number: int, value: Any, mode: int, frame: FrameType) -> None:
        """Compare a value with the comment of a number."""
        comment = self.comments[number]
        place = find_place(comment, frame)
        letters = self.letters.get(place, UNBOUND)
        if mode == BEGIN:
            self.letters[place] = UNBOUND
            return
        if mode == AGAIN:
            self.letters[place] = forget(letters, value)
            return
        comment.reached = True
        try:
            found = find_shape(frame.f_locals.get(comment.name) if comment.name else value)
            variables = find_variables(comment.variables, frame)
            self.letters[place] = compare(letters, comment, found, variables, self.pair)
            comment.compared += 1
        except Exception as error:
            if getattr(error, "level", "") == TWO_SIZES:
                self.letters[place] = UNBOUND  # which of the two is meant is not known
            self.fail(comment, error, frame)


def find_place(comment: Comment, frame: FrameType) -> object:
    """Say whose letters a comment shares: those of the call, or outside functions of the section.

    A frame has its identity to itself until it ends; the next that gets it begins anew.
    """
    return id(frame) if frame.f_code.co_flags & CO_OPTIMIZED else comment.section

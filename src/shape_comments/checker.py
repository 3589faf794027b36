"""The checker: it rewrites sources, checks what they compute, and knows what was reached."""

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from shape_comments.comments import Comment, ShapeCommentError, find_arguments, find_comments
from shape_comments.letters import Letters
from shape_comments.rewrite import rewrite
from shape_comments.values import find_shape, find_variables

ROOT = Path(__file__).resolve().parents[2]
Held = dict[str, Letters]  # the local that each call of a function has; Dynamo can make it, too


class Checker:
    """Checks sources that belong together: a package, or a chapter."""

    def __init__(self, root: Path = ROOT) -> None:
        """Start without comments; ``root`` is where the paths in messages begin."""
        self.root = root
        self.comments: list[Comment] = []
        self.mismatches: list[str] = []  # every one raised, also where the caller swallowed it
        self.reached_elsewhere: set[str] = set()  # in other processes of the same test run
        self.files: set[Path] = set()  # read so far
        self.packages: list[Path] = []  # folders whose files all count
        self.sections: dict[object, Letters] = {}
        self.unbound = Letters()  # where every call and every section begins
        self.function = self._make_function()

    def read(self, path: Path) -> ast.Module:
        """Instrument a file."""
        self.files.add(path.resolve())
        return self.instrument(importlib.util.decode_source(path.read_bytes()), path)

    def instrument(
        self, source: str, path: Path, *, line: int = 1, section: object = None
    ) -> ast.Module:
        """Parse a source and put the checks in.

        Args:
            source: the text.
            path: the file that it comes from.
            line: the number, in that file, of the first line of ``source``.
            section: what stands outside functions shares its letters with the same section.

        Raises:
            ShapeCommentError: a comment is malformed, or stands where it cannot be checked.
            SyntaxError: the source is no Python.
        """
        path = path.resolve()
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        tree = ast.parse(source, str(path))
        comments = find_comments(source, name.as_posix(), line, (path, section))
        arguments = find_arguments(tree, source, name.as_posix(), line)
        return rewrite(tree, comments, arguments, self._number)

    def reached(self) -> set[str]:
        """Say where the comments stand that something has reached in this process."""
        return {x.where for x in self.comments if x.reached}

    def unreached(self) -> list[str]:
        """Say of each comment that nothing has reached where it stands."""
        for path in (path for package in self.packages for path in sorted(package.rglob("*.py"))):
            if path.resolve() not in self.files:
                self.read(path)
        reached = self.reached() | self.reached_elsewhere
        ordered = sorted(self.comments, key=lambda x: (x.path, x.line))
        missed = {x.where: x.source for x in ordered if x.where not in reached}
        return [f"{where}: no run reaches this shape comment: {x}" for where, x in missed.items()]

    def _number(self, comment: Comment) -> int:
        self.comments.append(comment)
        return len(self.comments) - 1

    def _make_function(self) -> Callable[..., Any]:
        """Make the function that rewritten code calls. Dynamo traces it, so it holds little."""

        def check(held: Held | None, number: int | None, value: Any, unpack: bool = False) -> Any:
            if unpack and not isinstance(value, (tuple, list)):
                value = tuple(value)
            torch = sys.modules.get("torch")  # not imported for a chapter that does without
            if not (torch and (torch.compiler.is_compiling() or torch.jit.is_tracing())):
                self._check(held, number, value, sys._getframe(1))
            return value

        return check

    def _check(
        self, held: Held | None, number: int | None, value: object, frame: FrameType
    ) -> None:
        comment = None if number is None else self.comments[number]
        kept: dict[Any, Letters] = self.sections if held is None else held
        place = (comment and comment.section) if held is None else ""
        letters = kept.get(place, self.unbound)
        found = find_shape(value)
        if comment is not None and comment.argument and found == "NoneType":
            return
        try:
            if comment is None:
                letters.leave()
            else:
                comment.reached = True
                kept[place] = letters.after(comment, found, find_variables(comment, frame))
        except ShapeCommentError as error:
            self.mismatches.append(str(error))
            raise

"""Find the shape comments of a source, and the shapes that its docstrings give arguments."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shape_comments.grammar import GROUP, Shape, parse_comment, parse_shape

_ARGUMENT = re.compile(r"\s*\*{0,2}(\w+): (\([^()]*\)(?:,? or \([^()]*\))*)")


class ShapeCommentError(AssertionError):
    """A shape comment is false, malformed, or stands where it cannot be checked."""


@dataclass(eq=False)
class Comment:
    """A shape comment, or the shapes an argument may have (``argument`` is its name)."""

    path: str
    line: int
    source: str
    shapes: tuple[Shape, ...] = ()
    section: object = None  # whose letters it shares when it stands outside every function
    argument: str = ""
    variables: frozenset[str] = frozenset()  # letters that may be variables here
    reached: bool = False

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.path}:{self.line}"

    def error(self, reason: str, *notes: str) -> ShapeCommentError:
        """Build the error that says where the comment stands and shows its line."""
        return ShapeCommentError("\n    ".join((f"{self.where}: {reason}", self.source, *notes)))

    def letters(self) -> set[str]:
        """Return the names in its shapes."""
        return {name for shape in self.shapes for axis in shape for name in axis.names}


def find_comments(source: str, path: str, line: int, section: object) -> dict[int, Comment]:
    """Find the shape comments, by line; ``line`` is the number of the source's first one."""
    found: dict[int, Comment] = {}
    if not re.search(r"#.*\(", source):
        return found
    lines = source.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row = token.start[0]
        text = lines[row - 1].strip()
        comment = Comment(path, row + line - 1, text, section=section)
        try:
            shapes = parse_comment(token.string)
        except ValueError as error:
            if text.startswith("#"):
                continue  # on a line of its own there is nothing to check
            raise comment.error(str(error)) from None
        if shapes is not None:
            comment.shapes = shapes
            found[row] = comment
    return found


def find_arguments(
    tree: ast.Module, source: str, path: str, line: int
) -> dict[ast.AST, list[Comment]]:
    """Find the shapes in the ``Args`` of docstrings, by the function they belong to."""
    found: dict[ast.AST, list[Comment]] = {}
    if "Args:" not in source:
        return found
    lines = source.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or ast.get_docstring(node) is None:
            continue
        doc = node.body[0]
        for row, entry in _entries(lines[: doc.end_lineno], doc.lineno):
            comment = Comment(path, row + line - 1, lines[row - 1].strip(), argument=entry[1])
            try:
                shapes = [parse_shape(group) for group in GROUP.findall(entry[2])]
            except ValueError as error:
                raise comment.error(str(error)) from None
            comment.shapes = tuple(shape for shape in shapes if shape is not None)
            if comment.shapes:
                found.setdefault(node, []).append(comment)
    return found


def _entries(lines: Sequence[str], first: int) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield the arguments with parentheses, and their lines, from the line ``first`` on."""
    outer = inner = None  # the indentation of "Args:", and of its entries
    for row, text in enumerate(lines[first - 1 :], first):
        indent = len(text) - len(text.lstrip())
        if text.strip() == "Args:":
            outer = indent
        elif text.strip() and outer is not None:
            if indent <= outer:
                return
            inner = inner or indent
            if indent == inner and (entry := _ARGUMENT.match(text)):
                yield row, entry

"""The book's own way with shape comments: none can be false, malformed or unreached unseen.

``shape_comments`` checks anyone's code and notes what is false. Here a mismatch is raised where it
happens, what cannot be read or checked is refused, only one way of writing is allowed, the shapes
that docstrings give arguments count, too, and a full test run has to reach every comment.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from shape_comments.cells import Cells
from shape_comments.checker import Checker, find_place
from shape_comments.comments import Comment, Place, ShapeCommentError
from shape_comments.grammar import LETTER, Claim, Shape, parse_axis
from shape_comments.imports import Finder
from shape_comments.letters import Option, name_values
from shape_comments.rewrite import BEGIN, FUNCTION, NO_VALUE, Rewriter
from shape_comments.values import Found

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("annotated_attention", "attention_doctor", "annotated_book")
TUPLE = re.compile(r"(?<![\w\])])\(([^()]*)\)")  # f(x) is a call, not a shape
_ITEM = re.compile(r"\w+(\s*[*+-]\s*\w+)*|\.\.\.")
_ARGUMENT = re.compile(r"\s*\*{0,2}(\w+): (\([^()]*\)(?:,? or \([^()]*\))*)")
DOCSTRING = "docstring"
LEAVE = -1  # beside the modes of ``shape_comments.rewrite``


def read_comment(text: str, whole: bool = False) -> list[Claim]:
    """Return what a comment of the book claims; nothing if it is prose.

    It holds tuples. Only those after the last ``->`` count, or all of them where there is none. An
    item is a letter, an integer, an expression in ``*``, ``+`` and ``-``, or ``...``. ``(n,)`` is
    one axis, ``()`` a scalar. No other parentheses may stand beside them.

    Raises:
        ValueError: it looks like a shape comment and breaks the grammar.
    """
    shapes = [parse_shape(group) for group in TUPLE.findall(text)]
    if all(shape is None for shape in shapes):
        return []
    if None in shapes or re.search(r"[()]", TUPLE.sub("", text)):
        raise ValueError("a shape comment holds no other parentheses")
    claimed = TUPLE.findall(text.rpartition("->")[2])
    if not claimed:
        raise ValueError("no shape stands after the last ->")
    return [Claim(tuple(shape for shape in shapes[-len(claimed) :] if shape is not None))]


def parse_shape(content: str) -> Shape | None:
    """Parse what stands between parentheses; None means that it is prose.

    Raises:
        ValueError: it looks like a shape and breaks the grammar.
    """
    items = [item.strip() for item in content.split(",")]
    one = len(items) == 1 and items[0]
    if items[-1] == "":
        items.pop()
    axes = [axis for x in items if (axis := _ITEM.fullmatch(x) and parse_axis(x))]
    letters = any(map(LETTER.fullmatch, items))
    if len(axes) < len(items):
        if letters:
            bad = next(x for x in items if not (_ITEM.fullmatch(x) and parse_axis(x)))
            raise ValueError(f"({content}) is no shape: {bad or 'nothing'} is no axis")
        return None
    if axes and not letters and all(x.text.isidentifier() for x in axes):
        return None
    if one:
        if not axes[0].names:
            return None  # a number or dots in parentheses
        raise ValueError(f"write ({one},) for a shape with one axis")
    if items.count("...") > 1:
        raise ValueError(f"({content}) has ... more than once")
    return tuple(axes)


class StrictChecker(Checker):
    """Raises what is false, and refuses what cannot be checked."""

    read_comment = staticmethod(read_comment)
    reads_all = True

    def __init__(self, root: Path = ROOT) -> None:
        """Start; a shape on a line of its own is refused, since there is nothing to check."""
        super().__init__(root, own_lines="refused")
        # By place, as the letters: an argument that does not fit its docstring.
        self.misfits: dict[object, tuple[Comment, Exception]] = {}

    def rewriter(self, tree: ast.Module, source: str, make: Callable[..., Comment]) -> Rewriter:
        """Put in the checks of docstrings, too."""
        return _Rewriter(tree, self.comments, find_arguments(tree, source, make))

    def refuse(self, comment: Comment, reason: str) -> None:
        """Raise: a comment is malformed, or stands where it cannot be checked."""
        raise comment.error(reason)

    def check(self, number: int, value: Any, mode: int, frame: FrameType) -> None:
        """Compare; what an argument should have been is raised once the function accepts it.

        A function that refuses the argument with an exception of its own is right to do so.
        """
        comment = self.comments[number]
        place = find_place(comment, frame)
        if mode == BEGIN:
            self.misfits.pop(place, None)
        elif comment.kind == DOCSTRING and mode != LEAVE:
            if frame.f_locals.get(comment.name) is None:
                return
        elif place in self.misfits:
            comment, error = self.misfits[place]
            super().fail(comment, error, frame)
            raise ShapeCommentError(str(error))
        if mode != LEAVE:
            super().check(number, value, mode, frame)

    def fail(self, comment: Comment, error: Exception, frame: FrameType) -> None:
        """Raise that a comment is false."""
        if comment.kind == DOCSTRING:
            self.misfits.setdefault(find_place(comment, frame), (comment, error))
            return
        super().fail(comment, error, frame)
        raise error

    @staticmethod
    def pair(comment: Comment, found: Found) -> list[list[Option]]:
        """Say which value must have which shape: each one."""
        shapes, values = comment.claim.shapes, name_values(found)
        if not values:
            raise comment.error("the value is empty, so there is nothing to compare")
        if comment.claim.either:
            return [[(shape, *value) for value in values for shape in shapes]]
        if len(shapes) not in (1, len(values)):
            got = "one value" if len(values) == 1 else f"{len(values)} values"
            raise comment.error(f"the comment has {len(shapes)} shapes for {got}")
        each = shapes * (len(values) // len(shapes))
        return [[(shape, *value)] for shape, value in zip(each, values, strict=True)]

    def unreached(self) -> list[str]:
        """Say of each comment that nothing has reached where it stands."""
        self.read_all()
        said = "{}: no run reaches this shape comment: {}".format
        return [said(where, x.source) for where, x in self.seen().items() if not x.reached]


class _Rewriter(Rewriter):
    """Checks a function's arguments as it begins, and asks again as it ends."""

    def __init__(
        self,
        tree: ast.Module,
        comments: list[Comment],
        arguments: dict[Any, list[Comment]],
    ) -> None:
        super().__init__(tree, comments)
        self.arguments = arguments

    def attach(self, comment: Comment, place: Place) -> str:
        """Find what a comment is about; unpacked values need targets of which each has a shape."""
        node = self.ends[place.row][0] if place.row in self.ends else None
        for parts in (getattr(x, "elts", []) for x in getattr(node, "targets", [])):
            if any(isinstance(x, ast.Starred | ast.Tuple | ast.List) for x in parts):
                return "a nested or starred target cannot be checked"
            shapes = len(comment.claim.shapes)
            if parts and shapes not in (1, len(parts)):
                return f"the comment has {shapes} shapes for {len(parts)} targets"
        return super().attach(comment, place)

    def finish(self) -> None:
        """Ask for arguments behind the docstring; with its result a function has accepted them."""
        for node, comments in self.arguments.items():
            node.body.append(self.statement(0, None, LEAVE, node.body[-1]))
            node.body[1:1] = [self.ask(comment, node.body[0], (node,)) for comment in comments]
        for node, _, outer in self.ends.values():
            if isinstance(node, ast.Return) and outer[-1] in self.arguments:
                node.value = self.call(0, node.value or ast.Constant(None), LEAVE, node)
        super().finish()


def find_arguments(
    tree: ast.Module, source: str, make: Callable[..., Comment]
) -> dict[Any, list[Comment]]:
    """Find the shapes in the ``Args`` of docstrings, by the function they belong to.

    Raises:
        ShapeCommentError: one is malformed, or belongs to no argument.
    """
    found: dict[Any, list[Comment]] = {}
    if "Args:" not in source:
        return found
    lines = source.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, FUNCTION | ast.ClassDef) or ast.get_docstring(node) is None:
            continue
        given = {x.arg for x in ast.walk(getattr(node, "args", node)) if isinstance(x, ast.arg)}
        doc = node.body[0]
        for row, entry in _entries(lines[: doc.end_lineno], doc.lineno):
            comment = make(row)
            comment.name, comment.kind = entry[1], DOCSTRING
            try:
                read = map(parse_shape, TUPLE.findall(entry[2]))
                shapes = tuple(shape for shape in read if shape is not None)
            except ValueError as error:
                raise comment.error(str(error)) from None
            if shapes and isinstance(node, ast.ClassDef):
                raise comment.error(NO_VALUE)
            if shapes and comment.name not in given:
                raise comment.error(f"{node.name} has no argument {comment.name}")
            comment.claim = Claim(shapes, either=True)
            # There is no call to reach where a function is left to others.
            if shapes and not all(isinstance(x, ast.Raise | ast.Pass) for x in node.body[1:]):
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


def install_import_hook(packages: Sequence[str] = PACKAGES, root: Path = ROOT) -> StrictChecker:
    """Check the comments of packages from now on; modules never imported count as unreached.

    Raises:
        RuntimeError: a package is already imported, and would run unchecked.
    """
    checker = StrictChecker(root)
    finder = Finder(checker, [root / "src" / name for name in packages])
    if finder.missed:
        sys.meta_path.remove(finder)
        missed = finder.missed[0]
        raise RuntimeError(f"{missed} was imported before its shape comments could be checked")
    return checker


def install_in_kernel(
    shell: Any, cells: Iterable[Mapping[str, Any]], path: str | Path, root: Path = ROOT
) -> StrictChecker:
    """Check a chapter's comments while this kernel runs it.

    Each cell gives its ``source``, the ``line`` of the chapter's file at which it starts, the
    ``section`` (cells with the same one share their letters), and its ``tags``: a stub, tagged
    ``exercise``, is exempt.

    Raises:
        ShapeCommentError: a comment is malformed, or stands where it cannot be checked.
    """
    checker = StrictChecker(root)
    checked = Cells(shell, checker)
    for cell in cells:
        if cell["source"].strip() and "exercise" not in cell["tags"]:
            checked.add(cell["source"], root / path, cell["line"], cell["section"])
    return checker

"""Find the shape comments of a source."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from shape_comments.grammar import NOTHING, Claim

FALSE, TWO_SIZES = "false", "one letter for two sizes"
ABOVE, BELOW = "above", "below"  # the line that a comment on a line of its own belongs to
# A string or a comment: what looks like a comment in a string is passed over with it.
_TOKEN = re.compile(
    r"""'''(?:[^'\\]|\\.|'(?!''))*+'''|'(?:[^'\\\n]|\\.)*+'"""
    r'''|"""(?:[^"\\]|\\.|"(?!""))*+"""|"(?:[^"\\\n]|\\.)*+"|#[^\n]*''',
    re.DOTALL,
)
_MAYBE = re.compile(r"[(\[,×]|\sx\s|[A-Z\d]x[A-Z\d]")


class ShapeCommentError(AssertionError):
    """A shape comment is false, malformed, or stands where it cannot be checked."""

    level = FALSE


class Place(NamedTuple):
    """Where a comment stands, and one of its claims or why that is not clear."""

    line: int
    row: int  # of the code that it belongs to
    column: int | None  # of a comment on a line of its own
    claim: Claim
    unclear: str = ""


@dataclass(eq=False)
class Comment:
    """What a comment says of one value, where it stands, and what became of it."""

    path: str
    line: int
    source: str  # the line, with the comment
    reached: bool = False
    compared: int = 0  # how often it was true
    failed: dict[str, str] = field(default_factory=dict)  # by level, what was said first
    unclear: str = ""  # why it cannot be compared
    claim: Claim = NOTHING
    kind: str = "comment"
    section: object = None  # whose letters it shares when it stands outside every function
    name: str = ""  # the variable that it is about, where that is not the value of its line
    variables: frozenset[str] = frozenset()  # letters that may be variables here

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.path}:{self.line}"

    def add(self, other: "Comment") -> None:
        """Take over what became of another comment in its line, or in another process."""
        self.reached |= other.reached
        self.compared += other.compared
        self.failed = other.failed | self.failed
        self.unclear = self.unclear or other.unclear

    def error(self, reason: str, *notes: str, level: str = FALSE) -> ShapeCommentError:
        """Build the error that says where the comment stands and shows its line."""
        error = ShapeCommentError("\n    ".join((f"{self.where}: {reason}", self.source, *notes)))
        error.level = level
        return error


def find_comments(
    source: str, read: Callable[[str, bool], list[Claim]], own_lines: str
) -> Iterator[Place]:
    """Find the shape comments of a source.

    Args:
        source: the text.
        read: what reads one comment.
        own_lines: ABOVE or BELOW, where comments on lines of their own belong; if empty, they do
            not count.
    """
    lines = source.split("\n")
    step = {ABOVE: -1, BELOW: 1}.get(own_lines, 0)
    for token in _TOKEN.finditer(source):
        if token[0][0] != "#" or not _MAYBE.search(token[0]):
            continue
        before = source[source.rfind("\n", 0, token.start()) + 1 : token.start()]
        alone = not before.strip()
        if alone and not own_lines:
            continue
        unclear = ""
        try:
            claims = read(token[0], alone)
        except ValueError as error:
            claims, unclear = [NOTHING] * (not alone), str(error)
        if claims:
            row = line = source.count("\n", 0, token.start()) + 1
            while step and alone and lines[row - 1 : row] and lines[row - 1].strip()[:1] == "#":
                row += step
            for claim in claims:
                yield Place(line, row, len(before) if alone else None, claim, unclear)

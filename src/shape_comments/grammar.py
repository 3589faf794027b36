"""What a shape comment says.

It holds tuples. Only those after the last ``->`` count, or all of them where there is none. An
item is a letter, an integer, an expression in ``*``, ``+`` and ``-``, or ``...`` for any number of
axes. ``(n,)`` is one axis, ``()`` a scalar. No other parentheses may stand beside them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

GROUP = re.compile(r"(?<![\w\])])\(([^()]*)\)")  # f(x) is a call, not a shape
_WORD = re.compile(r"[A-Za-z_]\w*")
_ITEM = re.compile(r"\w+(\s*[*+-]\s*\w+)*")
_LETTER = re.compile(r"[A-Za-z]\d?(_\w+)?|\.\.\.")  # d, d_v; a longer name is no letter by itself


@dataclass(frozen=True)
class Axis:
    """One item of a tuple; ``names`` repeats a letter that occurs twice."""

    text: str
    names: tuple[str, ...]
    code: CodeType | None

    def value(self, known: Mapping[str, int]) -> int:
        """Evaluate the item; every letter in it is known."""
        if self.code is None:
            return known[self.text]
        return int(eval(self.code, {"__builtins__": {}}, known))

    def solve(self, letter: str, known: Mapping[str, int], size: int) -> int | None:
        """Find the only unknown letter, in which the item is linear; None if nothing fits."""
        at_0, at_1 = (self.value({**known, letter: x}) for x in (0, 1))
        found, rest = divmod(size - at_0, at_1 - at_0) if at_1 != at_0 else (-1, 1)
        return found if found >= 0 and not rest else None


Shape = tuple[Axis, ...]
ANY = Axis("...", (), None)


def parse_comment(text: str) -> tuple[Shape, ...] | None:
    """Return the shapes that a comment claims, or None if it is not a shape comment.

    Raises:
        ValueError: it looks like a shape comment and breaks the grammar.
    """
    groups = GROUP.findall(text)
    shapes = [parse_shape(group) for group in groups]
    if all(shape is None for shape in shapes):
        return None
    if None in shapes or re.search(r"[()]", GROUP.sub("", text)):
        raise ValueError("a shape comment holds no other parentheses")
    claimed = GROUP.findall(text.rpartition("->")[2])
    if not claimed:
        raise ValueError("no shape stands after the last ->")
    return tuple(shape for shape in shapes[-len(claimed) :] if shape is not None)


def parse_shape(content: str) -> Shape | None:
    """Parse what stands between parentheses; None means that it is prose.

    Raises:
        ValueError: it looks like a shape and breaks the grammar.
    """
    items = [item.strip() for item in content.split(",")]
    one = len(items) == 1 and items[0]
    if items[-1] == "":
        items.pop()
    axes = [axis for item in items if (axis := _axis(item))]
    if len(axes) < len(items):
        if any(_LETTER.fullmatch(item) for item in items):
            bad = next(item for item in items if not _axis(item))
            raise ValueError(f"({content}) is no shape: {bad or 'nothing'} is no axis")
        return None
    if axes and all(x.text.isidentifier() and not _LETTER.fullmatch(x.text) for x in axes):
        return None
    if one:
        if not axes[0].names:
            return None  # a number or dots in parentheses
        raise ValueError(f"write ({one},) for a shape with one axis")
    if axes.count(ANY) > 1:
        raise ValueError(f"({content}) has ... more than once")
    return tuple(axes)


def _axis(text: str) -> Axis | None:
    if text == "...":
        return ANY
    if not _ITEM.fullmatch(text):
        return None
    if text.isidentifier():
        return Axis(text, (text,), None)
    try:
        return Axis(text, tuple(_WORD.findall(text)), compile(text, "<shape>", "eval"))
    except SyntaxError:
        return None


def show(shape: Sequence[Axis | int]) -> str:
    """Write a shape."""
    items = [x.text if isinstance(x, Axis) else str(x) for x in shape]
    return f"({', '.join(items)}{',' * (len(items) == 1)})"

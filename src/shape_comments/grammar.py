"""What a shape comment says: the axes of shapes, and the comments that hold them.

``(B, T, C)``, ``[B, T, C]``, ``B x T x C``, and ``B, T, C`` where nothing else is in the comment.
An axis is a name, an integer, arithmetic of these, ``-1`` or ``?``; ``...`` and ``*`` are any
number of axes. What stands after the last ``->`` counts. ``x: (B, T), y: (T,)`` is about variables,
``(B, T) or (T,)`` has alternatives. What is not clear is not taken.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_GROUP = re.compile(r"(?<![\w\])}])(?:\(((?:[^()\[\]]|\([^()\[\]]*\))*)\)|\[([^\[\]]*)\])")
_ARROW = re.compile(r"[-=]+>|→")
_TIMES = re.compile(r"\s+x\s+|\s*×\s*")
_GLUED = re.compile(r"(?:[A-Z]\d?|\d+)(?:x(?:[A-Z]\d?|\d+))+")  # BxTx3
LETTER = re.compile(r"[A-Za-z]\d?(_\w+)?|\.\.\.")  # d, d_v; a longer name may be a word
# Without one of these (an x may stand between them), commas are prose.
_BATCH = re.compile(r"(?<![A-Za-wyz_])(?:[A-Z][A-Z\d]?|b|bs|bsz|batch(_size)?)(?:\b|(?=x))")
# The parts of a value, not its axes: a point, a box, a range.
_PART = re.compile(r"[xy]\d?|[xyz]_?(min|max|c)|[cd][xy]|min|max|mean|std|var|sin|cos")
_LABEL = re.compile(
    rf"[\s,;]*(?:and )?`?({_NAME}?)(?:\.shape|\.size\(\))?`?\s*(?:[:=]|is|has shape)\s*`?"
)
_LEADS = re.compile(r"(?:[:=]|\b(?:shape|size|dims?|to|is|of))[ `]*$", re.IGNORECASE)
_DOUBT = re.compile(
    r"\b(not|no|was|were|before|instead|inputs?|from|expect\w*|assum\w*|e\.?g|i\.?e|like|if|when|"
    r"either|or|originally|todo|fixme|should)\b|==|\?\?|https?:|[\[(]",
    re.IGNORECASE,
)
_SOMETIMES = re.compile(r"[\s,;]*(if|when|unless|except|in case|during)\b")
_FORMULA = re.compile(r"\s*([+*/@^]|[x×]\s)")
_EXACT = (ast.BinOp, ast.Name, ast.Load, ast.Add, ast.Sub, ast.Mult)
_ROUNDED = (ast.Div, ast.FloorDiv, ast.Pow)


@dataclass(frozen=True)
class Axis:
    """One item of a shape; ``names`` repeats a letter in which it is not linear."""

    text: str
    names: tuple[str, ...] = ()
    code: Any = None

    def value(self, known: Mapping[str, int]) -> float:
        """Evaluate the item; every letter in it is known."""
        value: float = eval(self.code, {"__builtins__": {}}, known)
        return value

    def fits(self, known: Mapping[str, int], size: int) -> bool:
        """Tell whether a size is the item's value, rounded up or down."""
        try:
            return abs(self.value(known) - size) < 1
        except ArithmeticError:
            return False

    def solve(self, letter: str, known: Mapping[str, int], size: int) -> int | None:
        """Find the only unknown letter, in which the item is linear; None if nothing fits."""
        at_0, at_1 = (int(self.value({**known, letter: x})) for x in (0, 1))
        found, rest = divmod(size - at_0, at_1 - at_0) if at_1 != at_0 else (-1, 1)
        return found if found >= 0 and not rest else None


Shape = tuple[Axis, ...]
ANY = Axis("...")  # any number of axes
ONE = Axis("?")  # one axis of any size


@dataclass(frozen=True)
class Claim:
    """The shapes of the values of a line, or of one variable."""

    shapes: tuple[Shape, ...]
    name: str = ""  # of the variable
    either: bool = False  # the shapes are alternatives


NOTHING = Claim(())


def show(shape: Sequence[Axis | int]) -> str:
    """Write a shape."""
    items = [x.text if isinstance(x, Axis) else str(x) for x in shape]
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


def read_comment(text: str, whole: bool = False) -> list[Claim]:
    """Return what a comment claims; nothing if it is prose.

    Args:
        text: the comment.
        whole: whether nothing but shapes may stand in it.

    Raises:
        ValueError: it looks like a shape comment, and what it claims is not clear.
    """
    text = re.sub(r"(?<!\.)\.$", "", text.lstrip("#").strip(" \t`"))
    *before, text = _ARROW.split(text)
    shapes, ends = list[Shape](), [0]
    for match in _GROUP.finditer(text):
        if (shape := parse_shape(match[1] or match[2] or "", match[1] is None)) is not None:
            shapes.append(shape)
            ends += match.span()
    if not shapes:
        return _read_bare(text)
    lead, *between, rest = (text[a:b] for a, b in zip(ends[::2], [*ends[1::2], None], strict=True))
    labels = [_LABEL.fullmatch(gap) for gap in (lead, *between)]
    if whole and (rest.strip(" ,;:") or (before and not before[0].lstrip().startswith(("(", "[")))):
        return []
    leads = bool(before) or _LEADS.search(lead) or len(lead.split()) <= 2
    if lead.strip() and not labels[0] and (whole or not leads):
        if whole or not any(LETTER.fullmatch(x.text) for x in shapes[0]):
            return []
        raise ValueError("it stands in a sentence")
    if _SOMETIMES.match(rest) or _DOUBT.search(lead):
        raise ValueError("it does not say what this line always gives")
    if any(map(_FORMULA.match, (*between, rest))):
        raise ValueError("it is a formula, whose result it does not give")
    if labels[0] and all(labels):
        return [Claim((x,), label[1]) for x, label in zip(shapes, labels, strict=True) if label]
    if all(re.fullmatch(r",?\s*(?:or|\||/)\s*", gap) for gap in between):
        return [Claim(tuple(shapes), either=len(shapes) > 1)]
    if all(re.fullmatch(r"[\s,;]*(?:and\s)?\s*", gap) for gap in between):
        return [Claim(tuple(shapes))]
    raise ValueError("it has several shapes, and does not say of what")


def _read_bare(text: str) -> list[Claim]:
    """Read ``B, T, C`` and ``B x T x C``, if nothing else is there."""
    label = _LABEL.match(text)
    content = text[label.end() :] if label else text
    many = _TIMES.search(content) or "," in content or _GLUED.fullmatch(content)
    if many and _BATCH.search(content):
        with suppress(ValueError):  # prose has commas, too
            shape = parse_shape(content)
            if shape and len(shape) > 1:
                return [Claim((shape,), label[1] if label else "")]
    return []


def parse_shape(content: str, square: bool = False) -> Shape | None:
    """Parse what stands between brackets; None means that it is prose.

    Raises:
        ValueError: it looks like a shape and breaks the grammar.
    """
    if _GLUED.fullmatch(content):
        content = content.replace("x", " x ")
    times = "," not in content and _TIMES.search(content)
    items = [x.strip() for x in (_TIMES.split(content) if times else content.split(","))]
    one = len(items) == 1 and items[0]
    if items[-1] == "":
        items.pop()
    axes = [axis for item in items if (axis := parse_axis(item))]
    if len(axes) < len(items):
        if any(map(LETTER.fullmatch, items)):
            bad = next(item for item in items if not parse_axis(item))
            raise ValueError(f"({content}) is no shape: {bad or 'nothing'} is no axis")
        return None
    names = [name for axis in axes for name in axis.names]
    if "0" in items or any(map(_PART.fullmatch, names)):
        return None
    if not names and (square or times or ANY in axes or ONE in axes):
        return None  # numbers, or a range
    if one and not (square and names and re.match(r"[A-Z]\w?\b", one)):
        return None  # a number, dots or a word in brackets
    if axes.count(ANY) > 1:
        raise ValueError(f"({content}) has ... more than once")
    return tuple(axes)


@cache
def parse_axis(text: str) -> Axis | None:
    """Parse one item of a shape; None if it is none."""
    if text in ("...", "…") or re.fullmatch(r"\*\w*", text):
        return ANY
    if text in ("-1", "?", ":", "None"):
        return ONE
    # 2C is a product, T' a letter, and cfg.width a name that is no variable.
    source = re.sub(r"\b(\d+)(?=[A-Za-z_])", r"\1*", text.replace("'", "_prime"))
    source = re.sub(r"(?<=\w)\.(?=[A-Za-z_])", "__", source)
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError):
        return None
    nodes = [*ast.walk(tree.body)]
    integers = [x for x in nodes if isinstance(x, ast.Constant) and type(x.value) is int]
    if not all(isinstance(x, (*_EXACT, *_ROUNDED)) or x in integers for x in nodes):
        return None
    names = tuple(x.id for x in nodes if isinstance(x, ast.Name))
    twice = any(isinstance(x, _ROUNDED) for x in nodes)
    return Axis(text, names * (1 + twice), compile(tree, "<shape>", "eval"))

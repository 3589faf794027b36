"""Show source code, and what changed since the version before."""

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Iterator

from annotated_book.display._html import Output, code_block, highlight_lines, highlighted

_ELEMENT = {" ": "span", "-": 'del class="aa-del"', "+": 'ins class="aa-add"'}


def source(obj: object, *, docstrings: bool = True) -> Output:
    """Show the source of a class or a function, as it was when ``obj`` was defined.

    Works for what a cell of the running notebook defines, and for what a file defines.

    Args:
        obj: the class or function; a class needs a method of its own.
        docstrings: False leaves them out, and the empty lines after them.

    Raises:
        TypeError: ``obj`` is something else, or is made in C.

    Examples:
        >>> from annotated_attention import merge_heads
        >>> from annotated_book import display
        >>> display.source(merge_heads, docstrings=False)
        def merge_heads(x: Tensor) -> Tensor:
            if x.dim() < 3:
                raise ValueError(f"x must have shape (..., h, n, d), got {tuple(x.shape)}")
            return x.transpose(-3, -2).flatten(-2)  # (..., n, h, d) -> (..., n, h * d)
    """
    text, _ = located_source(obj)
    text = text if docstrings else _without_docstrings(text)
    return Output(text, highlighted(text))


def excerpts(**parts: tuple[object, ...]) -> Output:
    """Show single lines of several functions, each part under its name.

    Args:
        **parts: under the name of a part, functions or classes, each followed by texts. A text
            stands for the one line of the source, docstrings aside, that contains it. Lines lose
            their indentation, except after an open bracket, and their comments stand in one column.

    Raises:
        ValueError: a text stands in no line, or in more than one.

    Examples:
        >>> from annotated_attention import merge_heads, split_heads
        >>> from annotated_book import display
        >>> display.excerpts(split=(split_heads, "return"), merge=(merge_heads, "return"))
        # split
        return x.unflatten(-1, (h, -1)).transpose(-3, -2)  # (..., n, h, d) -> (..., h, n, d)
        <BLANKLINE>
        # merge
        return x.transpose(-3, -2).flatten(-2)  # (..., n, h, d) -> (..., n, h * d)
    """
    rows: list[str] = []
    for name, items in parts.items():
        shown: list[list[str]] = []
        for item in items:
            if not isinstance(item, str):
                lines = _without_docstrings(located_source(item)[0]).split("\n")
                continue
            found = [line.strip() for line in lines if item in line]
            if len(found) != 1:
                raise ValueError(f"{name}: {item!r} must stand in one line, got {len(found)}")
            inside = shown and shown[-1][0].endswith(("(", "[", "{"))
            shown.append(re.split(r" {2,}(?=# )", "    " * bool(inside) + found[0]))
        column = max((len(code) for code, *comment in shown if comment), default=0)
        rows += [""] * bool(rows) + [f"# {name}"]
        rows += ["  ".join([code.ljust(column), *more]).rstrip() for code, *more in shown]
    text = "\n".join(rows)
    return Output(text, highlighted(text, "no-copy"))


def diff(old: object, new: object) -> Output:
    """Show what changed from ``old`` to ``new``: all of ``new``, changed lines marked.

    Args:
        old: a class, a function, or source code as a string.
        new: the same choice; the two need not be of one kind.

    Returns:
        As HTML, every line with ``-``, ``+`` or a space before it; as text, the unified diff.

    Examples:
        >>> from annotated_book import display
        >>> display.diff("scores = q @ k.mT", "scores = q @ k.mT / d**0.5")
        --- old
        +++ new
        @@ -1 +1 @@
        -scores = q @ k.mT
        +scores = q @ k.mT / d**0.5
    """
    before, after = (x if isinstance(x, str) else located_source(x)[0] for x in (old, new))
    old_lines, new_lines = before.split("\n"), after.split("\n")
    headings = (getattr(old, "__name__", "old"), getattr(new, "__name__", "new"))
    context = max(len(old_lines), len(new_lines))
    changes = list(difflib.unified_diff(old_lines, new_lines, *headings, n=context, lineterm=""))
    rows = _rows("".join(line[0] for line in changes[3:]), before, after)
    return Output("\n".join(changes), code_block("\n".join(rows), "aa-diff no-copy"))


def _rows(marks: str, before: str, after: str) -> Iterator[str]:
    """Take each row from the version it stands in, highlighted as part of the whole."""
    old_lines, new_lines = iter(highlight_lines(before)), iter(highlight_lines(after))
    for mark in marks:
        if mark != "+":
            line = next(old_lines)
        if mark != "-":
            line = next(new_lines)
        element = _ELEMENT[mark]
        yield f"<{element}>{mark} {line}</{element.partition(' ')[0]}>"


def _without_docstrings(text: str) -> str:
    """Leave out docstrings and the empty lines after them, where more follows."""
    lines, left_out = text.split("\n"), set[int]()
    for node in ast.walk(ast.parse(text)):
        kinds = ast.ClassDef | ast.FunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None and node.body[1:]:
            first, end = node.body[0].lineno - 1, node.body[0].end_lineno or 0
            while not lines[end].strip():
                end += 1
            left_out.update(range(first, end))
    return "\n".join(line for number, line in enumerate(lines) if number not in left_out)


def located_source(obj: object) -> tuple[str, int]:
    """Return the source of a class, function or module, and the line that it begins on.

    The source has no common indentation. The line is counted from 1, in the file or in the cell.

    Raises:
        TypeError: ``obj`` is something else, or is made in C.
    """
    if isinstance(obj, type):
        text, line = _class_source(obj)
    else:
        lines, line = inspect.getsourcelines(obj)  # type: ignore[arg-type]  # it refuses the rest
        text = "".join(lines)
    return textwrap.dedent(text).rstrip("\n"), line or 1  # a module's is counted as 0


def _class_source(cls: type) -> tuple[str, int]:
    """Return the source of a class, and the line that it begins on.

    ``inspect.getsource`` looks for the file of the class's module, which a notebook does not have;
    a method knows the cell, and the line, that it comes from.
    """
    # Methods that were made for the class, or put into it later, have another qualified name.
    codes = [x.__code__ for x in vars(cls).values() if inspect.isfunction(x)]
    own = [x for x in codes if x.co_qualname == f"{cls.__qualname__}.{x.co_name}"]
    if not own:
        raise TypeError(f"{cls.__qualname__} must have a method that is written in its body")
    lines, _ = inspect.findsource(own[0])
    classes = [x for x in ast.walk(ast.parse("".join(lines))) if isinstance(x, ast.ClassDef)]
    around = [x for x in classes if x.lineno <= own[0].co_firstlineno <= (x.end_lineno or 0)]
    node = next(x for x in around if x.name == cls.__name__)
    first = min([node.lineno, *(x.lineno for x in node.decorator_list)])
    return "".join(lines[first - 1 : node.end_lineno]), first

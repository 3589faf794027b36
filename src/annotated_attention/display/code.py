"""Show source code, and what changed since the version before."""

import ast
import difflib
import inspect
import itertools
import linecache
import re
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType

from annotated_attention.display._html import Output, code_block, highlight_lines

_FOLD_ABOVE = 8
_KEEP = 3
_ELEMENT = {" ": "span", "-": 'del class="aa-del"', "+": 'ins class="aa-add"'}


def source(obj: object, *, docstrings: bool = True) -> Output:
    """Show the source of a class, a function or a module, as it was when ``obj`` was defined.

    Works for what a cell of the running notebook defines, and for what a file defines.

    Args:
        obj: the class, function or module.
        docstrings: False leaves them out, and the empty lines after them.

    Raises:
        TypeError: ``obj`` is something else.
        OSError: the source cannot be found, as for a class made in C.

    Examples:
        >>> from annotated_attention import display, merge_heads
        >>> display.source(merge_heads, docstrings=False)
        def merge_heads(x: Tensor) -> Tensor:
            if x.dim() < 3:
                raise ValueError(f"x must have shape (..., h, n, d), got {tuple(x.shape)}")
            return x.transpose(-3, -2).flatten(-2)  # (..., n, h, d) -> (..., n, h * d)
    """
    text = _source_text(obj) if docstrings else _without_docstrings(_source_text(obj))
    return Output(text, code_block("\n".join(highlight_lines(text))))


def excerpts(**parts: tuple[object, ...]) -> Output:
    """Show single lines of several functions, each part under its name.

    Args:
        **parts: under the name of a part, functions or classes, each followed by texts. A text
            stands for the one line of the source, docstrings aside, that contains it. Lines lose
            their indentation, except after an open bracket, and their comments stand in one column.

    Raises:
        ValueError: a text stands in no line, or in more than one.

    Examples:
        >>> from annotated_attention import display, merge_heads, split_heads
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
                lines = _without_docstrings(_source_text(item)).split("\n")
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
    return Output(text, code_block("\n".join(highlight_lines(text)), "no-copy"))


def diff(old: object, new: object) -> Output:
    """Show what changed from ``old`` to ``new``: all of ``new``, changed lines marked.

    Args:
        old: a class, a function, a module, or source code as a string.
        new: the same choice; the two need not be of one kind.

    Returns:
        As HTML, every line with ``-``, ``+`` or a space before it, long unchanged stretches folded;
        as text, the unified diff.

    Raises:
        TypeError: ``old`` or ``new`` is something else.
        OSError: the source of one cannot be found.

    Examples:
        >>> from annotated_attention import display
        >>> display.diff("scores = q @ k.mT", "scores = q @ k.mT / d**0.5")
        --- old
        +++ new
        @@ -1 +1 @@
        -scores = q @ k.mT
        +scores = q @ k.mT / d**0.5
    """
    before, after = (_as_text(version) for version in (old, new))
    old_lines, new_lines = before.split("\n"), after.split("\n")
    headings = (getattr(old, "__name__", "old"), getattr(new, "__name__", "new"))
    context = max(len(old_lines), len(new_lines))
    changes = list(difflib.unified_diff(old_lines, new_lines, *headings, n=context, lineterm=""))
    if not changes:
        return Output("no difference", '<p class="aa-same">no difference</p>')
    marks = "".join(line[0] for line in changes[3:])
    rows = _fold(list(zip(marks, _highlight_rows(marks, before, after), strict=True)))
    return Output("\n".join(changes), code_block("\n".join(rows), "aa-diff no-copy"))


def _highlight_rows(marks: str, before: str, after: str) -> Iterator[str]:
    """Take each row from the version it stands in, highlighted as part of the whole."""
    old_lines, new_lines = iter(highlight_lines(before)), iter(highlight_lines(after))
    for mark in marks:
        if mark != "+":
            line = next(old_lines)
        if mark != "-":
            line = next(new_lines)
        element = _ELEMENT[mark]
        yield f"<{element}>{mark} {line}</{element.partition(' ')[0]}>"


def _fold(rows: list[tuple[str, str]]) -> Iterator[str]:
    """Leave out the middle of long unchanged stretches."""
    for mark, group in itertools.groupby(rows, key=lambda row: row[0]):
        run = [row for _, row in group]
        hidden = len(run) - 2 * _KEEP
        if mark == " " and len(run) > _FOLD_ABOVE:
            run[_KEEP:-_KEEP] = [f'<span class="aa-fold">  … {hidden} unchanged lines</span>']
        yield from run


def _without_docstrings(text: str) -> str:
    """Leave out docstrings and the empty lines after them, where more follows."""
    lines, left_out = text.split("\n"), set[int]()
    for node in ast.walk(ast.parse(text)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None and node.body[1:]:
            first, end = node.body[0].lineno - 1, node.body[0].end_lineno or 0
            while not lines[end].strip():
                end += 1
            left_out.update(range(first, end))
    return "\n".join(line for number, line in enumerate(lines) if number not in left_out)


def _as_text(version: object) -> str:
    """Return code given as a string as it is, and the source of anything else."""
    return version.rstrip("\n") if isinstance(version, str) else _source_text(version)


def _source_text(obj: object) -> str:
    return located_source(obj)[0]


def located_source(obj: object) -> tuple[str, int]:
    """Return the source of a class, function or module, and the line that it begins on.

    The source has no common indentation. The line is counted from 1, in the file or in the cell.

    Raises:
        TypeError: ``obj`` is something else.
        OSError: the source cannot be found.
    """
    if isinstance(obj, type):
        text, line = _class_text(obj)
    else:
        unwrapped = inspect.unwrap(obj) if callable(obj) else obj
        if not isinstance(unwrapped, FunctionType | MethodType | ModuleType):
            kinds = "a class, a function or a module"
            raise TypeError(f"obj must be {kinds}, got an object of type {type(obj).__name__}")
        lines, line = inspect.getsourcelines(unwrapped)
        text = "".join(lines)
    return textwrap.dedent(text).rstrip("\n"), max(line, 1)


def _class_text(cls: type) -> tuple[str, int]:
    """Return the source of a class, and the line that it begins on.

    ``inspect.getsource`` looks for the file of the class's module, which a notebook does not have;
    a method knows the cell, and the line, that it comes from.
    """
    for code in _methods(cls):
        linecache.checkcache(code.co_filename)
        cell = "".join(linecache.getlines(code.co_filename))
        if found := _class_in(cell, cls.__name__, code.co_firstlineno):
            return found
    if found := _class_in_history(cls):
        return found
    try:
        lines, line = inspect.getsourcelines(cls)
        return "".join(lines), line
    except (OSError, TypeError) as error:
        raise OSError(
            f"no source found for class {cls.__qualname__}: it has no method written in Python, "
            "and is not the latest class of that name in this notebook or in a file"
        ) from error


def _methods(cls: type) -> Iterator[CodeType]:
    """Yield the code of the methods written in the body of ``cls``, in order."""
    for value in vars(cls).values():
        function = inspect.unwrap(getattr(value, "fget", None) or value)
        code = getattr(function, "__code__", None)
        # Methods that were made for the class, or put into it later, have another qualified name.
        if isinstance(code, CodeType) and code.co_qualname == f"{cls.__qualname__}.{code.co_name}":
            yield code


def _class_in(cell: str, name: str, line: int | None = None) -> tuple[str, int] | None:
    """Find the innermost class ``name`` around ``line``, or the last of all, in a cell."""
    try:
        nodes = [node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.ClassDef)]
    except SyntaxError:
        return None
    found = None
    for node in sorted(nodes, key=lambda node: node.lineno):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        last = node.end_lineno or node.lineno
        if node.name == name and (line is None or first <= line <= last):
            found = "".join(cell.splitlines(keepends=True)[first - 1 : last]), first
    return found


def _class_in_history(cls: type) -> tuple[str, int] | None:
    """Return the latest definition of a class without methods, if ``cls`` is what it defined."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None or shell.user_ns.get(cls.__name__) is not cls or cls.__module__ != "__main__":
        return None
    cells = reversed(shell.user_ns["In"])
    return next(filter(None, (_class_in(cell, cls.__name__) for cell in cells)), None)

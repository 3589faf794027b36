"""Show real source with its notes between the code: docstrings and comments become prose."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from annotated_attention.display._html import Output, code_block, highlight_lines
from annotated_attention.display._notes import render
from annotated_attention.display.code import located_source
from annotated_attention.display.colours import colour_shapes

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_COMMENTED_SHAPE = re.compile(r"\([^()]*,[^()]*\)")
_LINE = '<span class="aa-line" data-line="{}">{}</span>'

Note = tuple[str, int]  # its text, and the number of the line behind it


@dataclass
class Block:
    """A stretch of source: its notes, and the numbers of its lines of code, counted from 0."""

    notes: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def annotated(*functions: Callable[..., Any], sections: bool = True) -> Output:
    """Show the source of functions or methods, with their notes between the code.

    Docstrings, and comments on lines of their own, become prose over the lines that they explain,
    and these keep the line numbers of the file. What a docstring lists, such as ``Args``, is
    folded, and its examples are left out. Before the prose stand the shapes that the lines make, if
    comments behind them say so.

    Args:
        *functions: functions or methods of a file.
        sections: False leaves out what docstrings list, such as ``Args``.

    Examples:
        >>> from annotated_attention import display, merge_heads
        >>> shown = display.annotated(merge_heads)
        >>> shown.html.count("<details>"), shown.text.startswith("def merge_heads")
        (1, True)
    """
    shown = [_shown(function, sections) for function in functions]
    return Output("\n\n\n".join(text for text, _ in shown), "".join(x for _, x in shown))


def _shown(function: Callable[..., Any], sections: bool) -> tuple[str, str]:
    """Write one function as text and as HTML: where it stands, and its blocks."""
    text, first = located_source(function)
    rows, highlighted = text.split("\n"), highlight_lines(text)
    blocks = ""
    for block in split(text):
        notes = "".join(render(note, sections) for note in block.notes)
        made = shapes([rows[i] for i in block.lines])
        if notes and made:
            codes = colour_shapes(", ".join(f"<code>{shape}</code>" for shape in made))
            notes = f'<span class="aa-shapes">{codes}</span>{notes}'
        lines = "\n".join(_LINE.format(first + i, highlighted[i]) for i in block.lines)
        code = code_block(lines, "no-copy")
        blocks += f'<div class="aa-block"><div class="aa-note">{notes}</div>{code}</div>'
    file = f"{function.__module__.replace('.', '/')}.py"
    return text, (
        f'<div class="aa-annotated" role="group" aria-label="{function.__qualname__}, annotated">'
        f'<p class="aa-place">{file}, lines {first} to {first + len(rows) - 1}</p>{blocks}</div>'
    )


def shapes(rows: list[str]) -> list[str]:
    """List the shapes that the comments behind these lines give, each once.

    Where a function begins, its last such comment counts alone: what comes out.
    """
    behind = [row.partition("  # ")[2].rpartition("->")[2] for row in rows]
    found = [shaped for text in behind if (shaped := _COMMENTED_SHAPE.findall(text))]
    if any(re.match(r"\s*def ", row) for row in rows):
        found = found[-1:]
    return list(dict.fromkeys(shape for shaped in found for shape in shaped))


def split(text: str) -> list[Block]:
    """Split the source of a function into blocks.

    One begins at each comment on a line of its own and after each empty line. What stands inside
    brackets or strings is never split.
    """
    docstrings = dict(_docstrings(text))
    comments, empty = _comments_and_empty_lines(text)
    blocks, skip = [Block()], 0
    for i in range(text.count("\n") + 1):
        if i in empty or i < skip:
            continue
        if blocks[-1].lines and (i in comments or i - 1 in empty):
            blocks.append(Block())
        if note := docstrings.get(i) or comments.get(i):
            blocks[-1].notes.append(note[0])
            skip = note[1]
        else:
            blocks[-1].lines.append(i)
    return blocks


def _docstrings(text: str) -> Iterator[tuple[int, Note]]:
    """Yield where each docstring begins, and the docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and (note := ast.get_docstring(node)) is not None:
            quoted = node.body[0]
            yield quoted.lineno - 1, (note, quoted.end_lineno or quoted.lineno)


def _comments_and_empty_lines(text: str) -> tuple[dict[int, Note], set[int]]:
    """Find runs of comments on lines of their own, as docstrings are found, and empty lines."""
    comments: dict[int, Note] = {}
    empty, depth, first = set(), 0, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        i = token.start[0] - 1
        depth += (token.string in _OPENING) - (token.string in _CLOSING)
        if not depth and token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            said = token.string.removeprefix("#").removeprefix(" ")
            before, last = comments.get(first, ("", -1))
            if last == i:
                comments[first] = f"{before}\n{said}", i + 1
            else:
                first, comments[i] = i, (said, i + 1)
        if not depth and token.type == tokenize.NL and not token.line.strip():
            empty.add(i)
    return comments, empty

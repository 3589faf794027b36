"""Show real source with its notes between the code: docstrings and comments become prose."""

import ast
import io
import re
import tokenize
from collections.abc import Callable
from typing import Any

import mistune

from annotated_attention.display._html import Output, code_block, highlight_lines
from annotated_attention.display.code import located_source
from annotated_attention.display.colours import SHAPE_IN_PROSE, colour_shapes

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_LINE = '<span class="aa-line" data-line="{}">{}</span>'
# What a docstring lists: a title at the margin, and the indented lines below it.
_LISTED = re.compile(r"^\w+:\n(?: .*\n|\n)+", re.MULTILINE)

# A stretch of source: its notes, and the numbers of its lines of code, counted from 0.
Block = tuple[list[str], list[int]]


def annotated(*functions: Callable[..., Any]) -> Output:
    """Show the source of functions or methods, with their notes between the code.

    Docstrings, and comments on lines of their own, become prose over the lines that they explain,
    and these keep the line numbers of the file. What a docstring lists, such as ``Args``, is left
    out.

    Args:
        *functions: functions or methods of a file.

    Examples:
        >>> from annotated_attention import display, merge_heads
        >>> shown = display.annotated(merge_heads)
        >>> "<p>Put the heads back side by side" in shown.html, "Args" in shown.html
        (True, False)
    """
    shown = [_shown(function) for function in functions]
    return Output("\n\n\n".join(text for text, _ in shown), "".join(x for _, x in shown))


def _shown(function: Callable[..., Any]) -> tuple[str, str]:
    """Write one function as text and as HTML: where it stands, and its blocks."""
    text, first = located_source(function)
    rows, highlighted = text.split("\n"), highlight_lines(text)
    blocks = ""
    for notes, numbers in split(text):
        prose = "".join(map(render, notes))
        lines = "\n".join(_LINE.format(first + i, highlighted[i]) for i in numbers)
        code = code_block(lines, "no-copy")
        blocks += f'<div class="aa-block"><div class="aa-note">{prose}</div>{code}</div>'
    file = f"{function.__module__.replace('.', '/')}.py"
    return text, (
        f'<div class="aa-annotated" role="group" aria-label="{function.__qualname__}, annotated">'
        f'<p class="aa-place">{file}, lines {first} to {first + len(rows) - 1}</p>{blocks}</div>'
    )


def _python(md: mistune.Markdown) -> None:
    """Let mistune take shapes for code, and ``*args`` and ``__init__`` as they are."""

    def shape(_: mistune.InlineParser, found: re.Match[str], state: mistune.InlineState) -> int:
        state.append_token({"type": "codespan", "raw": " ".join(found[0].split())})
        return found.end()

    md.inline.register("shape", SHAPE_IN_PROSE, shape, before="codespan")
    md.inline.rules.remove("emphasis")


_write = mistune.create_markdown(plugins=[_python])


def render(note: str) -> str:
    """Write a docstring in Google's style, or a comment without its signs, as HTML."""
    return colour_shapes(str(_write(_LISTED.sub("", f"{note}\n"))))


def split(text: str) -> list[Block]:
    """Split the source of a function into blocks.

    One begins at each comment on a line of its own and after each empty line. What stands inside
    brackets or strings is never split.
    """
    functions = [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.FunctionDef)]
    docstrings = {x.body[0].lineno - 1: x for x in functions if ast.get_docstring(x) is not None}
    comments, empty = _comments_and_empty_lines(text)
    blocks: list[Block] = [([], [])]
    behind = 0  # the line after the last docstring
    for i in range(text.count("\n") + 1):
        if i in empty or i < behind:
            continue
        if blocks[-1][1] and (i in comments or i - 1 in empty):
            blocks.append(([], []))
        notes, lines = blocks[-1]
        if i in docstrings:
            notes.append(ast.get_docstring(docstrings[i]) or "")
            behind = docstrings[i].body[0].end_lineno or 0
        elif i in comments and i - 1 in comments:
            notes[-1] += f"\n{comments[i]}"
        elif i in comments:
            notes.append(comments[i])
        else:
            lines.append(i)
    return blocks


def _comments_and_empty_lines(text: str) -> tuple[dict[int, str], set[int]]:
    """Find the comments on lines of their own, and the empty lines."""
    comments: dict[int, str] = {}
    empty, depth = set(), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        i, line = token.start[0] - 1, token.line.strip()
        depth += (token.string in _OPENING) - (token.string in _CLOSING)
        if not depth and token.type == tokenize.COMMENT and line.startswith("#"):
            comments[i] = token.string.removeprefix("#").removeprefix(" ")
        if not depth and token.type == tokenize.NL and not line:
            empty.add(i)
    return comments, empty

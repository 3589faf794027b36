"""Show real source with its notes between the code: docstrings and comments become prose."""

import ast
import re
from types import ModuleType

import mistune

from annotated_book.display._html import Output, code_block, highlight_lines
from annotated_book.display.code import located_source
from annotated_book.display.colours import SHAPE_IN_PROSE, colour_shapes

# A line of code, its number, and how far it is indented.
_LINE = '<span class="aa-line" data-line="{}" style="--in: {}">{}</span>'
# What a docstring lists: a title at the margin, and the indented lines below it.
_LISTED = re.compile(r"^\w+:\n(?: .*\n|\n)+", re.MULTILINE)

# A stretch of source: its notes, and the numbers of its lines of code, counted from 0.
Block = tuple[list[str], list[int]]


def annotated(*objects: object) -> Output:
    """Show the source of functions, classes or modules, with their notes between the code.

    Docstrings, and comments on lines of their own, become prose over the lines that they explain,
    and these keep the line numbers of the file. What a docstring lists, such as ``Args``, is left
    out.

    Examples:
        >>> from annotated_attention import merge_heads
        >>> from annotated_book import display
        >>> shown = display.annotated(merge_heads)
        >>> "<p>Put the heads back side by side" in shown.html, "Args" in shown.html
        (True, False)
    """
    shown = [_shown(each) for each in objects]
    return Output("\n\n\n".join(text for text, _ in shown), "".join(x for _, x in shown))


def _shown(each: object) -> tuple[str, str]:
    """Write one object as text and as HTML: where it stands, and its blocks."""
    text, first = located_source(each)
    module = each.__name__ if isinstance(each, ModuleType) else each.__module__
    name = getattr(each, "__qualname__", module)
    rows, highlighted = text.split("\n"), highlight_lines(text)
    blocks = ""
    for notes, numbers in split(text):
        prose = "".join(map(render, notes))
        into = {i: len(rows[i]) - len(rows[i].lstrip()) for i in numbers}
        lines = "\n".join(_LINE.format(first + i, into[i], highlighted[i]) for i in numbers)
        code = code_block(lines, "no-copy")
        blocks += f'<div class="aa-block"><div class="aa-note">{prose}</div>{code}</div>'
    file = f"{module.replace('.', '/')}.py"
    return text, (
        f'<div class="aa-annotated" role="group" aria-label="{name}, annotated">'
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
    """Split source into blocks.

    One begins at each comment on a line of its own and after each empty line.
    """
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
    defined = [x for x in ast.walk(ast.parse(text)) if isinstance(x, kinds)]
    docstrings = {x.body[0].lineno - 1: x for x in defined if ast.get_docstring(x) is not None}
    blocks: list[Block] = [([], [])]
    behind, before = 0, ""  # the line after the last docstring; the row before
    for i, row in enumerate(map(str.strip, text.split("\n"))):
        if row and i >= behind:
            comment = row.startswith("#")
            if blocks[-1][1] and (comment or not before):
                blocks.append(([], []))
            notes, lines = blocks[-1]
            if i in docstrings:
                notes.append(ast.get_docstring(docstrings[i]) or "")
                behind = docstrings[i].body[0].end_lineno or 0
            elif comment and before.startswith("#"):
                notes[-1] += f"\n{row[1:].removeprefix(' ')}"
            elif comment:
                notes.append(row[1:].removeprefix(" "))
            else:
                lines.append(i)
        before = row
    return blocks

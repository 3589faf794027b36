"""Show real source with its notes between the code: docstrings and comments become prose."""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import ModuleType

from annotated_attention.display._html import Output, code_block, highlight_lines
from annotated_attention.display._notes import render
from annotated_attention.display.code import located_source
from annotated_attention.display.colours import colour_shapes

_DEFINITION = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_COMMENTED_SHAPE = re.compile(r"\([^()]*,[^()]*\)")
_LINE = '<span class="aa-line" data-line="{}">{}</span>'


@dataclass
class Block:
    """A stretch of source: its notes, and the numbers of its lines of code, counted from 0."""

    name: str
    notes: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def annotated(*objects: object, sections: bool = True, examples: bool = False) -> Output:
    """Show the source of classes, functions or modules, with their notes between the code.

    Docstrings, and comments on lines of their own, become prose over the lines that they explain,
    and these keep the line numbers of the file. What a docstring lists, such as ``Args``, is
    folded. Before the prose stand the shapes that the lines make, if comments behind them say so.
    Every block has an anchor: ``#code-`` and the qualified name of the class, method or function
    that begins there, with a hyphen for each dot (a selector takes a dot for a class), and with
    ``-2``, ``-3`` and so on for the blocks that follow inside it.

    Args:
        *objects: classes, functions or modules, of a file or of the running notebook.
        sections: False leaves out what docstrings list, such as ``Args``.
        examples: True also shows their examples, if their sections are shown.

    Raises:
        TypeError: one is something else.
        OSError: the source of one cannot be found.

    Examples:
        >>> from annotated_attention import display, merge_heads
        >>> shown = display.annotated(merge_heads)
        >>> shown.html.count("<details>"), shown.text.startswith("def merge_heads")
        (1, True)
    """
    left_out = set() if examples else {"Examples"}
    shown = [_shown(one, left_out if sections else None) for one in objects]
    return _Annotated("\n\n\n".join(text for text, _ in shown), "".join(x for _, x in shown))


class _Annotated(Output):
    stylesheets = ("display.css", "annotated.css")


def _shown(obj: object, left_out: set[str] | None) -> tuple[str, str]:
    """Write one object as text and as HTML: where it stands, and its blocks."""
    text, first = located_source(obj)
    name = "" if isinstance(obj, ModuleType) else getattr(obj, "__qualname__", "")
    rows, highlighted = text.split("\n"), highlight_lines(text)
    place = f"{_file_of(obj)}, lines {first} to {first + len(highlighted) - 1}"
    blocks = "".join(
        _write(
            block,
            [(first + i, highlighted[i]) for i in block.lines],
            shapes([rows[i] for i in block.lines]),
            left_out,
        )
        for block in split(text, name, _module_of(obj).rpartition(".")[2])
    )
    label = f"{name or _module_of(obj)}, annotated"
    return text, (
        f'<div class="aa-annotated" role="group" aria-label="{label}">'
        f'<p class="aa-place">{escape(place)}</p>{blocks}</div>'
    )


def shapes(rows: list[str]) -> list[str]:
    """List the shapes that the comments behind these lines give, each once.

    Where a function begins, its last such comment counts alone: what comes out.
    """
    behind = [row.partition("  # ")[2].rpartition("->")[2] for row in rows]
    found = [shaped for text in behind if (shaped := _COMMENTED_SHAPE.findall(text))]
    if any(re.match(r"\s*(async )?def ", row) for row in rows):
        found = found[-1:]
    return list(dict.fromkeys(shape for shaped in found for shape in shaped))


def _write(
    block: Block, lines: list[tuple[int, str]], made: Sequence[str], left_out: set[str] | None
) -> str:
    """Write one block: the shapes that it makes, its notes, then its code."""
    notes = "".join(render(note, left_out) for note in block.notes)
    if notes and made:
        codes = colour_shapes(", ".join(f"<code>{shape}</code>" for shape in made))
        notes = f'<span class="aa-shapes">{codes}</span>{notes}'
    anchor = f"code-{block.name.replace('.', '-')}"
    link = f'<a class="aa-link" href="#{anchor}" aria-label="Link to {block.name}">¶</a>'
    code = code_block("\n".join(_LINE.format(*line) for line in lines), "no-copy")
    return (
        f'<div class="aa-block" id="{anchor}">'
        f'<div class="aa-note">{link}{notes}</div>{code if lines else ""}</div>'
    )


def _module_of(obj: object) -> str:
    return obj.__name__ if isinstance(obj, ModuleType) else getattr(obj, "__module__", "")


def _file_of(obj: object) -> str:
    """Name the file from its package on, which is the same on every machine."""
    name = _module_of(obj)
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is None or not spec.origin:
        return "this notebook"
    path = Path(spec.origin)
    depth = name.count(".") + 1 + (path.stem == "__init__")
    return "/".join(path.parts[-depth:])


def split(text: str, name: str, module: str) -> list[Block]:
    """Split source into blocks.

    One begins at each class, method and function, and inside them at each comment on a line of its
    own and after each empty line. What stands inside brackets or strings is never split.

    Args:
        text: source without common indentation.
        name: the qualified name of what it defines; empty for a module.
        module: the last part of the module's name, for what stands outside definitions.
    """
    tree, rows = ast.parse(text), text.split("\n")
    docstrings = dict(_docstrings(tree, rows))
    comments, empty = _comments_and_empty_lines(text)
    owners = [module] * len(rows)
    for owner, first, last in _definitions(tree, name.rpartition(".")[0]):
        owners[first:last] = [owner] * (last - first)
    blocks, skip = [Block(owners[0])], 0
    for i in range(len(rows)):
        if i in empty or i < skip:
            continue
        begins = i in comments or i - 1 in empty or owners[i] != blocks[-1].name
        if begins and blocks[-1].lines:
            blocks.append(Block(owners[i]))
        if note := docstrings.get(i) or comments.get(i):
            blocks[-1].notes.append(note[0])
            skip = note[1]
        else:
            blocks[-1].name = owners[i]
            blocks[-1].lines.append(i)
    return list(_numbered(blocks))


def _numbered(blocks: list[Block]) -> Iterator[Block]:
    """Give the blocks of one definition names that differ."""
    seen: Counter[str] = Counter()
    for block in blocks:
        seen[block.name] += 1
        number = f"-{seen[block.name]}" if seen[block.name] > 1 else ""
        yield Block(block.name + number, block.notes, block.lines)


def _definitions(node: ast.AST, outer: str) -> Iterator[tuple[str, int, int]]:
    """Yield the classes, and the functions in them or alone: name, first line, line after."""
    for child in getattr(node, "body", []):
        if isinstance(child, _DEFINITION):
            name = f"{outer}.{child.name}".removeprefix(".").replace("<locals>.", "")
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield name, first - 1, child.end_lineno or first
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, name)


def _docstrings(tree: ast.Module, rows: list[str]) -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield where each docstring with lines of its own begins, its text, and the line after."""
    for node in ast.walk(tree):
        if not isinstance(node, _DEFINITION | ast.Module):
            continue
        text = ast.get_docstring(node)
        if text is not None:
            quoted = node.body[0]
            first, last = quoted.lineno - 1, quoted.end_lineno or quoted.lineno
            before = rows[first].encode()[: quoted.col_offset]
            after = rows[last - 1].encode()[quoted.end_col_offset :]
            if not before.strip() and not after.strip():
                yield first, (text, last)


def _comments_and_empty_lines(text: str) -> tuple[dict[int, tuple[str, int]], set[int]]:
    """Find runs of comments on lines of their own, as docstrings are found, and empty lines."""
    alone: dict[int, str] = {}
    empty, depth = set(), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        i = token.start[0] - 1
        depth += (token.string in _OPENING) - (token.string in _CLOSING)
        if not depth and token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            alone[i] = token.string.removeprefix("#").removeprefix(" ")
        if not depth and token.type == tokenize.NL and not token.line.strip():
            empty.add(i)
    runs: dict[int, tuple[str, int]] = {}
    for i in sorted(alone):
        if i - 1 not in alone:
            last = next(j for j in range(i, i + len(alone) + 1) if j not in alone)
            runs[i] = "\n".join(alone[j] for j in range(i, last)), last
    return runs, empty

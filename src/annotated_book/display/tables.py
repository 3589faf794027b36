"""Tables of numbers: shaded and ruled on a page, in columns in a terminal."""

import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

import torch
from torch import Tensor

from annotated_book.display._html import Output, table

# How a column is written: a number of decimals, or what a format has after its colon.
Decimals = int | str
_MINUS = re.compile(r"^-(?=[\d.])")
CARD = "▒▒"  # a blocked cell in plain text
HELD = '<span class="aa-held"><span class="aa-heard">blocked</span></span>'


def show(
    numbers: Tensor | Sequence[Sequence[Any]] | Mapping[Any, Sequence[Any]],
    rows: Sequence[Any] = (),
    columns: Sequence[Any] = (),
    *,
    title: str = "",
    corner: str = "",
    decimals: Decimals | Sequence[Decimals] = 2,
    heat: bool | Collection[str] = False,
    blocked: Tensor | None = None,
) -> Output:
    """Show a table: a word before each row, a word over each column.

    Args:
        numbers: (rows, columns). A list may also hold texts, whole numbers, which are written in
            full, booleans (yes or a dot), and None, which leaves a cell empty; a dictionary has a
            row under each word. A boolean tensor is a mask: True is blocked.
        rows: a word for each row; a dictionary has its own.
        columns: a word for each column.
        title: what the table shows, over it.
        corner: what the rows' words are, over them.
        decimals: of each number, or what a format has after its colon (``".0%"``); or one for each
            column. ``"<"`` writes texts from the left.
        heat: True for attention weights: each has a shade behind it, a row is a query and a column
            a key. Names of columns shade these alone.
        blocked: (rows, columns), True where a mask blocks: no number.

    Raises:
        ValueError: there are not as many words as rows or columns.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> weights = torch.tensor([[1.0, 0.0], [0.75, 0.25]])
        >>> future = torch.tensor([[False, True], [False, False]])
        >>> display.show(weights, ["cat", "it"], ["cat", "it"], heat=True, blocked=future)
              cat    it
        cat  1.00    ▒▒
        it   0.75  0.25
        >>> sizes = {"one head": [16_640, 0.5], "eight": [16_640, None]}
        >>> display.show(sizes, columns=["parameters", "of all"], decimals=".0%", corner="class")
        class     parameters  of all
        one head      16,640     50%
        eight         16,640
    """
    if isinstance(numbers, Mapping):
        rows, numbers = [*numbers], [*numbers.values()]
    is_mask = isinstance(numbers, Tensor) and numbers.dtype == torch.bool
    if isinstance(numbers, Tensor) and is_mask:
        blocked, numbers = numbers, [[None] * numbers.size(1)] * numbers.size(0)
    if isinstance(numbers, Tensor):
        values = numbers.tolist()
    else:
        values = [[x.item() if isinstance(x, Tensor) else x for x in row] for row in numbers]
    widths = {len(row) for row in values}
    if len(rows) != len(values) or widths != {len(columns)}:
        given = f"{len(rows)} words before rows and {len(columns)} over columns"
        raise ValueError(f"{given} do not fit {len(values)} rows of {sorted(widths)} numbers")
    forms = [decimals] * len(columns) if isinstance(decimals, int | str) else [*decimals]
    texts = [[*map(written, row, forms)] for row in values]
    marked = [[_MINUS.sub("−", escape(text)) for text in row] for row in texts]
    for j, name in enumerate(columns):
        if heat is True or (heat and name in heat):
            sizes = [abs(row[j]) for row in values]
            strongest = max(1.0, *sizes)
            for row, size in zip(marked, sizes, strict=True):
                row[j] = f'<span style="--weight: {size / strongest:.2f}">{row[j]}</span>'
    for i, j in [] if blocked is None else blocked.nonzero().tolist():
        texts[i][j], marked[i][j] = CARD, HELD
    head = [corner, *map(str, columns)]
    body = [[str(word), *row] for word, row in zip(rows, texts, strict=True)]
    text = in_columns([head, *body], "<" if decimals == "<" else ">")
    lines = [[escape(str(word)), *row] for word, row in zip(rows, marked, strict=True)]
    kind = "aa-numbers aa-weights" if is_mask or heat is True else "aa-numbers"
    kind += " aa-words" * (decimals == "<")
    over = f"<figcaption>{escape(title)}</figcaption>" if title else ""
    html = f"{over}{table([[*map(escape, head)], *lines], kind)}"
    said = f"{title}\n" * bool(title) + text
    return Output(said, f'<figure class="aa-shown" tabindex="0">{html}</figure>')


def beside(*shown: Output) -> Output:
    """Put tables side by side, as many in a row as there is room for.

    Examples:
        >>> from annotated_book import display
        >>> w_q, w_k = (display.show([[i]], ["a"], ["b"], title=f"W_{i}") for i in (0, 1))
        >>> display.beside(w_q, w_k)
        W_0
           b
        a  0
        <BLANKLINE>
        W_1
           b
        a  1
    """
    html = "".join(each.html for each in shown)
    return Output("\n\n".join(each.text for each in shown), f'<div class="aa-beside">{html}</div>')


def written(value: Any, form: Decimals = 2) -> str:
    """Write what stands in a cell, without the sign of a number that is rounded to zero."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "·"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    text = format(value, f".{form}f" if isinstance(form, int) else form)
    return text if text.strip("-0.%") else text.removeprefix("-")


def in_columns(rows: Sequence[Sequence[str]], others_to: str = ">") -> str:
    """Write rows of texts below each other: the first column to the left, others to the right."""
    first, *others = ([*map(len, column)] for column in zip(*rows, strict=True))
    widths = [max(first), *(max(column) for column in others)]
    lines = (
        f"{word:{widths[0]}}"
        + "".join(
            f"  {text:{others_to}{width}}" for text, width in zip(row, widths[1:], strict=True)
        )
        for word, *row in rows
    )
    return "\n".join(line.rstrip() for line in lines)

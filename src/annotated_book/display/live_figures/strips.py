"""Strips: what is written under each of several choices, and which of its cells are right."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live


class Choice(NamedTuple):
    """What the reader chooses among, by buttons or from a list, and where it starts."""

    name: str
    options: Sequence[str]
    start: int
    kind: str = "buttons"


class Strip(NamedTuple):
    """A row: the row that it should equal, and one that it may equal instead; -1: none."""

    name: str
    right: int = -1
    other: int = -1


def strips(
    choices: Sequence[Choice],
    lines: Sequence[Sequence[str | int]],
    rows: Sequence[Strip],
    found: Mapping[tuple[int, ...], Sequence[str]],
    *,
    split: str = "",
    room: tuple[int, int],
    name: str,
) -> Output:
    """Draw rows of cells, those that are right and those that are not; alive, for every choice.

    Args:
        choices: what the reader can choose.
        lines: words, and the numbers of the choices that stand among them.
        rows: those under every choice, from above.
        found: the text of each row under the options of all choices.
        split: what lies between the cells of a text; by default, each sign is one.
        room: as in ``live``.
        name: the figure's name, see ``finish``.
    """
    start = tuple(choice.start for choice in choices)
    all_cells = [text.split(split) if split else list(text) for text in found[start]]
    drawn, lines_told = "", []
    for (title, right, other), mine, text in zip(rows, all_cells, found[start], strict=True):
        marked = marks(
            mine, all_cells[right] if right >= 0 else None, all_cells[other] if other >= 0 else []
        )
        drawn += _row(title, mine, marked)
        lines_told.append(f"{title}: {text}")
    chosen = ", ".join(f"{x.name} {x.options[x.start]}" for x in choices)
    alt = f"{chosen}. {'; '.join(lines_told)}."
    still = f'<div class="aa-strips" role="img" aria-label="{escape(alt)}">{drawn}</div>'
    data = {
        "choices": [[x.name, list(x.options), x.kind] for x in choices],
        "lines": [list(line) for line in lines],
        "start": list(start),
        "rows": [list(row) for row in rows],
        "found": {" ".join(map(str, at)): list(texts) for at, texts in found.items()},
        "split": split,
    }
    shown = told(still, escape(f"{chosen}."))
    return live(figure(name, shown, alt), "strips", data, room=room)


def _row(title: str, words: Sequence[str], marked: Sequence[str]) -> str:
    inside = "".join(
        f'<i class="aa-{mark}">{escape(word)}</i>' for word, mark in zip(words, marked, strict=True)
    )
    return f"<div><span>{escape(title)}</span>{inside}</div>"


def marks(cells: Sequence[str], right: Sequence[str] | None, other: Sequence[str]) -> list[str]:
    """Say of each cell whether it is as it should be, as it may be instead, or wrong."""
    if right is None:
        return ["plain"] * len(cells)
    found = []
    for i, cell in enumerate(cells):
        same, copied = (list(row[i : i + 1]) == [cell] for row in (right, other))
        found.append("same" if same else "copied" if copied else "wrong")
    return found

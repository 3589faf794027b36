"""Which words of a batch hear one another: rooms, the walls between them, and who hears whom."""

from collections.abc import Collection, Mapping, Sequence
from html import escape
from itertools import groupby

from torch import Tensor

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live
from annotated_book.display.live_figures.strips import Choice

_SIDES = {"north": (-1, 0), "west": (0, -1), "south": (1, 0), "east": (0, 1)}


def rooms(
    sentences: Sequence[Sequence[str]],
    room_of: Tensor,
    word: tuple[int, int],
    weights: Tensor,
    *,
    name: str,
) -> Output:
    """Draw the rooms of each head, and the weight that a word gives to each word of its room.

    Args:
        sentences: n words each, a sentence in each row.
        room_of: (b, n), the number of the room of each word.
        word: the sentence and the place of the word that asks.
        weights: (h, b, n), what it gives to each word, in each head.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> words, half = [["it", "was"], ["it", "is"]], torch.full((1, 2, 2), 0.5)
        >>> display.rooms(words, torch.tensor([[0, 1], [0, 1]]), (0, 0), half, name="a-house")
        Figure: What “it” of sentence 1 hears. Head 1: it .50, it .50.
    """
    i, j = word
    number = room_of.tolist()
    lit = [
        (s, p) for s, row in enumerate(number) for p, room in enumerate(row) if room == number[i][j]
    ]
    drawn, said = "", []
    for head, heard in enumerate(weights.tolist()):
        under = [[""] * len(row) for row in number]
        for s, p in lit:
            under[s][p] = f"{heard[s][p]:.2f}".removeprefix("0")
        title = f'<b style="color: var(--aa-{"hd"[head % 2]})">head {head + 1}</b>'
        drawn += f"<div>{title}{_grid(sentences, number, lit, word, under=under)}</div>"
        inside = ", ".join(f"{sentences[s][p]} {under[s][p]}" for s, p in lit)
        said.append(f"Head {head + 1}: {inside}.")
    alt = f"What “{sentences[i][j]}” of sentence {i + 1} hears. {' '.join(said)}"
    content = f'<div class="aa-heads-rooms" role="img" aria-label="{escape(alt)}">{drawn}</div>'
    return figure(name, content, alt)


def who_hears(
    choices: Sequence[Choice],
    sentences: Sequence[Sequence[str | int]],
    room_of: Mapping[tuple[int, ...], Tensor],
    word: tuple[int, int],
    found: Mapping[tuple[int, ...], Sequence[str]],
    *,
    rows: Mapping[str, Tensor] | None = None,
    room: tuple[int, int],
    name: str,
    more: str = "",
) -> Output:
    """Draw whom a word can hear, and how each sentence goes on; alive, for every choice and word.

    Args:
        choices: what the reader can choose; the first, or the first few, choose a house.
        sentences: n words each; a number stands for what is chosen in the choice of this number.
        room_of: under the options that choose a house, the number of each word's room, (b, n).
        word: the sentence and the place of the word that listens at first.
        found: under the options of all choices, how each sentence should go on, then how it does.
        rows: for each option of the first choice, the expression that lays all words in a row, and
            their order in it, (b * n,); the rooms are drawn as pieces of this row.
        room: as in ``live``.
        name: the figure's name, see ``finish``.
        more: what the still says besides, about other options.
    """
    start = tuple(choice.start for choice in choices)
    depth, b = len(next(iter(room_of))), len(sentences)
    number = room_of[start[:depth]].tolist()
    texts = [
        [x if isinstance(x, str) else choices[x].options[start[x]] for x in words]
        for words in sentences
    ]
    right, says = found[start][:b], found[start][b:]
    laid = {call: order.tolist() for call, order in (rows or {}).items()}
    row = [divmod(k, len(texts[0])) for k in [*laid.values()][start[0]]] if laid else []
    i, j = word
    lit = [
        (s, p)
        for s, rooms in enumerate(number)
        for p, room in enumerate(rooms)
        if room == number[i][j]
        and (row.index((s, p)) <= row.index(word) if row else hears(word, (s, p)))
    ]
    ends = [*zip(right, says, strict=True)]
    drawn = (
        _pieces(texts, number, row, lit, word, ends)
        if row
        else _grid(texts, number, lit, word, ends=ends)
    )
    chosen = ", ".join(f"{x.name} {x.options[x.start]}" for x in choices)
    goes_on = " ".join(f"Sentence {i + 1} goes on: {text}" for i, text in enumerate(says))
    alt = f"{chosen}. {goes_on} {more}".strip()
    still = f'<div role="img" aria-label="{escape(alt)}">{drawn}</div>'
    data = {
        "choices": [[x.name, list(x.options)] for x in choices],
        "sentences": [list(words) for words in sentences],
        "rooms": {" ".join(map(str, at)): each.tolist() for at, each in room_of.items()},
        "word": list(word),
        "start": list(start),
        "found": {" ".join(map(str, at)): list(texts) for at, texts in found.items()},
        "rows": [*laid.items()],
    }
    shown = told(still, escape(f"{chosen}. {more}".strip()))
    return live(figure(name, shown, alt), "rooms", data, room=room)


def walls(number: Sequence[Sequence[int]], i: int, j: int) -> list[str]:
    """Name the sides of a word on which a wall stands."""
    around = {(s, p): room for s, rooms in enumerate(number) for p, room in enumerate(rooms)}
    return [
        side
        for side, (down, right) in _SIDES.items()
        if around.get((i + down, j + right)) != number[i][j]
    ]


def hears(word: tuple[int, int], other: tuple[int, int]) -> bool:
    """Say whether a word comes no earlier than another of its room, and so can hear it."""
    return word[::-1] >= other[::-1]


def _grid(
    sentences: Sequence[Sequence[str]],
    number: Sequence[Sequence[int]],
    lit: Collection[tuple[int, int]] = (),
    asks: tuple[int, int] | None = None,
    *,
    under: Sequence[Sequence[str]] = (),
    ends: Sequence[tuple[str, str]] = (),
) -> str:
    drawn = ""
    for i, words in enumerate(sentences):
        drawn += f"<span>{i + 1}</span>"
        for j, text in enumerate(words):
            kinds = [*walls(number, i, j), *["lit"] * ((i, j) in lit), *["asks"] * ((i, j) == asks)]
            classes = " ".join(f"aa-{kind}" for kind in kinds)
            below = under[i][j] if under else ""
            share = f' style="--share: {below}"' if below.startswith(".") else ""
            below = f"<b>{below}</b>" if below else ""
            drawn += f'<i class="{classes}"{share}>{escape(text)}{below}</i>'
        if ends:
            drawn += _end(len(sentences), i, *ends[i])
    many = f'style="--n: {len(sentences[0])}"'
    return f'<div class="aa-rooms{" aa-ends" * bool(ends)}" {many}>{drawn}</div>'


def _pieces(
    sentences: Sequence[Sequence[str]],
    number: Sequence[Sequence[int]],
    row: Sequence[tuple[int, int]],
    lit: Collection[tuple[int, int]],
    asks: tuple[int, int],
    ends: Sequence[tuple[str, str]],
) -> str:
    drawn = ""
    for _, piece in groupby(row, lambda at: number[at[0]][at[1]]):
        inside = ""
        for at in piece:
            classes = " ".join(["aa-lit"] * (at in lit) + ["aa-asks"] * (at == asks))
            text = escape(sentences[at[0]][at[1]])
            inside += f'<i class="{classes}">{text}<b class="aa-of-{at[0] + 1}">{at[0] + 1}</b></i>'
        drawn += f"<div>{inside}</div>"
    drawn += "".join(_end(len(sentences), i, *end) for i, end in enumerate(ends))
    return f'<div class="aa-rooms aa-pieces">{drawn}</div>'


def _end(b: int, i: int, right: str, says: str) -> str:
    row = f'style="--row: {b + i + 1}" data-of="{i + 1} … "'
    return f'<em class="aa-{"same" if says == right else "wrong"}" {row}>{says}</em>'

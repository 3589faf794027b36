"""What is answered when rows come from another run, or when heads are changed."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live

_KINDS = ("the one meant", "the other", "a third word")


class Swap(NamedTuple):
    """What is exchanged or changed, one question's answer then, and the kinds' shares in all.

    One that is the same in both runs has no answer.
    """

    name: str
    answer: str
    shares: Sequence[float]


class Runs(NamedTuple):
    """Questions and their twins: how many, one of them, and what can be exchanged.

    Without words, each line is a model or what is done to it, and each place in it one thing more.
    """

    questions: int
    before: str  # of the words that have a column
    words: Sequence[str]
    twin: Sequence[str]
    answer: str
    shares: Sequence[float]  # with nothing exchanged
    lines: Mapping[str, Sequence[Swap]]  # by name, from above
    joined: str = ", without "  # between the name of a line and what is pressed in it


def exchange(runs: Mapping[str, Runs], *, name: str, caption: str = "") -> Output:
    """Draw how often the other one is named when a row comes from the twin.

    Without words: how often the one meant is named, and in colours all three shares.
    Alive, a number is hidden until the reader presses its place.

    Args:
        runs: by name, all with words or all without.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    drawn, lines_told = "", []
    words: Sequence[str] = ()
    for title, each in runs.items():
        drawn += f"<p>{escape(title)}</p>" * (len(runs) > 1)
        words = each.words
        for line, swaps in each.lines.items():
            cells = "".join(_cell(swap, not words) for swap in swaps)
            drawn += f"<div><span>{escape(line)}</span><div>{cells}</div></div>"
            kept = slice(1, 2) if words else slice(3)  # the other, or all kinds
            numbers = ", ".join(
                f"{x.name} {'/'.join(f'{share:.2f}' for share in x.shares[kept])}"
                for x in swaps
                if x.answer or not words
            )
            lines_told.append(f"{f'{title}, ' * (len(runs) > 1)}{line}: {numbers}")
        if words:
            under = (f"<b>{_word(*both)}</b>" for both in zip(words, each.twin, strict=True))
            drawn += f"<div><span></span><div>{''.join(under)}</div></div>"
    alt = "The other one is named when this comes from the twin."
    note = "Each number: how often the other one is named. Grey: no difference."
    if not words:
        alt = "Shares of the one meant, the other, a third word."
        note = "Blue, and each number: the one meant. Orange: the other. Grey: a third word."
    alt += f" {'; '.join(lines_told)}."
    board = "aa-exchange" + " aa-silenced" * (not words)
    still = f'<div class="{board}" role="img" aria-label="{escape(alt)}">{drawn}</div>'
    data = {
        "kinds": _KINDS,
        "runs": [
            each._asdict()
            | {
                "name": title,
                "shares": _rounded(each.shares),
                "lines": [
                    [line, [[x.name, x.answer, _rounded(x.shares)] for x in swaps]]
                    for line, swaps in each.lines.items()
                ],
            }
            for title, each in runs.items()
        ],
    }
    lines = max(len(each.lines) for each in runs.values())
    several = len(runs) > 1 or (not words and lines > 2)
    high = 40 * lines + 177 + 44 * several
    room = (high, high + 75)
    if not words:
        room = (50 * lines + 78 + 53 * several, 50 * lines + 114 + 90 * several)
    return live(figure(name, told(still, note), alt, caption), "exchange", data, room=room)


def _cell(swap: Swap, silenced: bool) -> str:
    if silenced:
        one, two, _ = swap.shares
        look = f"--one: {100 * one:.0f}%; --two: {100 * (one + two):.0f}%"
        return f'<i style="{look}"><small>{escape(swap.name)}</small>{one:.2f}</i>'
    if not swap.answer:
        return '<i class="aa-alike"></i>'
    return f'<i style="--share: {swap.shares[1]:.2f}">{swap.shares[1]:.2f}</i>'


def _word(word: str, twin: str) -> str:
    return escape(word) if word == twin else f"{escape(word)}<em>{escape(twin)}</em>"


def _rounded(shares: Sequence[float]) -> list[float]:
    return [round(share, 4) for share in shares]

"""Two runs: what is answered when rows and heads of the one are put into the other."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live

_KINDS = ("the one meant", "the other", "a third word")


class Swap(NamedTuple):
    """What is exchanged, what one question's answer is then, and the kinds' shares in all.

    One that is the same in both runs has no answer.
    """

    name: str
    answer: str
    shares: Sequence[float]


class Runs(NamedTuple):
    """Questions and their twins: how many, one of them, and what can be exchanged."""

    questions: int
    before: str  # of the words that have a column
    words: Sequence[str]
    twin: Sequence[str]
    answer: str
    shares: Sequence[float]  # with nothing exchanged
    lines: Mapping[str, Sequence[Swap]]  # by name, from above


def exchange(runs: Mapping[str, Runs], *, name: str, caption: str = "") -> Output:
    """Draw how often the other one is named when a row or a head comes from the twin.

    Alive, a number is hidden until the reader makes the exchange.

    Args:
        runs: by name.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    drawn, lines_told = "", []
    for title, each in runs.items():
        drawn += f"<p>{escape(title)}</p>" * (len(runs) > 1)
        for line, swaps in each.lines.items():
            cells = "".join(map(_cell, swaps))
            drawn += f"<div><span>{escape(line)}</span><div>{cells}</div></div>"
            numbers = ", ".join(f"{x.name} {x.shares[1]:.2f}" for x in swaps if x.answer)
            lines_told.append(f"{f'{title}, ' * (len(runs) > 1)}{line}: {numbers}")
        words = "".join(
            f"<b>{_word(*both)}</b>" for both in zip(each.words, each.twin, strict=True)
        )
        drawn += f"<div><span></span><div>{words}</div></div>"
    alt = f"The other one is named when this comes from the twin. {'; '.join(lines_told)}."
    still = f'<div class="aa-exchange" role="img" aria-label="{escape(alt)}">{drawn}</div>'
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
    shown = told(still, "Each number: how often the other one is named. Grey: no difference.")
    high = 40 * max(len(each.lines) for each in runs.values()) + 44 * (len(runs) > 1)
    room = (high + 177, high + 252)
    return live(figure(name, shown, alt, caption), "exchange", data, room=room)


def _cell(swap: Swap) -> str:
    if not swap.answer:
        return '<i class="aa-alike"></i>'
    head = f"{escape(swap.name)}: " * swap.name[0].isdigit()
    return f'<i style="--share: {swap.shares[1]:.2f}">{head}{swap.shares[1]:.2f}</i>'


def _word(word: str, twin: str) -> str:
    return escape(word) if word == twin else f"{escape(word)}<em>{escape(twin)}</em>"


def _rounded(shares: Sequence[float]) -> list[float]:
    return [round(share, 4) for share in shares]

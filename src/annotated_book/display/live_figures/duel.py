"""A game for two heads: the longer of two bars answers, the reader guesses first, and repairs."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live

# Where things stand, as in ``duel.js``.
WIDE, HIGH, BAR = 384, 92, 13
LEFT, TOP, FULL = 4, 58, 210
LETTER, LOOK, LINE = 8.1, 16, 31  # how wide, of fixed width; how high all attention is; its foot
Answer = tuple[Sequence[float], int, Sequence[Mapping[str, float]]]


def duel(
    rounds: Mapping[str, Mapping[str, Answer]], sides: Sequence[str], question: str, *, name: str
) -> Output:
    """Show what two heads answer to each sentence; alive, the reader guesses, and tries repairs.

    Args:
        rounds: the heads as they are, and after each repair, by name; of each sentence what the two
            heads bring home, which of the two sides is right, and how much each looks at each word.
        sides: what the bars of head 1 and head 2 stand for.
        question: what is answered.
        name: the figure's name, see ``finish``.
    """
    most = max(max(numbers) for each in rounds.values() for numbers, *_ in each.values())
    unit = FULL / most
    played: list[tuple[str, list[dict[str, Any]]]] = [
        (
            which,
            [
                {
                    "numbers": [f"{number:.2f}" for number in numbers],
                    "wide": [round(unit * number, 1) for number in numbers],
                    "says": sides[_longer(numbers)],
                    "right": _longer(numbers) == answer,
                    "looks": [[round(LOOK * w, 1) for w in look.values()] for look in looks],
                    "why": _why(looks),
                }
                for numbers, answer, looks in sentences.values()
            ],
        )
        for which, sentences in rounds.items()
    ]
    (_, rows), first = played[0], next(iter(rounds.values()))
    names, words = list(first), [list(looks[0]) for *_, looks in first.values()]
    drawn = "".join(_row(HIGH * i, *each) for i, each in enumerate(zip(words, rows, strict=True)))
    lines = [
        f"{sentence}: {row['numbers'][0]} of {sides[0]} and {row['numbers'][1]} of {sides[1]}, "
        f"{_verdict(row)}. {row['why']}"
        for sentence, row in zip(names, rows, strict=True)
    ]
    for which, each in played:
        shown = ", ".join(" : ".join(row["numbers"]) for row in each)
        right = sum(row["right"] for row in each)
        lines.append(f"{which}: {shown}; right in {right} of {len(each)}.")
    alt = " ".join([question, *lines])
    still = (
        f'<div class="aa-score" role="img" aria-label="{escape(alt)}"><svg '
        f'viewBox="0 0 {WIDE} {HIGH * len(rows)}" aria-hidden="true" fill="currentColor" '
        f'font-size="14">{drawn}</svg></div>'
    )
    content = told(still, "<br>".join(map(escape, lines)))
    data = {"sentences": names, "words": words, "sides": list(sides), "question": question}
    return live(figure(name, content, alt), "duel", data | {"rounds": played}, room=(690, 960))


def _longer(numbers: Sequence[float]) -> int:
    return int(numbers[1] > numbers[0])


def _verdict(row: Mapping[str, Any]) -> str:
    return f"{row['says']}, {'right' if row['right'] else 'wrong'}"


def _why(looks: Sequence[Mapping[str, float]]) -> str:
    """Say at which words each head looks most."""
    most = [", ".join(f"{word} {w:.2f}" for word, w in look.items() if w > 0.2) for look in looks]
    return f"Most: {'; '.join(f'head {i} looks at {each}' for i, each in enumerate(most, 1))}."


def _row(y: int, words: Sequence[str], row: Mapping[str, Any]) -> str:
    """Draw what ``duel.js`` draws of a sentence."""
    drawn, x = "", float(LEFT)
    for word, *high in zip(words, *row["looks"], strict=True):
        wide = LETTER * len(word)
        drawn += f'<text class="aa-fixed" x="{x:.1f}" y="{y + LINE}">{escape(word)}</text>'
        for letter, tall, top in zip("hd", high, (LINE - 12 - high[0], LINE + 5), strict=True):
            drawn += (
                f'<rect x="{x:.1f}" y="{y + top:.1f}" width="{wide:.1f}" height="{tall}" '
                f'fill-opacity="0.5" fill="var(--aa-{letter})"/>'
            )
        x += wide + LETTER
    for i, (letter, wide) in enumerate(zip("hd", row["wide"], strict=True)):
        top = y + TOP + (BAR + 3) * i
        drawn += (
            f'<rect x="{LEFT}" y="{top}" width="{wide}" height="{BAR}" fill-opacity="0.4" '
            f'fill="var(--aa-{letter})" stroke="var(--aa-{letter})"/>'
            f'<text x="{LEFT + 6 + wide:.1f}" y="{top + 11}" font-size="12">'
            f"{row['numbers'][i]}</text>"
        )
    return drawn + (
        f'<text x="{LEFT + FULL + 50}" y="{y + TOP + 12}" font-weight="bold">{_verdict(row)}</text>'
    )

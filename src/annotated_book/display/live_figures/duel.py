"""A game for two heads: the longer of two bars answers; a number in each head can be moved."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from torch import Tensor

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live

# Where things stand, as in ``duel.js``.
WIDE, HIGH, BAR = 384, 92, 13
LEFT, TOP, FULL = 4, 58, 210
LETTER, LOOK, LINE = 8.1, 16, 31  # how wide, of fixed width; how high all attention is; its foot
Sentence = tuple[Sequence[str], int, Tensor, Tensor, Tensor]


def duel(
    sentences: Mapping[str, Sentence],
    sides: Sequence[str],
    mended: float,
    keys: Sequence[Tensor],
    features: Sequence[str],
    *,
    name: str,
) -> Output:
    """Show what two heads answer to each sentence; alive, the reader moves a number in each head.

    Args:
        sentences: by name, of each its words, which of the two sides is right, the scores (2, m) of
            both heads where the number is 0 and where it is 1, and what each word hands over, (m,).
        sides: what the bars of head 1 and head 2 stand for; the number of each head says how well
            it finds the other.
        mended: a second number, for which the picture's words tell what the heads bring home.
        keys: W_K of both heads, (e, d), where the number is 0; it stands in the first column.
        features: e names of its rows, the sides among them.
        name: the figure's name, see ``finish``.
    """
    rows = [_answer(0, sides, *each) for each in sentences.values()]
    unit = FULL / 2  # nobody hands over more than 2
    words = [said for said, *_ in sentences.values()]
    drawn = "".join(_row(HIGH * i, *each) for i, each in enumerate(zip(words, rows, strict=True)))
    lines = [
        f"{sentence}: {row['numbers'][0]} of {sides[0]} and {row['numbers'][1]} of {sides[1]}, "
        f"{row['verdict']}."
        for sentence, row in zip(sentences, rows, strict=True)
    ]
    after = [_answer(mended, sides, *each) for each in sentences.values()]
    shown = ", ".join(" : ".join(row["numbers"]) for row in after)
    right = sum("✓" in row["verdict"] for row in after)
    told_number = f"{mended:g}".replace("-", "−")
    lines.append(f"With both numbers at {told_number}: {shown}; right in {right} of {len(after)}.")
    alt = " ".join(lines)
    still = (
        f'<div class="aa-score" role="img" aria-label="{escape(alt)}"><svg '
        f'viewBox="0 0 {WIDE} {HIGH * len(rows)}" aria-hidden="true" fill="currentColor" '
        f'font-size="14">{drawn}</svg></div>'
    )
    content = told(still, "<br>".join(map(escape, lines)))
    given = [
        {"name": which, "words": list(said), "answer": answer}
        | {"zero": _rounded(zero), "one": _rounded(one), "gives": _rounded(gives)}
        for which, (said, answer, zero, one, gives) in sentences.items()
    ]
    data = {"sides": list(sides), "sentences": given, "unit": unit}
    data |= {"keys": [w_k.int().tolist() for w_k in keys], "features": list(features)}
    return live(figure(name, content, alt), "duel", data, room=(520, 830))


def _rounded(x: Tensor) -> Any:
    return x.double().round(decimals=4).tolist()


def _answer(
    number: float,
    sides: Sequence[str],
    words: Sequence[str],
    answer: int,
    zero: Tensor,
    one: Tensor,
    gives: Tensor,
) -> dict[str, Any]:
    """Say what the heads bring home with this number in both, and whether that is right."""
    looks = (zero + number * (one - zero)).softmax(-1)  # (2, m)
    brings = (looks @ gives).tolist()
    says = int(brings[1] > brings[0])
    return {
        "numbers": [f"{each:.2f}" for each in brings],
        "wide": [round(FULL / 2 * each, 1) for each in brings],
        "looks": [[round(LOOK * w, 1) for w in look] for look in looks.tolist()],
        "verdict": f"{sides[says]} {'✓' if says == answer else '✗'}",
    }


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
        f'<text x="{LEFT + FULL + 50}" y="{y + TOP + 20}" font-weight="bold">'
        f"{row['verdict']}</text>"
    )

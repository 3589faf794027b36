"""A game: sentences whose verdict the reader guesses before a head gives it, and the score."""

from collections.abc import Mapping
from html import escape
from typing import Any

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live

# Where things stand, as in ``scoreboard.js``.
WIDE, HIGH, BAR, HEAD = 384, 58, 20, 18
LEFT, TOP, FULL = 4, 26, 230


def scoreboard(
    sentences: Mapping[str, tuple[float, bool, str]],
    line: float,
    question: str,
    *,
    name: str,
    end: str = "",
) -> Output:
    """Show what a head says of each sentence, and whether that is right; alive, the reader guesses.

    Args:
        sentences: of each, the number that the head gives, whether the answer is yes, and why
            the head says what it says.
        line: above it, the head says yes.
        question: what is answered by yes or no.
        name: the figure's name, see ``finish``.
        end: what is said once every sentence has been guessed.
    """
    unit = round(FULL / max(number for number, _, _ in sentences.values()), 2)
    rows: list[dict[str, Any]] = [
        {
            "sentence": sentence,
            "number": f"{number:.2f}",
            "wide": round(unit * number, 1),
            "says": ["no", "yes"][number > line],
            "right": (number > line) == answer,
            "why": why,
        }
        for sentence, (number, answer, why) in sentences.items()
    ]
    at = round(LEFT + unit * line, 1)
    drawn = (
        f'<text y="12" x="{at - 22}" font-size="13" text-anchor="end">← no</text>'
        f'<text y="12" x="{at}" font-size="13" text-anchor="middle">{line:.2f}</text>'
        f'<text y="12" x="{at + 22}" font-size="13">yes →</text>'
    ) + "".join(
        f'<text y="{HEAD + HIGH * i + 16}" x="{LEFT}">{escape(row["sentence"])}</text>'
        f'<rect x="{LEFT}" y="{HEAD + HIGH * i + TOP}" width="{row["wide"]}" height="{BAR}" '
        f'fill="var(--aa-h)" fill-opacity="0.4" stroke="var(--aa-h)"/>'
        f'<path d="M{at} {HEAD + HIGH * i + TOP - 5}v{BAR + 10}" stroke="currentColor" '
        f'stroke-dasharray="4 3"/>'
        f'<text x="{LEFT + FULL + 12}" y="{HEAD + HIGH * i + TOP + 15}" font-weight="bold">'
        f"{row['number']}: {row['says']}, {'right' if row['right'] else 'wrong'}</text>"
        for i, row in enumerate(rows)
    )
    right, whole = sum(row["right"] for row in rows), len(rows)
    last = f"The head is right in {right} of {whole}. {end}".strip()
    lines = [
        f"{row['sentence']}: {question} {row['number']}, {row['says']}, "
        f"{'right' if row['right'] else 'wrong'}. {row['why']}"
        for row in rows
    ]
    alt = " ".join([*lines, last])
    still = (
        f'<div class="aa-score" role="img" aria-label="{escape(alt)}"><svg '
        f'viewBox="0 0 {WIDE} {HEAD + HIGH * whole}" aria-hidden="true" fill="currentColor" '
        f'font-size="14">{drawn}</svg></div>'
    )
    content = told(still, "<br>".join(map(escape, [*lines, last])))
    data = {"rows": rows, "at": at, "line": f"{line:.2f}", "question": question, "end": end}
    return live(figure(name, content, alt), "scoreboard", data, room=(454, 722))

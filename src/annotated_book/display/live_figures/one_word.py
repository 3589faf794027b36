"""One word in a few sentences: what it looks at in two heads, and which of two nouns it prefers."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from torch import Tensor

from annotated_book.display._html import Output, figure
from annotated_book.display._live import live

# Where things stand in the drawing, in units of which a phone has nearly as many as pixels.
LETTER, GAP, WIDTH, HIGH, LEAST = 6.0, 9.0, 356, 156, 5  # a share below so many hundredths is faint
SIDES = (("h", 56, -1), ("d", 97, 1))  # of each head: colour, where its curves end, and their way


class Asked(NamedTuple):
    """A sentence, the places of its word that looks and of two nouns, and (2, n) weights."""

    button: str
    words: Sequence[str]
    asks: int
    meant: int
    other: int
    weights: Tensor  # of each head, what the word gives to each


def one_word(asked: Sequence[Asked], heads: tuple[str, str], *, name: str) -> Output:
    """Draw what one word looks at in two heads; alive, press a sentence to see it.

    Args:
        asked: the sentences; the live figure begins with the first.
        heads: what the two are called. The first is drawn above the words.
        name: the figure's name, see ``finish``.
    """
    data: dict[str, Any] = {
        "heads": list(heads),
        "sentences": [
            {
                "name": each.button,
                "words": list(each.words),
                "places": places(each.words),
                "asks": each.asks,
                "nouns": [each.meant, each.other],
                "weights": (100 * each.weights).round().int().tolist(),
            }
            for each in asked
        ],
    }
    drawn, said = "", []
    for sentence in data["sentences"]:
        label = told(sentence, heads)
        said.append(label)
        drawn += (
            f'<svg class="aa-look" viewBox="0 0 {WIDTH} {HIGH}" role="img" font-size="12" '
            f'aria-label="{escape(label)}" fill="currentColor" text-anchor="middle" '
            f'style="display:block;max-width:{1.5 * WIDTH:g}px">{_draw(sentence, heads)}</svg>'
        )
    return live(
        figure(name, f"<div>{drawn}</div>", " ".join(said)), "one_word", data, room=(320, 350)
    )


def places(words: Sequence[str], width: int = WIDTH) -> list[float]:
    """Give the middle of each word, in a row over the whole width."""
    gap = (width - 8 - LETTER * sum(map(len, words))) / max(len(words) - 1, 1)
    left, found = 4.0, []
    for word in words:
        found.append(round(left + LETTER * len(word) / 2, 1))
        left += LETTER * len(word) + min(gap, 2 * GAP)
    return found


def told(sentence: dict[str, Any], heads: Sequence[str]) -> str:
    """Say what the word looks at, and whether it prefers the noun that is meant."""
    words, (meant, other) = sentence["words"], sentence["nouns"]
    parts = []
    for head, row in zip(heads, sentence["weights"], strict=True):
        verdict = "the one meant" if row[meant] > row[other] else "not the one meant"
        noun = words[meant if row[meant] > row[other] else other]
        shares = f"{words[meant]} {row[meant] / 100:.2f}, {words[other]} {row[other] / 100:.2f}"
        parts.append(f"{head}: {shares}; prefers {noun}, {verdict}")
    return f"“{' '.join(words)}”. What “{words[sentence['asks']]}” gives. {'. '.join(parts)}."


def _draw(sentence: dict[str, Any], heads: Sequence[str]) -> str:
    """Draw what ``one_word.js`` draws."""
    words, at, asks = sentence["words"], sentence["places"], sentence["asks"]
    meant, other = sentence["nouns"]
    drawn = ""
    for head, row, (letter, y, way) in zip(heads, sentence["weights"], SIDES, strict=True):
        ink = f"var(--aa-{letter})"
        for x, share in zip(at, row, strict=True):
            far = abs(x - at[asks])
            top = y + way * 2.6 * math.sqrt(far)
            if far and share >= LEAST:
                drawn += (
                    f'<path d="M{at[asks]} {y}C{at[asks]} {top:.1f} {x} {top:.1f} {x} {y}" '
                    f'fill="none" stroke="{ink}" stroke-opacity="0.85" '
                    f'stroke-width="{0.4 + 0.09 * share:g}"/>'
                )
                drawn += (
                    f'<text x="{x}" y="{y + (11 if way < 0 else -3)}" font-size="12" '
                    f'fill="{ink}">{share / 100:.2f}</text>'
                )
        right = row[meant] > row[other]
        line = 12 if way < 0 else HIGH - 3
        drawn += f'<text x="2" y="{line}" text-anchor="start" fill="{ink}">{head}</text>'
        drawn += (
            f'<text x="{WIDTH - 2}" y="{line}" text-anchor="end" font-weight="bold" fill="{ink}">'
            f"of the two, {words[meant if right else other]} {'✓' if right else '✗'}</text>"
        )
    for i, (x, word) in enumerate(zip(at, words, strict=True)):
        bold = ' font-weight="bold"' * (i in (asks, meant, other))
        drawn += f'<text x="{x}" y="80"{bold}>{escape(word)}</text>'
    return drawn

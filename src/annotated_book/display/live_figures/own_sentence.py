"""A sentence of the reader's own, of two nouns and a pronoun, and what the pronoun looks at."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from torch import Tensor

from annotated_book.display._html import Output, figure
from annotated_book.display._live import live
from annotated_book.display.live_figures.one_word import LEAST, places

WIDTH, HIGH, BASE = 356, 100, 70  # of the drawing, as wide as a phone; where the curves end


class Frame(NamedTuple):
    """A sentence with two nouns, ``A`` and ``B``, and a pronoun, ``P``, left open."""

    button: str
    text: str
    asks: Sequence[str]  # what can stand for P; its first word asks

    def words(self, first: str, second: str, asks: str) -> list[str]:
        """Give the words of the sentence."""
        put = {"A": first, "B": second, "P": asks}
        return " ".join(put.get(word, word) for word in self.text.split()).split()

    @property
    def at(self) -> int:
        """Give the place of the word that asks."""
        return self.text.split().index("P")


def own_sentence(
    frames: Sequence[Frame],
    nouns: Sequence[str],
    weigh: Callable[[list[str]], Sequence[Tensor]],
    *,
    head: str,
    start: tuple[int, int, int],
    name: str,
) -> Output:
    """Let the reader choose two nouns and a pronoun, and draw what the pronoun looks at.

    Args:
        frames: kinds of sentences; the live figure begins with the first.
        nouns: which can stand in the two places.
        weigh: gives what the words of each sentence give to each other, (n, n).
        head: what the head is called.
        start: the first noun, the second noun and the pronoun to begin with, counted from 0.
        name: the figure's name, see ``finish``.
    """
    every = [
        [(one, two, asks) for one in nouns for two in nouns if one != two for asks in frame.asks]
        for frame in frames
    ]
    rows = []
    for frame, chosen in zip(frames, every, strict=True):
        maps = weigh([" ".join(frame.words(*each)) for each in chosen])
        found = {each: _row(frame.at, x) for each, x in zip(chosen, maps, strict=True)}
        pairs = [(one, two) for one in nouns for two in nouns]
        rows.append([[found.get((*pair, asks), []) for asks in frame.asks] for pair in pairs])
    data: dict[str, Any] = {
        "head": head,
        "frames": [[each.button, each.text.split(), list(each.asks)] for each in frames],
        "nouns": list(nouns),
        "rows": rows,
        "start": list(start),
    }
    one, two, asks = start
    words = frames[0].words(nouns[one], nouns[two], frames[0].asks[asks])
    row = rows[0][one * len(nouns) + two][asks]
    label = told(words, frames[0].at, row, head)
    drawn = (
        f'<svg class="aa-look" viewBox="0 0 {WIDTH} {HIGH}" role="img" font-size="12" '
        f'aria-label="{escape(label)}" fill="currentColor" text-anchor="middle" '
        f'style="display:block;max-width:{1.5 * WIDTH:g}px">'
        f"{_draw(words, frames[0].at, row, head)}</svg>"
    )
    room = 215 + 45 * (len(frames) > 1)
    return live(figure(name, f"<div>{drawn}</div>", label), "own_sentence", data, room=(room, room))


def told(words: Sequence[str], asks: int, row: Sequence[int], head: str) -> str:
    """Say what the word that asks looks at."""
    top = row.index(max(row))
    return (
        f"“{' '.join(words)}”. {head}: “{words[asks]}” looks most at “{words[top]}” "
        f"({row[top] / 100:.2f})."
    )


def _row(asks: int, weights: Tensor) -> list[int]:
    """Give a row in hundredths, without what the word gives to itself."""
    row: list[int] = (100 * weights[asks]).round().int().tolist()
    return [*row[:asks], 0, *row[asks + 1 :]]


def _draw(words: Sequence[str], asks: int, row: Sequence[int], head: str) -> str:
    """Draw what ``own_sentence.js`` draws."""
    at, top = places(words, WIDTH), row.index(max(row))
    drawn = f'<text x="2" y="12" text-anchor="start" fill="var(--aa-h)">{head}</text>'
    drawn += (
        f'<text x="{WIDTH - 2}" y="12" text-anchor="end" font-weight="bold" fill="var(--aa-h)">'
        f"{words[asks]} → {words[top]}</text>"
    )
    for j, (x, word, share) in enumerate(zip(at, words, row, strict=True)):
        if share >= LEAST:
            high = BASE - 3 * math.sqrt(abs(x - at[asks]))
            drawn += (
                f'<path d="M{at[asks]} {BASE}C{at[asks]} {high:.1f} {x} {high:.1f} {x} {BASE}" '
                f'fill="none" stroke="var(--aa-h)" stroke-opacity="0.85" '
                f'stroke-width="{0.4 + 0.09 * share:g}"/>'
            )
            drawn += f'<text x="{x}" y="97" font-size="12" fill="var(--aa-h)">{share / 100:.2f}'
            drawn += "</text>"
        bold = ' font-weight="bold"' * (j in (asks, top))
        drawn += f'<text x="{x}" y="84"{bold}>{escape(word)}</text>'
    return drawn

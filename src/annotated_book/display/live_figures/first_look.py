"""The first look: two heads in one sentence, its last word, and one line of code.

The heads are those of the map, and so are the functions: what stands here was computed when the
page was built.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import torch
from torch import Tensor

from annotated_attention.attention import scaled_scores
from annotated_attention.heads import merge_heads, split_heads
from annotated_book.display import computation as c
from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live

WORDS = c.WORDS[: c.LENGTH]
ENDINGS = {
    "thirsty": c.X[c.LENGTH - 1],
    "sweet": torch.tensor([0.0, 2, 0, 2]),
    "…": torch.zeros(4),
}
NAMES = ["animal", "food"]  # what the heads ask about
KINDS = [WORDS[int(c.X[:, feature].argmax())] for feature in range(2)]  # the word that is one
# Where things stand in the drawing, in units of which a phone has as many as pixels.
LETTER, GAP, SIZE = 6.6, 14.5, (356, 182)  # of a word's letter, between words, of the whole
SIDES = {"h": (66, -1), "d": (116, 1)}  # of each head: where its curves end, and the way they go
FLOOR, TALL = 76, 42  # where the bars stand, and the height of one whole
ASKS = [f"head 1: about an {NAMES[0]}?", f"head 2: about a {NAMES[1]}?"]
FROM = ["from head 1", "from head 2"]
LEAST = 5  # hundredths: a smaller share is drawn, and not written
MUCH = 30  # hundredths: of such a share is said that nothing comes of it


def first_look(*, name: str, merge: bool = True, causal: bool = False) -> Output:
    """Show what two heads find in the sentence; let the reader exchange its end and its merge.

    Args:
        name: the figure's name, see ``finish``.
        merge: False leaves out the line that merges the heads.
        causal: no word sees a later one, so only the last can tell.
    """
    sentences = [torch.cat([c.X[: c.LENGTH - 1], end[None]]) for end in ENDINGS.values()]
    states = [_compute(x, causal) for x in sentences]
    gives = [
        (x @ c.W_V).amax(-1).int().tolist() for x in sentences
    ]  # both heads hand over the same
    weights, right, wrong = ([_hundredths(x) for x in part] for part in zip(*states, strict=True))
    places = list(_places([*WORDS[:-1], "thirsty"]))
    it = WORDS.index("it")
    data: dict[str, Any] = {
        "words": WORDS,
        "endings": list(ENDINGS),
        "places": places,
        "weights": weights,
        "right": right,
        "wrong": wrong,
        "query": it,
        "gives": gives,
        "names": NAMES,
        "kinds": KINDS,
        "merge": merge,
        "causal": causal,
        "asks": ASKS,
    }
    thirsty, sweet, _ = ([f"{number / 100:.2f}" for number in rows[it]] for rows in right)
    same = [f"{number / 100:.2f}" for number in wrong[0][it]]
    shares = [
        ", ".join(f"{word} {share / 100:.2f}" for word, share in zip(WORDS, rows[it], strict=True))
        for rows in weights[0]
    ]
    alt = f"The shares of “it”, by head 1: {shares[0]}; by head 2: {shares[1]}."
    (animal, food), (cat, milk) = NAMES, KINDS
    text = (
        f"Head 1 gets most from <i>thirsty</i>: {thirsty[0]} {animal}. Head 2 gets little: "
        f"{thirsty[1]} {food}. So <i>it</i> means the {animal}, the {cat}. "
        f"With <i>sweet</i>, it gets {sweet[0]} and {sweet[1]} and means the {food}, the {milk}."
    )
    if causal:
        last, other = ([f"{number / 100:.2f}" for number in rows[-1]] for rows in right[:2])
        text = (
            f"<i>It</i> does not see the last word, and gets {thirsty[0]} and {thirsty[1]} in both "
            f"sentences. <i>Thirsty</i> sees all: {last[0]} {animal}, {last[1]} {food}. "
            f"<i>Sweet</i> gets {other[0]} and {other[1]}."
        )
    merging = (
        " Then the heads are joined: <code>heads.transpose(0, 1).reshape(n, h * d)</code>. Without "
        f"the transpose there is no error and the same shape, and with either word <i>it</i> gets "
        f"{same[0]} and {same[1]}: what was found for it stands at other words."
    )
    drawn = _still(weights[0], gives[0], places, it, alt, 2 if causal else 0) + _bars(
        "each word gets", NAMES, right[0], places
    )
    if merge:
        drawn += _bars("without the transpose", FROM, wrong[0], places)
    return live(
        figure(name, told(drawn, text + merging * merge), alt),
        "first_look",
        data,
    )


def _compute(x: Tensor, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Give the weights of both heads, and what each word gets: merged rightly and wrongly.

    Args:
        x: (n, e), a sentence.
        causal: True hides from each word those that come later.
    """
    q, k, v = (split_heads(x @ w, c.HEADS) for w in (c.W_Q, c.W_K, c.W_V))   # (h, n, d)
    later = torch.ones(len(x), len(x)).triu(1).bool() & causal               # (n, m)
    weights = scaled_scores(q, k).masked_fill(later, -math.inf).softmax(-1)  # (h, n, m)
    heads = weights @ v                                                      # (h, n, d)
    h, n, d = heads.shape
    wrong = heads.reshape(n, h * d)  # (n, h * d)
    return weights, (merge_heads(heads) @ c.W_O)[:, :2], (wrong @ c.W_O)[:, :2]


def _hundredths(x: Tensor) -> Any:
    return (100 * x).round().int().tolist()


def _places(words: Sequence[str]) -> Iterator[float]:
    """Give the middle of each word."""
    left = 6.0
    for word in words:
        yield round(left + LETTER * len(word) / 2, 1)
        left += LETTER * len(word) + GAP


def _still(
    weights: list[list[list[int]]],
    gives: list[int],
    places: list[float],
    query: int,
    alt: str,
    meant: int,
) -> str:
    """Draw what ``first_look.js`` draws at first."""
    drawn = ""
    for rows, (letter, (y, way)) in zip(weights, SIDES.items(), strict=True):
        for x, share, given in zip(places, rows[query], gives, strict=True):
            if meant == len(KINDS) and x > places[query]:  # later, and hidden
                continue
            drawn += (
                f'<path d="{_curve(places[query], x, y, way)}" stroke="var(--aa-{letter})" '
                f"{_stroke(share * given)}/>"
            )
    texts = "".join(
        f'<text x="{x}" y="94" {"font-weight" if i == query else "opacity"}='
        f'"{"bold" if i == query else 1}">{escape(word)}</text>'
        for i, (x, word) in enumerate(zip(places, WORDS, strict=True))
    )
    for rows, (letter, (y, way)) in zip(weights, SIDES.items(), strict=True):
        texts += "".join(
            f'<text x="{x}" y="{y + (12 if way < 0 else -6)}" '
            f'fill="var(--aa-{letter if given else "quiet"})">{share / 100:.2f}</text>'
            for x, share, given in zip(places, rows[query], gives, strict=True)
            if share >= LEAST
        )
        texts += "".join(
            f'<text class="aa-gives" x="{x + 15:g}" y="{y + (12 if way < 0 else -6)}" '
            f'font-size="10" text-anchor="start" fill="var(--aa-quiet)">gives 0</text>'
            for x, share, given in zip(places, rows[query], gives, strict=True)
            if share >= MUCH and not given
        )
    for ask, (letter, (_, way)) in zip(ASKS, SIDES.items(), strict=True):
        y = 12 if way < 0 else SIZE[1] - 4
        texts += (
            f'<text x="2" y="{y}" font-size="12.4" text-anchor="start" fill="var(--aa-{letter})">'
            f"{ask}</text>"
        )
    texts += (
        f'<text x="{SIZE[0] - 2}" y="17" font-size="19" font-weight="bold" text-anchor="end" '
        f'fill="{("var(--aa-h)", "var(--aa-d)", "currentColor")[meant]}">'
        f"{WORDS[query]} → {[*KINDS, '?'][meant]}</text>"
    )
    lines = f'<g fill="none">{drawn}</g>'
    return _canvas("aa-look", SIZE[1], alt, lines + texts)


def _bars(title: str, names: list[str], found: list[list[int]], places: list[float]) -> str:
    """Draw what each word gets from both heads, as ``first_look.js`` does."""
    inks = {"h": -8, "d": 1}
    legend = ",".join(
        f'<tspan fill="var(--aa-{letter})" dx="5">{name}</tspan>'
        for name, letter in zip(names, inks, strict=True)
    )
    drawn = f'<text x="2" y="11" font-size="12.4" text-anchor="start">{title}:{legend}</text>'
    for j, (word, x, pair) in enumerate(zip(WORDS, places, found, strict=True)):
        for part, high, side in zip(range(2), pair, inks.values(), strict=True):
            tall = min(high, 100) * TALL / 100
            head = (2 * j + part) // len(WORDS) if names == FROM else part  # that found it
            drawn += (
                f'<rect x="{x + side:g}" y="{FLOOR - tall:g}" width="7" height="{tall:g}" '
                f'fill="var(--aa-{"hd"[head]})"/>'
            )
        drawn += f'<text x="{x}" y="{FLOOR + 13}" font-size="11">{escape(word)}</text>'
    said = ", ".join(
        f"{word} {a / 100:.2f} and {b / 100:.2f}" for word, (a, b) in zip(WORDS, found, strict=True)
    )
    alt = f"{title}, {' and '.join(names)}: {said}."
    return _canvas("aa-gets", FLOOR + 18, alt[0].upper() + alt[1:], drawn)


def _canvas(name: str, height: int, alt: str, drawn: str) -> str:
    return (
        f'<svg class="{name}" viewBox="0 0 {SIZE[0]} {height}" role="img" '
        f'aria-label="{escape(alt)}" fill="currentColor" font-size="13" text-anchor="middle">'
        f"{drawn}</svg>"
    )


def _curve(a: float, b: float, y: int, way: int) -> str:
    """Draw from one word to another, the higher the farther they are; to itself, a small loop."""
    far = abs(a - b)
    wide, high = (0, 3.4 * math.sqrt(far)) if far else (9, 22)
    top = y + way * high
    return (
        f"M{a - wide / 3:g} {y}C{a - wide:g} {top:.1f} {b + wide:g} {top:.1f} {b + wide / 3:g} {y}"
    )


def _stroke(arrives: int) -> str:
    """Choose the stroke: the wider, the more arrives of a word; pale, where nothing does."""
    return f'stroke-width="{0.4 + 0.08 * arrives:g}" stroke-opacity="{0.9 if arrives else 0.2}"'

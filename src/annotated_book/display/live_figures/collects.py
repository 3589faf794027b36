"""What one word collects in several sentences: whom it looks at, and what each of them brings."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import product
from typing import Any

from torch import Tensor

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live

# Where things stand, as in ``collects.js``.
WIDE, HIGH, FOOT, WORD = 384, 104, 64, 80
LEFT, STEP, TOP, BAR, LETTER = 66, 40, 26, 26, 7
LONGEST = 262  # of a bar
NARROW = 30  # letters that stand in a row of buttons on a phone
Scene = tuple[Sequence[str], Tensor, Tensor]


def collects(
    choices: Mapping[str, Sequence[str]],
    scenes: Mapping[tuple[str, ...], Scene],
    features: Sequence[str],
    query: int,
    *,
    name: str,
    line: tuple[float, str, str] | None = None,
    notes: Mapping[tuple[str, ...], str] | None = None,
    asks: str = "",
    looks: bool = False,
) -> Output:
    """Show one word's weights, and what it collects by them, stacked by who brings it.

    Args:
        choices: what the reader chooses, under what stands before the buttons.
        scenes: for one choice of each, the words, the weights of the word that asks, (n,), and what
            each word hands over, (n, f).
        features: f names of what is collected.
        query: the place of the word that asks, in every sentence.
        name: the figure's name, see ``finish``.
        line: a height to compare with, and the names of less and of more; one bar beyond it is
            more.
        notes: what is said under a scene besides its numbers.
        asks: the question that the names of less and of more answer.
        looks: the bars are weights, of what the word looks at, and nothing is handed over.
    """
    every = list(product(*choices.values()))
    sums = {key: scenes[key][1] @ scenes[key][2] for key in every}
    most = max(x.max().item() for x in sums.values())
    unit = round(LONGEST / most, 2)
    drawn: list[dict[str, Any]] = []
    for key in every:
        words, weights, values = scenes[key]
        written = [f"{number:.2f}" for number in sums[key].tolist()]
        each = zip(written, features, strict=True)
        of = " and ".join(f"{x} of {feature}" for x, feature in each)
        if looks:
            each = zip(features, written, strict=True)
            of = " and at ".join(f"{feature} with {x}" for feature, x in each)
        verdict = line[1 + int(sums[key].max() > line[0])] if line else ""
        before, after = (f"{asks} {verdict}: ", "") if asks else ("", f": {verdict}")
        before, after = (before, after) if line else ("", "")
        gets = "looks at" if looks else "collects"
        said = f"{before}“{words[query]}” {gets} {of}{after}. {(notes or {}).get(key, '')}".strip()
        drawn.append(
            {
                "words": list(words),
                "places": places(words),
                "shares": (100 * weights).round().int().tolist(),
                "brings": values.any(-1).int().tolist(),
                "gives": values[:, 0].int().tolist() if len(features) == 1 else None,
                "parts": [[round(x, 4) for x in row] for row in (weights * values.mT).tolist()],
                "sums": written,
                "said": said,
            }
        )
    at = [line[0], f"{line[0]:.2f}", *line[1:]] if line else None
    first = drawn[0]
    shares = zip(first["words"], first["shares"], strict=True)
    who = first["words"][query]
    shown = ", ".join(f"{word} {share / 100:.2f}" for word, share in shares)
    alt = f"The weights of “{who}”: {shown}. {first['said']}"
    listed = [f"{', '.join(key)}: {each['said']}" for key, each in zip(every, drawn, strict=True)]
    svgs = _curves(first, query) + _bars(first, features, unit, at)
    data = {
        "rows": [[before, list(names)] for before, names in choices.items()],
        "scenes": drawn,
        "query": query,
        "features": list(features),
        "unit": unit,
        "line": at,
    }
    label = f'role="img" aria-label="{escape(alt)}"'
    content = told(
        f'<div class="aa-collects" {label}>{svgs}</div>', "<br>".join(map(escape, listed))
    )
    left, right = HIGH + 17 * bool(first["gives"]), TOP + STEP * len(features)
    # On a phone, long names stand one under the other.
    lines = [len(x) if sum(map(len, x)) > NARROW else 1 for x in choices.values()]
    longest = max(len(each["said"]) for each in drawn)
    wide, narrow = (math.ceil(longest / letters) for letters in (118, 50))  # lines of text
    room = 42 * len(choices) + round(1.07 * max(left, right)) + 48 + 25 * max(wide - 2, 0)
    both = 41 * sum(lines) + left + right + 73 + 23 * max(narrow - 3, 0)
    return live(figure(name, content, alt), "collects", data, room=(room, both))


def places(words: Sequence[str]) -> list[float]:
    """Give the middle of each word, the whole as wide as the drawing."""
    letter = 6.6
    gap = (WIDE - 8 - letter * sum(map(len, words))) / len(words)
    left, middles = 4 + gap / 2, []
    for word in words:
        middles.append(round(left + letter * len(word) / 2, 1))
        left += letter * len(word) + gap
    return middles


def _curves(scene: Mapping[str, Any], query: int) -> str:
    """Draw what ``collects.js`` draws at first, whom the word looks at."""
    drawn, places, start = "", scene["places"], scene["places"][query]
    for j, (word, x, share) in enumerate(zip(scene["words"], places, scene["shares"], strict=True)):
        far = abs(start - x)
        wide, high = (0, 4.2 * math.sqrt(far)) if far else (15, 36)
        top = f"{FOOT - high:.1f}"
        drawn += (
            f'<path d="M{start - wide / 3:g} {FOOT}C{start - wide:g} {top} {x + wide:g} {top} '
            f'{x + wide / 3:g} {FOOT}" fill="none" stroke="var(--aa-h)" '
            f'stroke-width="{0.6 + 0.13 * share:.2f}" '
            f'stroke-opacity="{0.85 if scene["brings"][j] else 0.25}"/>'
        )
        bold = ' font-weight="bold"' if j == query else ""
        drawn += f'<text x="{x}" y="{WORD}"{bold}>{escape(word)}</text>'
        drawn += (
            f'<text x="{x}" y="{WORD + 17}" font-size="12" fill="var(--aa-h)">'
            f"{share / 100:.2f}</text>"
        )
        if scene["gives"]:
            drawn += (
                f'<text x="{x}" y="{WORD + 34}" font-size="12" fill="var(--aa-m)">'
                f"· {scene['gives'][j]}</text>"
            )
    return _canvas(HIGH + 17 * bool(scene["gives"]), drawn)


def _bars(
    scene: Mapping[str, Any], features: Sequence[str], unit: float, line: Sequence[Any] | None
) -> str:
    """Draw what ``collects.js`` draws at first, what the word collects."""
    drawn, last = "", len(scene["words"]) - 1
    for i, feature in enumerate(features):
        x, y = float(LEFT), TOP + STEP * i
        drawn += f'<text x="{LEFT - 8}" y="{y + 18}" text-anchor="end">{escape(feature)}</text>'
        for j, (word, part) in enumerate(zip(scene["words"], scene["parts"][i], strict=True)):
            width = unit * part
            drawn += (
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="var(--aa-m)" '
                f'stroke="var(--aa-m)" fill-opacity="{0.5 if j == last else 0.18}"/>'
            ) * (part > 0)
            if width > LETTER * len(word):
                middle = f'x="{x + width / 2:.1f}" y="{y + 18}"'
                drawn += f'<text {middle} font-size="12">{escape(word)}</text>'
            x += width
        drawn += (
            f'<text x="{x + 8:.1f}" y="{y + 18}" font-size="14" font-weight="bold" '
            f'text-anchor="start">{scene["sums"][i]}</text>'
        )
    end = TOP + STEP * len(features)
    if line:
        x = round(LEFT + unit * line[0], 1)
        drawn += (
            f'<path d="M{x} 18V{TOP}M{x} {TOP + BAR}V{end}" stroke="currentColor" '
            f'stroke-dasharray="4 3"/><path d="M{x} {TOP}v{BAR}" stroke="currentColor" '
            f'stroke-opacity="0.4"/>'
            f'<text x="{x}" y="12" font-size="12" font-weight="bold">{line[1]}</text>'
            f'<text x="{x - 22}" y="12" font-size="12" text-anchor="end">← {line[2]}</text>'
            f'<text x="{x + 22}" y="12" font-size="12" text-anchor="start">{line[3]} →</text>'
        )
    return _canvas(end, drawn)


def _canvas(height: int, drawn: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDE} {height}" aria-hidden="true" fill="currentColor" '
        f'font-size="13" text-anchor="middle">{drawn}</svg>'
    )

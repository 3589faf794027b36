"""Jugs of two words, poured into the glasses of one head or two."""

from collections.abc import Mapping, Sequence
from html import escape

import torch
from torch import Tensor

from annotated_book.display._html import Output, figure
from annotated_book.display._live import live
from annotated_book.display.live_figures.lukewarm import written

WIDE, JUGS, GLASSES = 300, (52, 248), {1: (150,), 2: (104, 196)}
_POURED = 'font-weight="bold" class="aa-poured"'
Scene = tuple[Sequence[float], Tensor]


def glasses(
    scenes: Mapping[str, Scene],
    names: Sequence[str],
    *,
    name: str,
    writes: tuple[Tensor, Sequence[str]] | None = None,
) -> Output:
    """Draw what two words pour into the glass of each head; alive, the reader lets them pour.

    Args:
        scenes: by name, what each word has, and the heads' weights for them, (h, 2), of one head
            or two.
        names: of the two words.
        name: the figure's name, see ``finish``.
        writes: W_O, (h, e), each row with a single 1, and e names.
    """
    drawn, said = [], []
    for title, (has, weights) in scenes.items():
        homes = [sum(w * x for w, x in zip(row, has, strict=True)) for row in weights.tolist()]
        drawing = _scene(title, has, weights.tolist(), homes, names)
        tells = ", ".join(map(written, homes))
        if writes:
            row = map(written, (torch.tensor(homes) @ writes[0]).tolist())
            gets = dict(zip(writes[1], row, strict=True))
            drawing += _cells(writes[0], gets)
            tells = ", ".join(map(" ".join, gets.items()))
        said.append(f"{title}: {tells}.")
        high = 280 if writes else 198
        view = f'viewBox="0 0 {WIDE} {high}" aria-hidden="true" fill="currentColor"'
        drawn.append(f"<svg {view}>{drawing}</svg>")
    alike = len({each.split(":")[1] for each in said}) == 1
    said.append(f"You can{'not' * alike} tell one from the other.")
    still = f'<div class="aa-glasses">{"".join(drawn)}</div>'
    alt = f"Two jugs, {' and '.join(names)}, pour into the glass of each head. {' '.join(said)}"
    content = still.replace("<div", f'<div role="img" aria-label="{escape(alt)}"')
    data = {"picture": still, "said": " ".join(said)}
    return live(
        figure(name, content, alt), "glasses", data, room=(395, 710) if writes else (300, 540)
    )


def _colour(warmth: float) -> str:
    """Give the look of a liquid: red where it is warm, blue where it is cold, grey between."""
    hue = "808080" if abs(warmth) < 0.1 else "d0382b" if warmth > 0 else "2a7fd4"
    return f'fill="#{hue}" fill-opacity="{0.3 + 0.16 * min(abs(warmth), 2.5):.2f}"'


def _scene(
    title: str,
    has: Sequence[float],
    weights: Sequence[Sequence[float]],
    homes: Sequence[float],
    names: Sequence[str],
) -> str:
    """Draw the jugs, the streams and the glasses of a scene."""
    low, places = 128, GLASSES[len(homes)]
    drawn = _text(WIDE / 2, 14, title, 'font-weight="bold"')
    for at, (side, x) in enumerate(zip((1, -1), JUGS, strict=True)):
        warmth = has[at]
        jug = f"M{x - 24 * side} 34h{44 * side}l{10 * side} -7l{-8 * side} 18L{x + 18 * side} 82"
        jug += f"h{-36 * side}Z"
        drawn += f'<path d="{jug}" {_colour(warmth)} stroke="currentColor"/>'
        drawn += _text(x - 2 * side, 55, names[at]) + _text(x - 2 * side, 73, f"{warmth:g}", "", 16)
        for row, place in zip(weights, places, strict=True):
            share = row[at]
            if share < 0.01:
                continue
            end = place if len(places) > 1 else place - 9 * side
            way = f"M{x + 29 * side} 30Q{end} 40 {end} {low + 54}"
            stroke = _colour(warmth).replace("fill", "stroke")
            drawn += (
                f'<path class="aa-stream" pathLength="1" d="{way}" fill="none" {stroke} '
                f'stroke-width="{18 * share:.1f}"/>'
            )
            drawn += _text(x - 4 * side, 104, f"{share:.2f} · {warmth:g}")
    for head, (place, home) in enumerate(zip(places, homes, strict=True)):
        ink = "currentColor" if len(homes) == 1 else f"var(--aa-{'hd'[head]})"
        edge = f"M{place - 30} {low}l7 62h46l7 -62"
        full = f"M{place - 28} {low + 16}l5 46h46l5 -46Z"
        drawn += f'<path class="aa-ground" d="{full}"/>'
        drawn += f'<path class="aa-liquid" d="{full}" {_colour(home)}/>'
        drawn += f'<path d="{edge}" fill="none" stroke="{ink}" stroke-width="2.5"/>'
        drawn += _text(place, low + 46, written(home), _POURED, 16)
        if len(homes) > 1:
            drawn += _text(place, low + 80, f"head {head + 1}", f'style="fill: {ink}"')
    return drawn.replace("-2<", "−2<")


def _cells(w_o: Tensor, gets: Mapping[str, str]) -> str:
    """Draw a row of features under two glasses, and where W_O writes the number of each."""
    wide = (WIDE - 4) / len(gets)
    drawn = ""
    for i, (feature, number) in enumerate(gets.items()):
        x = 2 + wide * (i + 0.5)
        drawn += f'<rect x="{x - wide / 2}" y="236" width="{wide}" height="22" fill="none"'
        drawn += f' stroke="currentColor"/>{_text(x, 252, number, _POURED)}{_text(x, 274, feature)}'
    for letter, place, row in zip("hd", GLASSES[2], w_o.tolist(), strict=True):
        to = 2 + wide * (row.index(1) + 0.5)
        drawn += f'<path d="M{place} 212L{to} 235" stroke="var(--aa-{letter})" stroke-width="2"/>'
    return drawn


def _text(x: float, y: float, text: str, more: str = "", size: int = 13) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle"'
    return f"<text {place} {more}>{escape(text)}</text>"

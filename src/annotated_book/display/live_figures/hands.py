"""Hands of one trained head: where they stand at a distance, and the score at every distance."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def hands(
    query: Tensor,
    key: Tensor,
    ways: Mapping[str, tuple[Tensor, float]],
    *,
    name: str,
    shown: Mapping[str, int],
    trained: int,
    farthest: int,
    at: int,
) -> Output:
    """Show the score of a query and a key by distance, and two pairs as hands; alive, at any.

    Args:
        query: (d,), in the layout "half", at the distance 0 from the key.
        key: (d,), in that layout.
        ways: of each its speeds, (d / 2,), and the factor on the scores; the first is how the
            head was trained.
        name: the figure's name, see ``finish``.
        shown: the names of the hands that are drawn, and which pairs they are.
        trained: how many distances training showed, from 0 on.
        farthest: the largest distance.
        at: the distance of the picture; the live figure begins at 1.
    """
    a, b = (x.double().unflatten(-1, (2, -1)) for x in (query, key))  # (2, d / 2)
    ahead, most = (
        a[1].atan2(a[0]) - b[1].atan2(b[0]),
        a.norm(dim=0) * b.norm(dim=0) / math.sqrt(query.numel()),
    )
    scores = {way: by_distance(ahead, most, *how, farthest) for way, how in ways.items()}
    said = []
    for way, line in scores.items():
        best = int(line.argmax())
        said.append(f"{way}: highest at distance {best}, {line[best]:.2f}; {line[1]:.2f} at 1")
    speeds, line = next(iter(ways.values()))[0].double(), next(iter(scores.values()))
    drawing, axes = panels(300 + 150 * len(shown), 190, 1 + len(shown))
    low, high = (float(f(torch.stack([*scores.values()]))) for f in (torch.min, torch.max))
    axes[0].axvspan(0, trained - 1, color=FAINT, alpha=0.25, linewidth=0)
    axes[0].plot(line, color=FAINT, linewidth=1)
    for place in (1, at):
        axes[0].plot(place, line[place], "o", color=COLOURS["n"], markersize=6)
        axes[0].text(place + 3, float(line[place]) + 0.6, f"{line[place]:.2f}", fontsize=13)
    axes[0].set(xlim=(0, farthest), ylim=(low - 1, high), xlabel="distance", ylabel="score")
    for ax, (hand, pair) in zip(axes[1:], shown.items(), strict=True):
        start, speed = float(ahead[pair]), float(speeds[pair])
        end = start + min(speed * (trained - 1), 2 * math.pi)
        met = torch.linspace(start, end, 60)
        ax.fill([0, *(-met.sin())], [0, *met.cos()], color=FAINT, alpha=0.25, linewidth=0)
        ring = torch.linspace(0, 2 * math.pi, 60)
        ax.plot(ring.cos(), ring.sin(), color=FAINT, linewidth=0.8)
        for letter, angle, width in (("m", 0.0, 2.2), ("n", start + speed * at, 4.0)):
            tip = [0, -0.9 * math.sin(angle)], [0, 0.9 * math.cos(angle)]
            ax.plot(*tip, color=COLOURS[letter], linewidth=width)
        ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
        ax.set_title(f"{hand}, distance {at}", fontsize=13)
        ax.axis("off")
    caption = (
        "Thin and green: the key's hand, turned up. Thick and blue: the query's. The nearer, the "
        f"more the pair adds. Grey: distances 0 to {trained - 1}, as in training."
    )
    static = finish(
        drawing, name=name, alt=f"Scores by distance. {'. '.join(said)}.", caption=caption
    )
    data = {
        "ahead": [round(x, 4) for x in ahead.tolist()],
        "most": [round(x, 4) for x in most.tolist()],
        "ways": {way: [[*map(float, how[0])], float(how[1])] for way, how in ways.items()},
        "hands": dict(shown),
        "trained": trained,
        "farthest": farthest,
        "distance": 1,
    }
    return live(static, "hands", data, room=(336, 540))


def by_distance(
    ahead: Tensor, most: Tensor, speeds: Tensor, factor: float, farthest: int
) -> Tensor:
    """Score a key at every distance.

    Args:
        ahead: (r,), how far the query's hand of each pair stands ahead of the key's, unturned.
        most: (r,), what a pair adds where its two hands meet.
        speeds: (r,), in radians per position.
        factor: on the scores.
        farthest: the largest distance.

    Returns:
        (farthest + 1,), the scores.
    """
    angles = ahead + speeds.double() * torch.arange(farthest + 1)[:, None]  # (..., r)
    return factor * (most * angles.cos()).sum(-1)

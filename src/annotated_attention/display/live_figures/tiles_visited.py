"""Tiles are visited: the scores of a few queries and keys at a time, and the running numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_attention.display._html import Output
from annotated_attention.display._live import live
from annotated_attention.display.plots import COLOURS, finish, panels
from annotated_attention.modern.tiles import tiles

_SHADES = {"now": 0.4, "done": 0.1, "waiting": 0.0, "skipped": 0.0}
_TITLES = ("query", "correction", "largest", "total", "mix", "mix / total")


@dataclass
class Visit:
    """A tile, and what its queries have after it.

    Attributes:
        rows: the tile's queries.
        columns: the tile's keys.
        running: (rows, 4), the correction, and then the largest score, the total and the mix.
    """

    rows: slice
    columns: slice
    running: Tensor


def tiles_visited(
    scores: Tensor, values: Tensor, words: Sequence[str], *, name: str, tile: int, step: int
) -> Output:
    """Show which tile a step computes, and its queries' running numbers; alive, at every step.

    Args:
        scores: (n, n), all finite.
        values: (n,), one feature of each value.
        words: n words, whose queries and keys these are.
        name: the figure's name, see ``finish``.
        tile: number of queries, and of keys, in a tile.
        step: how many tiles have been visited in the picture.
    """
    n, made = len(words), visits(scores, values, False, tile)
    drawing, (ax,) = panels(46 * n + 84, 30 * n + 130)
    _draw(ax, words, scores.tolist(), made, step)
    now = made[step - 1]
    said = [
        f"“{words[i]}” has the largest score {row[1]:g}, total {row[2]:.2f}, mix {row[3]:.2f}"
        for i, row in zip(range(n)[now.rows], now.running.tolist(), strict=True)
    ]
    alt = (
        f"Scores in tiles of {tile} queries and {tile} keys. {step} of {len(made)} are visited; "
        f"the keys of the last are {', '.join(words[now.columns])}. After it, {'; '.join(said)}."
    )
    data = {
        "words": list(words), "scores": scores.tolist(), "values": values.tolist(),
        "tile": tile, "step": step,
    }  # fmt: skip
    return live(finish(drawing, name=name, alt=alt), "tiles_visited", data, room=(430, 440))


def visits(scores: Tensor, values: Tensor, is_causal: bool, tile: int) -> list[Visit]:
    """Visit all tiles, and keep what each query has after each.

    Args:
        scores: (n, n), all finite.
        values: (n,), one feature of each value.
        is_causal: whether keys after the query are hidden.
        tile: number of queries, and of keys, in a tile.
    """
    scores, values, made = scores.double(), values.double(), []
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores).bool().triu(1), -math.inf)
    for rows, visited in tiles(len(scores), len(scores), is_causal, tile):
        largest = scores.new_full((len(scores[rows]),), -math.inf)
        total, mix = torch.zeros_like(largest), torch.zeros_like(largest)
        for columns in visited:
            larger = torch.maximum(largest, scores[rows, columns].amax(-1))
            correction, powers = (largest - larger).exp(), scores[rows, columns] - larger[:, None]
            total = correction * total + powers.exp().sum(-1)
            mix = correction * mix + powers.exp() @ values[columns]
            largest = larger
            made.append(Visit(rows, columns, torch.stack([correction, largest, total, mix], -1)))
    return made


def _draw(
    ax: Axes, words: Sequence[str], scores: list[list[float]], made: Sequence[Visit], step: int
) -> None:
    """Draw the scores, with an edge around each tile, and the running numbers below."""
    n = len(words)
    look: Any = {"ha": "center", "va": "center"}
    for at, visit in enumerate(made):
        state = "now" if at == step - 1 else "done" if at < step else "waiting"
        rows, columns = range(n)[visit.rows], range(n)[visit.columns]
        ax.add_patch(
            Rectangle(
                (columns[0] + 0.04, rows[0] + 0.04), len(columns) - 0.08, len(rows) - 0.08,
                facecolor=to_rgba(COLOURS["n"], _SHADES[state]), edgecolor=COLOURS["n"],
                linewidth=2 if state == "now" else 0.6,
                linestyle=":" if state == "waiting" else "-", zorder=2 if state == "now" else 1,
            )
        )  # fmt: skip
        for i in rows if state != "waiting" else ():
            for j in columns:
                weight = "bold" if state == "now" else "normal"
                text = f"{scores[i][j]:g}"
                ax.text(j + 0.5, i + 0.5, text, fontsize=11, fontweight=weight, **look)
    for j, word in enumerate(words):
        ax.text(j + 0.5, -0.3, word, ha="center", color=COLOURS["m"], fontsize=11)
        ax.text(-0.15, j + 0.5, word, ha="right", va="center", color=COLOURS["n"], fontsize=12)
    places = [-0.15, *((k + 0.9) * n / 5 for k in range(5))]
    for place, title in zip(places, _TITLES, strict=True):
        ax.text(place, n + 0.9, title, ha="right", fontsize=11)
    now = made[step - 1]
    for line, row in enumerate(now.running.tolist()):
        word = words[range(n)[now.rows][line]]
        for place, text in zip(places, [word, *written(row)], strict=True):
            ax.text(place, n + 1.8 + 0.9 * line, text, ha="right", fontsize=12)
    ax.set(xlim=(-1.4, n), ylim=(n + 1.2 + 0.9 * len(now.running), -0.8))
    ax.axis("off")


def written(row: Sequence[float]) -> list[str]:
    """Write a query's correction, largest score, total, mix and output."""
    correction, largest, total, mix = row
    return [f"{x:.2f}" for x in (correction, largest, total, mix, mix / total)]

"""A fully masked row on its way forward and back, filled once and twice, with every number."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_WIDE, _LEFT, _HIGH = 28, 104, 270  # of a cell, before the cells, of a panel
_FILLS = {"NaN": ("h", 0.35), "−∞": ("d", 0.2)}
_BACK = "back, from a loss that does not read the row"


def empty_row(scores: Tensor, values: Tensor, words: Sequence[str], *, name: str) -> Output:
    """Draw what a row with no visible key computes, and what comes back to it from any loss.

    Args:
        scores: (m,), before they are filled.
        values: (m, d).
        words: m words.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> shown = display.empty_row(torch.zeros(6), torch.ones(6, 1), [*"abcdef"], name="empty")
        >>> shown.text.split("; ")[2:4]
        ['share, 0 / 0: NaN NaN NaN NaN NaN NaN', 'collected: NaN']
        >>> shown.text.split("; ")[-2:]  # filled twice, and yet
        ['to the filled scores: NaN NaN NaN NaN NaN NaN', 'to the scores: 0 0 0 0 0 0.']
    """
    heights = (*range(56, 137, 20), *range(192, 253, 20))
    wide = _LEFT + _WIDE * len(words)
    drawing, axes = panels(2 * wide, _HIGH, columns=2)
    told = []
    for ax, times in zip(axes, ("once", "twice"), strict=True):
        ax.set(xlim=(0, wide), ylim=(_HIGH, 0))
        ax.axis("off")
        _write(ax, 0, 10, f"filled {times}", ha="left", fontweight="bold")
        _write(ax, 0, 36, "forward", ha="left", color=COLOURS["n"])
        _write(ax, 0, 172, _BACK, ha="left", color=COLOURS["n"])
        for j, word in enumerate(words):
            _write(ax, _LEFT + _WIDE * (j + 0.5), 36, word)
        rows = _rows(scores.detach(), values.detach(), times == "twice")
        for y, (what, row) in zip(heights, rows.items(), strict=True):
            if row:
                _write(ax, _LEFT - 6, y, what, ha="right")
            for j, number in enumerate(row):
                letter, strength = _FILLS.get(number, ("b", 0.06))
                fill = to_rgba(COLOURS[letter], strength)
                look: dict[str, Any] = {"facecolor": fill, "edgecolor": FAINT, "linewidth": 0.6}
                ax.add_patch(Rectangle((_LEFT + _WIDE * j, y - 9), _WIDE, 18, **look))
                _write(ax, _LEFT + _WIDE * (j + 0.5), y, number)
        each = "; ".join(f"{what}: {' '.join(row)}" for what, row in rows.items() if row)
        told.append(f"Filled {times}: {each}")
    return finish(drawing, name=name, alt=f"A fully masked row. {'. '.join(told)}.")


def _rows(scores: Tensor, values: Tensor, twice: bool) -> dict[str, list[str]]:
    """Compute the row, and the gradients that come back to it, each number as it is written."""
    scores, values = scores.clone().requires_grad_(), values.clone().requires_grad_()
    hidden = torch.ones_like(scores, dtype=torch.bool)
    filled = scores.masked_fill(hidden, -math.inf)
    shares = filled.softmax(-1)
    taken = shares.masked_fill(hidden, 0) if twice else shares
    collected = taken @ values
    unread = torch.zeros_like(collected)
    leaves = (scores, filled, values)
    to_scores, to_filled, to_values = torch.autograd.grad(collected, leaves, unread)
    rows = {
        "scores, filled": filled,
        "exp": filled.exp(),
        "share, 0 / 0": shares,
        "filled with 0": taken if twice else taken[:0],
        "collected": collected,
        "to collected": unread,
        "to the values": to_values[:, 0],
        "to the filled scores": to_filled,
        "to the scores": to_scores,
    }
    return {what: [*map(_written, row.tolist())] for what, row in rows.items()}


def _written(number: float) -> str:
    return "NaN" if math.isnan(number) else f"{number:g}".replace("-inf", "−∞")


def _write(ax: Axes, x: float, y: float, text: str, **look: Any) -> None:
    ax.text(x, y, text, va="center", fontsize=11, **{"ha": "center", **look})

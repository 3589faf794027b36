"""Reach: layers of tokens, and the cone of those that the last output can depend on."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def reach(
    stacks: Sequence[Sequence[int | None]], *, name: str, tokens: int, live_tokens: int
) -> Output:
    """Light the tokens from which something can come to the last output; alive, for any window.

    Args:
        stacks: for each picture its layers from the first to the last: how many keys a query sees,
            itself included; None means all keys before it. The first picture's layers, which are
            all alike, are those with which the live figure begins.
        name: the figure's name, see ``finish``.
        tokens: how many there are in a picture.
        live_tokens: how many there are in the live figure.
    """
    drawing, axes = panels(300 * len(stacks), 190, len(stacks))
    told = []
    for ax, layers in zip(axes, stacks, strict=True):
        firsts = cone(tokens, layers)
        _grid(ax, tokens, layers, firsts)
        (window,) = {*layers} - {None}
        everywhere = [i for i, each in enumerate(layers, 1) if each is None]
        said = f"{len(layers)} layers, window of {window}"
        said += f", layer {everywhere[0]} global" if everywhere else ""
        ax.set_title(f"{said}:\n{tokens - firsts[0]} of {tokens} tokens", fontsize=12)
        told.append(f"{said}: {tokens - firsts[0]} of {tokens} tokens")
    alt = f"Layers of tokens; lit is what the last output can depend on. {'; '.join(told)}."
    data = {"tokens": live_tokens, "layers": len(stacks[0]), "window": stacks[0][0]}
    return live(finish(drawing, name=name, alt=alt), "reach", data, room=(400, 285))


def cone(tokens: int, layers: Sequence[int | None]) -> list[int]:
    """Give the first lit token of each row, from the tokens up to the last output."""
    firsts = [tokens - 1]
    for window in reversed(layers):
        firsts.insert(0, 0 if window is None else max(0, firsts[0] - window + 1))
    return firsts


def _grid(ax: Axes, tokens: int, layers: Sequence[int | None], firsts: list[int]) -> None:
    """Draw a row of tokens under each layer, and what the lit ones look at."""
    for row, window in enumerate(layers):
        across: list[float] = []
        for i in range(firsts[row + 1], tokens):
            for j in range(0 if window is None else max(0, i - window + 1), i + 1):
                across += [j, i, math.nan]  # a gap after each line
        up = [row, row + 1, math.nan] * (len(across) // 3)
        ax.plot(across, up, color=COLOURS["h"], linewidth=0.7, alpha=0.5)
    for row, first in enumerate(firsts):
        ax.plot(range(first), [row] * first, "o", mfc="none", mec=FAINT, markersize=5)
        lit = range(first, tokens)
        ax.plot(lit, [row] * len(lit), "o", color=COLOURS["m"], markersize=6)
    ax.set(xlim=(-0.5, tokens - 0.5), ylim=(-0.4, len(layers) + 0.4))
    ax.set_xticks([0, tokens - 1], ["first", "last token"])
    ax.set_yticks(range(len(layers) + 1), ["tokens", *range(1, len(layers) + 1)])
    ax.set_ylabel("layer")
    ax.tick_params(length=0)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)

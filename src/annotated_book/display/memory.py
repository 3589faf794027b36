"""Where the numbers of a tensor stand in memory, and the walk that each layout takes."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_BOARD = 16  # places of one board, at most
_ROW = 4.4  # from one board to the next


def shelf(
    layouts: Mapping[str, tuple[str, Tensor]],
    labels: Sequence[str],
    words: Sequence[str],
    *,
    name: str,
    step: int,
) -> Output:
    """Draw the shelf once for each layout: what is read first, and where the walk jumps.

    Alive, a layout is chosen, and walked along number by number.

    Args:
        layouts: by the code that makes it, its letters and the places, in its sizes: a view, of
            which each number is the place at which it stands.
        labels: for every place what stands there.
        words: from the left, whose the numbers are; as many belong to each.
        name: the figure's name, see ``finish``.
        step: how many numbers have been read in the picture, and at first.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> layouts = {"x.T": ("d, n", torch.arange(4).view(2, 2).T)}
        >>> display.shelf(layouts, "abcd", ["it", "is"], name="small", step=2)
        Figure: A shelf of 4 places. x.T: 3 jumps, the first 2 numbers are a c.
    """
    count = len(labels)
    boards = -(-count // _BOARD)
    drawing, axes = panels(540, (30 + 88 * boards) * len(layouts), rows=len(layouts))
    said = []
    for ax, (made, (_, order)) in zip(axes, layouts.items(), strict=True):
        places = order.flatten().tolist()
        jumps = [(i, j) for i, j in itertools.pairwise(places) if j != i + 1]
        _draw_places(ax, labels, words, places[:step])
        for i, j in jumps:
            _draw_jump(ax, i, j, lit=places.index(j) < step)
        ax.set_title(f"{made}: {len(jumps)} jumps", fontsize=18, loc="left")
        ax.set(xlim=(-0.1, min(count, _BOARD) + 0.1), ylim=(_ROW * (boards - 1) + 2.1, -2))
        ax.axis("off")
        read = " ".join(labels[place] for place in places[:step])
        said.append(f"{made}: {len(jumps)} jumps, the first {step} numbers are {read}.")
    alt = f"A shelf of {count} places. {' '.join(said)}"
    caption = f"Orange: the first {step} numbers that are read, in order."
    static = finish(drawing, name=name, alt=alt, caption=caption)
    data = {
        "labels": list(labels),
        "words": [[word, count // len(words)] for word in words],
        "layouts": [
            [made, letters, list(order.shape), list(order.stride())]
            for made, (letters, order) in layouts.items()
        ],
        "step": step,
    }
    tall = 96 * boards / (22 * min(count, _BOARD) + 4)  # as a share of its width
    return live(static, "shelf", data, room=(round(145 + 512 * tall), round(200 + 350 * tall)))


def _draw_places(
    ax: Axes, labels: Sequence[str], words: Sequence[str], read: Sequence[int]
) -> None:
    for place, label in enumerate(labels):
        x, y = place % _BOARD, place // _BOARD * _ROW
        alpha = 0.4 if place in read else 0.07
        ax.add_patch(Rectangle((x, y), 0.94, 1, color=COLOURS["h"], alpha=alpha, lw=0))
        ax.text(x + 0.47, y + 0.52, label, ha="center", va="center", fontsize=18)
    width = len(labels) // len(words)
    for i, word in enumerate(words):
        x, y = i * width % _BOARD, i * width // _BOARD * _ROW
        ax.text(x + width / 2, y + 1.55, word, ha="center", va="center", fontsize=18)


def _draw_jump(ax: Axes, i: int, j: int, *, lit: bool) -> None:
    """Draw a jump over the board, or through the gap from one board to the other."""
    up, down = i // _BOARD * _ROW, j // _BOARD * _ROW
    look: dict[str, Any] = {
        "color": COLOURS["h"] if lit else FAINT,
        "lw": 2 if lit else 1,
        "mutation_scale": 9,
    }
    start, end = (i % _BOARD + 0.5, up), (j % _BOARD + 0.45, down)
    if up == down:
        bend = f"arc3,rad={-0.45 if 0 < j - i < 8 else -0.12}"
        line = FancyArrowPatch(start, end, arrowstyle="->", connectionstyle=bend, **look)
    else:
        edge = (2.05, -0.05) if down > up else (-0.05, 2.05)  # under a word, over a board
        ends = (start[0], up + edge[0]), (end[0], down + edge[1])
        line = FancyArrowPatch(*ends, arrowstyle="->", **look)
    ax.add_patch(line)

"""Where the numbers of a tensor stand in memory, and the walk that each layout takes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels

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
    """Draw the shelf once for each layout: what is read first, and where the walk has jumped.

    Alive, a layout is chosen, and walked along number by number.

    Args:
        layouts: by the code that makes it, its letters and the places, in its sizes, heads first: a
            view, of which each number is the place at which it stands.
        labels: for every place what stands there.
        words: from the left, whose the numbers are; as many belong to each.
        name: the figure's name, see ``finish``.
        step: how many numbers have been read in the picture, and at first.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> layouts = {"x.T": ("d, n", torch.arange(4).view(2, 2).T)}
        >>> display.shelf(layouts, "abcd", ["it", "is"], name="small", step=2)
        Figure: A shelf of 4 places. x.T: 1 jump so far, 3 in all, the first 2 numbers are a c.
    """
    count = len(labels)
    boards = -(-count // _BOARD)
    drawing, axes = panels(540, (30 + 88 * boards) * len(layouts), rows=len(layouts))
    said = []
    for ax, (made, (_, order)) in zip(axes, layouts.items(), strict=True):
        places = order.flatten().tolist()
        jumps = [(i, j) for i, j in itertools.pairwise(places) if j != i + 1]
        _draw_places(ax, labels, words, places[:step], order[0].numel())
        walked = [(i, j) for i, j in jumps if places.index(j) < step]
        for i, j in walked:
            _draw_jump(ax, i, j)
        so_far = _told(len(walked), len(jumps))
        ax.set_title(f"{made}: {so_far}", fontsize=18, loc="left")
        ax.set(xlim=(-0.1, min(count, _BOARD) + 0.1), ylim=(_ROW * (boards - 1) + 2.1, -2))
        ax.axis("off")
        read = " ".join(labels[place] for place in places[:step])
        said.append(f"{made}: {so_far}, the first {step} numbers are {read}.")
    alt = f"A shelf of {count} places. {' '.join(said)}"
    caption = "Read so far: of head 1 in orange, of head 2 in violet."
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


def walks(sheet: Tensor, heads: Tensor, labels: Sequence[str], *, place: int, name: str) -> Output:
    """Draw a sheet and its heads above the shelf of both, and how each walks to one number.

    Args:
        sheet: (n, h * d), a view of the shelf: each number is the place at which it stands.
        heads: (h, n, d), another view of it.
        labels: for every place what stands there.
        place: where both walks end, in the last row.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book.display.memory import walks
        >>> x = torch.arange(4).view(2, 2)
        >>> walks(x, x.view(2, 2, 1).transpose(0, 1), ["1a", "1b", "2a", "2b"], place=3, name="to")
        Figure: Two walks along one shelf from 1a to 2b, at place 3. x, strides (2, 1): 2 + 1. \
heads, strides (1, 2, 1): 1 + 2.
    """
    h, n, d = heads.shape
    width, shelf = sheet.size(1), n + 2.4
    lefts = [width + 2.3 + i * (d + 1.2) for i in range(h)]
    wide, high = max(lefts[-1] + d, n * width) + 0.2, n + 7.0
    drawing, (ax,) = panels(540, 540 * high / wide)
    ax.set(xlim=(-0.1, wide - 0.1), ylim=(high - 2.1, -2.1))
    ax.axis("off")
    for left, top, block in zip(
        (0, 1, *lefts), (shelf, *[0] * (h + 1)), (sheet.view(1, -1), sheet, *heads), strict=True
    ):
        _draw_block(ax, left, top, block, labels, width, lit=place)
    said = []
    for title, view, starts in (("x", sheet, [1.0]), ("heads", heads, lefts)):
        steps = _draw_walk(ax, view, starts, place, shelf)
        strides = f"{title}, strides {view.stride()}"
        ax.text((starts[0] + starts[-1] + view.size(-1)) / 2, -1.7, strides, **_MIDDLE)
        said.append(f"{strides}: {' + '.join(map(str, steps))}.")
    for i, left in enumerate(lefts):
        ax.text(left + d / 2, n + 0.5, f"head {i + 1}", **_MIDDLE)
    alt = f"Two walks along one shelf from {labels[0]} to {labels[place]}, at place {place}."
    return finish(drawing, name=name, alt=" ".join([alt, *said]))


_MIDDLE: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 19}
# By the letter of an axis: the point of a cell where its steps begin and end, and their bend.
_STEPS = {"h": ((0.47, 0.0), -0.3), "n": ((0.0, 0.47), 0.6), "d": ((0.47, 0.97), 0.6)}


def _draw_block(
    ax: Axes, left: float, top: float, block: Tensor, labels: Sequence[str], width: int, lit: int
) -> None:
    """Draw rows of places, each word in its shade, and a frame around one place."""
    for i, row in enumerate(block.tolist()):
        for j, place in enumerate(row):
            x, y, shade = left + j, top + i, 0.08 + 0.18 * (place // width)
            look: dict[str, Any] = {"color": COLOURS["n"], "alpha": shade, "lw": 0}
            ax.add_patch(Rectangle((x, y), 0.94, 0.94, **look))
            if place == lit:
                ax.add_patch(Rectangle((x, y), 0.94, 0.94, fill=False, ec="black", lw=2.5))
            ax.text(x + 0.47, y + 0.5, labels[place], **_MIDDLE)


def _draw_walk(
    ax: Axes, view: Tensor, lefts: Sequence[float], place: int, shelf: float
) -> list[int]:
    """Draw each step among the blocks and on the shelf, over it for a sheet; list the strides."""
    letters = "hnd"[-view.dim() :]
    edge, bend = (shelf, -0.35) if view.dim() == 2 else (shelf + 0.97, 0.35)
    here, at, steps = dict.fromkeys("hnd", 0), 0.47, []
    index = (view == place).nonzero()[0].tolist()
    for letter, count, stride in zip(letters, index, view.stride(), strict=True):
        (right, down), curve = _STEPS[letter]
        for _ in range(count):
            start = lefts[here["h"]] + here["d"] + right, here["n"] + down
            here[letter] += 1
            end = lefts[here["h"]] + here["d"] + right, here["n"] + down
            _draw_step(ax, start, end, curve, letter, stride)
            _draw_step(ax, (at, edge), (at + stride, edge), bend, letter, stride)
            at += stride
            steps.append(stride)
    return steps


def _draw_step(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    bend: float,
    letter: str,
    stride: int,
) -> None:
    """Draw a curved arrow with its stride, in the colour of its axis."""
    colour, (dx, dy) = COLOURS[letter], (end[0] - start[0], end[1] - start[1])
    curve = f"arc3,rad={bend}"
    look: dict[str, Any] = {"color": colour, "lw": 1.8, "mutation_scale": 12}
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="->", connectionstyle=curve, **look))
    off = bend / 2 + math.copysign(0.36, bend) / math.hypot(dx, dy)
    x, y = start[0] + dx / 2 - off * dy, start[1] + dy / 2 + off * dx
    ax.text(x, y, str(stride), color=colour, weight="bold", **_MIDDLE)


def landings(
    words: Sequence[str], ways: Mapping[str, Tensor], *, who: int, width: int, name: str
) -> Output:
    """Draw how the rows of a result are merged from memory, where head stands after head.

    Alive, the cells of the result are empty, and pressed to find what belongs to one word.

    Args:
        words: n of them.
        ways: by what is said over each, (n, h): for each row, from which places of memory it is
            merged, counted in words.
        who: the index of the word that stands out.
        width: d, how many numbers a head finds for a word.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book.display.memory import landings
        >>> places = torch.arange(4)
        >>> ways = {"right": places.view(2, 2).T, "wrong": places.view(2, 2)}
        >>> landings(["it", "is"], ways, who=0, width=2, name="small-merge")
        Figure: From what the row of “it” is merged. right: head 1 for it, head 2 for it. wrong: \
head 1 for it, head 1 for is.
    """
    n, count = next(iter(ways.values())).shape
    drawing, axes = panels(330 * len(ways), 21 * n * count + 66, columns=len(ways))
    said = []
    for ax, (title, rows) in zip(axes, ways.items(), strict=True):
        ax.set(xlim=(-1.3, 13.4), ylim=(n * count + 0.1, -3))
        ax.axis("off")
        for x, y, text in ((5.5, -2.4, title), (1.4, -0.6, "in memory"), (8.1, -0.6, "the result")):
            ax.text(x, y, text, **_SMALL | {"fontsize": 14})
        for head in range(count):
            look: dict[str, Any] = {"color": _look(head)["color"], "rotation": 90}
            ax.text(-0.6, n * (head + 0.5), f"head {head + 1}", **_SMALL | look)
            for i, word in enumerate(words):
                _draw_found(ax, 0, n * head + i, word, head, bold=i == who)
        for i, row in enumerate(rows.tolist()):
            _draw_merged(ax, words, i, row, who)
        found = (f"head {place // n + 1} for {words[place % n]}" for place in rows[who].tolist())
        said.append(f"{title}: {', '.join(found)}.")
    alt = f"From what the row of “{words[who]}” is merged. {' '.join(said)}"
    data = {"words": list(words), "who": who}
    data |= {"ways": {title: rows.tolist() for title, rows in ways.items()}}
    caption = f"Each cell is the d = {width} numbers that one head found for one word."
    static = finish(drawing, name=name, alt=alt, caption=caption)
    tall = (28 + 19 * n * count) / 360  # as a share of its width
    return live(static, "landed", data, room=(round(130 + 432 * tall), round(180 + 350 * tall)))


_SMALL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}


def _look(head: int) -> dict[str, Any]:
    return {"color": COLOURS["hd"[head % 2]], "linestyle": "-" if head % 2 == 0 else "--"}


def _draw_found(ax: Axes, x: float, y: float, word: str, head: int, *, bold: bool) -> None:
    """Draw what a head has found for a word."""
    look: dict[str, Any] = {"color": _look(head)["color"], "alpha": 0.5 if bold else 0.16, "lw": 0}
    ax.add_patch(Rectangle((x + 0.03, y + 0.05), 2.8, 0.9, **look))
    weight = {"weight": "bold" if bold else "normal"}
    ax.text(x + 1.43, y + 0.53, word, **_SMALL | weight)


def _draw_merged(ax: Axes, words: Sequence[str], i: int, row: Sequence[int], who: int) -> None:
    """Draw a row of the result, and a line from each place to it."""
    n, h = len(words), len(row)
    left, top, bold = 5.2, h * (i + 0.5) - 0.5, {"weight": "bold" if i == who else "normal"}
    for j, place in enumerate(row):
        mine = i == who or place % n == who
        look = _look(place // n) | {"lw": 2.4 if mine else 0.8, "alpha": 1 if mine else 0.35}
        ax.plot([2.9, left - 0.05], [place + 0.5, top + (j + 1) / (h + 1)], **look)
        _draw_found(ax, left + 2.9 * j, top, words[place % n], place // n, bold=place % n == who)
    if i == who:
        edge: dict[str, Any] = {"edgecolor": "black", "linewidth": 2.5, "zorder": 3}
        ax.add_patch(Rectangle((left - 0.05, top - 0.1), 2.9 * h + 0.08, 1.2, fill=False, **edge))
    ax.text(left + 2.9 * h + 0.25, top + 0.53, words[i], **_SMALL | bold | {"ha": "left"})


def _draw_places(
    ax: Axes, labels: Sequence[str], words: Sequence[str], read: Sequence[int], slab: int
) -> None:
    """Draw the places, those that are read in the colour of their head, which holds a slab."""
    for place, label in enumerate(labels):
        x, y = place % _BOARD, place // _BOARD * _ROW
        head = read.index(place) // slab if place in read else 0
        colour, alpha = _look(head)["color"], 0.4 if place in read else 0.07
        ax.add_patch(Rectangle((x, y), 0.94, 1, color=colour, alpha=alpha, lw=0))
        ax.text(x + 0.47, y + 0.52, label, ha="center", va="center", fontsize=18)
    width = len(labels) // len(words)
    for i, word in enumerate(words):
        x, y = i * width % _BOARD, i * width // _BOARD * _ROW
        ax.text(x + width / 2, y + 1.55, word, ha="center", va="center", fontsize=18)


def _told(so_far: int, every: int) -> str:
    return f"{so_far} jump{'s' * (so_far != 1)} so far, {every} in all" if every else "no jumps"


def _draw_jump(ax: Axes, i: int, j: int) -> None:
    """Draw a jump over the board, or through the gap from one board to the other."""
    up, down = i // _BOARD * _ROW, j // _BOARD * _ROW
    look: dict[str, Any] = {"color": COLOURS["h"], "lw": 2, "mutation_scale": 9}
    start, end = (i % _BOARD + 0.5, up), (j % _BOARD + 0.45, down)
    if up == down:
        bend = f"arc3,rad={-0.45 if 0 < j - i < 8 else -0.12}"
        line = FancyArrowPatch(start, end, arrowstyle="->", connectionstyle=bend, **look)
    else:
        edge = (2.05, -0.05) if down > up else (-0.05, 2.05)  # under a word, over a board
        ends = (start[0], up + edge[0]), (end[0], down + edge[1])
        line = FancyArrowPatch(*ends, arrowstyle="->", **look)
    ax.add_patch(line)

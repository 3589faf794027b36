"""The norm's place: a layer with its norms behind or before the sublayers, and what follows."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels

Box = tuple[str, float, float, bool]
_WIDE = {"attention": 58, "feed-forward": 74, "norm": 38}
_SHADES = {"attention": "n", "feed-forward": "d", "norm": "h"}
_STREAM, _BRANCH = 62, 118  # heights, from above


def norm_place(
    orders: Mapping[str, Sequence[str]],
    measured: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]],
    *,
    name: str,
    depth: int,
) -> Output:
    """Draw one layer per order of the norms, and what was measured in stacks of such layers.

    Args:
        orders: for each of two orders the parts of a layer as they run: "attention",
            "feed-forward" and "norm". With a norm first, the norms stand on the branches, else on
            the stream.
        measured: for each of two things, each order and each of three depths, a number per layer.
        name: the figure's name, see ``finish``.
        depth: how many layers the stack has that is shown first.
    """
    depths = sorted({deep for rows in measured.values() for row in rows.values() for deep in row})
    kept = {
        what: {
            order: [[float(f"{number:.4g}") for number in row[deep]] for deep in depths]
            for order, row in rows.items()
        }
        for what, rows in measured.items()
    }
    drawing, axes = panels(660, 380, columns=2, rows=2)
    for ax, (order, parts) in zip(axes, orders.items(), strict=False):
        _draw_layer(ax, order, parts)
    for ax, (what, rows) in zip(axes[len(orders) :], kept.items(), strict=True):
        _draw_rows(ax, what, rows, depths)
    alt = " ".join(f"A {order} layer: {', '.join(parts)}." for order, parts in orders.items())
    at = depths.index(depth)
    for what, rows in kept.items():
        ends = (f"{order} {r[at][0]:.3g} and {r[at][-1]:.3g}" for order, r in rows.items())
        alt += f" {what} in the first and the last of {depth} layers: {'; '.join(ends)}."
    data: dict[str, Any] = {
        "orders": [[order, *place(parts)] for order, parts in orders.items()],
        "depths": depths,
        "measured": [[what, rows] for what, rows in kept.items()],
        "order": next(iter(orders)),
        "depth": depth,
    }
    styles = zip(("solid", "dashed", "dotted"), reversed(depths), strict=True)
    lines = "; ".join(f"{style} lines: {deep} layers" for style, deep in styles)
    static = finish(drawing, name=name, alt=alt, caption=f"{lines.capitalize()}.")
    return live(static, "norm_place", data, room=(398, 748))


def place(parts: Sequence[str]) -> tuple[list[Box], list[tuple[float, float]]]:
    """Place the parts of a layer, as they run, from left to right.

    Returns:
        For each part its name, its left and right end and whether it stands on the stream; then for
        each branch where it leaves the stream and where it is added.
    """
    boxes: list[Box] = []
    branches: list[tuple[float, float]] = []
    x, fork = 8.0, None
    for part in parts:
        on_stream = part == "norm" and parts[0] != "norm"
        if not on_stream and fork is None:
            fork, x = x + 10, x + 20
        boxes.append((part, x, x + _WIDE[part], on_stream))
        x += _WIDE[part] + 6
        if part != "norm" and fork is not None:
            branches.append((fork, x + 6))
            fork, x = None, x + 16
    return boxes, branches


def _draw_layer(ax: Axes, order: str, parts: Sequence[str]) -> None:
    boxes, branches = place(parts)
    stream: Any = {"color": COLOURS["m"], "linewidth": 4}
    start = 0.0  # the stream ends where a norm stands on it, and begins again behind it
    for _, left, right, _ in (box for box in boxes if box[3]):
        ax.plot([start, left], [_STREAM, _STREAM], **stream)
        start = right
    ax.plot([start, 308], [_STREAM, _STREAM], **stream)
    arrow = {"arrowstyle": "->", "color": COLOURS["m"], "lw": 3}
    ax.annotate("", (320, _STREAM), (306, _STREAM), arrowprops=arrow)
    ax.text(0, _STREAM - 22, "residual stream", color=COLOURS["m"])
    for fork, join in branches:
        own = [x for _, *ends, on in boxes for x in ends if not on and fork < ends[0] < join]
        ends = iter([fork, *own, join])  # the line leads from box to box
        for x0, x1 in zip(ends, ends, strict=True):
            ax.plot([x0, x1], [_BRANCH, _BRANCH], color=COLOURS["b"], linewidth=1.5)
        for x in (fork, join):
            ax.plot([x, x], [_STREAM, _BRANCH], color=COLOURS["b"], linewidth=1.5)
        ax.text(join, _STREAM - 5, "+", ha="center", va="bottom", fontsize=15)
    for part, left, right, on_stream in boxes:
        low, high = ((_STREAM if on_stream else _BRANCH) + y for y in (-15, 15))
        frame = [left, right, right, left, left], [low, low, high, high, low]
        ax.plot(*frame, color=COLOURS[_SHADES[part]], linewidth=1.5)
        ax.text((left + right) / 2, (low + high) / 2, part, ha="center", va="center")
    ax.set(xlim=(-4, 324), ylim=(150, 25), title=order)
    ax.axis("off")


def _draw_rows(
    ax: Axes, what: str, rows: Mapping[str, Sequence[Sequence[float]]], depths: Sequence[int]
) -> None:
    for (order, each), letter in zip(rows.items(), "hn", strict=True):
        ink = COLOURS[letter]
        for numbers, deep, style in zip(each, depths, (":", "--", "-"), strict=True):
            ax.plot(range(1, deep + 1), numbers, style, color=ink)
        at = (depths[-1], 1.04 * each[-1][-1])
        ax.text(*at, order, color=ink, ha="right", va="bottom")
    ax.set(title=f"{what} by layer", xlabel="layer, from input to output")
    ax.set_xticks(list(depths))
    ax.set_ylim(0, None)

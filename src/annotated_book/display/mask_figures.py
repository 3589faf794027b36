"""The figures of masks: a map with holes, whom padding costs what, the staircase, a NaN's way."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def masked_map(
    weights: Tensor,
    blocked: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    name: str,
    caption: str = "",
) -> Output:
    """Draw weights as a map, a row per query and a column per key, with what is blocked hatched.

    Args:
        weights: (n, m).
        blocked: (n, m), True where a query does not see a key.
        queries: n words.
        keys: m words.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    n, m = weights.shape
    drawing, (ax,) = panels(56 * m + 90, 32 * n + 50)
    told = []
    for i, (query, row) in enumerate(zip(queries, weights.tolist(), strict=True)):
        seen = []
        for j, weight in enumerate(row):
            edge: dict[str, Any] = {"linewidth": 0.6, "edgecolor": FAINT}
            if blocked[i, j]:
                ax.add_patch(Rectangle((j, i), 1, 1, **edge, facecolor="none", hatch="////"))
                continue
            ax.add_patch(
                Rectangle((j, i), 1, 1, **edge, facecolor=to_rgba(COLOURS["n"], 0.6 * weight))
            )
            ax.text(j + 0.5, i + 0.5, f"{weight:.2f}", ha="center", va="center", fontsize=13)
            seen.append(f"{keys[j]} {weight:.2f}")
        told.append(f"{query} sees {', '.join(seen) or 'nothing'}")
    ax.set(xlim=(0, m), ylim=(n, 0))
    ax.set_xticks([j + 0.5 for j in range(m)], keys, color=COLOURS["m"], fontsize=13)
    ax.set_yticks([i + 0.5 for i in range(n)], queries, color=COLOURS["n"], fontsize=13)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    alt = f"Attention weights, queries in rows and keys in columns. {'; '.join(told)}."
    return finish(drawing, name=name, alt=alt, caption=caption)


def shares(rows: Mapping[str, Tensor], words: Sequence[str], *, name: str) -> Output:
    """Draw rows of weights as bars, cut into the shares of words and of padding.

    Args:
        rows: the weights of m keys, under the name of what made them.
        words: m words; a ``·`` is padding.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> display.shares({"no mask": torch.tensor([0.75, 0.25])}, ["cat", "·"], name="bars")
        Figure: Shares of words and padding. no mask: 0.75 to words, 0.25 to padding.
    """
    drawing, (ax,) = panels(560, 40 + 50 * len(rows))
    is_word = torch.tensor([word != "·" for word in words])
    said = []
    for y, (title, row) in enumerate(rows.items()):
        left = 0.0
        for word, share in zip(words, row.tolist(), strict=True):
            colour = COLOURS["m" if word != "·" else "b"]
            ax.barh(
                y, share, left=left, height=0.62, alpha=0.35, color=colour, edgecolor=FAINT, lw=0.5
            )
            if share:
                ax.text(left + share / 2, y, word, ha="center", va="center", fontsize=12)
            left += share
        kept, lost = row[is_word].sum().item(), row[~is_word].sum().item()
        ax.text(1.02, y, f"{kept:.2f} to words", va="center", fontsize=12)
        said.append(f"{title}: {kept:.2f} to words, {lost:.2f} to padding")
    ax.set(xlim=(0, 1.24), ylim=(len(rows) - 0.5, -0.5), xticks=[0, 0.5, 1])
    ax.set_yticks(range(len(rows)), [title.replace(", ", ",\n") for title in rows], fontsize=12)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    return finish(drawing, name=name, alt=f"Shares of words and padding. {'; '.join(said)}.")


def staircase(weights: Tensor, words: Sequence[str], *, name: str) -> Output:
    """Draw causal weights as a staircase, beside each next word.

    Args:
        weights: (n, n), exactly 0 above the diagonal.
        words: n words.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
        >>> display.staircase(weights, ["the", "cat"], name="stairs")
        Figure: A mask like a staircase. the sees the 1.0; cat sees the .25, cat .75.
    """
    n = len(words)
    drawing, (ax,) = panels(50 * n + 160, 36 * n + 62)
    said = []
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            blocked = j > i
            fill = to_rgba(COLOURS["b"], 0.55) if blocked else to_rgba(COLOURS["n"], 0.6 * weight)
            width = 0 if blocked else 0.6
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor=FAINT, linewidth=width))
            if not blocked:
                ax.text(j + 0.5, i + 0.5, _short(weight), ha="center", va="center", fontsize=13)
        seen = ", ".join(
            f"{word} {_short(weight)}" for word, weight in zip(words, row[: i + 1], strict=False)
        )
        said.append(f"{words[i]} sees {seen}")
        following = [*words[1:], "?"][i]
        ax.text(n + 0.25, i + 0.5, f"→ {following}", va="center", fontsize=13, color=COLOURS["h"])
    ax.text(n + 0.25, -0.28, "next word", fontsize=12, color=COLOURS["h"])
    ax.set(xlim=(0, n + 1.9), ylim=(n, 0))
    middles = [j + 0.5 for j in range(n)]
    ax.set_xticks(middles, words, color=COLOURS["m"], fontsize=13, rotation=35, ha="left")
    ax.set_yticks(middles, words, color=COLOURS["n"], fontsize=13)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    alt = f"A mask like a staircase. {'; '.join(said)}."
    return finish(
        drawing,
        name=name,
        alt=alt,
        caption="Grey is blocked. The word at the right comes next in the text.",
    )


def _short(weight: float) -> str:
    return f"{weight:.2f}"[1:] if weight < 0.995 else f"{weight:.1f}"


_INK = {"NaN": COLOURS["h"], "finite": COLOURS["n"], "0": COLOURS["b"], "": FAINT}
# Column, row, what stands in the box above its gradient.
_BOXES = {
    "loss": (0.5, 0, ("loss", "reads sentence 1 only")),
    "first output": (0, 1, ("output of sentence 1", "holds {}")),
    "dot's output": (1, 1, ("output, row of a dot", "holds {}")),
    "first values": (0, 2, ("values of sentence 1",)),
    "second values": (1, 2, ("values of sentence 2",)),
    "W_V": (0.5, 3, ("W_V", "shared by both")),
}
# From where to where, what happens on the way, and the box whose gradient it carries.
_WAYS = (
    ("loss", "first output", "", "first output"),
    ("loss", "dot's output", "", "dot's output"),
    ("first output", "first values", "× weights", "first values"),
    ("dot's output", "second values", "0 × NaN", "second values"),
    ("first values", "W_V", "", "first values"),
    ("second values", "W_V", "adds up", "second values"),
)
_CAPTION = (
    "Coloured by what each gradient held when this page was built: "
    "zeros (grey), finite numbers (blue), NaN (orange)."
)


def way_of_the_nan(x: Tensor, blocked: Tensor, *, name: str) -> Output:
    """Draw where a NaN goes that stands in a row of the second sentence, which no loss reads.

    Args:
        x: (2, n, e), two sentences; the queries, keys and values before their matrices.
        blocked: (2, n, n), boolean, True = blocked; a row of the second is fully masked.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> blocked = torch.zeros(2, 2, 2, dtype=torch.bool)
        >>> blocked[1, 1] = True
        >>> shown = display.way_of_the_nan(torch.eye(2).repeat(2, 1, 1), blocked, name="way")
        >>> "first values: finite; second values: NaN; W_V: NaN." in shown.text
        True
    """
    holds, found = _gradients(x, blocked, added=False)
    drawing, (ax,) = panels(336, 370)
    ax.set(xlim=(-0.53, 1.53), ylim=(3.4, -0.4))
    ax.axis("off")
    for box, (column, row, lines) in _BOXES.items():
        text = [
            line.format(holds.get(box, "").replace("finite", "finite numbers")) for line in lines
        ]
        _draw_box(ax, column, row, text, found.get(box, ""))
    for start, end, step, carries in _WAYS:
        _draw_way(ax, _BOXES[start][:2], _BOXES[end][:2], step, _INK[found[carries]])
    said = "; ".join(f"{box}: {found[box]}" for box in _BOXES if box in found)
    alt = f"Where the gradient goes, from the loss down, and what it holds. {said}."
    return finish(drawing, name=name, alt=alt, caption=_CAPTION)


def where_the_nan_stops(x: Tensor, blocked: Tensor, *, name: str) -> Output:
    """Draw the way back from a fully masked row's softmax, for a mask that overwrites or is added.

    Args:
        x: (2, n, e), as for ``way_of_the_nan``.
        blocked: (2, n, n), as for ``way_of_the_nan``.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> blocked = torch.zeros(2, 2, 2, dtype=torch.bool)
        >>> blocked[1, 1] = True
        >>> x = torch.eye(2).repeat(2, 1, 1)
        >>> display.where_the_nan_stops(x, blocked, name="stops")
        Figure: The gradient behind a fully masked row's softmax. masked_fill: masked scores NaN, \
scores 0, W_Q and W_K finite. added: masked scores NaN, scores NaN, W_Q and W_K NaN.
    """
    drawing, (ax,) = panels(336, 290)
    ax.set(xlim=(-0.53, 1.53), ylim=(2.4, -0.7))
    ax.axis("off")
    boxes = {
        "masked scores": ("masked scores", "of a dot, all −∞"),
        "scores": ("scores of a dot",),
        "W_Q and W_K": ("W_Q and W_K",),
    }
    said = []
    for column, (title, step) in enumerate((("masked_fill", "writes 0"), ("added", "passes on"))):
        _, found = _gradients(x, blocked, added=column == 1)
        ax.text(column, -0.5, title, ha="center", va="center", fontsize=13)
        for row, (box, lines) in enumerate(boxes.items()):
            _draw_box(ax, column, row, [*lines], found[box])
        for row, label in enumerate((step, "")):
            ink = _INK[found["scores"]]
            _draw_way(ax, (column, row), (column, row + 1), label, ink)
        said.append(f"{title}: {', '.join(f'{box} {found[box]}' for box in boxes)}")
    alt = f"The gradient behind a fully masked row's softmax. {'. '.join(said)}."
    return finish(drawing, name=name, alt=alt)


def _gradients(x: Tensor, blocked: Tensor, *, added: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Attend with three shared matrices, and say what outputs and gradients hold."""
    e = x.size(-1)
    w_q, w_k, w_v = (torch.eye(e, dtype=x.dtype, requires_grad=True) for _ in range(3))
    q, k, v = x @ w_q, x @ w_k, x @ w_v  # (2, n, e)
    scores = q @ k.mT / math.sqrt(e)     # (2, n, n)
    if added:
        covered = scores + torch.zeros_like(scores).masked_fill(blocked, -math.inf)
    else:
        covered = scores.masked_fill(blocked, -math.inf)  # (2, n, n)
    output = covered.softmax(-1) @ v                      # (2, n, e)
    kept: list[Tensor] = [v, scores, covered, output]
    for tensor in kept:
        tensor.retain_grad()
    output[0].square().mean().backward()
    of_v, of_scores, of_covered, of_output, of_q, of_k, of_w = map(
        _gradient, (*kept, w_q, w_k, w_v)
    )
    dot = int(blocked[1].all(-1).nonzero()[0])
    holds = {"first output": _state(output[0]), "dot's output": _state(output[1, dot])}
    return holds, {
        "first output": _state(of_output[0]),
        "dot's output": _state(of_output[1, dot]),
        "first values": _state(of_v[0]),
        "second values": _state(of_v[1]),
        "masked scores": _state(of_covered[1, dot]),
        "scores": _state(of_scores[1, dot]),
        "W_V": _state(of_w),
        "W_Q and W_K": _state(torch.stack([of_q, of_k])),
    }


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


def _state(numbers: Tensor) -> str:
    return "NaN" if numbers.isnan().any() else "finite" if numbers.any() else "0"


def _draw_box(ax: Axes, column: float, row: float, lines: list[str], gradient: str) -> None:
    edge, nan = _INK[gradient], gradient == "NaN"
    fill = to_rgba(edge, 0.22 if nan else 0.06)
    corner = (column - 0.43, row - 0.28)
    ax.add_patch(FancyBboxPatch(corner, 0.86, 0.56, "round,pad=0.04", ec=edge, fc=fill, lw=1.6))
    lines = [*lines, *([f"gradient: {gradient}"] if gradient else [])]
    for i, line in enumerate(lines):
        last = bool(gradient) and i == len(lines) - 1
        ax.text(
            column,
            row + 0.18 * (i - (len(lines) - 1) / 2),
            line,
            ha="center",
            va="center",
            fontsize=12,
            color=edge if last else "black",
            fontweight="bold" if last and nan else "normal",
        )


def _draw_way(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], step: str, colour: str
) -> None:
    (x0, y0), (x1, y1) = start, end
    x0, x1 = x0 + (x1 - x0) * 0.12, x1 - (x1 - x0) * 0.12
    y0, y1 = y0 + 0.34, y1 - 0.34
    arrow = FancyArrowPatch(
        (x0, y0), (x1, y1), arrowstyle="->", mutation_scale=12, color=colour, lw=1.8
    )
    ax.add_patch(arrow)
    middle = ((x0 + x1) / 2 + 0.05, (y0 + y1) / 2)
    ax.text(*middle, step, fontsize=12, style="italic", va="center", color=colour)

"""The figures of masks: a map, two merged, whom padding costs what, a NaN's way."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
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


def merged_masks(padding: Tensor, future: Tensor, *, name: str, caption: str = "") -> Output:
    """Draw how a padding mask and a causal one are broadcast and merged, a row per sentence.

    Args:
        padding: (b, m), True where a key is padding.
        future: (n, m), True where a key comes later than the query.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    n, m = future.shape
    cell, gap, top = 11, 22, 44
    wide, high = cell * m, cell * n
    drawing, (ax,) = panels(3 * wide + 2 * gap + 16, top + len(padding) * (high + 20))
    ax.set(xlim=(0, 3 * wide + 2 * gap + 16), ylim=(top + len(padding) * (high + 20), 0))
    ax.axis("off")
    lefts = [8 + i * (wide + gap) for i in range(3)]
    titles = ("padding", "(b, 1, m)"), ("causal", "(n, m)"), ("blocked", "(b, n, m)")
    for left, lines in zip(lefts, titles, strict=True):
        for line, y in zip(lines, (10, 28), strict=True):
            ax.text(left + wide / 2, y, line, ha="center", va="center", fontsize=12)
    told = []
    for i, hidden in enumerate(padding):
        y = top + i * (high + 20)
        merged = hidden | future  # (n, m)
        given = [(hidden.expand(n, m), 1), (future, n * (i == 0)), (merged, n)]
        for left, (mask, own) in zip(lefts, given, strict=True):
            _draw_cards(ax, left, y, mask, own, cell)
        for left, sign in zip(lefts[1:], "|=", strict=True):
            ax.text(left - gap / 2, y + high / 2, sign, ha="center", va="center", fontsize=14)
        seen = [str(count) for count in (~merged).sum(-1).tolist()]
        told.append(f"in sentence {i + 1} the queries see {', '.join(seen)} keys")
    alt = (
        "The padding mask has one row for each sentence, repeated for every query; the causal mask "
        f"is one square, repeated for every sentence. Merged, {'; '.join(told)}."
    )
    return finish(drawing, name=name, alt=alt, caption=caption)


def _draw_cards(ax: Axes, left: float, top: float, mask: Tensor, own: int, cell: float) -> None:
    """Draw a mask, what is blocked filled; behind its own first rows the repeated ones are pale."""
    for i, row in enumerate(mask.tolist()):
        strong = 0.85 if i < own else 0.25
        for j, blocked in enumerate(row):
            fill = to_rgba(COLOURS["n"], strong * blocked)
            corner = (left + cell * j, top + cell * i)
            ax.add_patch(Rectangle(corner, cell, cell, facecolor=fill, edgecolor=FAINT, lw=0.4))
    if own:
        size = (cell * mask.size(1), cell * own)
        ax.add_patch(Rectangle((left, top), *size, fill=False, edgecolor="black", lw=1.6))


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
    drawing, (ax,) = panels(344, 26 + 66 * len(rows))
    is_word = torch.tensor([word != "·" for word in words])
    said = []
    for y, (title, row) in enumerate(rows.items()):
        left = 0.0
        for word, share in zip(words, row.tolist(), strict=True):
            colour = COLOURS["m" if word != "·" else "b"]
            ax.barh(
                y, share, left=left, height=0.45, alpha=0.35, color=colour, edgecolor=FAINT, lw=0.5
            )
            if share:
                ax.text(left + share / 2, y, word, ha="center", va="center", fontsize=12)
            left += share
        kept, lost = row[is_word].sum().item(), row[~is_word].sum().item()
        ax.text(0, y - 0.3, title, fontsize=12)
        to = f"{kept:.2f} to words" + f", {lost:.2f} to dots" * (lost > 0)
        ax.text(1, y - 0.3, to, fontsize=12, ha="right")
        said.append(f"{title}: {kept:.2f} to words, {lost:.2f} to padding")
    ax.set(xlim=(0, 1), ylim=(len(rows) - 0.7, -0.6), xticks=[0, 0.5, 1], yticks=[])
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
    drawing, (ax,) = panels(26 * n + 110, 26 * n + 62)
    said = []
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            blocked = j > i
            fill = to_rgba(COLOURS["b"], 0.55) if blocked else to_rgba(COLOURS["n"], 0.6 * weight)
            width = 0 if blocked else 0.6
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor=FAINT, linewidth=width))
            if not blocked:
                ax.text(j + 0.5, i + 0.5, _short(weight), ha="center", va="center", fontsize=12)
        seen = ", ".join(
            f"{word} {_short(weight)}" for word, weight in zip(words, row[: i + 1], strict=False)
        )
        said.append(f"{words[i]} sees {seen}")
        following = [*words[1:], "?"][i]
        ax.text(n + 0.2, i + 0.5, f"→ {following}", va="center", fontsize=12, color=COLOURS["h"])
    ax.set(xlim=(0, n + 2.6), ylim=(n, 0))
    middles = [j + 0.5 for j in range(n)]
    ax.set_xticks(middles, words, color=COLOURS["m"], fontsize=12, rotation=35, ha="left")
    ax.set_yticks(middles, words, color=COLOURS["n"], fontsize=12)
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
# A box: its column and row, what stands in it, and what it holds, which gives its colour.
_Boxes = Mapping[str, tuple[float, float, Sequence[str], str]]
# Boxes, and ways from one to another, each with what happens there and the box whose colour it has.
_Flow = tuple[_Boxes, Sequence[tuple[str, str, str, str]]]


_WHY = {
    "loss": "The loss reads these rows.",
    "output of sentence 1": "The loss reads these rows, so their gradient is not 0.",
    "output, row of a dot": "Nobody reads this row: its gradient is 0.",
    "values of sentence 1": "Gradients times weights: numbers times numbers.",
    "values of sentence 2": "The 0 of the dot's row, times its weights, which are NaN: NaN.",
    "W_V": "W_V made the values of both sentences, so it adds up finite numbers and NaN: NaN.",
}


def way_of_the_nan(x: Tensor, blocked: Tensor, *, name: str) -> Output:
    """Draw where a NaN goes that stands in a row of the second sentence; alive, box by box.

    It goes back through one layer, from a loss that reads the first sentence alone.

    Args:
        x: (2, n, e), two sentences; the queries, keys and values before their matrices.
        blocked: (2, n, n), boolean, True = blocked; a row of the second is fully masked.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> blocked = torch.tensor([[[False, False]] * 2, [[True, True], [True, False]]])
        >>> display.way_of_the_nan(torch.eye(2).repeat(2, 1, 1), blocked, name="way")
        Figure: What each holds. On the way back. loss: finite; output of sentence 1: finite; \
output, row of a dot: 0; values of sentence 1: finite; values of sentence 2: NaN; W_V: NaN.
    """
    flows = {"On the way back": _back(x, blocked)}
    caption = (
        "Coloured by what each gradient held when this page was built: zeros (grey letters), "
        "finite numbers (blue), NaN (orange)."
    )
    panels = [
        [
            title,
            *(
                [box, row, lines[:-1], lines[-1], state, _WHY[box]]
                for box, (_, row, lines, state) in boxes.items()
            ),
        ]
        for title, (boxes, _) in flows.items()
    ]
    static = _draw_flows(flows, name=name, caption=caption)
    return live(static, "way_of_the_nan", {"panels": panels}, room=(450, 450))


def way_by_fill(
    x: Tensor, blocked: Tensor, fills: Mapping[str, tuple[float, bool]], *, name: str
) -> Output:
    """Draw that way for other fills of the scores; alive, for one of them at a time.

    Args:
        x: (2, n, e), two sentences; the queries, keys and values before their matrices.
        blocked: (2, n, n), boolean, True = blocked; a row of the second is fully masked.
        fills: by name, what takes the place of a blocked score, and whether the blocked weights
            are filled with 0 after the softmax; the picture leaves out the first.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> blocked = torch.tensor([[[False, False]] * 2, [[True, True], [True, False]]])
        >>> fills = {"−1e9": (-1e9, False), "−1e9, then 0": (-1e9, True)}
        >>> display.way_by_fill(torch.eye(2).repeat(2, 1, 1), blocked, fills, name="fills")
        Figure: What each holds. −1e9, then 0. loss: finite; output of sentence 1: finite; \
output, row of a dot: 0; values of sentence 1: finite; values of sentence 2: 0; W_V: finite.
    """
    flows = {fill: _back(x, blocked, *how) for fill, how in fills.items()}
    drawn = dict([*flows.items()][1:])
    caption = (
        "On the way back. Coloured by what each gradient held: zeros (grey letters), finite "
        "numbers (blue), NaN (orange)."
    )
    static = _draw_flows(drawn, name=name, caption=caption)
    panels = []
    for fill, (boxes, _) in flows.items():
        rows = [[row, *lines, state] for _, row, lines, state in boxes.values()]
        dot, w_v = boxes["output, row of a dot"], boxes["W_V"]
        end = f"The row of a dot {dot[2][1]}. The gradient of W_V: {_said(w_v[3])}."
        panels.append([fill, end, rows])
    return live(static, "fills", {"panels": panels}, room=(450, 450))


def where_the_nan_stops(x: Tensor, blocked: Tensor, *, name: str) -> Output:
    """Draw how far a NaN gets behind a second fill: where the mask was filled in, and added.

    Both panels go back from a loss that reads the rows that see something.

    Args:
        x: (b, n, e), the queries, keys and values before their matrices.
        blocked: (b, n, n), boolean, True = blocked; some rows are fully masked.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> rows = [True, True, True], [True, False, False], [True, False, True]
        >>> blocked = torch.tensor([rows])
        >>> display.where_the_nan_stops(torch.eye(3)[None], blocked, name="stops")
        Figure: What each holds. masked_fill(blocked, −∞). weights, row of a dot: 0; \
masked scores, row of a dot: NaN; scores, row of a dot: 0; W_Q and W_K: finite. scores + mask. \
weights, row of a dot: 0; masked scores, row of a dot: NaN; scores, row of a dot: NaN; \
W_Q and W_K: NaN.
    """
    flows = {
        "masked_fill(blocked, −∞)": _behind_the_fill(x, blocked, added=False),
        "scores + mask": _behind_the_fill(x, blocked, added=True),
    }
    caption = (
        "On the way back, with the second fill behind the softmax. Coloured by what each "
        "gradient held: zeros (grey letters), finite numbers (blue), NaN (orange)."
    )
    return _draw_flows(flows, name=name, caption=caption)


def _draw_flows(flows: Mapping[str, _Flow], *, name: str, caption: str) -> Output:
    drawing, axes = panels(700, 400, columns=len(flows))
    said = []
    for ax, (title, (boxes, ways)) in zip(axes, flows.items(), strict=True):
        ax.set(xlim=(-0.53, 1.53), ylim=(3.4, -0.7))
        ax.axis("off")
        ax.text(0.5, -0.55, title, ha="center", va="center", fontsize=13)
        for column, row, lines, state in boxes.values():
            _draw_box(ax, column, row, lines, state)
        for start, end, step, carries in ways:
            _draw_way(ax, boxes[start][:2], boxes[end][:2], step, _INK[boxes[carries][3]])
        held = "; ".join(f"{box}: {state}" for box, (*_, state) in boxes.items() if state)
        said.append(f"{title}. {held}.")
    alt = f"What each holds. {' '.join(said)}"
    return finish(drawing, name=name, alt=alt, caption=caption)


def _behind_the_fill(x: Tensor, blocked: Tensor, *, added: bool) -> _Flow:
    """Follow a gradient back from the second fill to the matrices of the scores."""
    w_q, w_k = (torch.eye(x.size(-1), dtype=x.dtype, requires_grad=True) for _ in "qk")
    scores = (x @ w_q) @ (x @ w_k).mT / math.sqrt(x.size(-1))  # (b, n, n)
    bias = torch.zeros_like(scores).masked_fill(blocked, -math.inf)
    masked = scores + bias if added else scores.masked_fill(blocked, -math.inf)
    weights = masked.softmax(-1)                  # (b, n, n)
    output = weights.masked_fill(blocked, 0) @ x  # (b, n, e)
    empty = blocked.all(-1)                       # (b, n)
    loss = output[~empty].square().mean()
    *of_rows, of_q, of_k = torch.autograd.grad(loss, (weights, masked, scores, w_q, w_k))
    named = ("weights", "masked scores", "scores")
    states = {
        f"{row}, row of a dot": _state(of[empty]) for row, of in zip(named, of_rows, strict=True)
    }
    states["W_Q and W_K"] = _state(torch.stack([of_q, of_k]))
    boxes: _Boxes = {
        box: (0.5, row, (*box.split(", "), f"gradient: {state}"), state)
        for row, (box, state) in enumerate(states.items())
    }
    first, second, third, last = boxes
    step = "passed on" if added else "overwritten: 0"
    return boxes, (
        (first, second, "0 × NaN", second),
        (second, third, step, third),
        (third, last, "", last),
    )


def _back(x: Tensor, blocked: Tensor, fill: float = -math.inf, second: bool = False) -> _Flow:
    """Follow a gradient through one layer."""
    e, dot = x.size(-1), int(blocked[1].all(-1).nonzero()[0])
    w_v = torch.eye(e, dtype=x.dtype, requires_grad=True)
    v = x @ w_v                           # (2, n, e)
    weights = _weights(x, blocked, fill)  # (2, n, n)
    if second:
        weights = weights.masked_fill(blocked, 0)
    output = weights @ v  # (2, n, e)
    loss = output[0].square().mean()
    of_loss, of_v, of_output, of_w = torch.autograd.grad(loss, (loss, v, output, w_v))
    states = {
        "output of sentence 1": _state(of_output[0]),
        "output, row of a dot": _state(of_output[1, dot]),
        "values of sentence 1": _state(of_v[0]),
        "values of sentence 2": _state(of_v[1]),
        "W_V": _state(of_w),
    }
    places = ((0, 1), (1, 1), (0, 2), (1, 2), (0.5, 3))
    of_dot = {"NaN": "NaN", "finite": "an average", "0": "zeros"}[_state(output[1, dot])]
    beside = (f"holds {_said(_state(output[0]))}", f"holds {of_dot}")
    under = (*beside, "", "", "shared by both")
    boxes: dict[str, tuple[float, float, Sequence[str], str]] = {
        "loss": (
            0.5,
            0,
            ("loss", "reads sentence 1 only", f"gradient: {of_loss:g}"),
            _state(of_loss),
        )
    }
    for (box, state), place, line in zip(states.items(), places, under, strict=True):
        lines = [each for each in (box, line, f"gradient: {state}") if each]
        boxes[box] = (*place, lines, state)
    first, dots, values, lost, w = states
    return boxes, (
        ("loss", first, "", first),
        ("loss", dots, "", dots),
        (first, values, "× weights", values),
        (dots, lost, "0 × NaN" if of_dot == "NaN" else "0 × weights", lost),
        (values, w, "", values),
        (lost, w, "adds up", lost),
    )


def _weights(x: Tensor, blocked: Tensor, fill: float) -> Tensor:
    scores = x @ x.mT / math.sqrt(x.size(-1))  # (..., n, n)
    return scores.masked_fill(blocked, fill).softmax(-1)


def _state(numbers: Tensor) -> str:
    return "NaN" if numbers.isnan().any() else "finite" if numbers.any() else "0"


def _said(state: str) -> str:
    return state.replace("finite", "finite numbers")


def _draw_box(ax: Axes, column: float, row: float, lines: Sequence[str], state: str) -> None:
    edge, nan = _INK[state], state == "NaN"
    fill = to_rgba(edge, 0.22 if nan else 0.06)
    corner = (column - 0.43, row - 0.28)
    ax.add_patch(FancyBboxPatch(corner, 0.86, 0.56, "round,pad=0.04", ec=edge, fc=fill, lw=1.6))
    for i, line in enumerate(lines):
        last = bool(state) and i == len(lines) - 1
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
    aside = (0.05, 0) if x0 == x1 else (0.1, 0.06)  # under a way that leads down to the left
    middle = ((x0 + x1) / 2 + aside[0], (y0 + y1) / 2 + aside[1])
    ax.text(*middle, step, fontsize=12, style="italic", va="center", color=colour)

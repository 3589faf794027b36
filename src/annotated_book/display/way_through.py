"""The ways of numbers through two heads: of one word, of a matrix that is cut, of a wrong merge."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_book.display import computation as c
from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_FEATURES = ("animal", "food", "action", "quality")
_HEADS = "hd"  # the letters whose colours the two heads have
_MIDDLE: dict[str, Any] = {"ha": "center", "va": "center"}


def whole_way(*, name: str) -> Output:
    """Draw how “it” comes from its row, by two heads, to what it gets; the numbers are the map's.

    Args:
        name: the figure's name, see ``finish``.
    """
    made, words, it = c.computation(), c.WORDS[: c.LENGTH], c.WORDS.index("it")
    drawing, axes = panels(640, 384, columns=2, rows=2)
    for ax in axes:
        ax.set(xlim=(0, 320), ylim=(190, 0))
        ax.axis("off")
    grids = {"X": c.X, **dict(zip("QKV", made["project in"].values(), strict=True))}
    for i, (title, grid) in enumerate(grids.items()):
        ax, left = axes[i // 2], (66, 210)[i % 2]
        heads = "" if title == "X" else _HEADS
        ax.text(
            left + 40,
            10,
            title if title == "X" else f"{title} = X W_{title}",
            ha="center",
            fontsize=11,
        )
        for j, row in enumerate(_whole(grid[: c.LENGTH])):
            y = 32 + 18 * j
            _cells(ax, left, y, row, 20, heads)
            if title in "XK":
                bold = "bold" if j == it else "normal"
                ax.text(60, y, words[j], ha="right", va="center", fontsize=11, fontweight=bold)
        if title in "XQ":
            corner = (left, 23 + 18 * it)
            ax.add_patch(Rectangle(corner, 80, 18, edgecolor="black", fill=False, linewidth=2))
        for head, (letter, which) in enumerate(zip(_HEADS if heads else "", "12", strict=False)):
            x, colour = left + 20 + 40 * head, COLOURS[letter]
            ax.text(x, 184, f"head {which}", ha="center", va="center", fontsize=11, color=colour)
    _arrow(axes[0], (148, 122), (206, 122))
    queries, keys = (made["split"][each][:, : c.LENGTH] for each in ("queries", "keys"))
    scores = (queries @ keys.mT)[:, it].tolist()  # before the root
    shares = made["softmax"]["weights"][:, it, : c.LENGTH].tolist()
    collected, output = made["mix"]["collected"][:, it].tolist(), made["project out"]["output"][it]
    looks, last = axes[2:]
    looks.text(48, 8, "“it”: scores, then softmax(score / √2)", va="center", fontsize=11)
    for j, word in enumerate(words):
        looks.text(65 + 34 * j, 95, word, ha="center", va="center", fontsize=11)
    last.text(60, 10, "shares times V", va="center", fontsize=11)
    last.text(60, 80, "side by side", va="center", fontsize=11)
    told = []
    for head, letter in enumerate(_HEADS):
        ink: dict[str, Any] = {"color": COLOURS[letter], "va": "center"}
        high = (48, 124)[head]
        for y, text in ((high, "scores"), (high + 18, "shares")):
            looks.text(44, y, text, ha="right", fontsize=11, **ink)
        looks.text(48, (30, 160)[head], f"head {head + 1}", fontsize=11, **ink)
        for j, (score, share) in enumerate(zip(scores[head], shares[head], strict=True)):
            _cells(looks, 48 + 34 * j, high, [f"{score:.0f}"], 34, letter, 0.06)
            _cells(looks, 48 + 34 * j, high + 18, [f"{share:.2f}"], 34, letter, 0.06 + 0.6 * share)
        last.text(54, 32 + 20 * head, f"head {head + 1}", ha="right", fontsize=11, **ink)
        _cells(last, 60, 32 + 20 * head, _written(collected[head]), 48, letter)
        fits = " ".join(map(" ".join, zip(words, (f"{x:.0f}" for x in scores[head]), strict=True)))
        gives = " ".join(_written(shares[head]))
        collects = " ".join(_written(collected[head]))
        told.append(f"head {head + 1}: scores {fits}; shares {gives}; collects {collects}")
    _cells(last, 60, 102, _written([*collected[0], *collected[1]]), 48, _HEADS)
    _arrow(last, (156, 114), (156, 140))
    last.text(164, 128, "W_O", va="center", fontsize=11)
    for j, feature in enumerate(_FEATURES):
        last.text(84 + 48 * j, 148, feature, ha="center", va="center", fontsize=11)
    _cells(last, 60, 166, _written(output.tolist()), 48, "")
    gets = ", ".join(map(" ".join, zip(_FEATURES, _written(output.tolist()), strict=True)))
    alt = (
        "X times W_Q, W_K and W_V makes queries, keys and values, each cut in two heads. Of “it”, "
        f"{'; '.join(told)}. Side by side and times W_O: {gets}."
    )
    return finish(drawing, name=name, alt=alt)


def all_sheets(
    x: Tensor,
    matrices: Mapping[str, Tensor],
    words: Sequence[str],
    features: Sequence[str],
    *,
    name: str,
) -> Output:
    """Draw the wide matrices of two heads, and under each, uncut, what it makes of all words.

    Args:
        x: (n, e).
        matrices: under the letter of its product (e, h * d), the columns of head 1 first.
        words: n of them.
        features: e names.
        name: the figure's name, see ``finish``.
    """
    top, wide = 122, 14.5 * x.size(1)
    drawing, (ax,) = panels(312, 264)
    ax.set(xlim=(0, 312), ylim=(264, 0))
    ax.axis("off")
    look: dict[str, Any] = {"va": "center", "fontsize": 11}
    ax.text(50 + wide / 2, 101, "X", ha="center", **look)
    for j, (word, row) in enumerate(zip(words, _whole(x), strict=True)):
        ax.text(46, top + 18 * j, word, ha="right", **look)
        _cells(ax, 50, top + 18 * j, row, 14.5, "")
    for i, feature in enumerate(features):
        ax.text(46 + wide, 26 + 18 * i, feature, ha="right", **look)
    told = []
    for which, (letter, matrix) in enumerate(matrices.items()):
        left = 50 + (wide + 9) * (which + 1)
        made = x @ matrix
        for title, y in ((f"W_{letter}", 6), (letter, 101)):
            ax.text(left + wide / 2, y, title, ha="center", **look)
        for start, grid, heads in ((26, matrix, _HEADS), (top, made, "")):
            for j, row in enumerate(_whole(grid)):
                _cells(ax, left, start + 18 * j, row, 14.5, heads)
        rows = [f"{a} {' '.join(row)}" for a, row in zip(features, _whole(matrix), strict=True)]
        told.append(f"W_{letter}: {', '.join(rows)}")
        rows = [f"{a} {' '.join(row)}" for a, row in zip(words, _whole(made), strict=True)]
        told.append(f"{letter}: {', '.join(rows)}")
    alt = "Matrices of two heads side by side, head 1 in the left half of each, and what they make"
    return finish(drawing, name=name, alt=f"{alt} of X. {'; '.join(told)}.")


WAYS = {"uncut": None, "cut, dim=0": 0, "cut, dim=1": 1}


def attend_cut(sheets: Sequence[Tensor], w_o: Tensor, way: str, who: int) -> tuple[Tensor, Tensor]:
    """Attend with wide sheets that are cut and stacked in one of the ``WAYS``.

    Args:
        sheets: queries, keys and values, each (n, h * d), of two heads.
        w_o: (h * d, e).
        way: one of the ``WAYS``.
        who: the index of a word.

    Returns:
        The weights of that word, (1, n) uncut, (2, n) for each head, or (2, 2) between its own
        two pieces; and its output, (e,).
    """
    dim = WAYS[way]
    parts = [[sheet] if dim is None else sheet.chunk(2, dim=-1) for sheet in sheets]
    q, k, v = (torch.stack([*pieces], dim=dim or 0) for pieces in parts)
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
    merged = torch.cat((weights @ v).unbind(dim or 0), dim=-1)  # (n, h * d)
    return weights[who] if dim else weights[:, who], (merged @ w_o)[who]


def ways_to_cut(
    sheets: Mapping[str, Sequence[Tensor]],
    w_o: Tensor,
    words: Sequence[str],
    who: int,
    answers: Mapping[str, str],
    *,
    name: str,
) -> Output:
    """Draw what meets what in wide keys, uncut and cut in two ways; alive, one way at a time.

    Args:
        sheets: under each last word queries, keys and values, (n, h * d), of two heads.
        w_o: (h * d, e), which writes what head 1 has collected first.
        words: n of them; the last is replaced.
        who: the index of the word that asks.
        answers: what the word means where the first or the second number of its output is larger,
            under the name of that number.
        name: the figure's name, see ``finish``.
    """
    (ending, (q, k, v)), *_ = sheets.items()
    words = [*words[:-1], ending]
    drawing, axes = panels(690, 250, columns=3)
    look: dict[str, Any] = {"va": "center", "fontsize": 11}
    told = []
    for ax, way in zip(axes, WAYS, strict=True):
        weights, output = attend_cut((q, k, v), w_o, way, who)
        ax.set(xlim=(0, 230), ylim=(250, 0))
        ax.axis("off")
        ax.text(92, 8, way, ha="center", fontweight="bold", **look)
        gap, high = (10 if way == "cut, dim=0" else 0), 22
        for j, (word, row) in enumerate(zip(words, _whole(k), strict=True)):
            bold = "bold" if j == who else "normal"
            ax.text(48, 38 + high * j, word, ha="right", fontweight=bold, **look)
            for head, letter in enumerate(_HEADS):
                left, ink = 54 + head * (36 + gap), letter * (way != "uncut")
                _cells(ax, left, 38 + high * j, row[2 * head : 2 * head + 2], 18, ink)
        own = way == "cut, dim=1"
        shown = (weights[:1].mT if own else weights).tolist()
        for head, column in enumerate(shown):
            left = 146 + 36 * head
            for j, weight in enumerate(column):
                y = 38 + high * (who if own else j)
                letter = _HEADS[head] if len(shown) > 1 else ""
                _cells(ax, left, y, [f"{weight:.2f}"], 36, letter, 0.06 + 0.5 * weight)
        if own:
            frames = [(54, 27 + high * j, 72, high) for j in range(len(words))]
        elif gap:
            frames = [(54 + head * (36 + gap), 27, 36, high * len(words)) for head in range(2)]
        else:
            frames = [(54, 27, 72, high * len(words))]
        for i, (x, y, wide, tall) in enumerate(frames):
            strong = 2.2 if not own or i == who else 0.9
            ax.add_patch(
                Rectangle((x - 1, y + 1), wide + 2, tall - 2, fill=False, ec="black", lw=strong)
            )
        gets = _written(output[:2].tolist())
        said = [f"{feature} {number}" for feature, number in zip(answers, gets, strict=True)]
        ax.text(48, 228, "gets", ha="right", **look)
        ax.text(54, 228, ", ".join(said), ha="left", fontweight="bold", **look)
        listed = "; ".join(" ".join(_written(row)) for row in weights.tolist())
        told.append(f"{way}: weights {listed}, gets {' and '.join(said)}")
    alive = {
        "words": words,
        "who": who,
        "answers": dict(answers),
        "output": w_o.tolist(),
        "sheets": {end: [sheet.tolist() for sheet in each] for end, each in sheets.items()},
    }
    alt = f"The keys of {len(words)} words, and the weights of “{words[who]}”. {'. '.join(told)}."
    caption = (
        "Only what is in one frame is compared. Before the softmax, each sum is divided by the "
    )
    caption += "root of the width: √4 uncut, √2 cut."
    static = finish(drawing, name=name, alt=alt, caption=caption)
    return live(static, "cut", alive, room=(494, 446))


def wrong_merge(*, name: str) -> Output:
    """Draw from what each row is merged, with the transpose and without; that of *it* stands out.

    Alive, any word can be followed.

    Args:
        name: the figure's name, see ``finish``.
    """
    words = c.WORDS[: c.LENGTH]
    it, memory = words.index("it"), [[head, i] for head in range(2) for i in range(c.LENGTH)]
    merges = [
        ("with the transpose", [*zip(memory[: c.LENGTH], memory[c.LENGTH :], strict=True)]),
        ("without", [*zip(memory[::2], memory[1::2], strict=True)]),
    ]
    drawn, said = "", []
    for title, rows in merges:
        of = " and ".join(f"head {head + 1} for {words[i]}" for head, i in rows[it])
        said.append(f"{of} ({title})")
        drawn += _merged(words, title, rows, it)
    alt = f"The row of “it” is made of what was collected by {'; '.join(said)}."
    label = f'role="img" aria-label="{escape(alt)}"'
    still = told(f'<div class="aa-pictures aa-merged" {label}>{drawn}</div>', alt)
    caption = "A row of the result has two cells: what head 1 or head 2 collected for a word."
    data = {"words": words, "query": it, "merges": merges}
    return live(figure(name, still, alt, caption), "merged", data)


def _merged(words: Sequence[str], title: str, rows: Sequence[Any], query: int) -> str:
    """Draw what ``merged.js`` draws at first."""
    left, wide, high, top = 66, 92, 24, 26
    drawn = f'<text x="{left + wide}" y="15" font-weight="bold">{title}</text>'
    for i, (word, row) in enumerate(zip(words, rows, strict=True)):
        y, bold = top + high * i, ' font-weight="bold"'
        own = bold * (i == query)
        drawn += f'<text x="{left - 8}" y="{y + 17}" text-anchor="end"{own}>{escape(word)}</text>'
        for place, (head, of) in enumerate(row):
            x, lit = left + wide * place, of == query
            drawn += (
                f'<rect x="{x + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" '
                f'fill="var(--aa-{_HEADS[head]})" fill-opacity="{0.5 if lit else 0.12}"/>'
                f'<text x="{x + wide / 2:g}" y="{y + 17}"{bold * lit}>{escape(words[of])}</text>'
                f'<text x="{x + 9}" y="{y + 16}" font-size="10">{head + 1}</text>'
            )
    frame = f'x="{left}" y="{top + high * query}" width="{2 * wide}" height="{high}"'
    drawn += f'<rect {frame} fill="none" stroke="currentColor" stroke-width="2.4"/>'
    size = f'viewBox="0 0 {left + 2 * wide + 2} {top + high * len(words) + 2}"'
    return f'<svg {size} fill="currentColor" font-size="13" text-anchor="middle">{drawn}</svg>'


def _whole(grid: Tensor) -> list[list[str]]:
    return [[f"{number:.0f}" for number in row] for row in grid.tolist()]


def _written(numbers: Iterable[float]) -> list[str]:
    return [f"{number + 0.0:.2f}".replace("-", "−") for number in numbers]  # no -0.00


def _cells(
    ax: Axes,
    left: float,
    y: float,
    texts: Sequence[str],
    wide: float,
    heads: str,
    strong: float = 0.16,
) -> None:
    """Write texts into a row of cells, each head's share of them in its colour."""
    for j, text in enumerate(texts):
        colour = COLOURS[heads[len(heads) * j // len(texts)]] if heads else FAINT
        fill = to_rgba(colour, strong if heads else 0)
        ax.add_patch(
            Rectangle((left + wide * j, y - 9), wide, 18, facecolor=fill, edgecolor=FAINT, lw=0.6)
        )
        ax.text(left + wide * (j + 0.5), y, text, ha="center", va="center", fontsize=11)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="->", mutation_scale=12, color=FAINT))

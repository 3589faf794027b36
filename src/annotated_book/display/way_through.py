"""The ways of numbers through two heads: of one word, of a matrix that is cut, of a wrong merge."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_book.display import computation as c
from annotated_book.display._html import Output
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


def side_by_side(
    collected: Tensor, w_o: Tensor, features: Sequence[str], *, name: str, caption: str
) -> Output:
    """Draw what two heads of width 1 collect, times their rows of W_O, and the sum.

    Args:
        collected: (2,).
        w_o: (2, e).
        features: e names.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    drawing, (ax,) = panels(308, 200)
    ax.set(xlim=(18, 342), ylim=(200, 0))
    ax.axis("off")
    added = collected[:, None] * w_o
    output = _written(added.sum(0).tolist())
    strip = _written(collected.tolist())
    _cells(ax, 116, 30, strip, 56, _HEADS)
    for j, feature in enumerate(features):
        ax.text(144 + 56 * j, 66, feature, ha="center", va="center", fontsize=12)
    rows = [(30, "side by side", "")]
    for i, letter in enumerate(_HEADS):
        ax.text(144 + 56 * i, 10, f"head {i + 1}", ha="center", color=COLOURS[letter], fontsize=12)
        _cells(ax, 116, 86 + 18 * i, [f"{number:g}" for number in w_o[i].tolist()], 56, letter)
        _cells(ax, 116, 134 + 18 * i, _written(added[i].tolist()), 56, letter)
        rows.append((86 + 18 * i, f"W_O, row {i + 1}", letter))
        rows.append((134 + 18 * i, f"{strip[i]} × row {i + 1}", letter))
    _cells(ax, 116, 182, output, 56, "")
    for y, text, letter in [*rows, (182, "sum", "")]:
        colour = COLOURS[letter] if letter else "black"
        ax.text(110, y, text, ha="right", va="center", color=colour, fontsize=11)
    gets = ", ".join(map(" ".join, zip(features, output, strict=True)))
    alt = f"The heads collect {' and '.join(strip)}, side by side. Each meets its own row of W_O: "
    return finish(drawing, name=name, alt=f"{alt}{gets} is the sum.", caption=caption)


def sheet_and_stack(
    x: Tensor, w: Tensor, words: Sequence[str], *, name: str, features: Sequence[str] = ()
) -> Output:
    """Draw a product with the matrices of two heads side by side, cut between them and stacked.

    Args:
        x: (n, e).
        w: (e, h * d), the columns of head 1 before those of head 2.
        words: n of them.
        features: e names, of the rows of the matrix.
        name: the figure's name, see ``finish``.
    """
    product = x @ w  # (n, h * d)
    wide = 17 * w.size(1) // 2  # of a strip
    drawing, (filled, cut) = panels(592, 227, columns=2)
    for ax in (filled, cut):
        ax.set(xlim=(0, 320), ylim=(222, 0))
        ax.axis("off")
    grids = (("X", x, 50, ""), ("× W_K", w, 172, _HEADS), ("= K", product, 250, _HEADS))
    for title, grid, left, heads in grids:
        filled.text(left + 17 * grid.size(1) / 2, 12, title, ha="center", fontsize=11)
        for i, row in enumerate(_whole(grid)):
            _cells(filled, left, 40 + 18 * i, row, 17, heads)
    for i, word in enumerate(words):
        filled.text(45, 40 + 18 * i, word, ha="right", va="center", fontsize=11)
    for i, feature in enumerate(features):
        filled.text(168, 40 + 18 * i, feature, ha="right", va="center", fontsize=10)
    for left, high in ((172, len(w)), (250, len(x))):
        filled.plot([left + wide] * 2, [26, 36 + 18 * high], "k--", linewidth=1.4)
    _arrow(cut, (0, 110), (36, 110))
    cut.text(18, 98, "split,\nstack", ha="center", va="bottom", fontsize=11)
    _fan(cut, [_whole(strip) for strip in product.chunk(2, dim=1)], (110, 68), words)
    told = "; ".join(
        f"{word} {' '.join(row)}" for word, row in zip(words, _whole(product), strict=True)
    )
    alt = f"X times W_K is K, head 1 in its left half and head 2 in its right: {told}. Cut apart, "
    alt += "the halves are stacked, head 1 in front: h goes back, n down and d across."
    return finish(drawing, name=name, alt=alt)


def _fan(
    ax: Axes,
    sheets: Sequence[list[list[str]]],
    corner: tuple[float, float],
    words: Sequence[str],
) -> None:
    """Draw sheets of cells one behind another, and along which axis each letter counts."""
    (left, top), (across, up) = corner, (84, 34)
    n, d = len(sheets[0]), len(sheets[0][0])
    x, y = left + 20 * d, top - 9 + 18 * n  # an edge that goes back
    ax.plot([x, x + across], [y, y - up], color=FAINT, linewidth=0.8)
    for head, rows in reversed([*enumerate(sheets)]):
        letter, x, y = _HEADS[head], left + across * head, top - up * head
        look: dict[str, Any] = {"color": COLOURS[letter], "fontsize": 11}
        ax.text(x + 10 * d, y - 16, f"head {head + 1}", ha="center", va="center", **look)
        for i, row in enumerate(rows):
            _cells(ax, x, y + 18 * i, row, 20, letter)
    low, right = top + 18 * n, left + across + 20 * d + 10
    ink: dict[str, Any] = {"va": "center", "fontsize": 11}
    ax.text(left - 6, top - 18, f"n = {n}", ha="right", **ink)
    for i, word in enumerate(words):
        ax.text(left - 5, top + 18 * i, word, ha="right", **ink | {"fontsize": 10})
    ax.text(left + 10 * d, low, f"d = {d}", ha="center", **ink)
    _arrow(ax, (left + 20 * d + 6, low - 4), (right - 28, low - 4 - up + 8))
    ax.text(right - 24, low - up + 10, f"h = {len(sheets)}", ha="left", **ink)
    ax.text(left + 62, low + 18, "stack: (h, n, d)", ha="center", **ink)


def handed_over(
    x: Tensor,
    w: Tensor,
    words: Sequence[str],
    features: Sequence[str],
    collected: dict[str, Tensor],
    *,
    name: str,
) -> Output:
    """Draw the values that two heads hand over, side by side, and what “it” collects of them.

    Args:
        x: (n, e).
        w: (e, h * d), the columns of head 1 before those of head 2.
        words: n of them.
        features: e names, of the rows of the matrix.
        collected: under the name of each way a row, (h * d,).
        name: the figure's name, see ``finish``.
    """
    values = _whole(x @ w)
    high = 58 + 18 * len(words) + 22 * len(collected)
    drawing, (made, mixed) = panels(600, high * 600 // 640, columns=2)
    look: dict[str, Any] = {"va": "center", "fontsize": 11}
    for ax in (made, mixed):
        ax.set(xlim=(0, 320), ylim=(high, 0))
        ax.axis("off")
    for title, middle in (("X", 90), ("× W_V", 260)):
        made.text(middle, 12, title, ha="center", **look)
    for j, (word, row, heads) in enumerate(zip(words, _whole(x), values, strict=True)):
        y = 40 + 18 * j
        made.text(45, y, word, ha="right", **look)
        mixed.text(95, y, word, ha="right", **look)
        _cells(made, 50, y, row, 20, "")
        _cells(mixed, 100, y, heads, 48, _HEADS)
    for i, (feature, row) in enumerate(zip(features, _whole(w), strict=True)):
        made.text(214, 40 + 18 * i, feature, ha="right", **look)
        _cells(made, 220, 40 + 18 * i, row, 20, _HEADS)
    mixed.text(95, 12, "= V", ha="right", **look)
    for i, letter in enumerate(_HEADS):
        mixed.text(148 + 96 * i, 12, f"head {i + 1}", ha="center", color=COLOURS[letter], **look)
    for ax, x_, rows in ((made, 260, len(w)), (mixed, 196, len(words))):
        ax.plot([x_] * 2, [26, 36 + 18 * rows], "k--", linewidth=1.4)
    told = [f"{word} {' '.join(row)}" for word, row in zip(words, values, strict=True)]
    y = 44 + 18 * len(words)
    mixed.text(95, y, "“it” collects", ha="right", **look)
    for i, (way, numbers) in enumerate(collected.items()):
        written, y = _written(numbers.tolist()), 62 + 18 * len(words) + 22 * i
        mixed.text(95, y, way, ha="right", fontweight="bold", **look)
        _cells(mixed, 100, y, written, 48, _HEADS if way == "cut" else "")
        told.append(f"“it” collects, {way}: {' '.join(written)}")
    alt = f"X times W_V is V, head 1 in its left half and head 2 in its right: {'; '.join(told)}."
    return finish(drawing, name=name, alt=alt)


def two_sums(
    query: Tensor,
    keys: Tensor,
    words: Sequence[str],
    *,
    name: str,
    shown: Sequence[str] = (),
) -> Output:
    """Draw how “it” scores keys, uncut and cut into two heads; alive, into any number of heads.

    Args:
        query: (h * d,), the columns of head 1 before those of head 2.
        keys: (m, h * d).
        words: m of them.
        name: the figure's name, see ``finish``.
        shown: those of the words that the picture shows; alive, all are. Without them, all.
    """
    alive: dict[str, Any] = {"query": query.tolist(), "keys": keys.tolist(), "words": list(words)}
    alive |= {"heads": [h for h in (1, 2, 4) if len(query) % h == 0], "chosen": 1}
    keys = keys[[words.index(word) for word in shown or words]]
    words = list(shown or words)
    half, left, wide = len(query) // 2, 56, 29
    uncut = left + wide * len(query) + 8
    cut, one, two = uncut + 30, uncut + 98, uncut + 138  # the sums of both heads, divided ones
    high = 62 + 24 * len(words)
    drawing, (scores,) = panels(312, high * 312 // (two + 78))
    look: dict[str, Any] = {"va": "center", "fontsize": 11}
    heads = [(f"head {i + 1}", COLOURS[letter]) for i, letter in enumerate(_HEADS)]
    scores.set(xlim=(0, two + 78), ylim=(high, 0))
    scores.axis("off")
    for (title, colour), middle in zip(heads, (half / 2, half + half / 2), strict=True):
        scores.text(left + wide * middle, 10, title, ha="center", color=colour, **look)
    titles = {
        uncut + 13: "uncut",
        cut + 30: "cut",
        one + 17: f"÷√{2 * half}",
        two + 36: f"÷√{half}",
    }
    for middle, title in titles.items():
        scores.text(middle, 32, title, ha="center", **look)
    scores.text(left - 6, 32, "it asks", ha="right", fontweight="bold", **look)
    asked = _whole(query[None])[0]
    _cells(scores, left, 32, asked, wide, _HEADS, 0.4)
    told = []
    for i, (word, key) in enumerate(zip(words, _whole(keys), strict=True)):
        y, products = 62 + 24 * i, query * keys[i]
        parts = products, *products.chunk(2)
        sums = [f"{part.sum():.0f}" for part in parts]
        divided = _written([(part.sum() / math.sqrt(len(part))).item() for part in parts])
        scores.text(left - 6, y, word, ha="right", **look)
        _cells(scores, left, y, [f"{a}·{b}" for a, b in zip(asked, key, strict=True)], wide, _HEADS)
        _cells(scores, uncut, y, sums[:1], 26, "")
        _cells(scores, cut, y, sums[1:], 30, _HEADS)
        _cells(scores, one, y, divided[:1], 36, "")
        _cells(scores, two, y, divided[1:], 36, _HEADS)
        told.append(
            f"{word} {' '.join(key)}: uncut {sums[0]}, cut {sums[1]} and {sums[2]}, "
            f"divided {divided[0]}, and {divided[1]} and {divided[2]}"
        )
    scores.plot([left + wide * half] * 2, [20, 58 + 24 * len(words)], "k--", linewidth=1.4)
    alt = f"The query of “it”, {' '.join(asked)}, times keys. {'; '.join(told)}."
    static = finish(drawing, name=name, alt=alt)
    return live(static, "cut", alive, room=(400, 370))


def back_together(
    collected: Tensor,
    merged: Tensor,
    output: Tensor,
    words: Sequence[str],
    who: int,
    features: Sequence[str],
    *,
    name: str,
) -> Output:
    """Draw the strips of two heads, side by side and after W_O; one word's row has its numbers.

    Args:
        collected: (2, n, d).
        merged: (n, 2 * d), the strips side by side.
        output: (n, e), with e = 2 * d.
        words: n of them.
        who: the index of the word whose row is written out.
        features: e names.
        name: the figure's name, see ``finish``.
    """
    high, ink = 54 + 18 * len(words), dict[str, Any](va="center", fontsize=11)
    drawing, axes = panels(702, high, columns=3)
    strips = [(collected[0], 54, "h"), (collected[1], 148, "d")]
    shown = {
        "a strip per head": strips,
        "side by side": [(merged, 56, _HEADS)],
        "times W_O": [(output, 56, "")],
    }
    told = []
    for ax, (title, grids) in zip(axes, shown.items(), strict=True):
        ax.set(xlim=(0, 234), ylim=(high, 0))
        ax.axis("off")
        ax.text(142, 8, title, ha="center", **ink)
        for j, word in enumerate(words):
            bold = "bold" if j == who else "normal"
            ax.text(48, 50 + 18 * j, word, ha="right", fontweight=bold, **ink)
        for grid, left, heads in grids:
            for j, row in enumerate(grid.tolist()):
                numbers = _written(row)
                _cells(ax, left, 50 + 18 * j, numbers if j == who else [""] * len(row), 42, heads)
            told.append(f"{title}: {' '.join(_written(grid[who].tolist()))}")
            corner = (left, 41 + 18 * who)
            edge: dict[str, Any] = {"edgecolor": "black", "fill": False, "linewidth": 2}
            ax.add_patch(Rectangle(corner, 42 * grid.size(1), 18, **edge))
        names = ["head 1", "head 2"] if grids is strips else features
        for j, each in enumerate(names):
            x = (96, 190)[j] if grids is strips else 77 + 42 * j
            ax.text(x, 30, each, ha="center", **ink)
    alt = f"What “{words[who]}” collects; {'; '.join(told)}, under {', '.join(features)}."
    return finish(drawing, name=name, alt=alt)


def wrong_merge(*, name: str) -> Output:
    """Draw from what each row is merged, with the transpose and without; that of *it* stands out.

    Args:
        name: the figure's name, see ``finish``.
    """
    words = c.WORDS[: c.LENGTH]
    memory = [(head, i) for head in range(2) for i in range(c.LENGTH)]
    merges = {
        "with the transpose": [*zip(memory[: c.LENGTH], memory[c.LENGTH :], strict=True)],
        "without": [*zip(memory[::2], memory[1::2], strict=True)],
    }
    drawing, axes = panels(700, 266, columns=2)
    told = []
    for ax, (title, rows) in zip(axes, merges.items(), strict=True):
        ax.set(xlim=(0, 350), ylim=(266, 0))
        ax.axis("off")
        ax.text(175, 14, title, fontsize=14, **_MIDDLE)
        for head, letter in enumerate(_HEADS):
            left, fill = 78 + 97 * head, to_rgba(COLOURS[letter], 0.16)
            ax.add_patch(Rectangle((left, 60), 97, 200, facecolor=fill, lw=0))
            look = _MIDDLE | {"color": COLOURS[letter], "fontsize": 14}
            ax.text(left + 48, 44, f"head {head + 1}", **look)
            for i, word in enumerate(words):
                if word == "it":
                    strong = to_rgba(COLOURS[letter], 0.5)
                    ax.add_patch(Rectangle((left, 60 + 25 * i), 97, 25, facecolor=strong, lw=0))
                ax.text(left + 48, 73 + 25 * i, word, **_written_for(word), **_MIDDLE)
        for word, row in zip(words, rows, strict=True):
            _draw_row(ax, word, row)
        asked = rows[words.index("it")]
        told.append(f"{title}: {' and '.join(f'head {h + 1} for {words[i]}' for h, i in asked)}")
    alt = f"The row of “it” is merged from what was collected by {'; '.join(told)}."
    caption = "A cell: what a head has collected for that word. A frame: a row of the result."
    return finish(drawing, name=name, alt=alt, caption=caption)


def _written_for(word: str) -> dict[str, Any]:
    return {"fontsize": 14, "fontweight": "bold" if word == "it" else "normal"}


def _draw_row(ax: Axes, word: str, row: Sequence[tuple[int, int]]) -> None:
    """Frame the two cells of a row, and name the row's word beside them."""
    (left, top), (right, bottom) = row
    corner = (80 + 97 * left, 62 + 25 * top)
    size = (97 * (right - left + 1) - 4, 25 * (bottom - top + 1) - 4)
    edge: dict[str, Any] = {"edgecolor": FAINT, "linewidth": 1}
    if word == "it":
        edge = {"edgecolor": "black", "linewidth": 2.5, "zorder": 3}
    ax.add_patch(Rectangle(corner, *size, fill=False, **edge))
    x, side = (280, "left") if left else (70, "right")
    y = 73 + 25 * (top + bottom) / 2
    ax.text(x, y, word, ha=side, va="center", **_written_for(word))


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

"""The ways of numbers through two heads: of one word, of a matrix that is cut, of a wrong merge."""

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_book.display import computation as c
from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_FEATURES = ("animal", "food", "action", "quality")
_HEADS = "hd"  # the letters whose colours the two heads have


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


def side_by_side(collected: Tensor, w_o: Tensor, features: Sequence[str], *, name: str) -> Output:
    """Draw what two heads of width 1 collect, times their rows of W_O, and the sum.

    Args:
        collected: (2,).
        w_o: (2, e).
        features: e names.
        name: the figure's name, see ``finish``.
    """
    drawing, (ax,) = panels(326, 200)
    ax.set(xlim=(0, 344), ylim=(200, 0))
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
    return finish(drawing, name=name, alt=f"{alt}{gets} is the sum.")


def sheet_and_stack(x: Tensor, w: Tensor, words: Sequence[str], *, name: str) -> Output:
    """Draw a product with the matrices of two heads side by side, cut between them and stacked.

    Args:
        x: (n, e).
        w: (e, h * d), the columns of head 1 before those of head 2.
        words: n of them.
        name: the figure's name, see ``finish``.
    """
    product = x @ w  # (n, h * d)
    wide = 10 * w.size(1)  # of a strip
    drawing, (filled, cut) = panels(640, 230, columns=2)
    for ax in (filled, cut):
        ax.set(xlim=(0, 320), ylim=(222, 0))
        ax.axis("off")
    grids = (("X", x, 50, ""), ("× W_K", w, 144, _HEADS), ("= K", product, 238, _HEADS))
    for title, grid, left, heads in grids:
        filled.text(left + 10 * grid.size(1), 12, title, ha="center", fontsize=11)
        for i, row in enumerate(_whole(grid)):
            _cells(filled, left, 40 + 18 * i, row, 20, heads)
    for i, word in enumerate(words):
        filled.text(45, 40 + 18 * i, word, ha="right", va="center", fontsize=11)
    for left, high in ((144, len(w)), (238, len(x))):
        filled.plot([left + wide] * 2, [26, 36 + 18 * high], "k--", linewidth=1.4)
    cut.text(60, 12, "split: h pieces (n, d)", ha="center", fontsize=11)
    cut.text(238, 12, "stack: (h, n, d)", ha="center", fontsize=11)
    _arrow(cut, (126, 110), (160, 110))
    for head, strip in enumerate(product.chunk(2, dim=1)):
        rows, letter = _whole(strip), _HEADS[head]
        lying, up = 204 + (wide + 4) // 2 * head, 58 - 20 * head  # head 2 lies behind head 1
        for i, row in enumerate(rows):
            _cells(cut, 10 + 60 * head, 40 + 18 * i, row, 20, letter)
            seen = row if head == 0 or i == 0 else row[len(row) // 2 :]
            _cells(cut, lying + 20 * (len(row) - len(seen)), up + 18 * i, seen, 20, letter)
        look: dict[str, Any] = {"color": COLOURS[letter], "fontsize": 11}
        cut.text(10 + 60 * head + wide / 2, 188, f"head {head + 1}", ha="center", **look)
        place = (lying - 6, up) if head == 0 else (lying + wide + 6, up)
        cut.text(*place, f"head {head + 1}", ha=("right", "left")[head], va="center", **look)
    told = "; ".join(
        f"{word} {' '.join(row)}" for word, row in zip(words, _whole(product), strict=True)
    )
    alt = f"X times W_K is K, head 1 in its left half and head 2 in its right: {told}. "
    return finish(drawing, name=name, alt=f"{alt}Cut apart, the halves are stacked, head 1 on top.")


def two_sums(query: Tensor, keys: Tensor, asks: str, words: Sequence[str], *, name: str) -> Output:
    """Draw a query over keys, uncut as one sum of products each, and cut as a sum for each head.

    Args:
        query: (h * d,), the columns of head 1 before those of head 2.
        keys: (m, h * d).
        asks: the word of the query.
        words: m of them.
        name: the figure's name, see ``finish``.
    """
    e = len(query)
    half, left = e // 2, 64
    uncut, cut = left + 34 * e + 12, left + 34 * e + 62
    high = 66 + 24 * len(words)
    drawing, (ax,) = panels(312, high)
    ax.set(xlim=(0, cut + 70), ylim=(high, 0))
    ax.axis("off")
    look: dict[str, Any] = {"va": "center", "fontsize": 11}
    heads = [(f"head {i + 1}", COLOURS[letter]) for i, letter in enumerate(_HEADS)]
    for (title, colour), middle in zip(heads, (half / 2, half + half / 2), strict=True):
        ax.text(left + 34 * middle, 10, title, ha="center", color=colour, **look)
    for title, middle in (("uncut", uncut + 19), ("cut", cut + 34)):
        ax.text(middle, 32, title, ha="center", **look)
    ax.text(left - 8, 32, f"{asks} asks", ha="right", fontweight="bold", **look)
    asked = _whole(query[None])[0]
    _cells(ax, left, 32, asked, 34, _HEADS, 0.4)
    told = []
    for i, (word, key) in enumerate(zip(words, _whole(keys), strict=True)):
        y, products = 62 + 24 * i, query * keys[i]
        sums = [f"{part.sum():.0f}" for part in (products, *products.chunk(2))]
        ax.text(left - 8, y, word, ha="right", **look)
        _cells(ax, left, y, [f"{a}·{b}" for a, b in zip(asked, key, strict=True)], 34, _HEADS)
        _cells(ax, uncut, y, sums[:1], 38, "")
        _cells(ax, cut, y, sums[1:], 34, _HEADS)
        told.append(f"{word} {' '.join(key)}: uncut {sums[0]}, cut {sums[1]} and {sums[2]}")
    ax.plot([left + 34 * half] * 2, [20, high - 8], "k--", linewidth=1.4)
    alt = f"The query of “{asks}”, {' '.join(asked)}, times keys. {'; '.join(told)}."
    return finish(drawing, name=name, alt=alt)


def wrong_merge(*, name: str) -> Output:
    """Draw for which word, and by which head, what a row is merged from was collected.

    Args:
        name: the figure's name, see ``finish``.
    """
    words, it = c.WORDS[: c.LENGTH], c.WORDS.index("it")
    memory = [(head, word) for head in _HEADS for word in words]
    merges = {
        "transpose, then flatten": list(zip(memory[: c.LENGTH], memory[c.LENGTH :], strict=True)),
        "reshape alone": list(zip(memory[::2], memory[1::2], strict=True)),
    }
    drawing, axes = panels(520, 196, columns=2)
    told = []
    for ax, (title, rows) in zip(axes, merges.items(), strict=True):
        ax.set(xlim=(0, 260), ylim=(196, 0))
        ax.axis("off")
        ax.text(160, 10, title, ha="center", va="center", fontsize=11)
        for i, row in enumerate(rows):
            heads, collected = zip(*row, strict=True)
            _cells(ax, 70, 32 + 18 * i, collected, 90, "".join(heads))
            bold = "bold" if i == it else "normal"
            place = (64, 32 + 18 * i)
            ax.text(*place, words[i], ha="right", va="center", fontsize=11, fontweight=bold)
        ax.add_patch(
            Rectangle((70, 23 + 18 * it), 180, 18, edgecolor="black", fill=False, linewidth=2)
        )
        parts = (f"head {_HEADS.index(head) + 1} for {word}" for head, word in rows[it])
        told.append(f"{title}: {' and '.join(parts)}")
    for head, letter in enumerate(_HEADS):
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": COLOURS[letter]}
        axes[0].text(115 + 90 * head, 186, f"head {head + 1}", fontsize=11, **look)
    alt = f"What the row of “it” holds, collected by {'; '.join(told)}."
    return finish(drawing, name=name, alt=alt)


def _whole(grid: Tensor) -> list[list[str]]:
    return [[f"{number:.0f}" for number in row] for row in grid.tolist()]


def _written(numbers: Iterable[float]) -> list[str]:
    return [f"{number + 0.0:.2f}" for number in numbers]  # no -0.00


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

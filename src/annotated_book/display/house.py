"""Which words of a batch hear one another: a room for each sample and head, and its walls."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_SIZE = 13  # of letters


def rooms(
    sentences: Sequence[Sequence[str]],
    queries: Tensor,
    keys: Tensor,
    layouts: Mapping[str, Tensor],
    word: tuple[int, int],
    *,
    name: str,
    only: str = "",
    opens: str = "",
) -> Output:
    """Draw what a word hears, in each head, in the right rooms and in wrong ones; alive, any word.

    Args:
        sentences: n words each, a sentence in each row.
        queries: (b, n, h * d), the queries of all heads side by side.
        keys: (b, n, h * d).
        layouts: two titles, right and the batch taken for words, with the weights they led to:
            (b, h, n, n) and (n, h, b, b).
        word: the sentence and the place of the word that asks.
        name: the figure's name, see ``finish``.
        only: the title of one layout, which is drawn by itself, and still.
        opens: the title of the layout with which the figure opens, the first by default.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> x, words = torch.zeros(2, 2, 1), [["it", "was"], ["it", "is"]]
        >>> half = torch.full((2, 1, 2, 2), 0.5)
        >>> layouts = {"first": half, "second": half}
        >>> display.rooms(words, x, x, layouts, (0, 0), name="house")
        Figure: What “it” of sentence 1 hears. first, 2 rooms: it .50, was .50. second, 2 rooms: \
it .50, it .50.
        >>> display.rooms(words, x, x, layouts, (0, 0), name="one-house", only="second")
        Figure: What “it” of sentence 1 hears. second, 2 rooms: it .50, it .50.
    """
    b, h, n, _ = next(iter(layouts.values())).shape
    i, j = word
    drawn = [*enumerate(layouts.items())]
    if only:
        drawn = [each for each in drawn if each[1][0] == only]
    # By itself each head is a panel of its own: on a phone one stands below the other.
    shown = [[head] for head in range(h)] if only else [[*range(h)]] * len(drawn)
    size = _SIZE if len(shown) > 1 else _SIZE - 3  # a single panel is shown larger than drawn
    wide, high = (210 if only else 420) * size / _SIZE, (20 * n + 66) * size / _SIZE
    drawing, axes = panels(wide * len(shown), high, columns=len(shown))
    every = [(s, p) for p in range(n) for s in range(b)]
    said = []
    for at, (layout, (title, weights)) in enumerate(drawn):
        inside = [other for other in every if other[layout] == word[layout]]
        heard = weights[word[layout], :, inside.index((i, j))]
        count = (n if layout else b) * h
        here = slice(None) if only else slice(at, at + 1)
        for heads, ax in zip(shown[here], axes[here], strict=True):
            for place, head in enumerate(heads):
                name_of: dict[str, Any] = {"ha": "center", "color": COLOURS["hd"[head % 2]]}
                ax.text((place + 0.5) * b, -1.1, f"head {head + 1}", fontsize=size, **name_of)
                shares = dict(zip(inside, heard[head].tolist(), strict=True))
                _draw_head(ax, sentences, place * b, shares, word, size)
            _draw_walls(ax, b, n, len(heads), layout)
            if not only:
                ax.set_title(f"{title}: {count} rooms", fontsize=size, loc="left")
            ax.set(xlim=(-0.05, b * len(heads) + 0.05), ylim=(n + 0.1, -1.8))
            ax.axis("off")
        parts = (
            ", ".join(f"{sentences[s][p]} {x:.2f}" for (s, p), x in zip(inside, row, strict=True))
            for row in heard.tolist()
        )
        said.append(f"{title}, {count} rooms: {'; '.join(parts)}".replace(" 0.", " ."))
    alt = f"What “{sentences[i][j]}” of sentence {i + 1} hears. {'. '.join(said)}."
    static = finish(drawing, name=name, alt=alt)
    if only:
        return static
    data = {
        "sentences": [list(words) for words in sentences],
        "queries": queries.tolist(),
        "keys": keys.tolist(),
        "heads": h,
        "titles": [*layouts],
        "opens": [*layouts].index(opens) if opens else 0,
        "word": list(word),
    }
    return live(static, "rooms", data, room=(460, 410))


def _draw_head(
    ax: Axes,
    sentences: Sequence[Sequence[str]],
    left: int,
    shares: Mapping[tuple[int, int], float],
    word: tuple[int, int],
    size: int,
) -> None:
    look: dict[str, Any] = {"va": "center", "fontsize": size}
    for i, words in enumerate(sentences):
        ax.text(left + i + 0.5, -0.2, f"sentence {i + 1}", ha="center", fontsize=size)
        for j, text in enumerate(words):
            share, asks = shares.get((i, j)), (i, j) == word
            colour = FAINT if share is None else "black"
            weight = "bold" if asks else "normal"
            ax.text(left + i + 0.2, j + 0.5, text, color=colour, fontweight=weight, **look)
            if share is not None:
                fill = to_rgba(COLOURS["m"], 0.08 + 0.5 * share)
                corner = (left + i + 0.04, j + 0.1)
                ax.add_patch(Rectangle(corner, 0.92, 0.8, facecolor=fill, lw=0))
                ax.text(left + i + 0.92, j + 0.5, f"{share:.2f}"[1:], ha="right", **look)


def _draw_walls(ax: Axes, b: int, n: int, h: int, layout: int) -> None:
    """Draw each head's rooms: a sentence each, or a place of all sentences."""
    look: dict[str, Any] = {"edgecolor": FAINT, "linewidth": 1.2, "fill": False}
    for head in range(h):
        for room in range(n if layout else b):
            corner = (head * b + 0.02, room + 0.05)
            if layout:
                ax.add_patch(Rectangle(corner, b - 0.04, 0.9, **look))
            else:
                ax.add_patch(Rectangle((head * b + room + 0.01, 0), 0.98, n, **look))

"""Which words of a batch talk to one another: rooms, and lines that stay inside or cross."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def rooms(
    sentences: Sequence[Sequence[str]],
    reactions: Sequence[Tensor],
    titles: Sequence[str],
    query: tuple[int, int],
    *,
    name: str,
) -> Output:
    """Draw a batch of sentences, and which words the output of one of them reacts to.

    Args:
        sentences: n words each, a sentence in each row.
        reactions: for each panel (b, n), boolean, True for a word that the output reacts to.
        titles: for each panel what it shows.
        query: the sentence and the place of the word that asks.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> seen = torch.tensor([[True, True], [False, False]])
        >>> words = [["it", "was"], ["it", "is"]]
        >>> display.rooms(words, [seen], ["batch first"], (0, 0), name="house")
        Figure: The words that “it” in sentence 1 reacts to. batch first: it, was in sentence 1.
    """
    n = len(sentences[0])
    drawing, axes = panels(62 * n + 60, 178 * len(reactions), rows=len(reactions))
    said = []
    for ax, seen, title in zip(axes, reactions, titles, strict=True):
        _draw_walls(ax, seen, len(sentences), n)
        heard: dict[int, list[str]] = {}
        for i, j in seen.nonzero().tolist():
            _draw_line(ax, query, (i, j))
            heard.setdefault(i, []).append(sentences[i][j])
        for i, words in enumerate(sentences):
            for j, word in enumerate(words):
                asks = (i, j) == query
                colour = COLOURS["n" if asks else "m"] if seen[i, j] or asks else FAINT
                weight = "bold" if asks else "normal"
                where: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}
                ax.text(j, i, word, color=colour, fontweight=weight, **where)
        ax.set_title(title, fontsize=12, loc="left")
        ax.set(xlim=(-0.6, n - 0.4), ylim=(len(sentences) - 0.4, -0.75))
        ax.axis("off")
        parts = (f"{', '.join(words)} in sentence {i + 1}" for i, words in heard.items())
        said.append(f"{title}: {'; '.join(parts)}")
    who = f"“{sentences[query[0]][query[1]]}” in sentence {query[0] + 1}"
    return finish(drawing, name=name, alt=f"The words that {who} reacts to. {'. '.join(said)}.")


def _draw_walls(ax: Axes, seen: Tensor, b: int, n: int) -> None:
    """Draw a room around each sentence, or around each place where the lines lead there."""
    along = int(seen.any(0).sum()) > 1  # the words that talk stand in one sentence
    for room in range(b if along else n):
        corner, size = (
            ((-0.5, room - 0.4), (n, 0.8)) if along else ((room - 0.46, -0.4), (0.92, b - 0.2))
        )
        ax.add_patch(Rectangle(corner, *size, fill=False, edgecolor=FAINT, linewidth=1.2))


def _draw_line(ax: Axes, query: tuple[int, int], key: tuple[int, int]) -> None:
    (i, j), (k, m) = query, key
    if query == key:
        return
    start, end = ((j, i - 0.2), (m, k - 0.2)) if i == k else ((j, i + 0.2), (m, k - 0.2))
    bend = f"arc3,rad={0.22 if m < j else -0.22}" if i == k else "arc3"
    line = FancyArrowPatch(
        start, end, arrowstyle="->", mutation_scale=10, connectionstyle=bend, color=COLOURS["h"]
    )
    ax.add_patch(line)

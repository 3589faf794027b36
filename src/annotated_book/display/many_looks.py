"""What one word looks at with two heads, in one sentence or several beside each other."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, finish, panels

_HEADS = (("h", "solid"), ("d", (0, (3, 1.5))))


def looks(
    sentences: Sequence[tuple[Sequence[str], Tensor]], query: int, *, name: str, caption: str = ""
) -> Output:
    """Draw a line from one word to each word, as thick as the weight, for each of two heads.

    Args:
        sentences: the words of each, and the weights of its two heads, of shape (2, n, n).
        query: the index of the word that looks.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    drawing, axes = panels(344 * len(sentences), 190, columns=len(sentences))
    said = []
    for ax, (words, weights) in zip(axes, sentences, strict=True):
        for i, (row, (letter, style)) in enumerate(
            zip(weights[:, query].tolist(), _HEADS, strict=True)
        ):
            look: dict[str, Any] = {"color": COLOURS[letter]}
            height = 1.45 - 0.17 * i
            ax.text(-0.4, 0.16 - 0.17 * i, f"head {i + 1}", fontsize=12, **look)
            for j, weight in enumerate(row):
                ends = [query + 0.06 * i - 0.03, j + 0.06 * i - 0.03], [0.08, 0.98]
                ax.plot(*ends, lw=0.3 + 9 * weight, linestyle=style, alpha=0.85, **look)
                ax.text(j, height, f"{weight:.2f}", ha="center", fontsize=12, **look)
            told = ", ".join(
                f"{word} {weight:.2f}" for word, weight in zip(words, row, strict=True)
            )
            said.append(f"“{words[-1]}” last, head {i + 1}: {told}")
        for j, word in enumerate(words):
            ax.text(j, 1.06, word, ha="center", fontsize=12, color=COLOURS["m"])
        ax.text(query, -0.1, words[query], ha="center", fontsize=12, color=COLOURS["n"])
        ax.set(xlim=(-0.55, len(words) - 0.45), ylim=(-0.15, 1.6))
        ax.axis("off")
    alt = f"What “{sentences[0][0][query]}” looks at. {'; '.join(said)}."
    return finish(drawing, name=name, alt=alt, caption=caption)

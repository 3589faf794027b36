"""The needle: a query as an arrow among keys of two numbers, with what each key gets."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def needle(
    query: Tensor, keys: Tensor, words: Sequence[str], axes: tuple[str, str], *, who: str, name: str
) -> Output:
    """Show a query among keys, and lines on which all scores are equal; alive, the query moves.

    Args:
        query: (2,).
        keys: (m, 2).
        words: m names; those whose key is (0, 0) are shown together.
        axes: what the two numbers count.
        who: the word that asks.
        name: the figure's name, see ``finish``.
    """
    rows = zip(words, keys.tolist(), strict=True)
    shown: list[Any] = [[word, key, 1] for word, key in rows if any(key)]
    shown.append(["others", [0.0, 0.0], len(keys) - len(shown)])
    weights = (keys @ query / math.sqrt(2)).softmax(-1)
    of = dict(zip(words, weights.tolist(), strict=True)) | {"others": weights.min().item()}
    reach = (-1.5, 3.5)
    drawing, (plane, bars) = panels(560, 270, columns=2)
    a, b = query.tolist()
    plane.axhline(0, color=FAINT, linewidth=0.8)
    plane.axvline(0, color=FAINT, linewidth=0.8)
    for word, (x, y), _ in shown:
        plane.axline((x, y), (x - b, y + a), color=FAINT, linewidth=1, linestyle=(0, (4, 4)))
        plane.plot([x], [y], "o", color=COLOURS["m"], markersize=7)
        aside = (5, 6) if x else (-42, -14)
        plane.annotate(word, (x, y), aside, textcoords="offset points", color=COLOURS["m"])
    look = {"color": COLOURS["n"], "linewidth": 3.5}
    plane.annotate("", (a, b), (0, 0), arrowprops={"arrowstyle": "-|>", **look})
    plane.text(a + 0.15, b - 0.25, "query", color=COLOURS["n"])
    plane.set(xlim=reach, ylim=reach, aspect="equal", xlabel=axes[0], ylabel=axes[1])
    said = []
    for i, (word, (x, y), *_) in enumerate(shown):
        score = a * x + b * y
        bars.barh(i, of[word], height=0.6, color=COLOURS["h"], alpha=0.8)
        bars.text(of[word] + 0.02, i, f"{of[word]:.2f}", va="center")
        said.append(f"{word} at ({x:g}, {y:g}) scores {score:g} and gets {of[word]:.2f}")
    heights = [f"{word}, {a * x + b * y:g}" for word, (x, y), _ in shown]
    bars.set_yticks(range(len(shown)), heights)
    bars.set(xlim=(0, 0.6), xticks=[], title="key and score, weight")
    bars.title.set_fontsize(12)
    bars.invert_yaxis()
    for side in ("bottom", "left"):
        bars.spines[side].set_visible(False)
    bars.tick_params(length=0)
    alt = (
        f"The query of “{who}”, ({a:g}, {b:g}), as an arrow among keys; a line through each key is "
        f"square to it. {'; '.join(said)} each."
    )
    caption = "On a dashed line all keys have the same score. The five others have the key (0, 0)."
    data = {"keys": shown, "who": who, "axes": list(axes), "query": [a, b], "reach": list(reach)}
    static = finish(drawing, name=name, alt=alt, caption=caption)
    return live(static, "needle", data, room=(410, 700))

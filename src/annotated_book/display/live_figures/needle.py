"""The needle: a query as an arrow among keys of two numbers, with what each key gets."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def needle(
    query: Tensor,
    sentences: Mapping[str, tuple[Tensor, Tensor]],
    words: Sequence[str],
    axes: tuple[str, str],
    *,
    who: str,
    name: str,
    line: tuple[float, str] | None = None,
    found: str = "",
) -> Output:
    """Show a query among keys, and lines on which all scores are equal; alive, the query moves.

    Args:
        query: (2,).
        sentences: under the last word of each, the keys, (m, 2), and the values, (m,).
        words: the first m - 1 words; those whose key is (0, 0) are shown together.
        axes: what the two numbers count; a value counts the second.
        who: the word that asks.
        name: the figure's name, see ``finish``.
        line: a height above which what is collected means yes, and the question.
        found: what is said where the second sentence brings more than the first.
    """
    drawn: list[Any] = []
    for last, (keys, values) in sentences.items():
        each = zip([*words, last], keys.tolist(), values.tolist(), strict=True)
        rows = [[word, key, 1, value] for word, key, value in each if any(key)]
        drawn.append([last, [*rows, ["others", [0.0, 0.0], len(keys) - len(rows), 0.0]]])
    (keys, values), shown = next(iter(sentences.values())), drawn[0][1]
    weights = (keys @ query / math.sqrt(2)).softmax(-1)
    collected = (weights @ values).item()
    of = dict(zip([*words, drawn[0][0]], weights.tolist(), strict=True))
    of["others"] = weights.min().item()
    reach = (-1.5, 3.5)
    drawing, (plane, bars) = panels(560, 270, columns=2)
    a, b = query.tolist()
    plane.axhline(0, color=FAINT, linewidth=0.8)
    plane.axvline(0, color=FAINT, linewidth=0.8)
    for word, (x, y), *_ in shown:
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
    heights = [f"{word}, {a * x + b * y:g}" for word, (x, y), *_ in shown]
    sum_ = f"{collected:.2f} of {axes[1]}{_verdict(collected, line, ': ')}"
    bars.text(0.02, len(shown), sum_, va="center", color=COLOURS["d"], fontweight="bold")
    bars.set_yticks(range(len(shown) + 1), [*heights, f"{who} collects"])
    bars.set(xlim=(0, 0.6), xticks=[], title="key and score, weight")
    bars.title.set_fontsize(12)
    bars.invert_yaxis()
    for side in ("bottom", "left"):
        bars.spines[side].set_visible(False)
    bars.tick_params(length=0)
    asks = f"The query ({a:g}, {b:g}) as an arrow among keys"
    alt = (
        f"{asks}; a line through each key is square to it. {'; '.join(said)} each. “{who}” "
        f"collects {collected:.2f} of {axes[1]}.{_answer(collected, line)}"
    )
    for last, named in drawn[1:]:
        keys, values = sentences[last]
        weights = (keys @ query / math.sqrt(2)).softmax(-1)
        share = dict(zip([*words, last], weights.tolist(), strict=True))
        shares = ", ".join(f"{word} {share[word]:.2f}" for word, *_ in named[:-1])
        gets = (weights @ values).item()
        alt += f" With “{last}”: {shares}; “{who}” collects {gets:.2f}.{_answer(gets, line)}"
    caption = "On a dashed line all keys have the same score. The five others have the key (0, 0)."
    data = {
        "sentences": drawn,
        "who": who,
        "axes": list(axes),
        "query": [a, b],
        "reach": list(reach),
        "line": line,
        "found": found,
    }
    static = finish(drawing, name=name, alt=alt, caption=caption)
    return live(static, "needle", data, room=(486, 794))


def _verdict(collected: float, line: tuple[float, str] | None, before: str) -> str:
    return before + ("yes" if collected > line[0] else "no") if line else ""


def _answer(collected: float, line: tuple[float, str] | None) -> str:
    return _verdict(collected, line, f" {line[1]} ") + "." if line else ""

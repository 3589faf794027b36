"""The cache fills: a sentence written word by word, with keys and values kept and without."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

from annotated_attention.display._html import Output
from annotated_attention.display._live import live
from annotated_attention.display.plots import COLOURS, finish, panels

_INKS = {"query": "n", "key": "m", "value": "m"}
_SHADES = {"new": 0.45, "kept": 0.1, "none": 0.0}


def cache_filling(weights: Tensor, words: Sequence[str], *, name: str, step: int) -> Output:
    """Show what one step computes and what it finds kept; alive, at every step.

    Args:
        weights: (n, n), causal: row i belongs to the query of word i.
        words: n words, in the order in which they are written.
        name: the figure's name, see ``finish``.
        step: how many words are there in the picture.
    """
    n = len(words)
    shown = [[round(x, 4) for x in row[: i + 1]] for i, row in enumerate(weights.tolist())]
    drawing, axes = panels(46 * n + 84, 390, rows=2)
    said = []
    for ax, cached in zip(axes, (False, True), strict=True):
        one, kept = work(step, cached), 2 * (step - 1) * cached
        counted = f"{one['vectors']} vectors and {one['weights']} weights computed"
        _draw(ax, words, shown[step - 1], step, cached)
        ax.set_title(f"{'with' if cached else 'without'} a cache: {counted}", fontsize=12)
        said.append(
            f"{'With' if cached else 'Without'} a cache, the step of “{words[step - 1]}” computes "
            f"{one['vectors']} vectors and {one['weights']} weights, and finds {kept} vectors kept."
        )
    static = finish(drawing, name=name, alt=" ".join(said))
    data = {"words": list(words), "weights": shown, "step": step, "cached": True}
    return live(static, "cache_filling", data, room=(518, 518))


def states(step: int, cached: bool) -> dict[str, list[str]]:
    """Say of each word's vectors whether this step makes, keeps or does without them."""
    last = step - 1
    return {
        vector: ["new" if not cached or j == last else before for j in range(step)]
        for vector, before in (("query", "none"), ("key", "kept"), ("value", "kept"))
    }


def work(step: int, cached: bool) -> dict[str, int]:
    """Count the vectors and the weights that one step computes, masked ones as well."""
    tokens = 1 if cached else step
    return {"vectors": 3 * tokens, "weights": tokens * step}


def _draw(
    ax: Axes, words: Sequence[str], weights: Sequence[float], step: int, cached: bool
) -> None:
    """Draw the vectors of every word, and the weights of the newest query."""
    for y, (vector, each) in enumerate(states(step, cached).items()):
        ink = COLOURS[_INKS[vector]]
        ax.text(-0.15, y + 0.5, vector, ha="right", va="center", color=ink, fontsize=12)
        for j, state in enumerate(each):
            _cell(ax, j, y, ink, _SHADES[state], state, "" if state == "none" else state)
    last = len(_INKS)
    ax.text(-0.15, last + 0.5, "weights", ha="right", va="center", fontsize=12)
    for j, weight in enumerate(weights):
        _cell(ax, j, last, COLOURS["n"], 0.6 * weight, "new", f"{weight:.2f}".replace("0.", "."))
    for j, word in enumerate(words):
        colour = COLOURS["m" if j < step else "b"]
        ax.text(j + 0.5, -0.2, word, ha="center", color=colour, fontsize=11)
    ax.set(xlim=(-1.4, len(words)), ylim=(last + 1, -0.8))
    ax.axis("off")


def _cell(ax: Axes, x: float, y: float, ink: str, shade: float, state: str, written: str) -> None:
    """Draw a box: with a thick edge what is new, a thin one what is kept, dotted what is not."""
    ax.add_patch(
        FancyBboxPatch(
            (x + 0.06, y + 0.08), 0.88, 0.84, boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=to_rgba(ink, shade), edgecolor=ink,
            linewidth=1.6 if state == "new" else 0.6,
            linestyle=":" if state == "none" else "-",
        )
    )  # fmt: skip
    weight = "bold" if state == "new" else "normal"
    ax.text(x + 0.5, y + 0.52, written, ha="center", va="center", fontsize=11, fontweight=weight)

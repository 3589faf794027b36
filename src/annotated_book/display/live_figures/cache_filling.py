"""The cache fills: a sentence written word by word, with keys and values kept and without."""

from collections.abc import Sequence

from torch import Tensor

from annotated_book.display._html import Output, figure, scrolled, table, told
from annotated_book.display._live import live


def cache_filling(weights: Tensor, words: Sequence[str], *, name: str, step: int) -> Output:
    """Show what one step computes and what it finds kept; alive, at every step.

    Args:
        weights: (n, n), causal: row i belongs to the query of word i.
        words: n words, in the order in which they are written.
        name: the figure's name, see ``finish``.
        step: how many words are there in the picture.
    """
    shown = [[round(x, 4) for x in row[: i + 1]] for i, row in enumerate(weights.tolist())]
    rows, said = [["", *words[:step]]], []
    for cached, how in ((False, "without a cache"), (True, "with a cache")):
        one, kept = work(step, cached), 2 * (step - 1) * cached
        rows += [[f"{vector}, {how}", *each] for vector, each in states(step, cached).items()]
        said.append(
            f"{how.capitalize()}, the step of “{words[step - 1]}” computes {one['vectors']} "
            f"vectors and {one['weights'] // step} · {step} weights, and finds {kept} vectors kept."
        )
    rows.append(["weights", *(f"{weight:.2f}" for weight in shown[step - 1])])
    still = scrolled(table(rows, "aa-table"), "vectors of each word")
    static = figure(name, told(still, " ".join(said)), " ".join(said))
    data = {"words": list(words), "weights": shown, "step": step, "cached": True}
    return live(static, "cache_filling", data, room=(518, 518))


def states(step: int, cached: bool) -> dict[str, list[str]]:
    """Say of each word's vectors whether this step makes, keeps or does without them."""
    last = step - 1
    return {
        vector: ["new" if not cached or j == last else before for j in range(step)]
        for vector, before in (("query", "–"), ("key", "kept"), ("value", "kept"))
    }


def work(step: int, cached: bool) -> dict[str, int]:
    """Count the vectors and the weights that one step computes, masked ones as well."""
    tokens = 1 if cached else step
    return {"vectors": 3 * tokens, "weights": tokens * step}

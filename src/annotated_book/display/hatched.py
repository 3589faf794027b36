"""A map of weights under a mask: what is blocked is hatched, and cannot be taken for a zero."""

from collections.abc import Sequence
from typing import Any

from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def masked_map(
    weights: Tensor,
    blocked: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    name: str,
    caption: str = "",
) -> Output:
    """Draw weights as a map, a row per query and a column per key, with what is blocked hatched.

    Args:
        weights: (n, m).
        blocked: (n, m), True where a query does not see a key.
        queries: n words.
        keys: m words.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    n, m = weights.shape
    drawing, (ax,) = panels(56 * m + 90, 32 * n + 50)
    told = []
    for i, (query, row) in enumerate(zip(queries, weights.tolist(), strict=True)):
        seen = []
        for j, weight in enumerate(row):
            edge: dict[str, Any] = {"linewidth": 0.6, "edgecolor": FAINT}
            if blocked[i, j]:
                ax.add_patch(Rectangle((j, i), 1, 1, **edge, facecolor="none", hatch="////"))
                continue
            ax.add_patch(
                Rectangle((j, i), 1, 1, **edge, facecolor=to_rgba(COLOURS["n"], 0.6 * weight))
            )
            ax.text(j + 0.5, i + 0.5, f"{weight:.2f}", ha="center", va="center", fontsize=13)
            seen.append(f"{keys[j]} {weight:.2f}")
        told.append(f"{query} sees {', '.join(seen) or 'nothing'}")
    ax.set(xlim=(0, m), ylim=(n, 0))
    ax.set_xticks([j + 0.5 for j in range(m)], keys, color=COLOURS["m"], fontsize=13)
    ax.set_yticks([i + 0.5 for i in range(n)], queries, color=COLOURS["n"], fontsize=13)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    alt = f"Attention weights, queries in rows and keys in columns. {'; '.join(told)}."
    return finish(drawing, name=name, alt=alt, caption=caption)

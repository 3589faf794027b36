"""Numbers in memory as places on a shelf, and the jumps in which a layout reads them."""

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def shelf(layouts: Mapping[str, Tensor], labels: Sequence[str], *, name: str) -> Output:
    """Draw the places of a shelf once for each layout: what it reads first, and where it jumps.

    Args:
        layouts: by its title the places, h by n by d, in the order in which a layout reads them.
        labels: for every place what stands there.
        name: the figure's name, see ``finish``.

    Examples:
        >>> import torch
        >>> from annotated_book import display
        >>> places = torch.arange(4).view(2, 2)
        >>> layouts = {"moved": places.T.reshape(2, 2, 1)}
        >>> display.shelf(layouts, "abcd", name="small")
        Figure: A shelf of 4 places. moved: 3 jumps, head 1 is a c.
    """
    count = len(labels)
    drawing, axes = panels(26 * count + 20, 92 * len(layouts), rows=len(layouts))
    said = []
    for ax, (title, order) in zip(axes, layouts.items(), strict=True):
        places, first = order.flatten().tolist(), {*order[0].flatten().tolist()}
        for place, label in enumerate(labels):
            colour = COLOURS["h" if place in first else "d"]
            ax.add_patch(Rectangle((place, 0), 0.94, 0.9, color=colour, alpha=0.25, lw=0))
            ax.text(place + 0.47, 0.45, label, ha="center", va="center", fontsize=12)
        jumps = [(i, j) for i, j in itertools.pairwise(places) if j != i + 1]
        for i, j in jumps:
            bend = f"arc3,rad={-0.5 if 0 < j - i < 8 else -0.08}"
            start, end = (
                ((i + 0.5, 0.95), (j + 0.4, 0.95)) if j > i else ((i + 0.5, 0), (j + 0.4, 0))
            )
            ax.add_patch(
                FancyArrowPatch(
                    start,
                    end,
                    arrowstyle="->",
                    mutation_scale=8,
                    connectionstyle=bend,
                    color=FAINT,
                    lw=1.1,
                )
            )
        ax.set_title(f"{title}, {len(jumps)} jumps", fontsize=12, loc="left")
        ax.set(xlim=(-0.2, count + 0.2), ylim=(-1.1, 2))
        ax.axis("off")
        held = " ".join(labels[place] for place in sorted(first))
        said.append(f"{title}: {len(jumps)} jumps, head 1 is {held}.")
    caption = f"Orange: head 1. Purple: head 2. All {count} numbers stay where they stand."
    alt = f"A shelf of {count} places. {' '.join(said)}"
    return finish(drawing, name=name, alt=alt, caption=caption)

"""Every head of a model at once: a map of small maps, and a table of numbers.

Each head of the map is a link to the head's row in the table, ``#head-3-10`` for layer 3, head 10.
On a page with the live figure of heads at work, such a link shows the head there instead.
"""

from collections.abc import Mapping
from html import escape

from torch import Tensor

from annotated_book.display._html import Output, figure, table

_SHADES = ((0.1, 0.3, 0.25), (0.3, 0.6, 0.55), (0.6, 2.0, 0.95))  # from, below, opacity


def heads_map(weights: Tensor, *, name: str, alt: str, caption: str) -> Output:
    """Draw every head's weights, a row of heads per layer; each head is a link.

    Args:
        weights: (l, h, n, m), a row per query.
        name: unique in the book; the figure's anchor is ``#fig-<name>``.
        alt: what the figure shows, for those who do not see it.
        caption: HTML under the figure.
    """
    rows = [["", *(str(head + 1) for head in range(weights.size(1)))]]
    for layer, heads in enumerate(weights):
        rows.append([str(layer + 1), *(_cell(layer, head, one) for head, one in enumerate(heads))])
    return figure(name, table(rows, "aa-heads", label=escape(alt)), alt, caption)


def _cell(layer: int, head: int, weights: Tensor) -> str:
    """Draw one head as a link, strong weights in strong colour."""
    n, m = weights.shape
    paths = []
    for low, below, opacity in _SHADES:
        places = ((weights >= low) & (weights < below)).nonzero().tolist()
        if places:
            lines = "".join(f"M{j} {i}h1" for i, j in places)
            paths.append(f'<path opacity="{opacity}" d="{lines}"/>')
    return (
        f'<a href="#head-{layer + 1}-{head + 1}" aria-label="layer {layer + 1}, head '
        f'{head + 1}"><svg role="img" aria-label="weights" viewBox="0 -.5 {m} {n}">'
        f"{''.join(paths)}</svg></a>"
    )


def heads_table(columns: Mapping[str, Tensor]) -> Output:
    """List every head in a row of its own, to which links can point.

    Args:
        columns: for each heading a number per head, (l, h).
    """
    layers, heads = next(iter(columns.values())).shape
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    rows = [["layer, head", *map(escape, columns)]]
    for layer, head in places:
        cells = (f"{column[layer, head]:.2f}" for column in columns.values())
        rows.append([f"{layer + 1}, {head + 1}", *cells])
    ids = [f"head-{layer + 1}-{head + 1}" for layer, head in places]
    html = f'<div class="aa-every-head">{table(rows, ids=ids)}</div>'
    return Output(f"Table: {layers * heads} heads, {', '.join(columns)}", html)

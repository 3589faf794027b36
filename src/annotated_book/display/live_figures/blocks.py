"""Published models: a strip of layers each, and the block of the one that is chosen."""

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from annotated_book.display._html import Output, figure, scrolled, table
from annotated_book.display._live import live

KINDS = {  # of a layer, by what its queries see: how it is called, its colour, and how full
    "a": ("all keys", "n", 90),
    "w": ("a window", "n", 35),
    "s": ("a state", "m", 75),
    "c": ("chosen keys", "d", 85),
    "x": ("compressed keys", "d", 35),
}


class Model(NamedTuple):
    """A letter of ``KINDS`` for each layer, and parts, with a semicolon between them.

    Args:
        layers: the first at the left.
        attention: under each letter, the parts between a norm and the sum.
        feed_forward: the parts between the second norm and the sum.
        plain: how many layers, from the first, have the feed-forward part of the first model.
    """

    layers: str
    attention: Mapping[str, str]
    feed_forward: str
    plain: int = 0


def blocks(models: Mapping[str, Model], *, name: str) -> Output:
    """List models with their layers and parts; alive, draw the block of one that is chosen.

    Args:
        models: the first is what the others are compared with.
        name: the figure's name, see ``finish``.

    Examples:
        >>> from annotated_book import display
        >>> one = display.Model("aaaa", {"a": "MHA; all keys"}, "feed-forward")
        >>> two = display.Model("wwwa", {"a": "MHA", "w": "MHA; the last 9 keys"}, "2 of 8 experts")
        >>> display.blocks({"one": one, "two": two}, name="try")
        Figure: one: 4 layers: MHA; all keys. feed-forward
        two: 1 of 4: MHA. 3 of 4: MHA; the last 9 keys. 2 of 8 experts
    """
    rows, text = [["", "layers, and the parts of their attention", "feed-forward part"]], []
    for model, (layers, attention, feed_forward, _) in models.items():
        counts = {
            parts: f"{layers.count(kind)} of {len(layers)}"
            if len(attention) > 1
            else f"{len(layers)} layers"
            for kind, parts in attention.items()
        }
        kinds = [f"{many}: {parts}." for parts, many in counts.items()]
        rows.append([escape(model), "<br>".join(map(escape, kinds)), escape(feed_forward)])
        text.append(f"{model}: {' '.join(kinds)} {feed_forward}")
    still = scrolled(table(rows), "Models, their layers and their parts")
    data = {
        "kinds": {key: list(kind) for key, kind in KINDS.items()},
        "models": [[key, *model] for key, model in models.items()],
    }
    static = figure(name, still, "\n".join(text))
    return live(static, "blocks", data, room=(560, 850))

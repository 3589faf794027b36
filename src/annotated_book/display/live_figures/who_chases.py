"""A model with switches for the heads of a layer."""

from collections.abc import Mapping, Sequence

from annotated_book.display._html import Output, figure
from annotated_book.display._live import live
from annotated_book.display.tables import show


def who_chases(
    counts: Mapping[str, Sequence[int]],
    words: Sequence[str],
    text: str,
    *,
    animals: Sequence[str],
    pets: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
    edge: str,
    name: str,
) -> Output:
    """Show how often a model is right without some of its heads; alive, with switches for them.

    Args:
        counts: with both heads of layer 2, without the first, without the second, without both,
            and uncut: how many beginnings go on right, with the one who acts, and with an
            animal of nobody here.
        words: the vocabulary, padding first, of ``data/storyteller-0.bin``.
        text: a beginning; three ``{}`` stand for two animals and for the one of them who acts.
        animals: to choose from, alive.
        pets: the two to begin with.
        shapes: of each tensor in the file of weights.
        edge: the word before each story.
        name: the figure's name, see ``finish``.
    """
    columns = ["right", "chases itself", "Anna has no such animal"]
    still = show(counts, columns=columns, corner=f"of {sum(next(iter(counts.values())))}")
    data = {
        "words": list(words),
        "edge": edge,
        "shapes": [[key, *size, 0][:3] for key, size in shapes.items()],
        "layers": 2,
        "heads": [2, [2, 1]],
        "text": text,
        "places": [1 + i for i, word in enumerate(text.split()) if word == "{}"],
        "animals": list(animals),
        "pets": list(pets),
        "counts": {key: list(each) for key, each in counts.items()},
    }
    static = figure(name, f"<div>{still.html}</div>", still.text)
    return live(static, "who_chases", data, room=(400, 560))

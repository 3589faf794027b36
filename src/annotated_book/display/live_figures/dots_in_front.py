"""What a model says after a text that has dots in front of it, under each of several masks."""

from collections.abc import Mapping, Sequence

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.tales import Told, stories


def dots_in_front(
    said: Mapping[str, Mapping[str, Sequence[str]]],
    dots: Sequence[int],
    *,
    start: int = 1,
    name: str,
) -> Output:
    """Show how a model goes on with a text under several masks; alive, behind any number of dots.

    Args:
        said: of each text, by the name of each mask, what comes after it behind so many dots. The
            first mask's words without a dot are those that the others are held beside.
        dots: 0, and other numbers of dots; the picture shows the second.
        start: with which of them the live figure opens.
        name: the figure's name, see ``finish``.

    Examples:
        >>> from annotated_book import display
        >>> said = {"the cat": {"none": ["ran .", "hid ."], "both": ["ran ."] * 2}}
        >>> display.dots_in_front(said, (0, 1), name="try")
        Figure: What is told.
               dots
        alone     0
        none      1
        both      1
        alone: the cat ran .
        none: · the cat [hid] .
        both: · the cat ran .
    """
    begin, cards = next(iter(said.items()))
    alone = next(iter(cards.values()))[0]
    told = {"alone": Told(["0"], alone.split(), text=begin)}
    for card, after in cards.items():
        told[card] = Told([str(dots[1])], after[1].split(), text=f"{'· ' * dots[1]}{begin}")
    static = stories(told, ["dots"], name=name)
    data = {
        "begins": [*said],
        "cards": [*cards],
        "told": [[[*after] for after in each.values()] for each in said.values()],
        "dots": list(dots),
        "start": start,
    }
    room = (90 + 80 * len(cards), 110 + 150 * len(cards))
    return live(static, "dots_in_front", data, room=room)

"""What a model says behind places that are empty, or are not, with a switch off and on."""

from collections.abc import Mapping, Sequence

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.tales import Told, stories


def dots_in_front(
    said: Mapping[str, Sequence[Sequence[str]]],
    dots: Sequence[int],
    text: str,
    *,
    switch: str,
    answers: Mapping[str, str],
    start: int = 1,
    name: str,
) -> Output:
    """Show how a model goes on with a text behind some places; alive, behind any of these numbers.

    Args:
        said: by what the places hold, what comes after the text behind each number of them: with
            the switch off, and on.
        dots: 0, and other numbers of places; the picture shows the second.
        text: what the model goes on with.
        switch: what is off at first.
        answers: whom "it" means, by a word of the story.
        start: with which of the numbers the live figure opens.
        name: the figure's name, see ``finish``.

    Examples:
        >>> from annotated_book import display
        >>> said = {"zeros": (["ran .", "hid ."], ["ran ."] * 2)}
        >>> mask = {"switch": "mask", "answers": {"ran": "the cat"}}
        >>> display.dots_in_front(said, (0, 1), "the cat", **mask, name="try")
        Figure: What is told.
                          places
        alone                  0
        zeros                  1
        zeros, with mask       1
        alone: the cat ran .
        zeros: · the cat [hid] .
        zeros, with mask: · the cat ran .
    """
    first, *_ = said.values()
    told = {"alone": Told(["0"], first[0][0].split(), text=text)}
    for held, stages in said.items():
        before = f"{'·' if held == 'zeros' else held} " * dots[1] + text
        for case, after in zip((held, f"{held}, with {switch}"), stages, strict=True):
            told[case] = Told([str(dots[1])], after[1].split(), text=before)
    data = {
        "text": text,
        "told": [[held, *map(list, stages)] for held, stages in said.items()],
        "dots": list(dots),
        "turn": switch,
        "answers": dict(answers),
        "start": start,
    }
    room = (216, 372 if len(said) > 1 else 325)
    return live(stories(told, ["places"], name=name), "dots_in_front", data, room=room)

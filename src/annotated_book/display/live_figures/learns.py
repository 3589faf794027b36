"""A model that learns to tell stories: its loss, what it writes, and whom it says was meant."""

from collections.abc import Mapping, Sequence
from typing import Any

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels


def learns(
    looks: Mapping[int, tuple[float, Sequence[str], Mapping[str, float]]],
    *,
    floor: float,
    asked: str,
    meant: str,
    name: str,
    best: int = 3,
) -> Output:
    """Show a loss that falls and a word that is learned; alive, step through what is written.

    Args:
        looks: after how many steps, the loss, a story that the model wrote, and the chance of each
            word to come next in the story that is asked about, the likeliest first.
        floor: the loss of a perfect reader.
        asked: a story up to the word that says who was meant.
        meant: that word.
        name: the figure's name, see ``finish``.
        best: how many words are shown.
    """
    steps = list(looks)
    losses = [loss for loss, *_ in looks.values()]
    right = [chances[meant] for *_, chances in looks.values()]
    drawing, (fall, word) = panels(560, 190, columns=2)
    fall.plot(steps, losses, "o-", color=COLOURS["h"], markersize=4)
    fall.axhline(floor, color=COLOURS["m"], linestyle="--")
    fall.text(steps[-1], floor - 0.1, "the floor", ha="right", va="top", color=COLOURS["m"])
    fall.set(title="loss", ylim=(0, None), xlabel="training step")
    word.plot(steps, right, "o-", color=COLOURS["n"], markersize=4)
    word.set(title=f"chance of “{meant}” after “so the”", ylim=(0, 1.05), xlabel="training step")
    for ax in (fall, word):
        ax.title.set_fontsize(12)
    told: list[dict[str, Any]] = [
        {
            "done": done,
            "loss": round(loss, 4),
            "text": " ".join(text),
            "best": [[word, round(share, 4)] for word, share in list(chances.items())[:best]],
        }
        for done, (loss, text, chances) in looks.items()
    ]
    said = "; ".join(
        f"after {each['done']} steps {each['loss']:.3f}, and after “so the” comes "
        + ", ".join(f"{word} {share:.2f}" for word, share in each["best"])
        for each in told
    )
    alt = f"The loss falls to the floor, {floor:.3f}: {said}. “{meant}” was meant."
    data = {"steps": told, "floor": round(floor, 4), "asked": asked, "meant": meant}
    return live(finish(drawing, name=name, alt=alt), "learns", data, room=(330, 450))

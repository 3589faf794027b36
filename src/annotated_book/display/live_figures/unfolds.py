"""Nets of answers while models learn: one collapses onto a line, one unfolds."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels


def unfolds(
    starts: Sequence[Mapping[str, Mapping[int, Tensor]]],
    scenes: Tensor,
    side: int,
    names: Sequence[str],
    *,
    name: str,
) -> Output:
    """Show where the answers of two models end; alive, watch them train, from several starts.

    Args:
        starts: of each the two models, by name, and their answers after some steps of training,
            (k * k, 2). The picture is of the first.
        scenes: what the answers are to be, (k * k, 2), row by row.
        side: how many scenes are in a row, k.
        names: of the two numbers.
        name: the figure's name, see ``finish``.
    """
    models = starts[0]
    steps = list(next(iter(models.values())))
    reach = scenes.abs().max().item() * 1.4
    drawing, axes = panels(600, 320, columns=2)
    told = []
    for ax, (which, looks), letter in zip(axes, models.items(), "hd", strict=True):
        answers = looks[steps[-1]]
        net = answers.unflatten(0, (side, side))
        for row in (*net, *net.transpose(0, 1)):
            ax.plot(*row.mT.tolist(), color=COLOURS[letter], linewidth=1.2)
        ax.plot(*scenes.mT.tolist(), "+", color="#808080", markersize=9)
        ax.plot(*answers.mT.tolist(), "o", color=COLOURS[letter], markersize=6)
        ax.set_title(which, fontsize=13)
        ax.set(xlabel=names[0], ylabel=names[1], aspect="equal")
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[])
        ends = [(looks[step] - scenes).square().mean().sqrt().item() for step in steps]
        told.append(
            f"{which} off by {ends[0]:.2f} at step {steps[0]}, by {ends[-1]:.2f} at the end"
        )
    alt = f"Answers to {len(scenes)} scenes after {steps[-1]} steps: {'; '.join(told)}."
    caption = "Crosses are the scenes, dots the answers, tied to those of the neighbouring scenes. "
    caption += "How far off they are is a root mean square."
    data = {
        "steps": steps,
        "starts": [
            [[which, [_rounded(looks[step]) for step in steps]] for which, looks in start.items()]
            for start in starts
        ],
        **{"scenes": scenes.tolist(), "side": side, "names": list(names), "reach": reach},
    }
    return live(
        finish(drawing, name=name, alt=alt, caption=caption), "unfolds", data, room=(375, 680)
    )


def _rounded(answers: Tensor) -> list[list[float]]:
    return [[round(x, 2) for x in row] for row in answers.tolist()]

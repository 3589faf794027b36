"""Models read aloud: the same weights, and heads that are cut or merged in several ways."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def aloud(
    tellers: Mapping[str, nn.Module],
    words: Sequence[str],
    text: str,
    endings: Sequence[str],
    *,
    shapes: Mapping[str, Sequence[int]],
    layers: int,
    heads: Sequence[int],
    longest: int,
    edge: str,
    reshaped: int = -1,
    inks: Sequence[str] = "hdnm",
    name: str,
) -> Output:
    """Show how models go on with a text, word after word; alive, with any of its endings.

    Args:
        tellers: models by name, which score (b, n) ids. Alive, all have the weights of
            ``data/storyteller-0.bin``.
        words: their vocabulary, padding first.
        text: what they go on with; ``{}`` stands for its ending.
        endings: to choose from; the picture shows the first two.
        shapes: of each tensor in the file of weights.
        layers: how many they have.
        heads: how many a layer of each has.
        longest: how many words a text has at most.
        edge: the word before and after each story.
        reshaped: the index of the model that merges its heads by a reshape alone; -1: none does.
        inks: the letters whose colours the words of each model have.
        name: the figure's name, see ``finish``.
    """
    step = len(tellers) + 2
    drawing, (ax,) = panels(500, 190 * step / 4)
    told = []
    for i, ending in enumerate(endings[:2]):
        begin = text.format(ending)
        ax.text(0, step * i, f"{begin} …".replace(" .", "."), fontsize=14, color=FAINT, va="center")
        told.append(f"After “{begin}”")
        for j, (who, model) in enumerate(tellers.items()):
            said = go_on(model, [edge, *begin.split()], words, longest=longest)
            first = " ".join(said).partition(" .")[0] + "."
            ax.text(0, step * i + j + 1, who, fontsize=12, va="center")
            ink = COLOURS[inks[j]]
            ax.text(1, step * i + j + 1, first, fontsize=13, weight="bold", color=ink, va="center")
            told.append(f"{who}: {first}")
    ax.set(xlim=(0, 4), ylim=(2 * step - 1.5, -0.5))
    ax.axis("off")
    alt = ", ".join(told).replace(", After", " After")
    data = {
        "words": list(words),
        "edge": edge,
        "longest": longest,
        "shapes": [[key, *size, 0][:3] for key, size in shapes.items()],
        "heads": list(heads),
        "reshaped": reshaped,
        "layers": layers,
        "text": text,
        "endings": list(endings),
        "inks": list(inks[: len(tellers)]),
        "names": list(tellers),
    }
    rows = len(tellers)
    room = (155, 330) if rows < 3 else (30 + 61 * rows, 90 + 115 * rows)
    return live(finish(drawing, name=name, alt=alt), "aloud", data, room=room)


@torch.no_grad()
def go_on(
    model: nn.Module, text: Sequence[str], words: Sequence[str], *, longest: int
) -> list[str]:
    """Give the words that a model adds to a text, each time the likeliest, until one ends it.

    Args:
        model: scores each word as the next one, at each place of (b, n) ids.
        text: words; the first of them ends a text, too.
        words: its vocabulary.
        longest: how many words a text has at most.
    """
    ids = [words.index(word) for word in text]
    while len(ids) < longest:
        best = int(model(torch.tensor([ids]))[0, -1].argmax())
        if best == ids[0]:
            break
        ids.append(best)
    return [words[i] for i in ids[len(text) :]]

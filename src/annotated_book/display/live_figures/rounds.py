"""Words that listen to each other round after round, with switches."""

from collections.abc import Mapping, Sequence

from matplotlib.colors import to_rgba
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels

_LETTERS = "abcdefghijklmnopqrstuvwxy"  # m is zero


def rounds(
    runs: Mapping[tuple[bool, ...], Sequence[tuple[Tensor, float]]],
    words: Sequence[str],
    switches: Sequence[str],
    *,
    stops: Sequence[int],
    shown: Mapping[str, tuple[tuple[bool, ...], int]],
    name: str,
) -> Output:
    """Show the numbers of words as colours after some rounds; alive, the switches are the reader's.

    Of the last two switches at most one is on.

    Args:
        runs: under which switches are on, after each round the words' numbers, (n, e), and which
            share of them differs from word to word.
        words: the n words.
        switches: what each of them does, in a word or two.
        stops: the rounds at which the live figure stops, 0 first.
        shown: of each panel of the still picture its title, and the switches and the round.
        name: the figure's name, see ``finish``.
    """
    drawing, axes = panels(660, 190, columns=len(shown))
    said = []
    for ax, (title, (on, after)) in zip(axes, shown.items(), strict=True):
        x, apart = runs[on][after]
        shares = (x / x.abs().max()).tolist()
        ax.pcolormesh(
            [[to_rgba(COLOURS["h" if a < 0 else "n"], 0.9 * abs(a)) for a in row] for row in shares]
        )
        ax.set_yticks([i + 0.5 for i in range(len(words))], words)
        ax.tick_params(length=0, labelsize=12)
        ax.set(title=title, ylim=(len(words), 0), xticks=[])
        said.append(f"{title}, {apart:.3f} of the whole differs from word to word")
    alt = f"The numbers of {len(words)} words, as coloured cells: {'; '.join(said)}."
    told = {
        "".join(str(int(each)) for each in on): [
            {
                "cells": "".join(_LETTERS[round(12 * a) + 12] for a in _scaled(x)),
                "apart": f"{apart:.3f}",
                "size": f"{x.std():.2f}",
            }
            for x, apart in (run[stop] for stop in stops)
        ]
        for on, run in runs.items()
    }
    wide = next(iter(runs.values()))[0][0].size(1)
    data = {"words": list(words), "wide": wide, "switches": list(switches)}
    data |= {"stops": list(stops), "runs": told}
    return live(finish(drawing, name=name, alt=alt), "rounds", data, room=(345, 290))


def _scaled(x: Tensor) -> list[float]:
    return (x / x.abs().max()).flatten().tolist()

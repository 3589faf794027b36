"""Tiles are visited: the scores of a few queries and keys at a time, and the running numbers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from annotated_attention.modern.tiles import tiles
from annotated_book.display._html import Output, figure, scrolled, table, told
from annotated_book.display._live import live

_TITLES = ("tile", "keys", "query", "correction", "largest", "total", "mix", "mix / total")


def tiles_visited(
    scores: Tensor, values: Tensor, words: Sequence[str], *, name: str, tile: int, step: int
) -> Output:
    """Show the running numbers of a step's queries, tile by tile; alive, from their first tile on.

    Args:
        scores: (n, n), all finite.
        values: (n,), one feature of each value.
        words: n words, whose queries and keys these are.
        name: the figure's name, see ``finish``.
        tile: number of queries, and of keys, in a tile.
        step: how many tiles have been visited in the picture.
    """
    made, rows = visits(scores, values, False, tile), [[*_TITLES]]
    queries, last, running = made[step - 1]
    first = next(at for at, (those, *_) in enumerate(made, 1) if those == queries)
    for at, (those, columns, numbers) in enumerate(made[:step], 1):
        if those == queries:
            rows += [
                [str(at), ", ".join(words[columns]), word, *written(row)]
                for word, row in zip(words[queries], numbers.tolist(), strict=True)
            ]
    said = [
        f"“{word}” has the largest score {row[1]:g}, total {row[2]:.2f}, mix {row[3]:.2f}"
        for word, row in zip(words[queries], running.tolist(), strict=True)
    ]
    alt = (
        f"Scores in tiles of {tile} queries and {tile} keys. {step} of {len(made)} are visited; "
        f"the keys of the last are {', '.join(words[last])}. After it, {'; '.join(said)}."
    )
    still = scrolled(table(rows, "aa-table"), "running numbers")
    data = {
        "words": list(words),
        "scores": scores.tolist(),
        "values": values.tolist(),
        "tile": tile,
        "step": first,
    }
    return live(figure(name, told(still, alt), alt), "tiles_visited", data, room=(430, 440))


def visits(
    scores: Tensor, values: Tensor, is_causal: bool, tile: int
) -> list[tuple[slice, slice, Tensor]]:
    """Visit all tiles, and keep what each query has after each.

    What it takes is as for ``tiles_visited``; ``is_causal`` hides keys after the query.

    Returns:
        For each tile its queries, its keys, and (queries, 4): the correction, and then the largest
        score, the total and the mix.
    """
    scores, values, made = scores.double(), values.double(), []
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores).bool().triu(1), -math.inf)
    for rows, visited in tiles(len(scores), len(scores), is_causal, tile):
        largest = scores.new_full((len(scores[rows]),), -math.inf)
        total, mix = torch.zeros_like(largest), torch.zeros_like(largest)
        for columns in visited:
            larger = torch.maximum(largest, scores[rows, columns].amax(-1))
            correction, powers = (largest - larger).exp(), scores[rows, columns] - larger[:, None]
            total = correction * total + powers.exp().sum(-1)
            mix = correction * mix + powers.exp() @ values[columns]
            largest = larger
            made.append((rows, columns, torch.stack([correction, largest, total, mix], -1)))
    return made


def written(row: Sequence[float]) -> list[str]:
    """Write a query's correction, largest score, total, mix and output."""
    correction, largest, total, mix = row
    return [f"{x:.2f}" for x in (correction, largest, total, mix, mix / total)]

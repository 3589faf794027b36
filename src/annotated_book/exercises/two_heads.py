"""Exercises of "Two heads": what two heads tell, and any number of them in a list."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_book.exercises._exercise import (
    Either,
    Exercise,
    normal,
)
from annotated_book.exercises._values import numbers


def _which_head(answer: object, found: Tensor, right: Tensor) -> str:
    cat, milk = found.tolist()
    homes = (3 * cat + milk) / 4, (cat + 3 * milk) / 4
    fits = [home == told for home, told in zip(homes, (2, 0), strict=True)]
    if any(fits):
        which = "first" if fits[0] else "second"
        return f"this scene lies on the line of the {which} head, but not on that of the other."
    return (
        f"from this scene the heads bring home {homes[0]:g} and {homes[1]:g}, and they are to "
        "bring home 2 and 0."
    )


check_scene = Exercise(
    name="my_scene",
    right=(3, -1),
    praise="right. Each head leaves a line of scenes, and the two lines cross in this one.",
    wrong={"you have exchanged the two: first the cat's warmth, then the milk's.": (-1, 3)},
    run=numbers(2),
    why=_which_head,
)

Matrices = list[list[Tensor]]
Merge = Callable[[list[Tensor], Tensor], Tensor]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, power: float = 0.5, axis: int = -1
) -> Tensor:
    """Give what is collected, (n, d)."""
    return (query @ key.mT / query.size(-1) ** power).softmax(axis) @ value


def _run(merge: Merge, **options: Any) -> Callable[[Tensor, Matrices, Tensor], Tensor]:
    """Make an answer that runs the heads and merges what they collect."""

    def answer(x: Tensor, heads: Matrices, w_o: Tensor) -> Tensor:
        return merge([_attend(x @ q, x @ k, x @ v, **options) for q, k, v in heads], w_o)

    return answer


def _side_by_side(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    return torch.cat(mixed, -1) @ w_o  # (n, e)


def _first_heads(count: int) -> Merge:
    return lambda mixed, w_o: torch.cat(mixed[:count], -1) @ w_o[: count * mixed[0].size(-1)]


def _one_head_for_all(i: int) -> Callable[[Tensor, Matrices, Tensor], Tensor]:
    return lambda x, heads, w_o: _run(_side_by_side)(x, [heads[i]] * len(heads), w_o)


def _raw(x: Tensor, heads: Matrices, w_o: Tensor, leave: int) -> Tensor:
    """Leave the words as they are for the query, the key or the value."""
    mixed = []
    for own in heads:
        q, k, v = (x if i == leave else x @ matrix for i, matrix in enumerate(own))
        mixed.append(_attend(q, k, v))
    return _side_by_side(mixed, w_o)


def _draw_heads(h: int, n: int, d: int, e: int) -> dict[str, Any]:
    drawn = normal(x=(n, e), heads=(h, 3, e, d), w_o=(h * d, e))
    heads = [list(own / e**0.5) for own in drawn["heads"]]
    return {**drawn, "heads": heads}


check_run_heads = Exercise(
    name="run_heads",
    right=_run(_side_by_side),
    praise="right, and so are the gradients: a loop over heads, one concatenation, one W_O.",
    wrong={
        "you return what the heads collect, side by side: W_O has not written it yet.": (
            _run(lambda mixed, w_o: torch.cat(mixed, -1))
        ),
        "you return a sum or an average of what the heads collect, and leave out w_o.": Either(
            [
                _run(lambda mixed, w_o: sum(mixed[1:], mixed[0])),
                _run(lambda mixed, w_o: torch.stack(mixed).mean(0)),
            ]
        ),
        "only the first head counts. Does your loop return too early?": _run(_first_heads(1)),
        "only the last head counts. Does your loop replace what it has, and not keep it?": _run(
            lambda mixed, w_o: mixed[-1] @ w_o[-mixed[0].size(-1) :]
        ),
        "it is right for two heads, but there may be any number: loop over the list.": (
            _run(_first_heads(2))
        ),
        "every head has the same three matrices in your code. Each has its own.": Either(
            [_one_head_for_all(0), _one_head_for_all(-1)]
        ),
        "the heads are in reversed order: the first head belongs to the first rows of w_o.": (
            _run(lambda mixed, w_o: torch.cat(mixed[::-1], -1) @ w_o)
        ),
        "the features of the heads are interleaved. Head i has neighbouring rows of w_o, i * d to "
        "(i + 1) * d.": _run(lambda mixed, w_o: torch.stack(mixed, -1).flatten(1) @ w_o),
        "the heads are stacked and reshaped straight to (n, h * d), which mixes tokens: put the "
        "heads side by side along the last axis.": (
            _run(lambda mixed, w_o: torch.stack(mixed).reshape(len(mixed[0]), -1) @ w_o)
        ),
        "the heads stand one below the other (dim=0), so there are more rows than words. Put them "
        "side by side along the last axis.": Either(
            [
                _run(lambda mixed, w_o: torch.cat(mixed)),
                _run(lambda mixed, w_o: torch.cat(mixed) @ w_o),
            ]
        ),
        "you take the average of the heads: their contributions are added.": (
            _run(lambda mixed, w_o: _side_by_side(mixed, w_o) / len(mixed))
        ),
        "you do not divide the scores by the root of d.": _run(_side_by_side, power=0),
        "you divide the scores by d, not by its root.": _run(_side_by_side, power=1),
        "your softmax runs over the queries (dim=-2). The keys compete: dim=-1.": (
            _run(_side_by_side, axis=-2)
        ),
        "you exchange w_q and w_k: w_q makes the queries, which ask, and w_k the keys.": (
            lambda x, heads, w_o: _run(_side_by_side)(x, [[k, q, v] for q, k, v in heads], w_o)
        ),
        "the values are the words themselves: each head has a w_v.": (
            lambda x, heads, w_o: _raw(x, heads, w_o, 2)
        ),
    },
    sizes=[{"h": 3, "n": 5, "d": 4, "e": 12}, {"h": 4, "n": 6, "d": 3, "e": 7}],
    draw=_draw_heads,
    easy=[
        {"h": 2, "n": 5, "d": 4, "e": 7},
        {"h": 1, "n": 5, "d": 4, "e": 7},
        {"h": 1, "n": 4, "d": 4, "e": 4},
    ],
    shape="(n, e)",
)

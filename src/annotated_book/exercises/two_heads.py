"""Exercises of "Two heads": what two heads tell, and what W_O adds up."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_book.exercises._exercise import (
    Either,
    Exercise,
    Refused,
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

# Wrong ways to put the outputs of the heads side by side, each a function of them.
_MERGES: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "the heads are in reversed order: the first head belongs to the first rows of w_o.": (
        lambda mixed: torch.cat(mixed[::-1], -1)
    ),
    "the features of the heads are interleaved. Head i has neighbouring rows of w_o, i * d to "
    "(i + 1) * d.": lambda mixed: torch.stack(mixed, -1).flatten(1),
    "the heads are stacked and reshaped straight to (n, h * d), which mixes tokens: put the axis "
    "of the heads behind the tokens first.": (
        lambda mixed: torch.stack(mixed).reshape(len(mixed[0]), -1)
    ),
}


def _add(mixed: list[Tensor], blocks: Any) -> Tensor:
    return torch.stack([x @ block for x, block in zip(mixed, blocks, strict=True)]).sum(0)


def _add_up(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    return _add(mixed, w_o.split(mixed[0].size(-1)))  # (n, e)


def _first_heads(count: int) -> Callable[..., Tensor]:
    return lambda mixed, w_o: _add(mixed[:count], w_o.split(mixed[0].size(-1))[:count])


def _same_block(i: int) -> Callable[..., Tensor]:
    return lambda mixed, w_o: torch.stack(mixed).sum(0) @ w_o.split(mixed[0].size(-1))[i]


def _windows(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    d = mixed[0].size(-1)
    return _add(mixed, [w_o[i : i + d] for i in range(len(mixed))])


def _two_heads(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    d = mixed[0].size(-1)
    return mixed[0] @ w_o[:d] + mixed[1] @ w_o[d:]


def _two_unpacked(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    first, second = mixed
    return _add_up([first, second], w_o)


def _draw_heads(h: int, n: int, d: int, e: int) -> dict[str, Any]:
    drawn = normal(mixed=(h, n, d), w_o=(h * d, e))
    return {**drawn, "mixed": list(drawn["mixed"])}


def _require_no_cat(answer: Any) -> None:
    """Refuse a function that puts the heads side by side."""
    names = set(getattr(getattr(answer, "__code__", None), "co_names", ()))
    for name in names & {"cat", "concat", "concatenate", "hstack", "column_stack"}:
        raise Refused(
            f"the numbers are right, but you concatenate (torch.{name}). Leave the heads apart: "
            "give each its own rows of w_o, and add up what comes out."
        )


check_add_up = Exercise(
    name="add_up",
    right=_add_up,
    praise=(
        "right, and so are the gradients. Multi-head attention is a sum: each head writes into the "
        "output through its own rows of W_O."
    ),
    wrong={
        "you take the average of the heads: their contributions are added.": (
            lambda mixed, w_o: _add_up(mixed, w_o) / len(mixed)
        ),
        "only the first head counts. Does your loop return too early?": _first_heads(1),
        "only the last head counts. Does your loop replace the sum, not add to it?": (
            lambda mixed, w_o: mixed[-1] @ w_o[-mixed[0].size(-1) :]
        ),
        "only the first heads count: loop over all of them.": (
            Either([_first_heads(2), _first_heads(3)])
        ),
        "every head goes through the same rows of w_o. Head i has its own, rows i * d to "
        "(i + 1) * d.": Either([_same_block(0), _same_block(1), _same_block(-1)]),
        "your blocks overlap: head i gets rows i to i + d of w_o. It has rows i * d to "
        "(i + 1) * d.": _windows,
        "you add up the heads and leave out w_o.": lambda mixed, w_o: torch.stack(mixed).sum(0),
        "you cut w_o into blocks of columns (or transpose it). The heads stand side by side in "
        "its rows: head i has rows i * d to (i + 1) * d.": (
            lambda mixed, w_o: torch.cat(mixed, -1) @ w_o.mT
        ),
        **{
            sentence: lambda mixed, w_o, merge=merge: merge(mixed) @ w_o
            for sentence, merge in _MERGES.items()
        },
        # These go through with few heads alone.
        "it is right for two heads, but mixed may have any number: loop over the heads.": (
            Either([_two_heads, _two_unpacked])
        ),
        "in your code every head meets all of w_o. A head has d rows of w_o to itself: multiply "
        "each head by its own block of rows, then add up the products.": (
            lambda mixed, w_o: torch.stack(mixed).sum(0) @ w_o
        ),
    },
    sizes=[{"h": 3, "n": 5, "d": 4, "e": 12}, {"h": 4, "n": 6, "d": 3, "e": 7}],
    draw=_draw_heads,
    easy=[{"h": 2, "n": 5, "d": 4, "e": 7}, {"h": 1, "n": 5, "d": 4, "e": 7}],
    shape="(n, e)",
    also=_require_no_cat,
)

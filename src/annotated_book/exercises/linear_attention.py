"""The exercise of "Linear attention": what one token does to the state."""

from typing import Any

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Exercise


def _write(state: Tensor, key: Tensor, value: Tensor, keep: Tensor, share: float) -> Tensor:
    faded = keep[:, None] * state
    return faded + share * key[:, None] * (value - key @ faded)


def _adds(state: Tensor, key: Tensor, value: Tensor, keep: Tensor, share: float) -> Tensor:
    return keep[:, None] * state + share * key[:, None] * value


def _fades_late(state: Tensor, key: Tensor, value: Tensor, keep: Tensor, share: float) -> Tensor:
    return keep[:, None] * (state + share * key[:, None] * (value - key @ state))


def _erases_old(state: Tensor, key: Tensor, value: Tensor, keep: Tensor, share: float) -> Tensor:
    return keep[:, None] * state + share * key[:, None] * (value - key @ state)


def _no_gate(state: Tensor, key: Tensor, value: Tensor, keep: Tensor, share: float) -> Tensor:
    return state + share * key[:, None] * (value - key @ state)


def _whole(state: Tensor, key: Tensor, value: Tensor, keep: Tensor, share: float) -> Tensor:
    return _write(state, key, value, keep, 1.0)


def _gate_of_values(
    state: Tensor, key: Tensor, value: Tensor, keep: Tensor, share: float
) -> Tensor:
    faded = keep * state
    return faded + share * key[:, None] * (value - key @ faded)


def _draw(d: int, x: int) -> dict[str, Any]:
    key = torch.nn.functional.normalize(torch.randn(d), dim=0)
    state, value, keep = torch.randn(d, x), torch.randn(x), torch.rand(d)
    return {"state": state, "key": key, "value": value, "keep": keep, "share": 0.3}


check_write = Exercise(
    name="write",
    right=_write,
    praise="right: the state fades, and then says for this key what it was told, as far as β goes.",
    wrong={
        "that only adds. Take out first what the faded state says for this key.": _adds,
        "you correct first and let it fade afterwards, what was just written, too.": _fades_late,
        "you take out what the state said *before* it faded: more than is still there.": (
            _erases_old
        ),
        "the gate is missing.": _no_gate,
        "the share β is missing: you write all of the difference.": _whole,
        "the gate has a number for each row of the state, a feature of the keys; yours goes along "
        "the columns.": _gate_of_values,
    },
    sizes=[{"d": 5, "x": 3}, {"d": 4, "x": 7}],
    easy=[{"d": 4, "x": 4}],
    draw=_draw,
    shape="(d, x)",
)

"""Exercises of "Multi-head attention": the class, and an own score."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from annotated_attention.attention import scaled_scores
from annotated_attention.multihead import MultiheadAttention
from annotated_book.exercises import short_path
from annotated_book.exercises._exercise import (
    Either,
    Exercise,
    Refused,
    normal,
    require_class,
)

check_attention = replace(
    short_path.check_attention,
    praise="right: outputs, weights and gradients agree, with a mask and without.",
)


def _slopes(h: int) -> Tensor:
    return 2.0 ** (-8 / h * torch.arange(1, h + 1).double())


def _scored(score: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[MultiheadAttention]:
    """Make a class with this score, a function of q, k and i - j."""

    class Attention(MultiheadAttention):
        def score(self, q: Tensor, k: Tensor) -> Tensor:
            n, m = q.size(-2), k.size(-2)
            distance = torch.arange(n)[:, None] - torch.arange(m).double()  # (n, m)
            return score(q, k, distance)

    return Attention


def _alibi(
    penalty: Callable[[Tensor], Tensor] = torch.abs, slopes: Callable[[int], Tensor] = _slopes
) -> type[MultiheadAttention]:
    """Make a class that takes a penalty off, each head by its slope."""
    return _scored(
        lambda q, k, distance: (
            scaled_scores(q, k) - slopes(q.size(1))[:, None, None] * penalty(distance)
        )
    )


def _same_slope(slope: float) -> type[MultiheadAttention]:
    return _alibi(slopes=lambda h: torch.full((h,), slope, dtype=torch.float64))


def _off(q: Tensor, distance: Tensor) -> Tensor:
    return _slopes(q.size(1))[:, None, None] * distance.abs()


def _run_alibi(
    answer: Any, settings: dict[str, Any], matrices: dict[str, Tensor], *inputs: Tensor
) -> Tensor:
    """Make the reader's module, give it the drawn matrices, and run it."""
    require_class(answer, MultiheadAttention)
    e, h = matrices["out_proj.weight"].size(0), settings["num_heads"]
    module = answer(e, h, bias=False, batch_first=True, dtype=torch.float64)
    learned = {name for name, _ in module.named_parameters()} - set(matrices)
    if learned:
        raise Refused(f"ALiBi's slopes are fixed, but {', '.join(learned)} would be learned.")
    options = {name: settings[name] for name in ("is_causal", "need_weights")}
    return functional_call(module, matrices, inputs, options)[0]


def _draw_alibi(
    b: int, n: int, m: int, h: int, d: int, is_causal: bool, need_weights: bool
) -> dict[str, Any]:
    e = h * d
    matrices = {"in_proj_weight": (3 * e, e), "out_proj.weight": (e, e)}
    return {
        "settings": {"num_heads": h, "is_causal": is_causal, "need_weights": need_weights},
        "matrices": {name: x / e**0.5 for name, x in normal(**matrices).items()},
        **normal(query=(b, n, e), key=(b, m, e), value=(b, m, e)),
    }


_ALIBI_SIZES = ("b", "n", "m", "h", "d", "is_causal", "need_weights")

check_alibi = Exercise(
    name="AlibiAttention",
    right=_alibi(),
    praise=(
        "right, with and without weights, and so are the gradients. It learns nothing, so "
        "PyTorch's parameters still fit."
    ),
    wrong={
        "not yet: that is the ordinary score.": MultiheadAttention,
        "the sign is wrong: the further away a key is, the more it gets. Take the penalty off.": (
            _alibi(lambda distance: -distance.abs())
        ),
        "the distance has a sign: keys on one side of the query get more, the further away they "
        "are. With a causal mask nobody may see it. Take |i - j|.": Either(
            [_alibi(lambda distance: distance), _alibi(lambda distance: -distance)]
        ),
        "only keys before the query lose. Keys behind it are as far away: take |i - j|.": (
            _alibi(lambda distance: distance.clamp(min=0))
        ),
        "the product is not scaled: √d is missing.": _scored(
            lambda q, k, distance: q @ k.mT - _off(q, distance)
        ),
        "every head has the same slope, so there is one range for all. Head i has 2^(-8 i / h).": (
            Either([_same_slope(1), _same_slope(1 / 4)])
        ),
        "the slopes are in the reverse order: the first head has the steepest.": (
            _alibi(slopes=lambda h: _slopes(h).flip(0))
        ),
        "the heads are counted from 0: the first slope is 2^(-8 / h), and not 1.": (
            _alibi(slopes=lambda h: _slopes(h) * 2 ** (8 / h))
        ),
        "the slopes are 2^-1, 2^-2 and so on, which is right for 8 heads only: the exponent of "
        "head i is -8 i / h.": _alibi(slopes=lambda h: 0.5 ** torch.arange(1, h + 1).double()),
    },
    run=_run_alibi,
    sizes=[
        dict(zip(_ALIBI_SIZES, sizes, strict=True))
        for sizes in (
            (2, 3, 5, 4, 6, False, True),
            (2, 3, 5, 4, 6, False, False),
            (2, 3, 5, 4, 6, True, True),
            (3, 4, 4, 8, 3, True, False),
            (2, 6, 2, 2, 5, False, True),
        )
    ],
    draw=_draw_alibi,
    shape="(b, n, e)",
)

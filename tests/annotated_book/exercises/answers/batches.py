"""Answers to the exercise of “Batches”."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention import merge_heads, split_heads

Step = Callable[[Tensor], Tensor]


def attention(turn: Step, back: Step) -> Any:
    def answer(y: Tensor, h: int) -> Tensor:
        heads = split_heads(turn(y), h)
        return back(merge_heads(F.scaled_dot_product_attention(heads, heads, heads)))

    return answer


def turned(x: Tensor) -> Tensor:
    return x.permute(1, 0, 2)


def exchanged(x: Tensor) -> Tensor:
    return x.reshape(x.size(1), x.size(0), -1)


def one_by_one(y: Tensor, h: int) -> Tensor:
    alone = attention(lambda x: x, lambda x: x)
    return torch.stack([alone(sentence[None], h)[0] for sentence in y.unbind(1)], 1)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_mended": [
        (attention(turned, turned), "✓ mended: right"),
        (one_by_one, "✓ mended: right"),
        (attention(exchanged, exchanged), "the walls still stand across"),
        (attention(turned, exchanged), "on the way in it is right"),
        (attention(exchanged, turned), "on the way out it is right"),
        (attention(lambda y: y, lambda z: z), "nobody turns y round"),
        (attention(turned, lambda z: z), "the numbers are right, but batch-first"),
        (lambda y, h: attention(turned, turned)(y, 1), "the shape is right, but"),
        (lambda y, h: attention(turned, turned)(y.detach(), h), "no gradient reaches y"),
        (None, "not yet, it is None"),
    ],
}

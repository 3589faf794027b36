"""Exercises of "The short path": a sum by pencil, a mask by hand, and the class."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from annotated_book.exercises._exercise import Either, Exercise, NotYet, Refused, normal
from annotated_book.exercises._values import numbers

check_sweet = Exercise(
    name="my_numbers",
    right=[4, 0.298, 0.722, 1.317],
    praise="right: the shares stay, and animal and food change places.",
    wrong={
        "that is the sentence with thirsty. *Sweet* brings food where *thirsty* brought animal.": (
            [4, 0.298, 1.317, 0.722]
        ),
        "the score adds up products: 1 · 2 from food and 1 · 2 from quality make 4.": Either(
            [[2, 0.298, 0.722, 1.317], [2, 0.13, 0.722, 1.317], [2, 0.13, 0.9, 0.9]]
        ),
        "a share is the exponential divided by the sum of all eight: 7.39 / 24.8.": Either(
            [[4, 7.39, 0.722, 1.317], [4, 0.182, 0.722, 1.317], [4, 2, 0.722, 1.317]]
        ),
        "animal and food are sums over all eight words: share times number, added up.": Either(
            [[4, 0.298, 0, 0.596], [4, 0.298, 0, 2], [4, 0.298, 1, 1]]
        ),
    },
    run=numbers(4),
    close=0.02,
)


def _grid(answer: Any) -> Tensor:
    """Read three rows of three numbers."""
    if answer is None or answer is ...:
        raise NotYet(f"it is {answer}")
    rows = answer.tolist() if isinstance(answer, Tensor) else answer
    if not isinstance(rows, list | tuple) or [
        len(row) if isinstance(row, list | tuple) else None for row in rows
    ] != [3, 3, 3]:
        raise Refused("three rows of three numbers are asked for.")
    return numbers(9)([number for row in rows for number in row]).reshape(3, 3)


check_mask = Exercise(
    name="my_mask",
    right=[[1, 1, 1], [1, 0, 1], [1, 0, 0]],
    praise="right. The first row is fully masked: before the padding there is nothing to see.",
    wrong={
        "it is inverted: here 1 means that the query may not see the key.": (
            [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
        ),
        "that is the causal mask alone: the words still see the padding.": (
            [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
        ),
        "that is the padding mask alone: the words still see what comes later.": (
            [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
        ),
        "a word sees itself: the diagonal of the two words is 0.": (
            [[1, 1, 1], [1, 1, 1], [1, 0, 1]]
        ),
        "a row belongs to the word that asks, a column to the word that is asked.": (
            [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
        ),
        "the padding may not see itself either: its column is 1 in every row.": (
            [[0, 1, 1], [1, 0, 1], [1, 0, 0]]
        ),
        "padding is hidden as a key, so its column is full of ones, not only its row.": (
            [[1, 1, 1], [0, 0, 1], [0, 0, 0]]
        ),
    },
    run=_grid,
)


class _Attention(nn.Module):
    """The class of the short path, in parts that a wrong version replaces one by one."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.w_q, self.w_k = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.w_v, self.w_o = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / math.sqrt(q.size(-1))

    def weights(self, scores: Tensor, blocked: Tensor) -> Tensor:
        return scores.masked_fill(blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        return self.w_q(query), self.w_k(key), self.w_v(value)

    def finish(self, merged: Tensor, weights: Tensor) -> Any:
        return self.w_o(merged), weights

    def forward(self, query: Tensor, key: Tensor, value: Tensor, blocked: Any = None) -> Any:
        q, k, v = map(self.split, self.project(query, key, value))
        scores = self.scores(q, k)
        blocked = torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]
        weights = self.weights(scores, blocked)
        return self.finish(self.merge(weights @ v), weights)


def _with(**methods: Any) -> type[_Attention]:
    """Make a version with other methods."""
    return type("Wrong", (_Attention,), methods)


def _reshaped_split(self: _Attention, x: Tensor) -> Tensor:
    return x.reshape(x.size(0), self.num_heads, x.size(1), -1)


def _reshaped_merge(self: _Attention, x: Tensor) -> Tensor:
    return x.reshape(x.size(0), x.size(2), -1)


def _draw(b: int, n: int, m: int, h: int, d: int, masked: int) -> dict[str, Any]:
    """Draw inputs, a mask whose first row is fully masked, or none, and parameters by name."""
    e = h * d
    blocked = torch.rand(b, n, m) < 0.4
    blocked[0, 0], blocked[..., 1:, 0] = True, False
    layers = {f"w_{letter}.weight": (e, e) for letter in "qkvo"}
    biases = {f"w_{letter}.bias": (e,) for letter in "qkvo"}
    return {
        **normal(query=(b, n, e), key=(b, m, e), value=(b, m, e)),
        "blocked": blocked if masked else None,
        "heads": h,
        **normal(**layers, **biases),
    }


_PARAMETERS = [f"w_{letter}.{kind}" for kind in ("weight", "bias") for letter in "qkvo"]


def _run(
    answer: Any, q: Tensor, k: Tensor, v: Tensor, blocked: Any, heads: int, *drawn: Any
) -> Any:
    """Run a class with drawn parameters, and give its output and its weights in one row."""
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        raise Refused("give the class itself, a subclass of nn.Module; its objects are made here.")
    module = answer(q.size(-1), heads).to(q.dtype)
    parameters = dict(zip(_PARAMETERS, drawn, strict=True))
    if set(dict(module.named_parameters())) != set(_PARAMETERS):
        raise Refused("its four layers are w_q, w_k, w_v and w_o, each an nn.Linear with a bias.")
    returned = torch.func.functional_call(module, parameters, (q, k, v, blocked))
    if returned is None or returned is ...:
        raise NotYet(f"forward returns {returned}")
    if not (
        isinstance(returned, tuple)
        and len(returned) == 2
        and all(isinstance(x, Tensor) for x in returned)
    ):
        raise Refused("forward returns two tensors: the output and the weights.")
    shapes = (tuple(q.shape), (len(q), heads, q.size(1), k.size(1)))
    for what, tensor, letters, shape in zip(
        ("output", "weights"), returned, ("(b, n, e)", "(b, h, n, m)"), shapes, strict=True
    ):
        if tuple(tensor.shape) != shape:
            raise Refused(f"the {what} are {tuple(tensor.shape)}; what fits is {letters}, {shape}.")
    return torch.cat([tensor.flatten() for tensor in returned])


def _which(answer: object, found: Tensor, right: Tensor, q: Tensor, *drawn: Any) -> str:
    """Say whether output, weights or both are wrong."""
    bad = ~torch.isclose(found, right, atol=1e-5, rtol=1e-5)
    output, weights = bool(bad[: q.numel()].any()), bool(bad[q.numel() :].any())
    if not weights:
        return "the weights are right, and the output is not: look at what follows the softmax."
    return "the weights are not right" + (": look at what comes before them." * output or ".")


def _without_the_axis(
    self: _Attention, query: Tensor, key: Tensor, value: Tensor, blocked: Any = None
) -> Any:
    """Meet the scores with a mask that has no axis of the heads."""
    q, k, v = map(self.split, self.project(query, key, value))
    scores = self.scores(q, k)
    hidden = torch.zeros_like(scores).bool() if blocked is None else blocked
    weights = self.weights(scores, hidden)
    return self.finish(self.merge(weights @ v), weights)


def _fills_sixteen_bits(answer: Any) -> None:
    """Refuse a number in place of minus infinity, which only shows where it does not fit."""
    module, x = answer(4, 2).half(), torch.randn(1, 3, 4).half()
    try:
        module(x, x, x, torch.ones(1, 3, 3).triu(1).bool())
    except RuntimeError as error:
        if "overflow" in str(error):
            raise Refused(
                "it is right here, and fails in 16 bits, where your large number does not fit: "
                "fill the scores with -math.inf."
            ) from None


check_attention = Exercise(
    name="MyAttention",
    right=_Attention,
    praise="right: outputs, weights and gradients, with masks and without, an empty row, too.",
    wrong={
        "a fully masked row is NaN: fill the weights with 0 after the softmax, too.": _with(
            weights=lambda self, scores, blocked: scores.masked_fill(blocked, -math.inf).softmax(-1)
        ),
        "split mixes words: cut the last axis into (h, d), then move h to the front.": Either(
            [_with(split=_reshaped_split), _with(split=_reshaped_split, merge=_reshaped_merge)]
        ),
        "merge mixes words: transpose back before you flatten.": _with(merge=_reshaped_merge),
        "the scores are not divided by √d.": _with(scores=lambda self, q, k: q @ k.mT),
        "the scores are divided by √e; a score adds up d products, the width of one head.": _with(
            scores=lambda self, q, k: q @ k.mT / math.sqrt(q.size(-1) * q.size(1))
        ),
        "the softmax runs over the queries; each query shares itself out over the keys: dim -1.": (
            _with(
                weights=lambda self, scores, blocked: (
                    scores.masked_fill(blocked, -math.inf).softmax(-2).masked_fill(blocked, 0)
                )
            )
        ),
        "the mask is inverted: True in blocked hides a key.": _with(
            weights=lambda self, scores, blocked: (
                scores.masked_fill(~blocked & blocked.any(), -math.inf)
                .softmax(-1)
                .masked_fill(~blocked & blocked.any(), 0)
            )
        ),
        "blocked is (b, n, m), and the scores have an axis of heads, too: blocked[:, None].": _with(
            forward=_without_the_axis
        ),
        "the mask is not used.": _with(weights=lambda self, scores, blocked: scores.softmax(-1)),
        "the weights are only zeroed, and no longer sum to 1: fill the scores with −∞ first.": (
            _with(weights=lambda self, scores, blocked: scores.softmax(-1).masked_fill(blocked, 0))
        ),
        "the values are projected from key, not from value.": _with(
            project=lambda self, query, key, value: (self.w_q(query), self.w_k(key), self.w_v(key))
        ),
        "two of the layers are in each other's place: w_k is for the keys, w_v for the values.": (
            _with(
                project=lambda self, query, key, value: (
                    self.w_q(query),
                    self.w_v(key),
                    self.w_k(value),
                )
            )
        ),
        "w_o is missing: the merged heads are projected once more.": _with(
            finish=lambda self, merged, weights: (merged, weights)
        ),
    },
    run=_run,
    sizes=[
        {"b": 2, "n": 3, "m": 5, "h": 4, "d": 6, "masked": 1},
        {"b": 3, "n": 5, "m": 2, "h": 2, "d": 7, "masked": 0},
    ],
    draw=_draw,
    easy=[{"b": 4, "n": 4, "m": 4, "h": 4, "d": 4, "masked": 1}],
    why=_which,
    also=_fills_sixteen_bits,
)

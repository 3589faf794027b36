"""Exercises of "Fewer keys": who shares with whom, the bytes of a token, groups without a copy."""

from collections.abc import Iterator
from numbers import Real
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from annotated_attention.counting import cache_bytes
from annotated_attention.exercises._verdict import (
    NotYet,
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    finite_numbers,
    random,
    require_function,
    require_unchanged,
)
from annotated_attention.modern.grouped import repeat_heads

_SERVED = {
    (0, 1, 2, 0, 1, 2): "these are tiles, 0 1 2 and again 0 1 2, as `repeat` makes them "
    "(groups-tiled). With `repeat_interleave` neighbours share a KV head.",
    (0, 0, 0, 1, 1, 1): "that is two KV heads for groups of three. There are three KV heads, so a "
    "group has 6 / 3 heads.",
    (1, 1, 2, 2, 3, 3): "the groups are right, but KV heads are counted from 0.",
    (0, 1, 2, 3, 4, 5): "that is a KV head for each head of queries; here there are only three.",
    (0, 0, 0, 0, 0, 0): "that is one KV head for all, which is multi-query attention; here there "
    "are three.",
}

_CONFIGS: list[dict[str, int]] = [
    {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2},
    {
        "num_hidden_layers": 5, "hidden_size": 40, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 16,
    },
    {"num_hidden_layers": 7, "hidden_size": 36, "num_attention_heads": 4},
]  # fmt: skip

_SHAPES = (
    {"b": 2, "h": 6, "g": 2, "n": 2, "m": 50, "d": 8},
    {"b": 3, "h": 8, "g": 4, "n": 1, "m": 60, "d": 7},
    {"b": 2, "h": 4, "g": 1, "n": 3, "m": 40, "d": 16},
)


@check("my_groups")
def check_groups(answer: object) -> str:
    """Judge which of 3 KV heads serves each of 6 heads of queries, and print the verdict.

    Args:
        answer: six whole numbers.
    """
    numbers = tuple(finite_numbers(answer, 6).tolist())
    if numbers in _SERVED:
        raise Refused(_SERVED[numbers])
    wrong = [i for i, number in enumerate(numbers) if number != i // 2]
    if wrong:
        raise Refused(f"head {wrong[0]} of the queries belongs to another KV head.")
    return "right: head i of the queries has KV head i // (h / g), so two neighbours share."


@check("token_bytes")
def check_token_bytes(answer: object) -> str:
    """Judge a function that reads a token's bytes off a configuration, and print the verdict.

    Args:
        answer: a function of a configuration, a dictionary as in a checkpoint's `config.json`.
    """
    require_function(answer)
    function: Any = answer
    found = [_number(call("your code", function, dict(config))) for config in _CONFIGS]
    right = [_bytes(config) for config in _CONFIGS]
    for reason, formula in _wrong_bytes():
        if found != right and found == [formula(config) for config in _CONFIGS]:
            raise Refused(reason)
    for config, mine, expected in zip(_CONFIGS, found, right, strict=True):
        if mine != expected:
            more = "more" if mine > expected else "less"
            raise Refused(f"of {config} it makes {mine:,} bytes, {more} than {expected:,}.")
    token = _bytes(
        {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64}
        | {"num_key_value_heads": 8}
    )  # fmt: skip
    return f"right. A token of Llama 2 70B takes {token:,} bytes."


@check("without_copy")
def check_without_copy(answer: object) -> str:
    """Judge a function that attends in groups without copying keys, and print the verdict.

    Args:
        answer: a function of q (b, h, n, d) and of k and v (b, g, m, d).
    """
    require_function(answer)
    function: Any = answer
    for i, sizes in enumerate(_SHAPES):
        with at_sizes(not i, **sizes):
            _judge_copy(function, **sizes)
    return (
        "right, and nothing as large as the keys is made on the way. The heads of a group have "
        "become more queries of one KV head."
    )


def _judge_copy(function: Any, b: int, h: int, g: int, n: int, m: int, d: int) -> None:
    """Compare outputs and gradients, and watch what is made."""
    given = [x.requires_grad_() for x in random(7, (b, h, n, d), (b, g, m, d), (b, g, m, d))]
    before = [x.detach().clone() for x in given]
    q, k, v = given
    right = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with _Watch(given) as watch:
        found = call("your code", function, q, k, v)
    for name, x, then in zip("qkv", given, before, strict=True):
        require_unchanged(name, x.detach(), then)
    value = compare(found, right, "(b, h, n, d)", _wrong_groups(q, k, v))
    compare_gradients(value, right, dict(zip("qkv", given, strict=True)))
    if watch.largest >= k.numel():
        raise Refused(
            f"the numbers are right, but `{watch.made_by}` makes a tensor of {watch.largest:,} "
            f"numbers, and the keys have only {k.numel():,}. {_why(watch.made_by)}"
        )
    if watch.fused:
        raise Refused(
            "the numbers are right, and PyTorch's function has found them. Write the two products "
            "and the softmax yourself."
        )


def _why(operation: str) -> str:
    """Say where such a copy comes from."""
    if operation in ("clone", "copy_", "expand_copy"):
        return (
            "A product of tensors with more than three axes copies whatever it has to stretch, and "
            "so do `flatten` and `contiguous` after `expand`. Make the heads of a group queries "
            "of their KV head instead, so that nothing has to be stretched."
        )
    return "Leave keys and values as they are, and change the shape of the queries."


class _Watch(TorchDispatchMode):
    """Remembers the largest tensor with memory of its own, what made it, and PyTorch's function."""

    def __init__(self, given: list[Tensor]) -> None:
        super().__init__()
        self.known = {x.untyped_storage().data_ptr() for x in given}
        self.largest, self.made_by, self.fused = 0, "", False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.fused |= "scaled_dot_product" in function.overloadpacket.__name__
        for x in result if isinstance(result, tuple | list) else (result,):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in self.known:
                size = x.untyped_storage().nbytes() // x.element_size()
                if size > self.largest:
                    self.largest, self.made_by = size, function.overloadpacket.__name__
        return result


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def _wrong_groups(q: Tensor, k: Tensor, v: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the output that it leads to."""
    h, g, n, d = q.size(1), k.size(1), q.size(2), q.size(3)
    tiles = k.repeat(1, h // g, 1, 1), v.repeat(1, h // g, 1, 1)
    k, v = (repeat_heads(x, h) for x in (k, v))
    yield (
        "your groups are tiles: head i reads KV head i % g (groups-tiled). Neighbours share: the "
        "axis of h heads splits into (g, h / g), in this order.",
        _attend(q, *tiles),
    )
    heads = _attend(q, k, v)
    yield (
        "the scores are not divided by the square root of d.",
        _attend(q, k, v, scale=1.0),
    )
    yield (
        "right heads, in wrong places: undo the split of the heads in the same order.",
        heads.unflatten(1, (g, -1)).transpose(1, 2).flatten(1, 2),
    )
    yield (
        "queries and heads of a group are mixed up when they are taken apart again: the axis of "
        "both splits into (h / g, n), in this order.",
        heads.unflatten(1, (g, -1)).flatten(2, 3).unflatten(2, (n, h // g)).transpose(2, 3)
        .reshape(q.size(0), h, n, d),
    )  # fmt: skip


def _number(value: object) -> int | float:
    """Refuse what is no number."""
    if value is None or value is ...:
        raise NotYet(f"not yet, it returns {value if value is None else '...'}.")
    if isinstance(value, bool) or not isinstance(value, Real):
        kind = type(value).__name__
        raise Refused(f"it returns an object of type {kind}; a whole number is asked for.")
    return value if isinstance(value, int) else float(value)


def _bytes(config: dict[str, int], width: int = 2, **changes: int) -> int:
    """Count the bytes of a token; ``changes`` put another number in the place of one."""
    heads = config["num_attention_heads"]
    d = config.get("head_dim", config["hidden_size"] // heads)
    g = config.get("num_key_value_heads", heads)
    layers = config["num_hidden_layers"]
    sizes = {"d": d, "g": g, "layers": layers} | changes
    return cache_bytes(1, sizes["g"] * sizes["d"], layers=sizes["layers"], width=width)


def _wrong_bytes() -> Iterator[tuple[str, Any]]:
    """Yield reasons, each with the formula that it leads to."""
    yield (
        "that is half. A token has a key and a value, and each of their numbers takes two bytes: "
        "that makes two times two.",
        lambda c: _bytes(c, width=1),
    )
    yield "each number takes two bytes, which is 16 bits.", lambda c: _bytes(c, width=16)
    yield "in float16 a number takes two bytes, not four.", lambda c: _bytes(c, width=4)
    yield "each layer has a cache of its own.", lambda c: _bytes(c, layers=1)
    yield (
        "you count a KV head for each head of queries. Where `num_key_value_heads` is given, it "
        "says how many there are.",
        lambda c: _bytes(c, g=c["num_attention_heads"]),
    )
    yield (
        "the width of a head is `head_dim` where that is given. It need not be `hidden_size` "
        "divided by the heads.",
        lambda c: _bytes(c, d=c["hidden_size"] // c["num_attention_heads"]),
    )
    yield (
        "the width of a head is `hidden_size` divided by the heads of *queries*: sharing makes "
        "fewer heads, not wider ones.",
        lambda c: _bytes(
            c,
            d=c.get(
                "head_dim",
                c["hidden_size"] // c.get("num_key_value_heads", c["num_attention_heads"]),
            ),
        ),
    )

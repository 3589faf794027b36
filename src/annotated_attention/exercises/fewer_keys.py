"""Exercises of "Fewer keys": who shares with whom, the bytes of a token, groups without a copy."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from annotated_attention.counting import cache_bytes
from annotated_attention.exercises._exercise import Exercise, Refused, normal
from annotated_attention.exercises._values import furthest, number, numbers

check_groups = Exercise(
    name="my_groups",
    right=[0, 0, 1, 1, 2, 2],
    praise="right: head i of the queries has KV head i // (h / g), so two neighbours share.",
    wrong={
        "these are tiles, 0 1 2 and again 0 1 2, as `repeat` makes them (groups-tiled). With "
        "`repeat_interleave` neighbours share a KV head.": [0, 1, 2, 0, 1, 2],
        "that is two KV heads for groups of three. There are three KV heads, so a group has 6 / 3 "
        "heads.": [0, 0, 0, 1, 1, 1],
        "the groups are right, but KV heads are counted from 0.": [1, 1, 2, 2, 3, 3],
        "that is a KV head for each head of queries; here there are only three.":
            [0, 1, 2, 3, 4, 5],
        "that is one KV head for all, which is multi-query attention; here there are three.":
            [0, 0, 0, 0, 0, 0],
    },
    run=numbers(6),
    why=lambda answer, found, right: (
        f"head {furthest(found, right)} of the queries belongs to another KV head."
    ),
    close=0,
)  # fmt: skip

Config = dict[str, int]


def _bytes(config: Config, width: int = 2, **changes: int) -> int:
    """Count the bytes of a token; ``changes`` put another number in the place of one."""
    heads = config["num_attention_heads"]
    d = config.get("head_dim", config["hidden_size"] // heads)
    g = config.get("num_key_value_heads", heads)
    sizes = {"d": d, "g": g, "layers": config["num_hidden_layers"]} | changes
    return cache_bytes(1, sizes["g"] * sizes["d"], layers=sizes["layers"], width=width)


def _wider(config: Config) -> int:
    """Divide the width by the heads of keys where that of a head is not given."""
    shared = config.get("num_key_value_heads", config["num_attention_heads"])
    return _bytes(config, d=config.get("head_dim", config["hidden_size"] // shared))


check_token_bytes = Exercise(
    name="token_bytes",
    right=_bytes,
    praise="right. A token of Llama 2 70B takes 327,680 bytes.",
    wrong={
        "that is half. A token has a key and a value, and each of their numbers takes two bytes: "
        "that makes two times two.": lambda config: _bytes(config, width=1),
        "in float16 a number takes two bytes, not four.": lambda config: _bytes(config, width=4),
        "each layer has a cache of its own.": lambda config: _bytes(config, layers=1),
        "you count a KV head for each head of queries. Where `num_key_value_heads` is given, it "
        "says how many there are.": lambda config: _bytes(config, g=config["num_attention_heads"]),
        "the width of a head is `head_dim` where that is given. It need not be `hidden_size` "
        "divided by the heads.":
            lambda config: _bytes(config, d=config["hidden_size"] // config["num_attention_heads"]),
        "the width of a head is `hidden_size` divided by the heads of *queries*: sharing makes "
        "fewer heads, not wider ones.": _wider,
    },
    sizes=[
        {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6,
         "num_key_value_heads": 2},
        {"num_hidden_layers": 5, "hidden_size": 40, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 16},
        {"num_hidden_layers": 7, "hidden_size": 36, "num_attention_heads": 4},
    ],
    draw=lambda **config: {"config": config},
    run=lambda answer, config: number(answer(config)),
    close=0,
)  # fmt: skip

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

_SHAPES = (
    {"b": 2, "h": 6, "g": 2, "n": 2, "m": 50, "d": 8},
    {"b": 3, "h": 8, "g": 4, "n": 1, "m": 60, "d": 7},
    {"b": 2, "h": 4, "g": 1, "n": 3, "m": 40, "d": 16},
)


def _draw(b: int, h: int, g: int, n: int, m: int, d: int) -> dict[str, Tensor]:
    return normal(q=(b, h, n, d), k=(b, g, m, d), v=(b, g, m, d))


def _without_copy(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    h, n, g = q.size(1), q.size(2), k.size(1)
    rows = q.unflatten(1, (g, -1)).flatten(2, 3)
    weights = (rows @ k.mT / q.size(-1) ** 0.5).softmax(-1)
    return (weights @ v).unflatten(2, (h // g, n)).flatten(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)


def _tiles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    k, v = (x.repeat(1, q.size(1) // k.size(1), 1, 1) for x in (k, v))
    return _attend(q, k, v)


def _out_of_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v).unflatten(1, (k.size(1), -1)).transpose(1, 2).flatten(1, 2)


def _queries_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    h, g, n = q.size(1), k.size(1), q.size(2)
    mixed = _attend(q, k, v).unflatten(1, (g, -1)).flatten(2, 3)
    return mixed.unflatten(2, (n, h // g)).transpose(2, 3).flatten(1, 2)


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


def _require_no_copy(answer: Attend) -> None:
    """Refuse a copy of the keys, and PyTorch's own function."""
    for sizes in _SHAPES:
        q, k, v = _draw(**sizes).values()
        with _Watch([q, k, v]) as watch:
            answer(q, k, v)
        if watch.largest >= k.numel():
            raise Refused(
                f"the numbers are right, but `{watch.made_by}` makes a tensor of {watch.largest:,} "
                f"numbers, and the keys have only {k.numel():,}. Products of tensors with more "
                "than three axes copy whatever they have to stretch, and so do `flatten` and "
                "`contiguous` after `expand`. Make the heads of a group queries of their KV head "
                "instead, so that nothing has to be stretched."
            )
        if watch.fused:
            raise Refused(
                "the numbers are right, and PyTorch's function has found them. Write the two "
                "products and the softmax yourself."
            )


check_without_copy = Exercise(
    name="without_copy",
    right=_without_copy,
    praise="right, and nothing as large as the keys is made on the way. The heads of a group have "
    "become more queries of one KV head.",
    wrong={
        "your groups are tiles: head i reads KV head i % g (groups-tiled). Neighbours share: the "
        "axis of h heads splits into (g, h / g), in this order.": _tiles,
        "the scores are not divided by the square root of d.":
            lambda q, k, v: _attend(q, k, v, scale=1.0),
        "right heads, in wrong places: undo the split of the heads in the same order.":
            _out_of_place,
        "queries and heads of a group are mixed up when they are taken apart again: the axis of "
        "both splits into (h / g, n), in this order.": _queries_first,
    },
    sizes=_SHAPES,
    draw=_draw,
    also=_require_no_copy,
    shape="(b, h, n, d)",
)  # fmt: skip

"""Exercises of "Fewer keys": who shares with whom, and the bytes of a token."""

from annotated_attention.counting import cache_bytes
from annotated_attention.exercises._exercise import Exercise
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

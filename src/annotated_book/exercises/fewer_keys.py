"""Exercises of "Fewer keys": who reads the wrong keys, and the bytes of a token."""

from annotated_attention.counting import cache_bytes
from annotated_book.exercises._exercise import Exercise
from annotated_book.exercises._values import furthest, number, numbers

check_groups = Exercise(
    name="reads_wrong",
    right=[0, 1, 1, 1, 1, 0],
    praise="right: trained were 0 0 1 1 2 2, tiles are 0 1 2 0 1 2, and only the first and the "
    "last head get the same KV head from both.",
    wrong={
        "these are the KV heads that `repeat` gives. Which of them are other ones than those of "
        "`repeat_interleave`?": [0, 1, 2, 0, 1, 2],
        "these are the KV heads that `repeat_interleave` gives. Which of them does `repeat` "
        "change?": [0, 0, 1, 1, 2, 2],
        "the other way round: 1 means that a head reads the wrong KV head.": [1, 0, 0, 0, 0, 1],
        "that is so with two KV heads; here there are three.": [0, 1, 0, 0, 1, 0],
    },
    run=numbers(6),
    why=lambda answer, found, right: (
        f"look at head {furthest(found, right)} again: which KV head did it have in training, and "
        f"which one does `repeat` give it?"
    ),
    close=0,
)

Config = dict[str, int]


def _bytes(config: Config, width: int = 2, **changes: int) -> int:
    """Count the bytes of a token; ``changes`` put another number in the place of one."""
    heads = config["num_attention_heads"]
    d = config.get("head_dim") or config["hidden_size"] // heads
    g = config.get("num_key_value_heads", heads)
    sizes = {"d": d, "g": g, "layers": config["num_hidden_layers"]} | changes
    return cache_bytes(1, sizes["g"] * sizes["d"], layers=sizes["layers"], width=width)


def _wider(config: Config) -> int:
    """Divide the width by the heads of keys where that of a head is not given."""
    shared = config.get("num_key_value_heads", config["num_attention_heads"])
    return _bytes(config, d=config.get("head_dim") or config["hidden_size"] // shared)


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
        "divided by the heads.": lambda config: _bytes(
            config, d=config["hidden_size"] // config["num_attention_heads"]
        ),
        "the width of a head is `hidden_size` divided by the heads of *queries*: sharing makes "
        "fewer heads, not wider ones.": _wider,
    },
    sizes=[
        {
            "num_hidden_layers": 3,
            "hidden_size": 48,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
        },
        {
            "num_hidden_layers": 5,
            "hidden_size": 40,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 16,
        },
        {"num_hidden_layers": 7, "hidden_size": 36, "num_attention_heads": 4},
    ],
    draw=lambda **config: {"config": config},
    run=lambda answer, config: number(answer(config)),
    close=0,
)

"""Answers to the exercises of “Fewer keys”."""

from collections.abc import Callable
from typing import Any

import torch


def token_bytes(each: int = 2, width: str = "right") -> Callable[[dict[str, int]], float]:
    """Write the formula, well or badly."""

    def answer(config: dict[str, int]) -> float:
        h = config["num_attention_heads"]
        g = config.get("num_key_value_heads", h)
        wide = config["hidden_size"] // (g if width == "by keys" else h)
        if width != "never given":
            wide = config.get("head_dim", wide)
        kept = (config["num_hidden_layers"], 2, g, wide)
        return each * torch.empty(kept, dtype=torch.int8).untyped_storage().nbytes()

    return answer


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_groups": [
        (torch.arange(3).repeat_interleave(2) != torch.arange(3).repeat(2), "✓ "),
        (torch.arange(3).repeat(2), "these are the KV heads that `repeat` gives"),
        ([1, 0, 0, 0, 0, 1], "the other way round"),
        ([0, 1, 1, 0, 1, 0], "look at head 3 again"),
    ],
    "check_token_bytes": [
        (token_bytes(), "✓ "),
        (token_bytes(each=1), "that is half"),
        (token_bytes(width="never given"), "`head_dim` where that is given"),
        (token_bytes(width="by keys"), "divided by the heads of *queries*"),
        (lambda config: 7, "it returns 7; right is 192."),
    ],
}  # fmt: skip

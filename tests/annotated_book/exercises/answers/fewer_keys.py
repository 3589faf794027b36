"""Answers to the exercises of “Fewer keys”."""

from typing import Any

import torch


def token_bytes(config: dict[str, int]) -> int:
    h = config["num_attention_heads"]
    g = config.get("num_key_value_heads", h)
    width = config.get("head_dim") or config["hidden_size"] // h
    return torch.empty(config["num_hidden_layers"], 2, g, width, dtype=torch.bfloat16).nbytes


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_groups": [
        (torch.arange(3).repeat_interleave(2) != torch.arange(3).repeat(2), "✓ "),
        (torch.arange(3).repeat(2), "these are the KV heads that `repeat` gives"),
        ([0, 1, 1, 0, 1, 0], "look at head 3 again"),
    ],
    "check_token_bytes": [
        (token_bytes, "✓ "),
        (
            lambda config: token_bytes({x: config[x] for x in config if x != "head_dim"}),
            "`head_dim` where that is given",
        ),
        (lambda config: 7, "it returns 7; right is 192."),
    ],
}

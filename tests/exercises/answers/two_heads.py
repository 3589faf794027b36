"""Answers to the exercises of “Two heads”."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Heads = list[Tensor]


def in_a_loop(mixed: Heads, w_o: Tensor) -> Tensor:
    d = mixed[0].size(1)
    total = torch.zeros(len(mixed[0]), w_o.size(1), dtype=w_o.dtype)
    for i, head in enumerate(mixed):
        total += head @ w_o[i * d : (i + 1) * d]
    return total


def late(mixed: Heads, w_o: Tensor) -> Tensor:
    for head, block in zip(mixed, w_o.chunk(len(mixed)), strict=True):
        total = head @ block
    return total


def a_pair(mixed: Heads, w_o: Tensor) -> Tensor:
    first, second = w_o.chunk(2)
    return mixed[0] @ first + mixed[1] @ second


def popping(mixed: Heads, w_o: Tensor) -> Tensor:
    total = in_a_loop(mixed, w_o)
    mixed.pop()
    return total


class Head(nn.Module):
    """What the chapter's head is, written again."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        for name in ("w_q", "w_k", "w_v"):
            self.register_parameter(name, nn.Parameter(torch.randn(embed_dim, head_dim)))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = query @ self.w_q, key @ self.w_k, value @ self.w_v
        weights = (q @ k.T / math.sqrt(q.size(1))).softmax(1)
        return weights @ v, weights


class Right(nn.Module):
    """The right module in parts, so that a wrong one changes a single part."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.require(embed_dim, num_heads)
        self.heads = self.hold(embed_dim, num_heads)
        self.out(embed_dim)

    def require(self, e: int, h: int) -> None:
        if e % h:
            raise ValueError(f"{h} heads cannot share {e} features")

    def hold(self, e: int, h: int) -> Any:
        return nn.ModuleList([Head(e, e // h) for _ in range(h)])

    def out(self, e: int) -> None:
        self.w_o = nn.Parameter(torch.randn(e, e))

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Heads:
        return [head(query, key, value)[0] for head in self.heads]

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Any:
        return torch.cat(self.mixed(query, key, value), 1) @ self.w_o


class Linear(Right):
    """W_O as a linear layer without bias, which stores it transposed."""

    def out(self, e: int) -> None:
        self.project = nn.Linear(e, e, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.project(torch.cat(self.mixed(query, key, value), 1))


def but(**parts: Callable[..., Any]) -> type:
    """Derive a wrong class by replacing parts of the right one."""
    return type("Wrong", (Right,), parts)


def empty(self: Right, e: int) -> None:
    self.w_o = nn.Parameter(torch.empty(e, e))


def vague(self: Right, e: int, h: int) -> None:
    if e % h:
        raise ValueError("does not fit")


def merge(way: Callable[[Heads], Tensor]) -> Callable[..., Tensor]:
    """Make a forward that merges the heads in another way."""
    return lambda self, q, k, v: way(self.mixed(q, k, v)) @ self.w_o


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_add_up": [
        (in_a_loop, "✓ add_up: right"),
        (lambda mixed, w_o: in_a_loop(mixed, w_o) / len(mixed), "you take the average of the head"),
        (late, "only the last head counts"),
        (lambda mixed, w_o: in_a_loop(mixed[:2], w_o), "only the first heads count: loop over"),
        (lambda mixed, w_o: in_a_loop(mixed[::-1], w_o), "the heads are in reversed order"),
        (lambda mixed, w_o: in_a_loop(mixed, w_o[:4].repeat(4, 1)), "through the same rows of w_o"),
        (lambda mixed, w_o: sum(x @ w_o[i : i + x.size(1)] for i, x in enumerate(mixed)),
         "your blocks overlap"),
        (lambda mixed, w_o: torch.stack(mixed, -1).flatten(1) @ w_o, "interleaved"),
        (lambda mixed, w_o: torch.hstack(mixed) @ w_o, "you concatenate (torch.hstack)"),
        (lambda mixed, w_o: torch.hstack(mixed) @ w_o.T, "you cut w_o into blocks of columns"),
        (a_pair, "right for two heads, but mixed may have any number"),
        (lambda mixed, w_o: sum(x @ w_o for x in mixed), "every head meets all of w_o. A head has"),
        (popping, "it changes its argument mixed in place"),
        (lambda mixed, w_o: in_a_loop([*mixed[:2], mixed[-1]], w_o), "but not with h = 4, n = 6"),
    ],
    "check_heads": [
        (Right, "✓ MyHeads: right"),
        (Linear, "✓ MyHeads: right"),
        (but(hold=lambda self, e, h: [Head(e, e // h) for _ in range(h)]), "into a Python list"),
        (but(hold=lambda self, e, h: nn.ModuleList([Head(e, e // h)] * h)),
         "finds 1 × w_o (12, 12), 1 × w_q (12, 4), 1 × w_k (12, 4), 1 × w_v (12, 4). It does not "
         "look into a Python list (use nn.ModuleList), a plain tensor is no nn.Parameter, and "
         "[head] * h is one head."),
        (but(hold=lambda self, e, h: nn.ModuleList(Head(e, e) for _ in range(h))),
         "has to register 3 times w_q, w_k and w_v, (12, 4), and one w_o, (12, 12). PyTorch finds"),
        (but(out=empty), "w_o is not initialised"),
        (but(require=lambda self, e, h: None), "MyHeads(10, 4) is accepted, although 4 does not"),
        (but(require=vague), "raises ValueError: does not fit"),
        (but(forward=lambda self, *x: torch.cat(self.mixed(*x), 1)), "w_o is never applied"),
        (but(forward=lambda self, *x: torch.stack(self.mixed(*x)).sum(0)), "the heads are added"),
        (but(forward=lambda self, *x: torch.cat(self.mixed(*x), 1) @ self.w_o.T), "transposed"),
        (but(forward=merge(lambda mixed: torch.stack(mixed, 2).flatten(1))), "interleaved"),
        (but(mixed=lambda self, q, k, v: Right.mixed(self, q, q, q)), "get query as key and value"),
        (but(mixed=lambda self, q, k, v: Right.mixed(self, q, v, k)), "key and value in each"),
        (but(mixed=lambda self, *x: Right.mixed(self, *x)[:: 1 if len(self.heads) == 3 else -1]),
         "not with e = 10, h = 5, n = 4, m = 3: the heads are in reversed order"),
        (but(forward=merge(lambda mixed: torch.cat(mixed, 1).detach())), "no gradient reaches w_q"),
        (but(forward=lambda self, *x: None), "not yet, it returns None"),
        (Right(12, 3), "give the class itself, a subclass of nn.Module"),
    ],
}  # fmt: skip

"""The checks of “Two heads” accept what is right and name what is wrong."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.exercises.two_heads import check_add_up, check_heads, check_scene

CHAPTER = "02_two_heads"
Heads = list[Tensor]


def test_scene_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_scene")
    assert before == "✗ my_scene: not yet, 2 of the 2 numbers are missing. "
    assert after.startswith("✓ my_scene: 3/4 · 0 + 1/4 · 4 = 1, as in the first scene.")


@pytest.mark.parametrize("answer", [[0, 4], (1, 1), [4 / 3, 0], [1.33, 0], torch.tensor([3, -5])])
def test_scene_accepts_every_scene_on_the_line(verdict: Any, answer: Any) -> None:
    assert verdict(check_scene, answer).startswith("✓ my_scene")


WRONG_SCENES: list[tuple[Any, str]] = [
    (None, "not yet, it is None."),
    ([2, -2], "this is the first scene itself."),
    ([-2, 2], "3/4 · -2 + 1/4 · 2 = -1. To swap the two qualities fools a head whose weights are"),
    ([4, 0], "3/4 · 4 + 1/4 · 0 = 3. In the other order it would be 1"),
    ([3, -2], "= 1.75. You added the two qualities: give each its weight."),
    ([3, -3], "= 1.5. You changed both by equally much, but the cat counts three times as much"),
    ([0, 0.75], "3/4 · 0 + 1/4 · 0.75 = 0.1875, and in the first scene it is 1: the head tells"),
    ([1], "a list of 2 numbers is asked for, and there are 1 of them."),
    ([0, math.inf], "each of the 2 is to be one finite number."),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_SCENES, ids=[r for _, r in WRONG_SCENES])
def test_scene_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_scene, answer)
    assert said.startswith("✗ my_scene: ")
    assert reason in said


def test_add_up_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_add_up")
    assert before == "✗ add_up: not yet, it returns None. "
    assert after.startswith("✓ add_up: right, and so are the gradients")


def in_a_loop(mixed: Heads, w_o: Tensor) -> Tensor:
    d = mixed[0].size(1)
    total = torch.zeros(len(mixed[0]), w_o.size(1), dtype=w_o.dtype)
    for i, head in enumerate(mixed):
        total += head @ w_o[i * d : (i + 1) * d]
    return total


def batched(mixed: Heads, w_o: Tensor) -> Tensor:
    stacked = torch.stack(mixed)
    return (stacked @ w_o.view(len(mixed), stacked.size(2), -1)).sum(0)


@pytest.mark.parametrize("answer", [in_a_loop, batched])
def test_add_up_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_add_up, answer).startswith("✓ add_up")


def test_add_up_gives_the_hint_on_rows_only_where_shapes_do_not_fit(verdict: Any) -> None:
    def other(mixed: Heads, w_o: Tensor) -> Tensor:
        raise KeyError("shape")

    hint = "W_O is h blocks of rows"
    assert hint not in verdict(check_add_up, other)
    assert hint in verdict(check_add_up, lambda mixed, w_o: mixed[0] @ w_o)


def products(mixed: Heads, w_o: Tensor) -> Heads:
    """Multiply each head by its own rows."""
    d = mixed[0].size(1)
    return [head @ w_o[i * d : (i + 1) * d] for i, head in enumerate(mixed)]


def averaged(mixed: Heads, w_o: Tensor) -> Tensor:
    return torch.stack(products(mixed, w_o)).mean(0)


def columns(mixed: Heads, w_o: Tensor) -> Tensor:
    d = mixed[0].size(1)
    return torch.stack([x @ w_o[:, i * d : (i + 1) * d].T for i, x in enumerate(mixed)]).sum(0)


def wide_columns(mixed: Heads, w_o: Tensor) -> Tensor:
    return torch.stack([x @ w for x, w in zip(mixed, w_o.chunk(len(mixed), 1), strict=True)]).sum(0)


def one_block(mixed: Heads, w_o: Tensor) -> Tensor:
    return torch.stack([x @ w_o[: x.size(1)] for x in mixed]).sum(0)


def windows(mixed: Heads, w_o: Tensor) -> Tensor:
    return torch.stack([x @ w_o[i : i + x.size(1)] for i, x in enumerate(mixed)]).sum(0)


def backwards(mixed: Heads, w_o: Tensor) -> Tensor:
    blocks = w_o.split(mixed[0].size(1))
    return torch.stack([x @ w for x, w in zip(mixed, blocks[::-1], strict=True)]).sum(0)


def early(mixed: Heads, w_o: Tensor) -> Tensor:
    for product in products(mixed, w_o):
        return 0 + product
    raise AssertionError


def late(mixed: Heads, w_o: Tensor) -> Tensor:
    for product in products(mixed, w_o):
        total = product
    return total


def the_first_two(mixed: Heads, w_o: Tensor) -> Tensor:
    d = mixed[0].size(1)
    return mixed[0] @ w_o[:d] + mixed[1] @ w_o[d : 2 * d]


def a_pair(mixed: Heads, w_o: Tensor) -> Tensor:
    first, second = mixed
    d = first.size(1)
    return first @ w_o[:d] + second @ w_o[d:]


def two_halves(mixed: Heads, w_o: Tensor) -> Tensor:
    first, second = w_o.chunk(2)
    return mixed[0] @ first + mixed[1] @ second


def summed_first(mixed: Heads, w_o: Tensor) -> Tensor:
    return torch.stack(mixed).sum(0) @ w_o


def all_of_w_o(mixed: Heads, w_o: Tensor) -> Tensor:
    return torch.stack([head @ w_o for head in mixed]).sum(0)


def popping(mixed: Heads, w_o: Tensor) -> Tensor:
    total = torch.stack(products(mixed, w_o)).sum(0)
    mixed.pop()
    return total


def into_w_o(mixed: Heads, w_o: Tensor) -> Tensor:
    total = torch.stack(products(mixed, w_o)).sum(0)
    w_o *= 2
    return total


WRONG_ADD_UP: list[tuple[Callable[..., Any], str]] = [
    (averaged, "you take the average of the heads"),
    (columns, "you cut w_o into blocks of columns"),
    (wide_columns, "the block of a head has d rows, one for each column"),
    (one_block, "every head goes through the same rows of w_o (block 0"),
    (windows, "your blocks overlap: head i gets rows i to i + d of w_o"),
    (backwards, "the heads are in reversed order"),
    (lambda mixed, w_o: torch.cat(mixed[::-1], 1) @ w_o, "the heads are in reversed order"),
    (lambda mixed, w_o: torch.stack(mixed, -1).flatten(1) @ w_o, "interleaved"),
    (lambda mixed, w_o: torch.stack(mixed).reshape(len(mixed[0]), -1) @ w_o, "mixes tokens"),
    (lambda mixed, w_o: torch.cat(mixed, 1) @ w_o, "you concatenate (torch.cat)"),
    (lambda mixed, w_o: torch.hstack(mixed) @ w_o, "you concatenate (torch.hstack)"),
    (lambda mixed, w_o: torch.cat(mixed, 1) @ w_o.T, "(or transpose it)"),
    (early, "only the first head counts"),
    (late, "only the last head counts"),
    (the_first_two, "only the first 2 heads count"),
    (a_pair, "right for two heads, but mixed has 3 here, and may have any number"),
    (two_halves, "right for two heads, but mixed has 3 here, and may have any number"),
    (summed_first, "every head meets all of w_o"),
    (all_of_w_o, "every head meets all of w_o"),
    (lambda mixed, w_o: torch.stack(mixed).sum(0), "leave out w_o"),
    (products, "it returns a list of 3 things; one tensor is asked for"),
    (popping, "changes its argument mixed in place"),
    (into_w_o, "changes its argument w_o in place"),
    (lambda mixed, w_o: in_a_loop(mixed, w_o.detach()), "no gradient reaches w_o"),
    (lambda mixed, w_o: sum(x.sum() for x in mixed), "shape (); what fits is (n, e), here (5, 12)"),
    (lambda mixed, w_o: in_a_loop([*mixed[:2], mixed[-1]], w_o),
     "right at first, but not with h = 4, n = 6, d = 3, e = 7: "),
    (lambda mixed, w_o: undefined, "NameError: name 'undefined' is not defined"),  # noqa: F821
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_ADD_UP, ids=[r for _, r in WRONG_ADD_UP])
def test_add_up_names_the_mistake(verdict: Any, answer: Callable[..., Any], reason: str) -> None:
    said = verdict(check_add_up, answer)
    assert said.startswith("✗ add_up: ")
    assert reason in said


def test_heads_leaves_the_deterministic_mode_as_it_was(verdict: Any) -> None:
    for mode in (0, 1, 2):
        torch.set_deterministic_debug_mode(mode)
        try:
            assert verdict(check_heads, Right).startswith("✓ MyHeads")
            assert torch.get_deterministic_debug_mode() == mode
        finally:
            torch.set_deterministic_debug_mode(0)


def test_heads_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_heads")
    assert before == "✗ MyHeads: not yet, forward returns None. "
    assert after.startswith("✓ MyHeads: right. With e = 12 and h = 3 it registers 3 · 3 + 1 matric")


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


class WithOutput(Head):
    """A head that has a w_o of its own."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__(embed_dim, head_dim)
        self.w_o = nn.Parameter(torch.randn(head_dim, embed_dim))


class Right(nn.Module):
    """The right module in parts, so that a wrong one changes a single part."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.require(embed_dim, num_heads)
        self.heads = self.hold(embed_dim, num_heads)
        self.out(embed_dim, num_heads)

    def require(self, e: int, h: int) -> None:
        if e % h:
            raise ValueError(f"{h} heads cannot share {e} features")

    def hold(self, e: int, h: int) -> Any:
        return nn.ModuleList([Head(e, e // h) for _ in range(h)])

    def out(self, e: int, h: int) -> None:
        self.w_o = nn.Parameter(torch.randn(e, e))

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Heads:
        return [head(query, key, value)[0] for head in self.heads]

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Any:
        return torch.cat(self.mixed(query, key, value), 1) @ self.w_o


class Linear(Right):
    """W_O as a linear layer without bias, which stores it transposed."""

    def out(self, e: int, h: int) -> None:
        self.project = nn.Linear(e, e, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.project(torch.cat(self.mixed(query, key, value), 1))


class Attributes(Right):
    """Each head an attribute of its own."""

    def hold(self, e: int, h: int) -> list[str]:
        names = [f"head_{i}" for i in range(h)]
        for name in names:
            self.add_module(name, Head(e, e // h))
        return names

    def out(self, e: int, h: int) -> None:
        self.w_o = nn.Parameter(torch.zeros(e, e))

    def mixed(self, query: Tensor, key: Tensor, value: Tensor) -> Heads:
        return [getattr(self, name)(query, key, value)[0] for name in self.heads]


@pytest.mark.parametrize("answer", [Right, Linear, Attributes])
def test_heads_accepts_other_ways(verdict: Any, answer: type) -> None:
    assert verdict(check_heads, answer).startswith("✓ MyHeads")


def but(base: type = Right, **parts: Callable[..., Any]) -> type:
    """Derive a wrong class by replacing parts of the right one."""
    return type("Wrong", (base,), parts)


def hold_dict(self: Right, e: int, h: int) -> dict[int, Head]:
    return {i: Head(e, e // h) for i in range(h)}


def narrow(self: Right, e: int, h: int) -> None:
    self.w_o = nn.Parameter(torch.randn(e // h, e))


def plain(self: Right, e: int, h: int) -> None:
    self.w_o = torch.randn(e, e)


def empty(self: Right, e: int, h: int) -> None:
    self.w_o = nn.Parameter(torch.empty(e, e))


def with_bias(self: Linear, e: int, h: int) -> None:
    self.project = nn.Linear(e, e)


def add(self: Right, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.stack(self.mixed(q, k, v)).sum(0) @ self.w_o


def assert_divides(self: Right, e: int, h: int) -> None:
    assert e % h == 0


def vague(self: Right, e: int, h: int) -> None:
    if e % h:
        raise ValueError("does not fit")


def detach(self: Right, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cat(self.mixed(q, k, v), 1).detach() @ self.w_o


def no_state(self: Right, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
    return {}


def as_float32(self: Right, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    buffer = torch.zeros(q.size(0), self.w_o.size(1), dtype=torch.float32)
    return torch.addmm(buffer, torch.cat(self.mixed(q, k, v), 1), self.w_o)


def merge(way: Callable[[Heads], Tensor]) -> Callable[..., Tensor]:
    """Make a forward that merges the heads in another way."""
    return lambda self, q, k, v: way(self.mixed(q, k, v)) @ self.w_o


def pass_on(choose: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Heads]:
    """Make the part that hands other arguments to the heads."""
    return lambda self, q, k, v: [head(*choose(q, k, v))[0] for head in self.heads]


WRONG_HEADS: list[tuple[Any, str]] = [
    (but(hold=lambda self, e, h: [Head(e, e // h) for _ in range(h)]), "heads is a plain list"),
    (but(hold=lambda self, e, h: [Head(e, e // h)] * h), "self.heads is a plain list"),
    (but(hold=hold_dict, mixed=lambda self, *x: [head(*x)[0] for head in self.heads.values()]),
     "self.heads is a plain dict"),
    (but(hold=lambda self, e, h: nn.ModuleList([Head(e, e // h)] * h)), "the same head is used 3"),
    (but(hold=lambda self, e, h: nn.ModuleList(Head(e, e) for _ in range(h))),
     "every head is as wide as the model (12)"),
    (but(hold=lambda self, e, h: nn.ModuleList(Head(e, h) for _ in range(e // h))),
     "it has 4 heads for num_heads = 3"),
    (but(hold=lambda self, e, h: nn.ModuleList(Head(e, h) for _ in range(h))),
     "a head's w_q has shape (12, 3); what fits is (e, e / h), (12, 4)"),
    (but(hold=lambda self, e, h: nn.ModuleList(WithOutput(e, e // h) for _ in range(h))),
     "a head has w_o"),
    (but(hold=lambda self, e, h: None), "PyTorch finds no Head"),
    (but(out=narrow, forward=add), "which fits heads that are added"),
    (but(out=lambda self, e, h: None, forward=lambda self, *x: torch.stack(self.mixed(*x)).sum(0)),
     "there is no w_o"),
    (but(out=lambda self, e, h: None, forward=lambda self, *x: torch.cat(self.mixed(*x), 1)),
     "there is no w_o"),
    (but(forward=lambda self, *x: torch.cat(self.mixed(*x), 1)), "w_o is never applied"),
    (but(forward=lambda self, *x: torch.stack(self.mixed(*x)).sum(0)), "the heads are added"),
    (but(forward=add), "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    (but(require=lambda self, e, h: None), "MyHeads(10, 4) is accepted, although 4 does not"),
    (but(require=assert_divides), "MyHeads(10, 4) raises AssertionError"),
    (but(require=vague), "does not name both numbers: does not fit"),
    (but(out=plain), "self.w_o is a plain tensor"),
    (but(out=empty), "w_o is not initialised"),
    (but(Linear, out=with_bias), "it has project.weight, project.bias"),
    (but(out=lambda self, e, h: setattr(self, "w_o", nn.Parameter(torch.randn(e, 2)))),
     "w_o has shape (12, 2); w_o is (h * d, e), (12, 12)"),
    (but(forward=lambda self, *x: torch.cat(self.mixed(*x), 1) @ self.w_o.T), "w_o transposed"),
    (but(forward=merge(lambda mixed: torch.cat(mixed[::-1], 1))), "reversed order"),
    (but(forward=merge(lambda mixed: torch.stack(mixed, 2).flatten(1))), "interleaved"),
    (but(forward=merge(lambda mixed: torch.stack(mixed).reshape(len(mixed[0]), -1))), "mixes"),
    (but(mixed=pass_on(lambda q, k, v: (q, q, q))), "the heads get query as key and value"),
    (but(mixed=pass_on(lambda q, k, v: (q, k, k))), "the heads get key as value, too"),
    (but(mixed=pass_on(lambda q, k, v: (q, v, k))), "key and value in each other's place"),
    (but(mixed=lambda self, *x: [self.heads[0](*x)[0]] * len(self.heads)), "is the first one's"),
    (but(mixed=lambda self, *x: [head(*x) for head in self.heads]),
     "Head returns (mixed, weights): use mixed alone."),
    (but(mixed=lambda self, *x: [head(*x).float() for head in self.heads]),
     "Head returns (mixed, weights): use mixed alone."),
    (but(forward=lambda self, *x: (Right.forward(self, *x), None)), "it returns a tuple of 2"),
    (but(mixed=lambda self, *x: Right.mixed(self, *x)[:: 1 if len(self.heads) == 3 else -1]),
     "right at first, but not with e = 10, h = 5, n = 4, m = 3: the heads are in reversed order"),
    (but(forward=detach), "no gradient reaches query"),
    (but(state_dict=no_state), "load_state_dict, with the state_dict of its twin, raises Runtime"),
    (but(forward=as_float32), "in float64, forward raises RuntimeError"),
    (but(forward=lambda self, *x: torch.tanh(Right.forward(self, *x))), "the shape is right, but"),
    (but(forward=lambda self, q, k: q), "forward raises TypeError"),
    (but(forward=nn.Module.forward), "not yet, forward raises NotImplementedError"),
    (Right(12, 3), "give the class itself, MyHeads; this is an object"),
    (F.relu, "this is no subclass of nn.Module"),
    (list, "this is no subclass of nn.Module"),
]  # fmt: skip


def test_heads_gives_the_hint_on_mixed_only_where_a_tuple_is_in_the_way(verdict: Any) -> None:
    said = verdict(check_heads, but(forward=merge(lambda mixed: mixed[0].reshape(1.5))))
    assert "must be tuple of ints" in said
    assert "use mixed alone" not in said


@pytest.mark.parametrize(("answer", "reason"), WRONG_HEADS, ids=[r for _, r in WRONG_HEADS])
def test_heads_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_heads, answer)
    assert said.startswith("✗ MyHeads: ")
    assert reason in said

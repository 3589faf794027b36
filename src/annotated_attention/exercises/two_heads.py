"""Exercises of "Two heads": what W_O adds up, and a module of heads."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.exercises._exercise import (
    Either,
    Exercise,
    NotYet,
    Refused,
    describe,
    normal,
    require_class,
)

# Wrong ways to put the outputs of the heads side by side, each a function of them.
_MERGES: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "the heads are in reversed order: the first head belongs to the first rows of w_o.": (
        lambda mixed: torch.cat(mixed[::-1], -1)
    ),
    "the features of the heads are interleaved. Head i has neighbouring rows of w_o, i * d to "
    "(i + 1) * d.": lambda mixed: torch.stack(mixed, -1).flatten(1),
    "the heads are stacked and reshaped straight to (n, h * d), which mixes tokens: put the axis "
    "of the heads behind the tokens first.": (
        lambda mixed: torch.stack(mixed).reshape(len(mixed[0]), -1)
    ),
}


def _add(mixed: list[Tensor], blocks: Any) -> Tensor:
    return torch.stack([x @ block for x, block in zip(mixed, blocks, strict=True)]).sum(0)


def _add_up(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    return _add(mixed, w_o.split(mixed[0].size(-1)))  # (n, e)


def _first_heads(count: int) -> Callable[..., Tensor]:
    return lambda mixed, w_o: _add(mixed[:count], w_o.split(mixed[0].size(-1))[:count])


def _same_block(i: int) -> Callable[..., Tensor]:
    return lambda mixed, w_o: torch.stack(mixed).sum(0) @ w_o.split(mixed[0].size(-1))[i]


def _windows(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    d = mixed[0].size(-1)
    return _add(mixed, [w_o[i : i + d] for i in range(len(mixed))])


def _two_heads(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    d = mixed[0].size(-1)
    return mixed[0] @ w_o[:d] + mixed[1] @ w_o[d:]


def _two_unpacked(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    first, second = mixed
    return _add_up([first, second], w_o)


def _draw_heads(h: int, n: int, d: int, e: int) -> dict[str, Any]:
    drawn = normal(mixed=(h, n, d), w_o=(h * d, e))
    return {**drawn, "mixed": list(drawn["mixed"])}


def _require_no_cat(answer: Any) -> None:
    """Refuse a function that puts the heads side by side."""
    names = set(getattr(getattr(answer, "__code__", None), "co_names", ()))
    for name in names & {"cat", "concat", "concatenate", "hstack", "column_stack"}:
        raise Refused(
            f"the numbers are right, but you concatenate (torch.{name}). Leave the heads apart: "
            "give each its own rows of w_o, and add up what comes out."
        )


check_add_up = Exercise(
    name="add_up",
    right=_add_up,
    praise=(
        "right, and so are the gradients. Multi-head attention is a sum: each head writes into the "
        "output through its own rows of W_O."
    ),
    wrong={
        "you take the average of the heads: their contributions are added.": (
            lambda mixed, w_o: _add_up(mixed, w_o) / len(mixed)
        ),
        "only the first head counts. Does your loop return too early?": _first_heads(1),
        "only the last head counts. Does your loop replace the sum, not add to it?": (
            lambda mixed, w_o: mixed[-1] @ w_o[-mixed[0].size(-1) :]
        ),
        "only the first heads count: loop over all of them.": (
            Either([_first_heads(2), _first_heads(3)])
        ),
        "every head goes through the same rows of w_o. Head i has its own, rows i * d to "
        "(i + 1) * d.": Either([_same_block(0), _same_block(1), _same_block(-1)]),
        "your blocks overlap: head i gets rows i to i + d of w_o. It has rows i * d to "
        "(i + 1) * d.": _windows,
        "you add up the heads and leave out w_o.": lambda mixed, w_o: torch.stack(mixed).sum(0),
        "you cut w_o into blocks of columns (or transpose it). The heads stand side by side in "
        "its rows: head i has rows i * d to (i + 1) * d.": (
            lambda mixed, w_o: torch.cat(mixed, -1) @ w_o.mT
        ),
        **{
            sentence: lambda mixed, w_o, merge=merge: merge(mixed) @ w_o
            for sentence, merge in _MERGES.items()
        },
        # These go through with few heads alone.
        "it is right for two heads, but mixed may have any number: loop over the heads.": (
            Either([_two_heads, _two_unpacked])
        ),
        "in your code every head meets all of w_o. A head has d rows of w_o to itself: multiply "
        "each head by its own block of rows, then add up the products.": (
            lambda mixed, w_o: torch.stack(mixed).sum(0) @ w_o
        ),
    },
    sizes=[{"h": 3, "n": 5, "d": 4, "e": 12}, {"h": 4, "n": 6, "d": 3, "e": 7}],
    draw=_draw_heads,
    easy=[{"h": 2, "n": 5, "d": 4, "e": 7}, {"h": 1, "n": 5, "d": 4, "e": 7}],
    shape="(n, e)",
    also=_require_no_cat,
)


class _Head(nn.Module):
    """The chapter's head."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        self.w_q, self.w_k, self.w_v = (
            nn.Parameter(torch.zeros(embed_dim, head_dim)) for _ in range(3)
        )

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = query @ self.w_q, key @ self.w_k, value @ self.w_v
        return scaled_dot_product_attention(q, k, v)[0]  # (n, d)


def _heads(
    merge: Callable[[list[Tensor]], Tensor] = lambda mixed: torch.cat(mixed, -1),
    project: Callable[[Tensor, Tensor], Tensor] = lambda merged, w_o: merged @ w_o,
    given: Callable[..., Any] = lambda query, key, value: (query, key, value),
) -> type[nn.Module]:
    """Make a class of heads, with a mistake or without."""

    class Heads(nn.Module):
        def __init__(self, embed_dim: int, num_heads: int) -> None:
            super().__init__()
            if embed_dim % num_heads:
                raise ValueError(f"{embed_dim=} must be divisible by {num_heads=}")
            d = embed_dim // num_heads
            self.heads = nn.ModuleList(_Head(embed_dim, d) for _ in range(num_heads))
            self.w_o = nn.Parameter(torch.zeros(embed_dim, embed_dim))

        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            mixed = [head(*given(query, key, value)) for head in self.heads]
            return project(merge(mixed), self.w_o)

    return Heads


def _run_heads(answer: Any, matrices: dict[str, Tensor], *inputs: Tensor) -> Tensor:
    """Make the reader's module, give it the drawn matrices, and run it."""
    require_class(answer)
    e, h = len(matrices["w_o"]), len(matrices["w_q"])
    model = answer(e, h)
    if not list(model.parameters()):
        raise NotYet("PyTorch finds no matrix in it, and does not look into a Python list")
    left = {name: list(x) for name, x in matrices.items() if name != "w_o"}
    left["w_o"] = [matrices["w_o"]]
    state = {}
    for name, parameter in model.named_parameters():
        owner, _, last = name.rpartition(".")
        same = left[last if last in left else "w_o"]
        linear = isinstance(model.get_submodule(owner), nn.Linear)  # which stores it transposed
        state[name] = (same.pop(0).mT if linear else same.pop(0)) if same else parameter[:0]
        if state[name].shape != parameter.shape:
            raise Refused(_parts(model, e, h))
    if any(left.values()):
        raise Refused(_parts(model, e, h))
    return functional_call(model.double(), state, inputs)


def _parts(model: nn.Module, e: int, h: int) -> str:
    """Say which parameters there are, and which there should be."""
    counts = Counter(
        f"{name.rpartition('.')[2]} {tuple(x.shape)}" for name, x in model.named_parameters()
    )
    found = ", ".join(f"{count} × {what}" for what, count in counts.items())
    return (
        f"with embed_dim = {e} and num_heads = {h} it has to register {h} times w_q, w_k and w_v, "
        f"{(e, e // h)}, and one w_o, {(e, e)}. PyTorch finds {found}. It does not look into a "
        "Python list (use nn.ModuleList), a plain tensor is no nn.Parameter, and [head] * h is one "
        "head."
    )


def _require_initialised_and_divisible(answer: Any) -> None:
    """Refuse parameters that hold what was in memory, and a width that heads do not divide."""
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")  # fills with NaN what torch.empty leaves
    try:
        model = answer(12, 3)
    finally:
        torch.set_deterministic_debug_mode(mode)
    for name, parameter in model.named_parameters():
        if parameter.isnan().any():
            raise Refused(
                f"{name} is not initialised: it holds what was in memory before (torch.empty). "
                "Fill it with random numbers, with nn.init.xavier_uniform_ for example."
            )
    asked = "Raise a ValueError that names both: embed_dim (10) must be divisible by num_heads (4)."
    try:
        answer(10, 4)
    except ValueError as error:
        if not all(re.search(rf"\b{number}\b", str(error)) for number in (10, 4)):
            raise Refused(f"MyHeads(10, 4) raises {describe(error)}\n{asked}") from None
    except Exception as error:
        raise Refused(f"MyHeads(10, 4) raises {describe(error)}\n{asked}") from None
    else:
        raise Refused(f"MyHeads(10, 4) is accepted, although 4 does not divide 10. {asked}")


check_heads = Exercise(
    name="MyHeads",
    right=_heads(),
    praise=(
        "right. With e = 12 and h = 3 it registers 3 · 3 + 1 matrices, 576 numbers: state_dict "
        "holds them, .to moves them, and a gradient reaches each."
    ),
    wrong={
        "w_o is never applied: multiply the concatenated heads by it.": (
            _heads(project=lambda merged, w_o: merged)
        ),
        "you multiply by w_o transposed.": _heads(project=lambda merged, w_o: merged @ w_o.mT),
        "the heads are added. Put them side by side (torch.cat), then apply w_o.": (
            _heads(lambda mixed: torch.stack(mixed).sum(0), lambda added, w_o: added)
        ),
        **{sentence: _heads(merge) for sentence, merge in _MERGES.items()},
        "the heads get query as key and value: pass key and value on.": (
            _heads(given=lambda query, key, value: (query, query, query))
        ),
        "the heads get key as value, too: pass value on.": (
            _heads(given=lambda query, key, value: (query, key, key))
        ),
        "the heads get key and value in each other's place.": (
            _heads(given=lambda query, key, value: (query, value, key))
        ),
        "every head's output is the first one's.": (
            _heads(lambda mixed: torch.cat(mixed[:1] * len(mixed), -1))
        ),
    },
    run=_run_heads,
    sizes=[{"e": 12, "h": 3, "n": 5, "m": 7}, {"e": 10, "h": 5, "n": 4, "m": 3}],
    draw=lambda e, h, n, m: {
        "matrices": normal(w_q=(h, e, e // h), w_k=(h, e, e // h), w_v=(h, e, e // h), w_o=(e, e)),
        **normal(query=(n, e), key=(m, e), value=(m, e)),
    },
    shape="(n, e)",
    also=_require_initialised_and_divisible,
)

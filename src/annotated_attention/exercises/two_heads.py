"""Exercises of "Two heads": a scene that fools a head, what W_O adds up, a module of heads."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.exercises._verdict import (
    NotYet,
    Raised,
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    describe,
    finite_numbers,
    random,
    require_function,
    require_tensor,
    require_unchanged,
)

_CAT, _MILK = 0.75, 0.25  # the weights of the head that is to be fooled


@check("my_scene")
def check_scene(answer: object) -> str:
    """Judge a scene that a head cannot tell from the chapter's first one, and print the verdict.

    Args:
        answer: two numbers, the quality of the cat and that of the milk.
    """
    cat, milk = finite_numbers(answer, 2).tolist()
    collected = _CAT * cat + _MILK * milk
    sum_of_both = f"3/4 · {cat:g} + 1/4 · {milk:g} = {collected:g}"
    if abs(cat - 2) < _NEAR and abs(milk + 2) < _NEAR:
        raise Refused("this is the first scene itself. Name one that differs from it.")
    if abs(collected - 1) < _NEAR:
        return f"{sum_of_both}, as in the first scene. The head cannot tell the two apart."
    if (cat, milk) == (-2, 2):
        raise Refused(
            f"{sum_of_both}. To swap the two qualities fools a head whose weights are equal; this "
            "one looks at the cat three times as much."
        )
    if abs(_CAT * milk + _MILK * cat - 1) < _NEAR:
        raise Refused(
            f"{sum_of_both}. In the other order it would be 1: the cat comes first, and it has "
            "three quarters."
        )
    if abs(cat + milk - 1) < _NEAR:
        raise Refused(f"{sum_of_both}. You added the two qualities: give each its weight.")
    if abs(cat + milk) < _NEAR:
        raise Refused(
            f"{sum_of_both}. You changed both by equally much, but the cat counts three times as "
            "much: the milk has to change three times as far."
        )
    raise Refused(f"{sum_of_both}, and in the first scene it is 1: the head tells them apart.")


_NEAR = 0.01  # for numbers that were rounded on paper

# h, n, d, e. First the width of the model, as in the chapter; then one that is not h * d.
_ADD_UP_SIZES = ((3, 5, 4, 12), (4, 6, 3, 7))


@check("add_up")
def check_add_up(answer: Callable[..., Any]) -> str:
    """Judge ``add_up(mixed, w_o)``, and print the verdict.

    Args:
        answer: the reader's function of a list of h tensors (n, d) and of w_o (h * d, e), which is
            to return their concatenation times w_o, (n, e), without concatenating.
    """
    require_function(answer)
    for seed, (h, n, d, e) in enumerate(_ADD_UP_SIZES):
        *mixed, w_o = random(seed, *[(n, d)] * h, (h * d, e))
        with at_sizes(not seed, h=h, n=n, d=d, e=e):
            _judge_add_up(answer, mixed, w_o)
    return (
        "right, and so are the gradients. Multi-head attention is a sum: each head writes into the "
        "output through its own rows of W_O."
    )


def _judge_add_up(answer: Callable[..., Any], mixed: list[Tensor], w_o: Tensor) -> None:
    """Judge the function on one set of inputs."""
    copies, w_copy = [x.clone() for x in mixed], w_o.clone()
    with _Noticing() as noticed:
        try:
            output = call("your code", answer, copies, w_copy)
        except Raised as reason:
            raise Refused(f"{reason}{_why_it_raises(answer, mixed, w_o, reason.error)}") from None
    require_unchanged("mixed", copies, mixed)
    require_unchanged("w_o", w_copy, w_o)
    compare(output, torch.cat(mixed, -1) @ w_o, "(n, e)", _wrong_sums(mixed, w_o))
    if noticed.names:
        raise Refused(
            f"the numbers are right, but you concatenate (torch.{noticed.names[0]}). Leave the "
            "heads apart: give each its own rows of w_o, and add up what comes out."
        )
    leaves = [x.clone().requires_grad_() for x in (*mixed, w_o)]
    right = torch.cat(leaves[:-1], -1) @ leaves[-1]
    output = compare(call("your code", answer, leaves[:-1], leaves[-1]), right, "(n, e)", ())
    names = [*(f"mixed[{i}]" for i in range(len(mixed))), "w_o"]
    compare_gradients(output, right, dict(zip(names, leaves, strict=True)))


def _why_it_raises(
    answer: Callable[..., Any], mixed: list[Tensor], w_o: Tensor, error: Exception
) -> str:
    """Say what to change in a function that raises, if that is known; a new line, or nothing."""
    d, h = mixed[0].size(-1), len(mixed)
    two_blocks, block = w_o[: 2 * d], w_o[:d]  # (2 * d, e), (d, e)
    if _gives(answer, mixed[:2], two_blocks, torch.cat(mixed[:2], -1) @ two_blocks):
        return (
            f"\nIt is right for two heads, but mixed has {h} here, and may have any number: loop "
            "over the heads."
        )
    if _gives(answer, mixed, block, torch.stack(mixed).sum(0) @ block):
        return (
            "\nIn your code every head meets all of w_o. A head has d rows of w_o to itself: "
            "multiply each head by its own block of rows, then add up the products."
        )
    if isinstance(error, RuntimeError):  # PyTorch's, where shapes do not fit
        return (
            "\nW_O is h blocks of rows: the block of a head has d rows, one for each column of its "
            "mixed values."
        )
    return ""


def _gives(answer: Callable[..., Any], mixed: list[Tensor], w_o: Tensor, output: Tensor) -> bool:
    """Tell whether the function returns this output for these inputs."""
    with contextlib.suppress(Exception):
        compare(answer([x.clone() for x in mixed], w_o.clone()), output, "(n, e)", ())
        return True
    return False


class _Noticing(TorchFunctionMode):
    """Notes which functions were called that put tensors side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in {"cat", "concat", "concatenate", "hstack", "column_stack"}:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def _wrong_sums(mixed: list[Tensor], w_o: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to."""
    h, d = len(mixed), mixed[0].size(-1)
    blocks = w_o.split(d)  # (d, e)
    right = [x @ block for x, block in zip(mixed, blocks, strict=True)]  # (n, e)
    total = torch.stack(right).sum(0)  # (n, e)
    yield "you take the average of the heads: their contributions are added.", total / h
    yield "only the first head counts. Does your loop return too early?", right[0]
    yield "only the last head counts. Does your loop replace the sum, not add to it?", right[-1]
    for count in range(2, h):
        reason = (
            f"only the first {count} heads count, and mixed has {h} here: loop over all of them."
        )
        yield reason, torch.stack(right[:count]).sum(0)
    for i, block in enumerate(blocks):
        reason = (
            f"every head goes through the same rows of w_o (block {i}, counted from 0). Head i "
            "has its own, rows i * d to (i + 1) * d."
        )
        yield reason, torch.stack(mixed).sum(0) @ block
    windows = [x @ w_o[i : i + d] for i, x in enumerate(mixed)]  # (n, e)
    reason = (
        "your blocks overlap: head i gets rows i to i + d of w_o. It has rows i * d to (i + 1) * d."
    )
    yield reason, torch.stack(windows).sum(0)
    yield "you add up the heads and leave out w_o.", torch.stack(mixed).sum(0)
    if w_o.size(0) == w_o.size(1):
        columns = [x @ part.mT for x, part in zip(mixed, w_o.split(d, dim=1), strict=True)]
        reason = (
            "you cut w_o into blocks of columns (or transpose it). The heads stand side by side in "
            "its rows: head i has rows i * d to (i + 1) * d."
        )
        yield reason, torch.stack(columns).sum(0)
    for reason, merged in _merged_wrongly(mixed):
        yield reason, merged @ w_o


def _merged_wrongly(mixed: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield wrong ways to put the heads side by side, (n, h * d), each with its reason."""
    stacked = torch.stack(mixed)  # (h, n, d)
    n = stacked.size(1)
    yield (
        "the heads are in reversed order: the first head belongs to the first rows of w_o.",
        stacked.flip(0).transpose(0, 1).flatten(1),
    )
    yield (
        "the features of the heads are interleaved. Head i has neighbouring rows of w_o, i * d to "
        "(i + 1) * d.",
        stacked.permute(1, 2, 0).flatten(1),
    )
    yield (
        "the heads are stacked and reshaped straight to (n, h * d), which mixes tokens: put the "
        "axis of the heads behind the tokens first.",
        stacked.reshape(n, -1),
    )


# e, h, n, m
_HEADS_SIZES = ((12, 3, 5, 7), (10, 5, 4, 3))


@check("MyHeads")
def check_heads(answer: Callable[..., Any]) -> str:
    """Judge the module ``MyHeads(embed_dim, num_heads)``, and print the verdict.

    Args:
        answer: the reader's class. It holds h ``Head(e, e / h)`` and one w_o (e, e); its forward
            takes query (n, e), key and value (m, e), and returns (n, e).
    """
    require_function(answer)
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        kind = "an object" if isinstance(answer, nn.Module) else "no subclass of nn.Module"
        raise Refused(f"give the class itself, MyHeads; this is {kind}.")
    for seed, (e, h, n, m) in enumerate(_HEADS_SIZES):
        with at_sizes(not seed, e=e, h=h, n=n, m=m):
            _judge_heads(answer, e, h, random(seed, (n, e), (m, e), (m, e)))
    _judge_divisibility(answer, 10, 4)
    e, h, *_ = _HEADS_SIZES[0]
    return (
        f"right. With e = {e} and h = {h} it registers 3 · {h} + 1 matrices, {4 * e * e} numbers: "
        "state_dict holds them, .to moves them, and a gradient reaches each."
    )


def _judge_heads(answer: type[nn.Module], e: int, h: int, inputs: list[Tensor]) -> None:
    """Judge the class at one size: first what it holds, then what it computes."""
    with _memory_full_of_nan():
        model = call(f"MyHeads({e}, {h})", answer, e, h)
    stopped = None
    try:
        output = call("forward", model, *(x.float() for x in inputs))
        if output is None or output is ...:
            require_tensor("forward returns", output)
    except NotYet:
        raise
    except Refused as error:
        stopped = error
        if isinstance(error, Raised) and re.search("'tuple' |got tuple", str(error.error)):
            stopped = Refused(f"{error}\nHead returns (mixed, weights): use mixed alone.")
    # A missing registration is the better reason where both are true.
    heads, name = _require_parts(model, e, h)
    if stopped:
        raise stopped
    for empty, parameter in model.named_parameters():
        if parameter.isnan().any():
            raise Refused(
                f"{empty} is not initialised: it holds what was in memory before (torch.empty). "
                "Fill it with random numbers, with nn.init.xavier_uniform_ for example."
            )

    model.to(torch.float64)
    _fill(model)
    leaves = [x.clone().requires_grad_() for x in inputs]
    mixed = _mixed(heads, *leaves)
    w_o = _w_o(model, name)
    right = torch.cat(mixed, -1) @ w_o
    wrong = _wrong_heads(heads, leaves, mixed, w_o)
    output = compare(call("in float64, forward", model, *leaves), right, "(n, e)", wrong)
    learned = {"query": leaves[0], "key": leaves[1], "value": leaves[2]}
    compare_gradients(output, right, learned | dict(model.named_parameters()))
    twin = call(f"MyHeads({e}, {h})", answer, e, h)
    call(
        "load_state_dict, with the state_dict of its twin,",
        twin.load_state_dict,
        model.state_dict(),
    )


@contextlib.contextmanager
def _memory_full_of_nan() -> Iterator[None]:
    """Let PyTorch fill with NaN what ``torch.empty`` and its like leave uninitialised."""
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


def _judge_divisibility(answer: type[nn.Module], e: int, h: int) -> None:
    """Refuse a class that does not say that h must divide e."""
    asked = f"Raise a ValueError that names both: embed_dim ({e}) must be divisible by num_heads"
    try:
        answer(e, h)
    except ValueError as error:
        if not all(re.search(rf"\b{number}\b", str(error)) for number in (e, h)):
            raise Refused(
                f"MyHeads({e}, {h}) raises a ValueError that does not name both numbers: {error}"
            ) from None
    except Exception as error:
        raise Refused(f"MyHeads({e}, {h}) raises {describe(error)}\n{asked} ({h}).") from None
    else:
        raise Refused(
            f"MyHeads({e}, {h}) is accepted, although {h} does not divide {e}: heads of width "
            f"{e // h} cover {e // h * h} of {e} features. {asked} ({h})."
        )


_NAMES = ("w_q", "w_k", "w_v")


def _require_parts(model: nn.Module, e: int, h: int) -> tuple[list[nn.Module], str]:
    """Refuse a module that does not hold h heads and one w_o, all registered.

    Returns:
        The heads in their order, and the name of the parameter that is w_o.
    """
    heads = _require_heads(model, e, h)
    owned = {id(p) for head in heads for p in head.parameters()}
    rest = {name: p for name, p in model.named_parameters() if id(p) not in owned}
    plain = [name for name, x in vars(model).items() if isinstance(x, Tensor)]
    if plain:
        raise Refused(
            f"self.{plain[0]} is a plain tensor, so it is not learned, saved or moved. Wrap it in "
            "nn.Parameter."
        )
    if not rest:
        raise Refused("there is no w_o: the heads' outputs have to go through one more matrix.")
    if len(rest) > 1:
        raise Refused(f"beside the heads it is to hold w_o alone, and it has {', '.join(rest)}.")
    (name, parameter), *_ = rest.items()
    if parameter.shape == (e // h, e):
        raise Refused(
            f"{name} has shape {tuple(parameter.shape)}, which fits heads that are added. Put them "
            f"side by side (torch.cat): w_o is (h * d, e), here {(e, e)}."
        )
    if parameter.shape != (e, e):
        raise Refused(f"{name} has shape {tuple(parameter.shape)}; w_o is (h * d, e), {(e, e)}.")
    return heads, name


def _w_o(model: nn.Module, name: str) -> Tensor:
    """Give W_O, (h * d, e), which a linear layer stores transposed."""
    linear = isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear)
    parameter = model.get_parameter(name)
    return parameter.mT if linear else parameter


def _require_heads(model: nn.Module, e: int, h: int) -> list[nn.Module]:
    """Refuse a module in which PyTorch does not find h different heads of width e / h."""
    found = [part for _, part in model.named_modules(remove_duplicate=False) if _is_head(part)]
    heads = list(dict.fromkeys(part for part in found if part is not model))
    if not heads:
        for name, value in vars(model).items():
            items = value.values() if isinstance(value, dict) else value
            held = name[0] != "_" and isinstance(value, list | tuple | dict)
            if held and any(isinstance(item, nn.Module) for item in items):
                raise Refused(
                    f"self.{name} is a plain {type(value).__name__}, and PyTorch does not look "
                    "into it: the heads are not learned, saved or moved. Use nn.ModuleList."
                )
        raise Refused("PyTorch finds no Head in it. Hold h of them in an nn.ModuleList.")
    if len(heads) < h <= len(found):
        raise Refused(
            f"the same head is used {len(found)} times: [head] * {h} repeats one object, so all "
            "share its matrices. Make each anew: [Head(...) for _ in range(...)]."
        )
    if len(heads) != h:
        raise Refused(f"it has {len(heads)} heads for num_heads = {h}.")
    for head in heads:
        extra = {name for name, _ in head.named_parameters()} - set(_NAMES)
        if extra:
            raise Refused(f"a head has {', '.join(sorted(extra))}: use Head, which has no w_o.")
        _require_width(head, e, h)
    return heads


def _is_head(part: nn.Module) -> bool:
    return all(isinstance(getattr(part, name, None), Tensor) for name in _NAMES)


def _require_width(head: nn.Module, e: int, h: int) -> None:
    """Refuse a head whose matrices are not (e, e / h)."""
    shape = tuple(head.get_parameter("w_q").shape)
    if shape == (e, e):
        raise Refused(
            f"every head is as wide as the model ({e}): {h} heads then cost {h} times as much. "
            f"Share the width: d = e / h = {e // h}."
        )
    if shape != (e, e // h):
        raise Refused(f"a head's w_q has shape {shape}; what fits is (e, e / h), {(e, e // h)}.")


def _fill(model: nn.Module) -> None:
    """Give every parameter numbers that do not depend on how the reader initialises."""
    shapes = [tuple(p.shape) for p in model.parameters()]
    with torch.no_grad():
        for parameter, numbers in zip(model.parameters(), random(7, *shapes), strict=True):
            parameter.copy_(numbers / parameter.size(0) ** 0.5)


def _mixed(heads: list[nn.Module], query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Compute what each head mixes, (n, d), from its matrices alone."""
    return [
        scaled_dot_product_attention(query @ q, key @ k, value @ v)[0]
        for q, k, v in ([head.get_parameter(name) for name in _NAMES] for head in heads)
    ]


def _wrong_heads(
    heads: list[nn.Module], inputs: list[Tensor], mixed: list[Tensor], w_o: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to."""
    query, key, value = inputs
    merged = torch.cat(mixed, -1)  # (n, h * d)
    yield "w_o is never applied: multiply the concatenated heads by it.", merged
    yield "you multiply by w_o transposed.", merged @ w_o.mT
    added = torch.stack(mixed).sum(0)  # (n, d)
    yield "the heads are added. Put them side by side (torch.cat), then apply w_o.", added
    for reason, other in _merged_wrongly(mixed):
        yield reason, other @ w_o
    for reason, others in (
        ("the heads get query as key and value: pass key and value on.", (query, query, query)),
        ("the heads get key as value, too: pass value on.", (query, key, key)),
        ("the heads get key and value in each other's place.", (query, value, key)),
    ):
        yield reason, torch.cat(_mixed(heads, *others), -1) @ w_o
    yield "every head's output is the first one's.", torch.cat(mixed[:1] * len(mixed), -1) @ w_o

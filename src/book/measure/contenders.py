"""Make contenders with the same parameters, and check that they compute the same result."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import chapters
from annotated_attention.masks import block_future, block_padding
from annotated_attention.multihead import MultiheadAttention
from book.measure.timing import Contender, Size

Contenders = dict[str, Contender]
ROUNDING = 1e-4  # of float32, as a part of the result


def assert_same(made: Contenders, x: Tensor, expected: str, gradients: bool = True) -> None:
    """Compare all contenders with one of them: outputs, with and without gradients, and gradients.

    Args:
        made: the contenders.
        x: what they are called with.
        expected: the one that the others are compared with.
        gradients: False compares outputs without gradients alone, for what is never trained.

    Raises:
        AssertionError: two differ by more than rounding; the message names the contender.
    """

    def results(contender: Contender) -> dict[str, Tensor]:
        with torch.no_grad():
            evaluated = contender(x)
        if not gradients:
            return {"output without gradients": evaluated}
        output = contender(x)
        slope = torch.arange(output.numel()).view(output.shape).cos()
        (gradient,) = torch.autograd.grad(output, x, slope)
        found = {"output without gradients": evaluated, "output": output, "gradient": gradient}
        return {what: x.detach() for what, x in found.items()}

    right = results(made[expected])
    for name in made.keys() - {expected}:
        for what, found in results(made[name]).items():
            apart = float((found - right[what]).norm() / right[what].norm())
            if not apart <= ROUNDING:
                raise AssertionError(f"{name} differs from {expected}: {what} by {apart:.1e}")


def pair(size: Size, mode: str, bias: bool = True) -> tuple[Any, Any]:
    """Make our class and PyTorch's with the same parameters."""
    _, _, e, h = size
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(e, h, bias=bias, batch_first=True)
    ours = MultiheadAttention(e, h, bias=bias, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    return ours.train(mode != "inference"), theirs.train(mode != "inference")


def bare(module: Any, **options: Any) -> Contender:
    """Make the shortest equivalent without weights: two products and the fused kernel."""
    h = module.num_heads

    def attend(x: Tensor) -> Tensor:
        packed = F.linear(x, module.in_proj_weight, module.in_proj_bias)
        q, k, v = (t.unflatten(-1, (h, -1)).transpose(1, 2) for t in packed.chunk(3, -1))
        heads = F.scaled_dot_product_attention(q, k, v, **options)
        return module.out_proj(heads.transpose(1, 2).flatten(2))

    return attend


def calls(module: Any, **options: Any) -> Contender:
    """Call a module on x alone."""
    return lambda x: module(x, x, x, **options)[0]


def lengths_of(b: int, n: int) -> Tensor:
    """Return lengths of sentences in a padded batch: from half to nearly all."""
    return torch.arange(b) % 4 * n // 8 + n // 2


def final_class(size: Size, mode: str, mask: str, need_weights: bool) -> Contenders:
    """Make the final class, PyTorch's, and the bare minimum, under one mask."""
    ours, theirs = pair(size, mode)
    b, n, e, h = size
    given, hint, least = _mask_for_each(mask, b, n, h)
    made = {
        "PyTorch": calls(theirs, need_weights=need_weights, **given, **hint),
        "final class": calls(ours, need_weights=need_weights, **given),
    }
    if not need_weights:
        made["bare minimum"] = bare(theirs, **least)
    assert_same(made, torch.randn(b, n, e, requires_grad=True), "PyTorch")
    return made


def _mask_for_each(mask: str, b: int, n: int, h: int) -> tuple[dict[str, Any], ...]:
    """Return a mask as both classes take it, what PyTorch's needs besides, and the kernel's."""
    if mask == "none":
        return {}, {}, {}
    if mask == "causal":
        return (
            {"is_causal": True},
            {"attn_mask": block_future(n)},
            {"is_causal": True},
        )
    if mask == "padding":
        padding = block_padding(lengths_of(b, n), n)
        return {"key_padding_mask": padding}, {}, {"attn_mask": ~padding[:, None, None]}
    blocked = scattered(n)
    if mask == "boolean, every head":
        heads = torch.stack([scattered(n, 37 + i) for i in range(b * h)])
        return {"attn_mask": heads}, {}, {"attn_mask": ~heads.unflatten(0, (b, h))}
    added = torch.zeros(n, n).masked_fill(blocked, -torch.inf)
    ours, least = (blocked, ~blocked) if mask == "boolean" else (added, added)
    return {"attn_mask": ours}, {}, {"attn_mask": least}


def scattered(n: int, step: int = 37) -> Tensor:
    """Block about a third of all keys here and there, but never key 0: (n, n)."""
    i = torch.arange(n)
    blocked = (i[:, None] * step + i * 101) % 127 < 42  # (n, n)
    return blocked & (i > 0)  # (n, n)


def one_by_one(size: Size, mode: str) -> Contenders:
    """Make the chapters' list of heads, and all heads at once; both return their weights."""
    ours, _ = pair(size, mode, bias=False)
    _, _, e, h = size
    listed = chapters.load("02_two_heads").Heads(e, h)
    reshaped = chapters.load("04_reshape_trick").Reshaped(e, h)
    *inward, outward = (x.T for x in (*ours.in_proj_weight.chunk(3), ours.out_proj.weight))
    with torch.no_grad():
        for name, matrix in zip(("w_q", "w_k", "w_v"), inward, strict=True):
            getattr(reshaped, name).copy_(matrix)
            for head, part in zip(listed.heads, matrix.chunk(h, dim=1), strict=True):
                getattr(head, name).copy_(part)
        for module in (listed, reshaped):
            module.w_o.copy_(outward)
    made = {"all heads at once": calls(reshaped), "a list of heads": calls(listed)}
    assert_same(made, torch.randn(*size[:3], requires_grad=True), "all heads at once")
    return made


def versions(size: Size, mode: str) -> Contenders:
    """Make the final class and PyTorch's, with weights and without, and the bare minimum."""
    ours, theirs = pair(size, mode, bias=False)
    made = {
        "bare minimum": bare(theirs),
        "PyTorch": calls(theirs, need_weights=False),
        "PyTorch, weights": calls(theirs),
        "07 final class": calls(ours, need_weights=False),
        "07 final class, weights": calls(ours),
    }
    assert_same(made, torch.randn(*size[:3], requires_grad=True), "PyTorch")
    return made


def mask_kinds(size: Size, mode: str, need_weights: bool) -> Contenders:
    """Make the final class under every kind of mask; each is compared with PyTorch's."""
    ours, theirs = pair(size, mode)
    b, n, e, h = size
    future = block_future(n)
    added = torch.zeros(n, n).masked_fill(future, -torch.inf)
    padding = block_padding(lengths_of(b, n), n)
    kinds: dict[str, dict[str, Any]] = {
        "no mask": {},
        "is_causal": {"is_causal": True},
        "padding": {"key_padding_mask": padding},
        "attn_mask, boolean": {"attn_mask": future},
        "attn_mask, floats": {"attn_mask": added},
        "attn_mask, every head": {"attn_mask": future.expand(b * h, n, n)},
        "padding and is_causal": {"key_padding_mask": padding, "is_causal": True},
    }
    x = torch.randn(b, n, e, requires_grad=True)
    made = {}
    for name, given in kinds.items():
        made[name] = calls(ours, need_weights=need_weights, **given)
        hint = {"attn_mask": future, **given} if "is_causal" in given else given
        assert_same({name: made[name], "PyTorch": calls(theirs, **hint)}, x, "PyTorch")
    return made


def fast_path(size: Size) -> Contenders:
    """Make PyTorch's evaluation with and without its "fast path", and the final class's."""
    ours, theirs = pair(size, "inference")

    def slow(x: Tensor) -> Tensor:
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            return theirs(x, x, x, need_weights=False)[0]
        finally:
            torch.backends.mha.set_fastpath_enabled(True)

    made = {
        "fast path off": slow,
        "fast path": calls(theirs, need_weights=False),
        "final class": calls(ours, need_weights=False),
    }
    assert_same(made, torch.randn(*size[:3], requires_grad=True), "fast path off")
    return made

"""Make contenders with the same parameters, and check that they compute the same result."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import chapters
from annotated_attention.attention import masked_softmax, mix, scaled_scores
from annotated_attention.masks import block_future, block_padding
from annotated_attention.measure.timing import Contender, Size
from annotated_attention.multihead import MultiheadAttention
from annotated_attention.published import DESIGNS

Contenders = dict[str, Contender]
Factory = dict[str, Any]  # device and dtype


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
    allowed = 2e-2 if x.dtype in (torch.bfloat16, torch.float16) else 1e-4

    def results(contender: Contender) -> dict[str, Tensor]:
        with torch.no_grad():
            evaluated = contender(x)
        if not gradients:
            return {"output without gradients": evaluated}
        output = contender(x)
        slope = torch.arange(output.numel(), device=x.device).view(output.shape).cos()
        (gradient,) = torch.autograd.grad(output, x, slope.to(output.dtype))
        found = {"output without gradients": evaluated, "output": output, "gradient": gradient}
        return {what: x.detach() for what, x in found.items()}

    right = results(made[expected])
    for name in made.keys() - {expected}:
        for what, found in results(made[name]).items():
            apart = float((found - right[what]).norm() / right[what].norm())
            if not apart <= allowed:
                raise AssertionError(f"{name} differs from {expected}: {what} by {apart:.1e}")


def pair(size: Size, factory: Factory, mode: str, bias: bool = True) -> tuple[Any, Any]:
    """Make our class and PyTorch's with the same parameters."""
    _, _, e, h = size
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(e, h, bias=bias, batch_first=True, **factory)
    ours = MultiheadAttention(e, h, bias=bias, batch_first=True, **factory)
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


def final_class(
    size: Size, factory: Factory, mode: str, mask: str, need_weights: bool
) -> Contenders:
    """Make the final class, PyTorch's, and the bare minimum, under one mask."""
    ours, theirs = pair(size, factory, mode)
    b, n, e, h = size
    given, hint, least = _mask_for_each(mask, b, n, h, factory)
    made = {
        "PyTorch": calls(theirs, need_weights=need_weights, **given, **hint),
        "final class": calls(ours, need_weights=need_weights, **given),
    }
    if not need_weights:
        made["bare minimum"] = bare(theirs, **least)
    assert_same(made, torch.randn(b, n, e, requires_grad=True, **factory), "PyTorch")
    return made


def _mask_for_each(
    mask: str, b: int, n: int, h: int, factory: Factory
) -> tuple[dict[str, Any], ...]:
    """Return a mask as both classes take it, what PyTorch's needs besides, and the kernel's."""
    device, dtype = factory["device"], factory["dtype"]
    if mask == "none":
        return {}, {}, {}
    if mask == "causal":
        return (
            {"is_causal": True},
            {"attn_mask": block_future(n, device=device)},
            {"is_causal": True},
        )
    if mask == "padding":
        padding = block_padding(lengths_of(b, n).to(device), n)
        return {"key_padding_mask": padding}, {}, {"attn_mask": ~padding[:, None, None]}
    blocked = scattered(n, device)
    if mask == "boolean, every head":
        heads = torch.stack([scattered(n, device, 37 + i) for i in range(b * h)])
        return {"attn_mask": heads}, {}, {"attn_mask": ~heads.unflatten(0, (b, h))}
    added = torch.zeros(n, n, device=device, dtype=dtype).masked_fill(blocked, -torch.inf)
    ours, least = (blocked, ~blocked) if mask == "boolean" else (added, added)
    return {"attn_mask": ours}, {}, {"attn_mask": least}


def scattered(n: int, device: Any, step: int = 37) -> Tensor:
    """Block about a third of all keys here and there, but never key 0: (n, n)."""
    i = torch.arange(n, device=device)
    blocked = (i[:, None] * step + i * 101) % 127 < 42  # (n, n)
    return blocked & (i > 0)  # (n, n)


class AsTheFormula(MultiheadAttention):
    """The final class without any code that is only there for speed."""

    contiguous = False  # lay queries, keys and values out in one piece each, first

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, blocked: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Score, softmax with masks, mix."""
        if self.contiguous:
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        return mix(masked_softmax(scaled_scores(q, k), blocked), v)


class Contiguous(AsTheFormula):
    """``AsTheFormula`` with one of the two steps that make the final class faster."""

    contiguous = True


def for_speed(size: Size, factory: Factory, mode: str, mask: str) -> Contenders:
    """Make the final class step by step, with and without the steps that make it faster."""
    _, _, e, h = size
    ours, _ = pair(size, factory, mode)
    given, _, _ = _mask_for_each(mask, *size[:2], h, factory)
    made: Contenders = {}
    for name, kind in (("as the formula", AsTheFormula), ("contiguous first", Contiguous)):
        module = kind(e, h, batch_first=True, **factory).train(ours.training)
        module.load_state_dict(ours.state_dict())
        made[name] = calls(module, **given)
    made["final class"] = calls(ours, **given)
    assert_same(made, torch.randn(*size[:3], requires_grad=True, **factory), "as the formula")
    return made


class Projected(nn.Module):
    """Adds projections to a function of projected queries, keys and values."""

    def __init__(self, attend: Callable[..., Tensor], module: MultiheadAttention) -> None:
        """Take the parameters of ``module``."""
        super().__init__()
        self.attend, self.num_heads = attend, module.num_heads
        self.project_in = nn.ParameterList(matrices(module)[:3])
        self.project_out = nn.Parameter(matrices(module)[3])

    def forward(self, x: Tensor) -> Tensor:
        """Attend from every token of x, (b, n, e), to all."""
        q, k, v = (x @ matrix for matrix in self.project_in)
        return self.attend(q, k, v, self.num_heads) @ self.project_out


def matrices(module: Any) -> list[Tensor]:
    """Return W_Q, W_K, W_V and W_O as matrices that stand to the right of x."""
    weights = [*module.in_proj_weight.chunk(3), module.out_proj.weight]
    return [weight.detach().T.contiguous() for weight in weights]


def book_versions(module: MultiheadAttention) -> Contenders:
    """Make every version of the chapters, with the parameters of a module without biases."""
    two = chapters.load("02_two_heads")
    three = chapters.load("03_split_and_stack")
    four = chapters.load("04_reshape_trick")
    five = chapters.load("05_batches")
    e, h = module.embed_dim, module.num_heads
    names = ("w_q", "w_k", "w_v", "w_o")
    listed = two.Heads(e, h).to(module.out_proj.weight)
    stacked = three.SplitAndStack(e, h).to(module.out_proj.weight)
    reshaped = four.Reshaped(e, h).to(module.out_proj.weight)
    with torch.no_grad():
        listed.w_o.copy_(matrices(module)[3])
        for name, matrix in zip(names, matrices(module), strict=True):
            getattr(stacked, name).copy_(matrix)
            getattr(reshaped, name).copy_(matrix)
            for head, part in zip(listed.heads, matrix.chunk(h, dim=1), strict=True):
                if name != "w_o":
                    getattr(head, name).copy_(part)
    return {
        "02 a list of heads": calls(listed),
        "03 split and stack": calls(stacked),
        "04 reshape trick": calls(reshaped),
        "05 one by one": Projected(five.one_by_one, module),
        "05 four axes": Projected(five.four_axes, module),
        "05 folded": Projected(five.folded_batch_first, module),
        "05 by name": Projected(five.by_name, module),
    }


def division(size: Size, factory: Factory, mode: str) -> Contenders:
    """Make attention by named axes that divides the scores, and the same that divides queries."""
    ours, _ = pair(size, factory, mode, bias=False)

    def queries_divided(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
        q, k, v = (each.unflatten(-1, (h, -1)) for each in (q, k, v))
        scores = torch.einsum("bnhd,bmhd->bhnm", q / q.size(-1) ** 0.5, k)
        return torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), v).flatten(-2)

    made: Contenders = {
        "scores divided": book_versions(ours)["05 by name"],
        "queries divided": Projected(queries_divided, ours),
    }
    x = torch.randn(*size[:3], requires_grad=True, **factory)
    assert_same(made, x, "scores divided")
    return made


def published_designs(module: MultiheadAttention) -> Contenders:
    """Make every published design that can load the parameters of a module without biases."""
    biased = MultiheadAttention(module.embed_dim, module.num_heads, batch_first=True)
    biased = biased.to(module.out_proj.weight)
    biased.load_state_dict(module.state_dict(), strict=False)  # its biases are zero
    made: Contenders = {}
    for name, design in DESIGNS.items():
        built: Any = design.build(module.embed_dim, module.num_heads).to(module.out_proj.weight)
        if hasattr(built, "load_from"):
            built.load_from(biased)
            made[f"published {name}"] = _uniform(design.call, built)
    return made


def _uniform(call: Callable[..., Tensor], module: nn.Module) -> Contender:
    return lambda x: call(module, x, x, x, None)


def one_by_one(size: Size, factory: Factory, mode: str) -> Contenders:
    """Make a list of heads, and all heads at once; both return their weights."""
    ours, _ = pair(size, factory, mode, bias=False)
    book = book_versions(ours)
    made = {
        "all heads at once": book["04 reshape trick"],
        "a list of heads": book["02 a list of heads"],
    }
    x = torch.randn(*size[:3], requires_grad=True, **factory)
    assert_same(made, x, "all heads at once")
    return made


def versions(size: Size, factory: Factory, mode: str) -> Contenders:
    """Make every version in the book and in ``published``, PyTorch's, and the bare minimum."""
    ours, theirs = pair(size, factory, mode, bias=False)
    made = {
        "bare minimum": bare(theirs),
        "PyTorch": calls(theirs, need_weights=False),
        "PyTorch, weights": calls(theirs),
        "07 final class": calls(ours, need_weights=False),
        "07 final class, weights": calls(ours),
        **book_versions(ours),
        **published_designs(ours),
    }
    assert_same(made, torch.randn(*size[:3], requires_grad=True, **factory), "PyTorch")
    return made


def mask_kinds(size: Size, factory: Factory, mode: str, need_weights: bool) -> Contenders:
    """Make the final class under every kind of mask; each is compared with PyTorch's."""
    ours, theirs = pair(size, factory, mode)
    b, n, e, h = size
    device, dtype = factory["device"], factory["dtype"]
    future = block_future(n, device=device)
    added = torch.zeros(n, n, device=device, dtype=dtype).masked_fill(future, -torch.inf)
    padding = block_padding(lengths_of(b, n).to(device), n)
    kinds: dict[str, dict[str, Any]] = {
        "no mask": {},
        "is_causal": {"is_causal": True},
        "padding": {"key_padding_mask": padding},
        "attn_mask, boolean": {"attn_mask": future},
        "attn_mask, floats": {"attn_mask": added},
        "attn_mask, every head": {"attn_mask": future.expand(b * h, n, n)},
        "padding and is_causal": {"key_padding_mask": padding, "is_causal": True},
    }
    x = torch.randn(b, n, e, requires_grad=True, **factory)
    made = {}
    for name, given in kinds.items():
        made[name] = calls(ours, need_weights=need_weights, **given)
        hint = {"attn_mask": future, **given} if "is_causal" in given else given
        assert_same({name: made[name], "PyTorch": calls(theirs, **hint)}, x, "PyTorch")
    return made


def head_counts(
    size: Size, factory: Factory, mode: str, need_weights: bool, counts: Iterable[int]
) -> Contenders:
    """Make the final class with several numbers of heads and one width."""
    b, n, e, _ = size
    made = {}
    x = torch.randn(b, n, e, requires_grad=True, **factory)
    for h in counts:
        ours, theirs = pair((b, n, e, h), factory, mode)
        made[str(h)] = calls(ours, need_weights=need_weights)
        assert_same({str(h): made[str(h)], "PyTorch": calls(theirs)}, x, "PyTorch")
    return made


def fast_path(size: Size, factory: Factory) -> Contenders:
    """Make PyTorch's evaluation with and without its "fast path", and the final class's."""
    ours, theirs = pair(size, factory, "inference")

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
    assert_same(made, torch.randn(*size[:3], requires_grad=True, **factory), "fast path off")
    return made


def lengths(size: Size, factory: Factory, mode: str) -> Contenders:
    """Make both classes with and without weights."""
    ours, theirs = pair(size, factory, mode)
    made = {
        "final class": calls(ours, need_weights=False),
        "final class, weights": calls(ours),
        "PyTorch": calls(theirs, need_weights=False),
        "PyTorch, weights": calls(theirs),
    }
    assert_same(made, torch.randn(*size[:3], requires_grad=True, **factory), "PyTorch")
    return made


def kernels(size: Size, factory: Factory, mode: str) -> Contenders:
    """Make the contenders for a GPU: each kernel by name, and compiled modules."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    ours, theirs = pair(size, factory, mode)

    def forced(backend: SDPBackend) -> Contender:
        attend = bare(theirs)

        def through(x: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return attend(x)

        return through

    made = {
        "bare minimum": bare(theirs),
        "flash": forced(SDPBackend.FLASH_ATTENTION),
        "memory-efficient": forced(SDPBackend.EFFICIENT_ATTENTION),
        "cuDNN": forced(SDPBackend.CUDNN_ATTENTION),
        "step by step": forced(SDPBackend.MATH),
        "final class": calls(ours, need_weights=False),
        "final class, compiled": calls(torch.compile(ours), need_weights=False),
        "PyTorch": calls(theirs, need_weights=False),
        "PyTorch, compiled": calls(torch.compile(theirs), need_weights=False),
    }
    return _that_run(made, torch.randn(*size[:3], requires_grad=True, **factory))


def _that_run(made: Contenders, x: Tensor) -> Contenders:
    """Leave out contenders without a kernel or a compiler, and compare the rest."""
    ran = dict(made)
    for name in ("flash", "memory-efficient", "cuDNN", *(x for x in made if "compiled" in x)):
        try:
            made[name](x)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            del ran[name]
    assert_same(ran, x, "step by step")
    return ran

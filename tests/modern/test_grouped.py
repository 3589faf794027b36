"""Grouped heads equal PyTorch's grouped kernel, repeated heads, and the final class if single."""

import copy

import pytest
import torch
import torch.nn.functional as F

from annotated_attention import MultiheadAttention, block_future, split_heads
from annotated_attention.modern import (
    CachedAttention,
    GroupedQueryAttention,
    KVCache,
    PagedCache,
    RotaryEmbedding,
    StaticCache,
    group_heads,
    repeat_heads,
)

B, N, M, H, G, D = 2, 3, 5, 6, 2, 4
E = H * D
PADDING = torch.tensor([[False, False, False, True, True], [False] * 5])
MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "padding": {"key_padding_mask": PADDING},
    "pairs": {"attn_mask": block_future(N, M)},
    "causal and padding": {"is_causal": True, "key_padding_mask": PADDING},
    "floats": {"attn_mask": torch.linspace(-1, 1, N * M, dtype=torch.float64).view(N, M)},
    "each head": {"attn_mask": torch.arange(B * H * N * M).view(B * H, N, M) % 7 == 1},
    "a fully masked row": {"attn_mask": torch.tensor([[False] * M, [True] * M, [False] * M])},
}
KINDS = {
    "usual": {}, "no bias": {"bias": False}, "widths": {"kdim": 7, "vdim": 10},
    "appended": {"add_bias_kv": True, "add_zero_attn": True},
}  # fmt: skip
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])


def made(kind=GroupedQueryAttention, *heads, **options):
    torch.manual_seed(0)
    options = {"batch_first": True, "dtype": torch.float64, **options}
    module = kind(E, H, *heads, **options)
    for x in module.parameters():
        if x.dim() == 1:  # biases are 0 at first, and would hide that they stand in a wrong place
            torch.nn.init.normal_(x)
    return module


def inputs(module=None):
    source = torch.Generator().manual_seed(1)
    widths = (E, E, E) if module is None else (E, module.kdim, module.vdim)
    return [
        torch.randn(B, n, width, generator=source, dtype=torch.float64, requires_grad=True)
        for n, width in zip((N, M, M), widths, strict=True)
    ]


def gradients(output, tensors):
    target = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad((output * target).sum(), tensors)


def widened(module):
    """Write the same computation as the final class with its rows of W_K and W_V repeated."""
    g, r = module.num_kv_heads, H // module.num_kv_heads
    whole = made(
        MultiheadAttention, bias=module.in_proj_bias is not None, kdim=module.kdim,
        vdim=module.vdim, add_bias_kv=module.bias_k is not None, add_zero_attn=module.add_zero_attn,
    )  # fmt: skip

    def wide(rows):
        heads = rows.unflatten(0, (-1, g, D))
        return heads[:, [i // r for i in range(H)]].flatten(0, 2)

    state = dict(module.state_dict())
    for name, x in state.items():
        if name.startswith("in_proj"):
            state[name] = torch.cat([x[:E], wide(x[E:])])
        elif name in ("k_proj_weight", "v_proj_weight"):
            state[name] = wide(x)
        elif name in ("bias_k", "bias_v"):
            state[name] = wide(x.flatten()).view(1, 1, -1)
    whole.load_state_dict(state)
    return whole


@NEED_WEIGHTS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [1, G, 3, H])
def test_equals_the_final_class_with_repeated_rows(heads, kind, need_weights):
    module = made(GroupedQueryAttention, heads, **KINDS[kind])
    whole = widened(module)
    for options in MASKS.values():
        given = inputs(module)
        options = {**options, "need_weights": need_weights, "average_attn_weights": False}
        found, expected = module(*given, **options), whole(*given, **options)
        torch.testing.assert_close(found, expected)
        same = [*given, module.out_proj.weight]
        theirs = [*given, whole.out_proj.weight]
        torch.testing.assert_close(gradients(found[0], same), gradients(expected[0], theirs))


@NEED_WEIGHTS
@pytest.mark.parametrize("heads", [1, G, 3])
def test_equals_pytorchs_grouped_kernel(heads, need_weights):
    module = made(GroupedQueryAttention, heads)
    given = inputs()
    w, b = module.in_proj_weight, module.in_proj_bias
    widths = [E, heads * D, heads * D]
    q, k, v = (
        split_heads(F.linear(x, each, bias), each.size(0) // D)
        for x, each, bias in zip(given, w.split(widths), b.split(widths), strict=True)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    expected = module.out_proj(mixed.transpose(1, 2).flatten(2))
    found = module(*given, need_weights=need_weights)[0]
    torch.testing.assert_close(found, expected)
    tensors = [*given, *module.parameters()]
    torch.testing.assert_close(gradients(found, tensors), gradients(expected, tensors))


@pytest.mark.parametrize("kind", KINDS)
def test_single_groups_are_the_final_class(kind):
    module, whole = (
        made(GroupedQueryAttention, H, **KINDS[kind]),
        made(MultiheadAttention, **KINDS[kind]),
    )
    torch.testing.assert_close(dict(module.state_dict()), dict(whole.state_dict()))
    whole.load_state_dict(module.state_dict())
    given = inputs(module)
    torch.testing.assert_close(module(*given), whole(*given))


def test_the_first_heads_begin_as_those_of_the_final_class():
    module, whole = made(GroupedQueryAttention, G), made(MultiheadAttention)
    q, k, _ = whole.in_proj_weight.chunk(3)
    assert module.in_proj_weight[:E].equal(q)
    assert module.in_proj_weight[E : E + G * D].equal(k[: G * D])
    assert module.in_proj_weight.shape == (E + 2 * G * D, E)


def test_tiled_heads_are_other_groups():
    x = torch.randn(B, G, M, D)
    assert repeat_heads(x, H).equal(x[:, [0, 0, 0, 1, 1, 1]])
    assert not repeat_heads(x, H).equal(x.repeat(1, H // G, 1, 1))


@pytest.mark.parametrize("layout", ["sequence first", "no batch"])
def test_other_layouts(layout):
    module = made(GroupedQueryAttention, G)
    expected = module(*inputs())[0]
    if layout == "no batch":
        found = torch.stack([module(*sample)[0] for sample in zip(*inputs(), strict=True)])
    else:
        module.batch_first = False
        found = module(*(x.transpose(0, 1) for x in inputs()))[0].transpose(0, 1)
    torch.testing.assert_close(found, expected)


@NEED_WEIGHTS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_and_autocast(dtype, autocast, need_weights):
    module = made(GroupedQueryAttention, G)
    expected = module(*inputs())[0]
    other = copy.deepcopy(module).to(torch.float32 if autocast else dtype)
    given = [x.to(torch.float32 if autocast else dtype) for x in inputs()]
    with torch.autocast("cpu", dtype, enabled=autocast):
        found = other(*given, need_weights=need_weights)[0]
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.05)


@NEED_WEIGHTS
def test_compiles_whole(need_weights):
    torch.compiler.reset()
    module = made(GroupedQueryAttention, G)
    backend = "eager" if need_weights else "aot_eager"
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    options = {"need_weights": need_weights, "is_causal": True}
    torch.testing.assert_close(compiled(*inputs(), **options), module(*inputs(), **options))


def test_dropout_is_applied_in_training_alone():
    module = made(GroupedQueryAttention, G, dropout=0.5)
    for need_weights in (True, False):
        outputs = [module(*inputs(), need_weights=need_weights)[0] for _ in range(2)]
        assert not outputs[0].equal(outputs[1])
    module.eval()
    both = [module(*inputs(), need_weights=x)[0] for x in (True, False)]
    torch.testing.assert_close(*both)


class Sharper(GroupedQueryAttention):
    """Scores that are doubled, in a method of its own."""

    def score(self, q, k):
        assert q.size(1) == k.size(1) == H
        return super().score(q, k) * 2


@NEED_WEIGHTS
def test_a_score_of_ones_own_is_kept(need_weights):
    module, whole = made(Sharper, G), widened(made(GroupedQueryAttention, G))
    with torch.no_grad():
        whole.in_proj_weight[:E] *= 2
        whole.in_proj_bias[:E] *= 2
    found = module(*inputs(), need_weights=need_weights)[0]
    torch.testing.assert_close(found, whole(*inputs())[0])


class Recording(GroupedQueryAttention):
    """Notes the keys that it is given."""

    def attend(self, q, k, v, **options):
        self.seen = (q.shape, k.shape, v.shape)
        return super().attend(q, k, v, **options)


def test_an_override_is_given_keys_of_the_groups():
    module = made(Recording, G)
    module(*inputs())
    assert module.seen == ((B, H, N, D), (B, G, M, D), (B, G, M, D))


@pytest.mark.parametrize(
    ("heads", "error", "said"),
    [
        (4, ValueError, r"num_heads \(6\) must be divisible by num_kv_heads \(4\)"),
        (0, ValueError, r"num_kv_heads \(0\) must be at least 1"),
        (2.0, TypeError, r"num_kv_heads \(2.0\) must be an integer"),
        (12, ValueError, r"num_heads \(6\) must be divisible by num_kv_heads \(12\)"),
    ],
)
def test_settings_that_do_not_fit(heads, error, said):
    with pytest.raises(error, match=said):
        GroupedQueryAttention(E, H, heads)
    with pytest.raises(error):
        group_heads(MultiheadAttention(E, H), heads)


def test_repeating_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"num_heads \(6\) must be divisible by the heads of x"):
        repeat_heads(torch.zeros(B, 4, M, D), H)
    with pytest.raises(ValueError, match=r"x must have shape \(..., g, m, d\), got \(5, 4\)"):
        repeat_heads(torch.zeros(M, D), H)


@pytest.mark.parametrize("kind", KINDS)
def test_grouping_repeated_heads_finds_them_again(kind):
    module = made(GroupedQueryAttention, G, **KINDS[kind])
    found = group_heads(widened(module), G)
    torch.testing.assert_close(dict(found.state_dict()), dict(module.state_dict()))
    torch.testing.assert_close(found(*inputs(module)), module(*inputs(module)))


def test_grouping_averages_the_heads_of_a_group():
    whole = made(MultiheadAttention, dropout=0.25).eval()
    grouped = group_heads(whole, G)
    assert not grouped.training
    assert grouped.dropout == 0.25
    _, k, v = whole.in_proj_weight.unflatten(0, (3, G, H // G, D)).unbind()
    expected = torch.cat([k.mean(1).flatten(0, 1), v.mean(1).flatten(0, 1)])
    torch.testing.assert_close(grouped.in_proj_weight[E:], expected)
    again, at_once = group_heads(group_heads(whole, 3), 1), group_heads(whole, 1)
    torch.testing.assert_close(dict(again.state_dict()), dict(at_once.state_dict()))


def test_grouping_refuses_what_it_would_change():
    with pytest.raises(TypeError, match="got Sharper"):
        group_heads(made(Sharper, G), 1)
    with pytest.raises(ValueError, match=r"the heads of module's keys \(2\) must be divisible by"):
        group_heads(made(GroupedQueryAttention, G), 3)


class CachedGroups(CachedAttention, GroupedQueryAttention):
    """Grouped heads whose keys are kept."""


CACHES = {
    "grows": KVCache,
    "fixed size": lambda: StaticCache(B, G, 9, D, dtype=torch.float64),
    "pages": lambda: PagedCache(6, 2, G, D, dtype=torch.float64),
}


@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("chunks", [[1] * 5, [2, 3], [5]], ids=str)
@torch.no_grad()
def test_a_cache_keeps_the_heads_of_the_groups_alone(chunks, kind, need_weights):
    module = made(CachedGroups, num_kv_heads=G, rotary=RotaryEmbedding(D))
    whole = made(CachedAttention, rotary=RotaryEmbedding(D))
    whole.load_state_dict(widened(made(GroupedQueryAttention, G)).state_dict())
    x, cache = inputs()[1], CACHES[kind]()
    parts = [module(part, cache, need_weights=need_weights)[0] for part in x.split(chunks, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole(x)[0])
    torch.testing.assert_close(module(x)[0], whole(x)[0])
    if kind == "grows":
        assert cache.numel() == 2 * B * M * G * D

"""Both paths of scaled dot-product attention against each other, PyTorch, and plain loops."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from annotated_attention import attention, scaled_dot_product_attention
from annotated_attention.attention import masked_softmax, mix, scaled_scores

B, H, N, M, D, D_V = 2, 4, 3, 5, 6, 7  # all different: a swapped axis cannot hide
TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 4e-2, "atol": 2e-2},
}
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["readable", "fused"])


def inputs(*batch, dtype=torch.float64, seed=0):
    source = torch.Generator().manual_seed(seed)
    sizes = [(*batch, N, D), (*batch, M, D), (*batch, M, D_V)]
    return [torch.randn(size, generator=source, dtype=dtype).requires_grad_() for size in sizes]


def random_blocked(*shape, seed=1):
    """Block about a third; no row whole, so that PyTorch's NaN does not come into play."""
    blocked = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.35
    blocked[..., 0] = False
    return blocked


def random_bias(*shape, dtype=torch.float64, seed=2):
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return bias.masked_fill(random_blocked(*shape, seed=seed), -math.inf)


def gradients(output, tensors):
    source = torch.Generator().manual_seed(3)
    mixture = torch.randn(output.shape, generator=source, dtype=output.dtype)
    return torch.autograd.grad((output * mixture).sum(), tensors)


def by_hand(query, key, value, blocked, bias, scale=None):
    """Follow the formula with one query, one key at a time."""
    output = torch.zeros(*query.shape[:-1], value.size(-1), dtype=query.dtype)
    weights = torch.zeros(*query.shape[:-1], key.size(-2), dtype=query.dtype)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    for index in itertools.product(*map(range, query.shape[:-2])):
        for i in range(query.size(-2)):
            powers = {}
            for j in range(key.size(-2)):
                if blocked is None or not blocked.expand(weights.shape)[*index, i, j]:
                    score = scale * float(query[*index, i] @ key[*index, j])
                    added = 0.0 if bias is None else float(bias.expand(weights.shape)[*index, i, j])
                    powers[j] = math.exp(score + added)
            for j, power in powers.items():
                weights[*index, i, j] = power / sum(powers.values()) if power else 0.0
                output[*index, i] += weights[*index, i, j] * value[*index, j]
    return output, weights


MASKS = {
    "none": (None, None),
    "blocked (n, m)": (random_blocked(N, M), None),
    "blocked (b, 1, 1, m)": (random_blocked(B, 1, 1, M), None),
    "blocked (b, h, n, m)": (random_blocked(B, H, N, M), None),
    "bias (n, m)": (None, random_bias(N, M)),
    "bias (b, h, n, m)": (None, random_bias(B, H, N, M)),
    "both": (random_blocked(B, 1, 1, M), random_bias(H, N, M)),
}


@NEED_WEIGHTS
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("is_causal", [False, True])
def test_follows_the_formula(masks, is_causal, need_weights):
    blocked, bias = masks
    query, key, value = (x.detach() for x in inputs(B, H))
    future = torch.tensor([[j > i for j in range(M)] for i in range(N)])
    hidden = blocked
    if is_causal:
        hidden = future if blocked is None else future | blocked
    expected, expected_weights = by_hand(query, key, value, hidden, bias)
    output, weights = scaled_dot_product_attention(
        query,
        key,
        value,
        blocked=blocked,
        bias=bias,
        is_causal=is_causal,
        need_weights=need_weights,
    )
    torch.testing.assert_close(output, expected)
    if need_weights:
        torch.testing.assert_close(weights, expected_weights)
    else:
        assert weights is None


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("is_causal", [False, True])
def test_paths_agree_on_outputs_and_gradients(masks, is_causal, dtype):
    blocked, bias = masks
    tensors = inputs(B, H, dtype=dtype)
    if bias is not None:
        bias = bias.to(dtype).requires_grad_()
    options = {"blocked": blocked, "bias": bias, "is_causal": is_causal}
    readable, _ = scaled_dot_product_attention(*tensors, **options, need_weights=True)
    fused, _ = scaled_dot_product_attention(*tensors, **options, need_weights=False)
    torch.testing.assert_close(readable, fused, **TOLERANCE[dtype])
    if bias is not None:
        tensors.append(bias)
    for mine, theirs in zip(gradients(readable, tensors), gradients(fused, tensors), strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, theirs, **TOLERANCE[dtype])


@NEED_WEIGHTS
def test_is_pytorchs_with_the_mask_turned_round(need_weights):
    tensors = inputs(B, H)
    blocked = random_blocked(B, H, N, M)
    output, _ = scaled_dot_product_attention(*tensors, blocked=blocked, need_weights=need_weights)
    theirs = F.scaled_dot_product_attention(*tensors, attn_mask=~blocked)
    torch.testing.assert_close(output, theirs)
    torch.testing.assert_close(gradients(output, tensors), gradients(theirs, tensors))


@NEED_WEIGHTS
@pytest.mark.parametrize("batch", [(), (B,), (B, H)], ids=str)
def test_any_number_of_leading_axes(batch, need_weights):
    query, key, value = (x.detach() for x in inputs(*batch))
    output, _ = scaled_dot_product_attention(query, key, value, need_weights=need_weights)
    assert output.shape == (*batch, N, D_V)
    torch.testing.assert_close(output, by_hand(query, key, value, None, None)[0])


@NEED_WEIGHTS
def test_scale_replaces_the_root(need_weights):
    query, key, value = (x.detach() for x in inputs(B))
    output, _ = scaled_dot_product_attention(
        query, key, value, scale=0.7, need_weights=need_weights
    )
    torch.testing.assert_close(output, by_hand(query, key, value, None, None, scale=0.7)[0])


def empty_rows(kind, dtype):
    """Block all keys of the second query, by a mask of this kind."""
    blocked = torch.zeros(N, M, dtype=torch.bool)
    blocked[1] = True
    bias = torch.zeros(N, M, dtype=dtype).masked_fill(blocked, -math.inf)
    half = blocked.clone()
    half[1, 2:] = False
    rest = torch.zeros(N, M, dtype=dtype).masked_fill(blocked & ~half, -math.inf)
    return {"boolean": (blocked, None), "float": (None, bias), "between them": (half, rest)}[kind]


@NEED_WEIGHTS
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", ["boolean", "float", "between them"])
@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_fully_masked_rows_give_zeros_and_finite_gradients(kind, dropout_p, dtype, need_weights):
    tensors = inputs(B, H, dtype=dtype)
    blocked, bias = empty_rows(kind, dtype)
    if bias is not None:
        tensors.append(bias.requires_grad_())
    output, weights = scaled_dot_product_attention(
        *tensors[:3], blocked=blocked, bias=bias, dropout_p=dropout_p, need_weights=need_weights
    )
    assert (output[:, :, 1] == 0).all()
    assert (output[:, :, 0] != 0).any()
    assert output.isfinite().all()
    if weights is not None:
        assert (weights[:, :, 1] == 0).all()
    for gradient in gradients(output, tensors):
        assert gradient.isfinite().all()
    assert (
        gradients(
            scaled_dot_product_attention(
                *tensors[:3], blocked=blocked, bias=bias, need_weights=need_weights
            )[0],
            tensors[:1],
        )[0][:, :, 1]
        == 0
    ).all()


@NEED_WEIGHTS
def test_all_rows_empty_and_causal_gives_zeros(need_weights):
    tensors = inputs(B)
    output, _ = scaled_dot_product_attention(
        *tensors,
        blocked=torch.ones(N, M, dtype=torch.bool),
        is_causal=True,
        need_weights=need_weights,
    )
    assert (output == 0).all()
    assert all((gradient == 0).all() for gradient in gradients(output, tensors))


@NEED_WEIGHTS
@pytest.mark.parametrize("masks", [MASKS["none"], MASKS["blocked (b, h, n, m)"]], ids=str)
def test_dropout_zeroes_some_weights_and_scales_the_rest(masks, need_weights):
    query, key, _ = (x.detach() for x in inputs(B, H))
    value = torch.eye(M, dtype=torch.float64).expand(B, H, M, M)  # the output is the weights
    options = {"blocked": masks[0], "bias": masks[1], "need_weights": need_weights}
    kept, _ = scaled_dot_product_attention(query, key, value, **options)
    torch.manual_seed(4)
    dropped, weights = scaled_dot_product_attention(query, key, value, **options, dropout_p=0.25)
    gone = (dropped == 0) & (kept != 0)
    assert 0.1 < gone.sum() / (kept != 0).sum() < 0.4
    torch.testing.assert_close(dropped[~gone], kept[~gone] / 0.75)
    if need_weights:
        torch.testing.assert_close(weights, dropped)  # returned after dropout


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS.keys())
def test_scores_softmax_and_mix_are_the_three_steps(masks):
    tensors = inputs(B, H)
    weights = masked_softmax(scaled_scores(*tensors[:2]), *masks)
    found = mix(weights, tensors[2])
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, N, dtype=torch.float64))
    expected = scaled_dot_product_attention(*tensors, blocked=masks[0], bias=masks[1])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found[0], tensors), gradients(expected[0], tensors))


QUICK = {
    **MASKS,
    **{f"{kind}, a row fully masked": empty_rows(kind, torch.float64)
       for kind in ("boolean", "float", "between them")},
    "every row fully masked": (torch.ones(B, 1, 1, M, dtype=torch.bool), None),
}  # fmt: skip


@pytest.mark.parametrize("masks", QUICK.values(), ids=QUICK.keys())
def test_quick_weights_are_the_readable_ones_to_the_second_derivative(masks):
    query, key, _ = inputs(B, H)
    blocked, bias = masks
    tensors = [query, key]
    if bias is not None:
        tensors.append(bias := bias.clone().requires_grad_())
    expected = masked_softmax(scaled_scores(query, key), blocked, bias)
    found = attention._weights_for_speed(query, key, None, blocked, bias)
    with torch.no_grad():
        alone = attention._weights_for_speed(query, key, None, blocked, bias)
    torch.testing.assert_close((found, alone), (expected, expected))
    first, second = [], []
    for weights in (found, expected):
        mixture = torch.linspace(-1, 2, weights.numel(), dtype=weights.dtype).view_as(weights)
        total = (weights.square() * mixture).sum()
        first.append(torch.autograd.grad(total, tensors, create_graph=True))
        bent = sum(x.sin().square().sum() for x in first[-1])
        second.append(torch.autograd.grad(bent, tensors))
    torch.testing.assert_close(*first)
    torch.testing.assert_close(*second)
    if blocked is None or not blocked.all():
        assert all((x != 0).any() for x in second[0])


def test_quick_weights_are_left_to_the_readable_path_where_there_is_no_key():
    query, _, _ = (x.detach() for x in inputs(B, H))
    empty = torch.randn(B, H, 0, D, dtype=torch.float64)
    blocked = torch.zeros(N, 0, dtype=torch.bool)
    assert attention._weights_for_speed(query, empty, None, blocked, None) is None
    output, weights = scaled_dot_product_attention(query, empty, empty, blocked=blocked)
    assert (output == 0).all()
    assert weights.shape == (B, H, N, 0)


# PyTorch compiles its rules for forward derivatives with a tool that it calls deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("what", ["grad", "jvp", "vmap over masks"])
def test_quick_weights_are_left_to_the_readable_path_where_a_tool_refuses_them(what):
    query, key, value = inputs(B, H)
    blocked, _ = QUICK["boolean, a row fully masked"]
    masks = torch.stack([blocked, blocked.roll(1, 0)])

    def attend(query, blocked=blocked):
        return scaled_dot_product_attention(query, key, value, blocked=blocked)[0]

    if what == "vmap over masks":
        found = torch.func.vmap(lambda mask: attend(query, mask))(masks)
        torch.testing.assert_close(found, torch.stack([attend(query, mask) for mask in masks]))
    elif what == "grad":
        found = torch.func.grad(lambda query: attend(query).cos().sum())(query)
        expected = torch.autograd.grad(attend(query).cos().sum(), query)[0]
        torch.testing.assert_close(found, expected)
    else:
        along = torch.ones_like(query)
        step = 1e-6 * along
        slope = (attend(query + step) - attend(query - step)) / 2e-6
        found = torch.func.jvp(attend, (query,), (along,))[1]
        torch.testing.assert_close(found, slope, rtol=1e-6, atol=1e-8)


def test_returned_weights_carry_gradients():
    tensors = inputs(B)
    _, weights = scaled_dot_product_attention(*tensors)
    assert all((gradient != 0).any() for gradient in gradients(weights, tensors[:2]))


@NEED_WEIGHTS
def test_inputs_and_masks_stay_as_they_are(need_weights):
    tensors = inputs(B, H)
    blocked, bias = MASKS["both"]
    before = [x.clone() for x in (*tensors, blocked, bias)]
    scaled_dot_product_attention(
        *tensors, blocked=blocked, bias=bias, is_causal=True, need_weights=need_weights
    )
    for now, was in zip((*tensors, blocked, bias), before, strict=True):
        assert torch.equal(now, was)


class Matrices(TorchDispatchMode):
    """Notes the memory of every (..., n, m) that is made; it stays alive, so none comes twice."""

    def __init__(self):
        super().__init__()
        self.made = {}

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        x = operation(*arguments, **(options or {}))
        if isinstance(x, torch.Tensor) and x.numel() == B * H * N * M:
            self.made[x.untyped_storage().data_ptr()] = x
        return x


@pytest.mark.parametrize("kind", ["none", "blocked (n, m)", "bias (n, m)", "blocked (b, 1, 1, m)"])
@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_softmax_takes_the_place_of_the_scores_without_gradients(off, kind):
    """So does the mask, with and without: one matrix of scores, and one of weights or none."""
    tensors, masks = inputs(B, H), dict(zip(("blocked", "bias"), MASKS[kind], strict=True))
    with Matrices() as kept:
        expected = scaled_dot_product_attention(*tensors, **masks)
    with off(), Matrices() as written_over:
        found = scaled_dot_product_attention(*tensors, **masks)
    torch.testing.assert_close(found, expected)
    assert (len(kept.made), len(written_over.made)) == (2, 1)


def test_one_sample_keeps_no_more_than_its_share_for_the_backward_pass():
    packed = torch.randn(1, M, 3, H, D, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind()
        scaled_dot_product_attention(query, key, value)
    storages = {x.untyped_storage().data_ptr() for x in kept}
    assert storages
    assert packed.untyped_storage().data_ptr() not in storages


@torch.no_grad()
def test_scores_from_outside_are_not_written_over():
    query, key, value = inputs(B, H)
    scores = scaled_scores(query, key)
    before = scores.clone()
    found = scaled_dot_product_attention(query, key, value, score=lambda q, k: scores)
    torch.testing.assert_close(found, scaled_dot_product_attention(query, key, value))
    assert torch.equal(scores, before)


@torch.no_grad()
def test_autocast_decides_what_dtype_the_weights_have(monkeypatch):
    """On a GPU it makes the softmax single precision; on a CPU only its being asked is seen."""
    asked = []
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: asked.append(device) or True)
    with Matrices() as kept:
        scaled_dot_product_attention(*inputs(B, H))
    assert (asked, len(kept.made)) == (["cpu"], 2)


# PyTorch compiles its rules for forward derivatives with a tool that it calls deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@torch.no_grad()
def test_vmap_and_forward_derivatives_work_without_gradients():
    tensors = inputs(B, H)

    def attend(query):
        return scaled_dot_product_attention(query, *tensors[1:])[0]

    found = torch.func.vmap(scaled_dot_product_attention)(*tensors)
    torch.testing.assert_close(found, scaled_dot_product_attention(*tensors))
    along = torch.ones_like(tensors[0])
    with torch.enable_grad():
        _, expected = torch.func.jvp(attend, (tensors[0],), (along,))
    torch.testing.assert_close(torch.func.jvp(attend, (tensors[0],), (along,))[1], expected)
    assert (expected != 0).any()
    with forward_ad.dual_level():
        output = attend(forward_ad.make_dual(tensors[0], along))
        torch.testing.assert_close(forward_ad.unpack_dual(output).tangent, expected)


# PyTorch calls its tracer deprecated, and warns of every shape that a Python condition reads.
@pytest.mark.filterwarnings("ignore:.torch.jit.trace", "ignore::torch.jit.TracerWarning")
def test_what_is_traced_without_gradients_has_them_later():
    with torch.no_grad():
        traced = torch.jit.trace(scaled_dot_product_attention, inputs(B, H))
    tensors = inputs(B, H)
    (output, _), (expected, _) = traced(*tensors), scaled_dot_product_attention(*tensors)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(gradients(output, tensors), gradients(expected, tensors))


@torch.no_grad()
def test_shapes_alone_can_be_asked_for():
    output, weights = scaled_dot_product_attention(*(x.to("meta") for x in inputs(B, H)))
    assert (output.shape, weights.shape) == ((B, H, N, D_V), (B, H, N, M))


@NEED_WEIGHTS
def test_compiles_whole(need_weights):
    def attend(query, key, value, blocked):
        return scaled_dot_product_attention(
            query, key, value, blocked=blocked, is_causal=True, need_weights=need_weights
        )[0]

    tensors, blocked = inputs(B, H), random_blocked(B, 1, N, M)
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    output, eager = compiled(*tensors, blocked), attend(*tensors, blocked)
    torch.testing.assert_close(output, eager)
    torch.testing.assert_close(gradients(output, tensors), gradients(eager, tensors))


WRONG = {
    "one axis": (
        lambda q, k, v: ((q[0], k, v), {}), ValueError, r"query must have .* two axes.*\(6,\)"
    ),
    "key width": (
        lambda q, k, v: ((q, k[:, :4], v), {}), ValueError,
        r"key's width \(4\).*query's width \(6\)",
    ),
    "value length": (
        lambda q, k, v: ((q, k, v[:2]), {}), ValueError, r"value's length \(2\).*key's length \(5\)"
    ),
    "leading axes": (
        lambda q, k, v: ((q.expand(2, N, D), k.expand(3, M, D), v), {}), ValueError,
        r"leading axes of query \(2, 3, 6\), key \(3, 5, 6\)",
    ),
    "dropout": (
        lambda q, k, v: ((q, k, v), {"dropout_p": 1.5}), ValueError, r"dropout_p \(1.5\).*between"
    ),
    "dropout below 0": (
        lambda q, k, v: ((q, k, v), {"dropout_p": -0.5}), ValueError, r"dropout_p \(-0.5\).*between"
    ),
    "float blocked": (
        lambda q, k, v: ((q, k, v), {"blocked": torch.zeros(N, M)}), TypeError,
        r"blocked must be boolean, got torch.float32",
    ),
    "bias dtype": (
        lambda q, k, v: ((q, k, v), {"bias": torch.zeros(N, M, dtype=torch.float16)}), TypeError,
        r"bias \(torch.float16\).*query's dtype \(torch.float64\)",
    ),
    "blocked transposed": (
        lambda q, k, v: ((q, k, v), {"blocked": torch.zeros(M, N, dtype=torch.bool)}), ValueError,
        r"blocked \(5, 3\) must broadcast to .* = \(3, 5\)",
    ),
    "mask with more axes": (
        lambda q, k, v: ((q, k, v), {"bias": torch.zeros(B, N, M, dtype=torch.float64)}),
        ValueError, r"bias \(2, 3, 5\) must broadcast to .* = \(3, 5\)",
    ),
}  # fmt: skip


@NEED_WEIGHTS
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_named(case, need_weights):
    change, error, message = case
    arguments, options = change(*(x.detach() for x in inputs()))
    with pytest.raises(error, match=message):
        scaled_dot_product_attention(*arguments, **options, need_weights=need_weights)

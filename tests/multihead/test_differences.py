"""Each place where PyTorch's module does something else: what it does, and what ours does."""

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention, block_future

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])


def pair(**settings):
    """Make PyTorch's module and ours with the same parameters, biases included."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64, **settings)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, 0, 0.3)
    ours = MultiheadAttention(E, H, batch_first=True, dtype=torch.float64, **settings)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(n=N, m=M):
    torch.manual_seed(1)
    key = torch.randn(B, m, E, dtype=torch.float64, requires_grad=True)
    return torch.randn(B, n, E, dtype=torch.float64, requires_grad=True), key, key


def same(ours, theirs):
    torch.testing.assert_close(ours[0], theirs[0])
    if ours[1] is not None:
        torch.testing.assert_close(ours[1], theirs[1])


@NEED_WEIGHTS
@pytest.mark.parametrize("lengths", [(N, M), (M, N), (N, N)], ids=str)
def test_is_causal_without_a_mask(lengths, need_weights):
    theirs, ours = pair()
    tensors = inputs(*lengths)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        theirs(*tensors, is_causal=True, need_weights=need_weights)
    found = ours(*tensors, is_causal=True, need_weights=need_weights)
    same(found, theirs(*tensors, attn_mask=block_future(*lengths), need_weights=need_weights))


@NEED_WEIGHTS
@torch.no_grad()
def test_is_causal_without_a_mask_in_evaluation(need_weights):
    theirs, ours = (module.eval() for module in pair())
    x = inputs()[0]
    ignored = theirs(x, x, x, is_causal=True, need_weights=need_weights)[0]
    torch.testing.assert_close(ignored, theirs(x, x, x)[0])  # the future is not hidden
    found = ours(x, x, x, is_causal=True, need_weights=need_weights)
    same(found, theirs(x, x, x, attn_mask=block_future(N), need_weights=need_weights))


@NEED_WEIGHTS
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_is_causal_with_another_mask(kind, need_weights):
    theirs, ours = pair()
    tensors, future = inputs(), block_future(N, M)
    blocked = torch.zeros(N, M, dtype=torch.bool)
    blocked[2, 1] = True
    both, mask = blocked | future, blocked
    if kind == "float":
        mask, both = (torch.zeros(N, M).double().masked_fill(x, -torch.inf) for x in (mask, both))
    options = {"need_weights": need_weights}
    hinted = theirs(*tensors, attn_mask=mask, is_causal=True, **options)
    heeded = mask if need_weights else future  # of the two, this one
    same(hinted, theirs(*tensors, attn_mask=heeded, **options))
    found = ours(*tensors, attn_mask=mask, is_causal=True, **options)
    same(found, theirs(*tensors, attn_mask=both, **options))
    assert not torch.allclose(found[0], hinted[0])


def test_attn_mask_of_a_wrong_shape_with_is_causal():
    theirs, ours = pair()
    options = {"attn_mask": torch.zeros(7, 8, dtype=torch.bool), "is_causal": True}
    theirs(*inputs(), **options, need_weights=False)  # not even looked at
    with pytest.raises(ValueError, match=r"attn_mask \(7, 8\)"):
        ours(*inputs(), **options, need_weights=False)


@NEED_WEIGHTS
@pytest.mark.parametrize("appended", ["add_bias_kv", "add_zero_attn"])
def test_is_causal_with_appended_keys(appended, need_weights):
    theirs, ours = pair(**{appended: True})
    tensors, future = inputs(), block_future(N, M)
    options = {"attn_mask": future, "need_weights": need_weights}
    found = ours(*tensors, **options, is_causal=True)
    expected = theirs(*tensors, **options)
    same(found, expected)
    same(ours(*tensors, is_causal=True, need_weights=need_weights), expected)
    hinted = theirs(*tensors, **options, is_causal=True)
    assert torch.allclose(hinted[0], expected[0]) == need_weights


def fully_masked(kind):
    """Leave nothing to query 1 of sample 0, in some way; return options and the rows left dry."""
    blocked = torch.zeros(B, H, N, M, dtype=torch.bool)
    rows = torch.zeros(B, H, N, dtype=torch.bool)
    rows[0, :, 1] = True
    padding = torch.zeros(B, M, dtype=torch.bool)
    if kind == "attn_mask":
        rows[:, :, 1] = True
        return {"attn_mask": rows[0, 0, :, None].expand(N, M)}, rows
    if kind == "float attn_mask":
        rows[:, :, 1] = True
        row = rows[0, 0, :, None].expand(N, M)
        return {"attn_mask": torch.randn(N, M).double().masked_fill(row, -torch.inf)}, rows
    if kind == "attn_mask of one head":
        rows[0, [0, 1, 3]] = False
        return {"attn_mask": (blocked | rows[..., None]).flatten(0, 1)}, rows
    if kind in ("padding", "float padding"):
        rows[0] = True
        padding[0] = True
        added = torch.zeros(B, M).double().masked_fill(padding, -torch.inf)
        return {"key_padding_mask": added if "float" in kind else padding}, rows
    if kind == "both masks together":
        padding[0, :2] = True
        blocked[0, :, 1, 2:] = True
        return {"attn_mask": blocked.flatten(0, 1), "key_padding_mask": padding}, rows
    if kind == "boolean and float together":
        padding[0, :2] = True
        blocked[0, :, 1, 2:] = True
        added = torch.zeros(B * H, N, M).double().masked_fill(blocked.flatten(0, 1), -torch.inf)
        return {"attn_mask": added, "key_padding_mask": padding}, rows
    padding[0, :2] = True
    rows[0] = torch.tensor([True, True, False])
    return {"key_padding_mask": padding, "is_causal": True}, rows


KINDS = [
    "attn_mask", "float attn_mask", "attn_mask of one head", "padding", "float padding",
    "both masks together", "boolean and float together", "causal and padding at the start",
]  # fmt: skip


@NEED_WEIGHTS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fully_masked_row(kind, dropout, dtype, need_weights):
    ours = pair(dropout=dropout)[1].to(dtype)
    options, rows = fully_masked(kind)
    query, key = (x.detach().to(dtype).requires_grad_() for x in inputs()[:2])
    mixed = []  # what goes into out_proj
    ours.out_proj.register_forward_pre_hook(lambda _, x: mixed.append(x[0]))
    output, weights = ours(
        query, key, key, **options, need_weights=need_weights, average_attn_weights=False
    )
    heads = mixed[0].unflatten(-1, (H, D)).transpose(1, 2)
    assert (heads[rows] == 0).all()
    assert (heads[~rows] != 0).any(-1).float().mean() > 0.7  # dropout may empty a row
    assert output.isfinite().all()
    if need_weights:
        assert (weights[rows] == 0).all()
    dry = rows.all(1)  # in every head
    torch.testing.assert_close(output[dry], ours.out_proj.bias.expand_as(output[dry]))
    output.float().square().sum().backward()
    for x in (query, key, *ours.parameters()):
        assert x.grad.isfinite().all()
    assert (query.grad[dry] == 0).all()


def test_fully_masked_rows_are_nan_in_pytorch():
    theirs, _ = pair()
    (query, key, value), (options, _) = inputs(), fully_masked("attn_mask")
    assert theirs(query, key, value, **options)[0][:, 1].isnan().all()
    without = theirs(query, key, value, **options, need_weights=False)[0][:, 1]
    assert torch.equal(without, theirs.out_proj.bias.expand_as(without))
    blocked = torch.zeros(N, N, dtype=torch.bool)
    blocked[1] = True
    with torch.no_grad():
        fast = theirs.eval()(query, query, query, attn_mask=blocked, need_weights=False)[0]
    assert fast[:, 1].isnan().all()


@NEED_WEIGHTS
@pytest.mark.parametrize(
    "kinds", [(torch.bool, torch.float64), (torch.float64, torch.bool)], ids=str
)
def test_masks_of_two_kinds(kinds, need_weights):
    theirs, ours = pair()
    blocked = torch.zeros(N, M, dtype=torch.bool).index_fill(1, torch.tensor([1]), True)
    padding = torch.zeros(B, M, dtype=torch.bool)
    padding[0, 3] = True
    floats = [torch.zeros(x.shape).double().masked_fill(x, -torch.inf) for x in (blocked, padding)]
    mixed = [
        boolean if kind == torch.bool else added
        for boolean, added, kind in zip((blocked, padding), floats, kinds, strict=True)
    ]

    def call(module, attn_mask, key_padding_mask):
        return module(*inputs(), key_padding_mask, need_weights=need_weights, attn_mask=attn_mask)

    with pytest.warns(UserWarning, match="mismatched"):
        call(theirs, *mixed)
    same(call(ours, *mixed), call(theirs, *floats))


@NEED_WEIGHTS
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_floating_point_mask_of_another_dtype(dtype, need_weights):
    theirs, ours = pair()
    added = torch.randn(N, M).to(dtype)
    try:
        output = theirs(*inputs(), attn_mask=added, need_weights=need_weights)[0]
    except RuntimeError:
        output = None
    assert output is None or dtype == torch.float32  # it depends
    found = ours(*inputs(), attn_mask=added, need_weights=need_weights)
    same(found, theirs(*inputs(), attn_mask=added.double(), need_weights=need_weights))


def test_out_proj_is_called():
    theirs, ours = pair()
    calls = []
    for name, module in (("theirs", theirs), ("ours", ours)):
        module.out_proj.register_forward_hook(lambda *_, name=name: calls.append(name))
        module(*inputs())
    assert calls == ["ours"]


def test_qkv_same_embed_dim_is_false():
    theirs, ours = pair()
    assert (theirs._qkv_same_embed_dim, ours._qkv_same_embed_dim) == (True, False)
    assert ours.in_proj_weight is not None

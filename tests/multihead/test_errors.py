"""Bad arguments: each is refused in words that name it, what was given and what fits."""

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D

SETTINGS = {
    "embed_dim is not divisible": (
        {"embed_dim": 10}, ValueError, r"^embed_dim \(10\) must be divisible by num_heads \(4\)$"),
    "more heads than width": (
        {"embed_dim": 4, "num_heads": 8}, ValueError, r"embed_dim \(4\) .* num_heads \(8\)"),
    "embed_dim of zero": ({"embed_dim": 0}, ValueError, r"embed_dim \(0\) must be at least 1"),
    "embed_dim below zero": ({"embed_dim": -24}, ValueError, r"embed_dim \(-24\)"),
    "embed_dim not whole": ({"embed_dim": 24.0}, TypeError, r"embed_dim \(24.0\).*integer"),
    "embed_dim missing": ({"embed_dim": None}, TypeError, r"embed_dim \(None\).*integer"),
    "num_heads of zero": ({"num_heads": 0}, ValueError, r"num_heads \(0\) must be at least 1"),
    "num_heads below zero": ({"num_heads": -4}, ValueError, r"num_heads \(-4\)"),
    "num_heads in words": ({"num_heads": "4"}, TypeError, r"num_heads \('4'\).*integer"),
    "num_heads a truth": ({"num_heads": True}, TypeError, r"num_heads \(True\).*integer"),
    "kdim of zero": ({"kdim": 0}, ValueError, r"kdim \(0\) must be at least 1"),
    "kdim not whole": ({"kdim": 2.5}, TypeError, r"kdim \(2.5\).*integer"),
    "vdim below zero": ({"vdim": -1}, ValueError, r"vdim \(-1\) must be at least 1"),
    "dropout above 1": ({"dropout": 1.5}, ValueError, r"dropout \(1.5\).*between 0 and 1"),
    "dropout below 0": ({"dropout": -0.1}, ValueError, r"dropout \(-0.1\).*between 0 and 1"),
    "dropout no number": ({"dropout": float("nan")}, ValueError, r"dropout \(nan\)"),
    "dropout in words": ({"dropout": "0.1"}, TypeError, r"dropout \('0.1'\) must be a number"),
    "dropout a truth": ({"dropout": True}, TypeError, r"dropout \(True\) must be a number"),
    "integer dtype": ({"dtype": torch.int64}, TypeError, r"dtype \(torch.int64\).*floating-point"),
    "complex dtype": ({"dtype": torch.complex64}, TypeError, r"dtype \(torch.complex64\)"),
    "bias passed as dropout": ({"dropout": 24}, ValueError, r"dropout \(24\)"),
    "dtype in words": ({"dtype": "float32"}, TypeError, r"dtype \('float32'\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_that_do_not_fit_are_named(case):
    change, error, message = case
    with pytest.raises(error, match=message):
        MultiheadAttention(**{"embed_dim": E, "num_heads": H, **change})


def tensor(*shape, **options):
    return torch.zeros(*shape, **options)


def blocked(*shape, **options):
    return torch.zeros(*shape, dtype=torch.bool, **options)


# What is changed in a call that is fine: query (2, 3, 24), key and value (2, 5, 24), batch first.
CALLS = {
    "query's width": (
        {"query": tensor(B, N, 20)}, ValueError, r"^query's width \(20\) must be 24$"),
    "key's width": ({"key": tensor(B, M, 20)}, ValueError, r"key's width \(20\) must be 24"),
    "value's width": ({"value": tensor(B, M, 1)}, ValueError, r"value's width \(1\) must be 24"),
    "query with one axis": (
        {"query": tensor(E)}, ValueError, r"three axes, or two .*query \(24,\)"),
    "query with four axes": (
        {"query": tensor(1, B, N, E)}, ValueError, r"three axes.*query \(1, 2, 3, 24\)"),
    "query without a batch": (
        {"query": tensor(N, E)}, ValueError, r"got query \(3, 24\), key \(2, 5, 24\)"),
    "key without a batch": (
        {"key": tensor(M, E)}, ValueError, r"query \(2, 3, 24\), key \(5, 24\)"),
    "value without a batch": (
        {"value": tensor(M, E)}, ValueError, r"got query \(2, 3, 24\), .*value \(5, 24\)"),
    "key's batch": (
        {"key": tensor(7, M, E)}, ValueError, r"same batch size, got 2, 7, 2 on axis 0.*True"),
    "value's batch": (
        {"value": tensor(7, M, E)}, ValueError, r"same batch size, got 2, 2, 7 on axis 0"),
    "query's batch": ({"query": tensor(1, N, E)}, ValueError, r"same batch size, got 1, 2, 2"),
    "value's length": (
        {"value": tensor(B, 7, E)}, ValueError,
        r"value's length \(7\) must equal key's length \(5\)"),
    "integer query": (
        {"query": tensor(B, N, E, dtype=torch.int64)}, TypeError,
        r"query must be floating point, got torch.int64"),
    "boolean key": (
        {"key": blocked(B, M, E)}, TypeError, r"key must be floating point, got torch.bool"),
    "complex value": (
        {"value": tensor(B, M, E, dtype=torch.complex64)}, TypeError,
        r"value must be floating point, got torch.complex64"),
    "query of another precision": (
        {"query": tensor(B, N, E, dtype=torch.float64)}, TypeError,
        r"query \(torch.float64\) must have the parameters' dtype \(torch.float32\)"),
    "value of another precision": (
        {"value": tensor(B, M, E, dtype=torch.float16)}, TypeError,
        r"value \(torch.float16\) .* \(torch.float32\)"),
    "query on another device": (
        {"query": tensor(B, N, E, device="meta")}, ValueError,
        r"query is on meta, the parameters are on cpu"),
    "value on another device": (
        {"value": tensor(B, M, E, device="meta")}, ValueError,
        r"value is on meta, the parameters are on cpu"),
    "query a list": ({"query": [[0.0] * E] * N}, TypeError, r"query must be a tensor, got list"),
    "key missing": ({"key": None}, TypeError, r"key must be a tensor, got NoneType"),
    "attn_mask transposed": (
        {"attn_mask": blocked(M, N)}, ValueError,
        r"attn_mask \(5, 3\) must .* \(n, m\) = \(3, 5\) or \(b \* h, n, m\) = \(8, 3, 5\)$"),
    "attn_mask for each sample": (
        {"attn_mask": blocked(B, N, M)}, ValueError, r"attn_mask \(2, 3, 5\).*\(8, 3, 5\)"),
    "attn_mask for each head": (
        {"attn_mask": blocked(H, N, M)}, ValueError, r"attn_mask \(4, 3, 5\).*\(8, 3, 5\)"),
    "attn_mask with one axis": (
        {"attn_mask": blocked(M)}, ValueError, r"attn_mask \(5,\) must have shape"),
    "attn_mask with four axes": (
        {"attn_mask": blocked(B, H, N, M)}, ValueError, r"attn_mask \(2, 4, 3, 5\) must have"),
    "attn_mask to be broadcast": (
        {"attn_mask": blocked(1, M)}, ValueError, r"attn_mask \(1, 5\) must have"),
    "integer attn_mask": (
        {"attn_mask": tensor(N, M, dtype=torch.int64)}, TypeError,
        r"attn_mask must be boolean \(True = blocked\) or floating point .*got torch.int64"),
    "attn_mask of bytes": (
        {"attn_mask": tensor(N, M, dtype=torch.uint8)}, TypeError, r"got torch.uint8"),
    "attn_mask on another device": (
        {"attn_mask": blocked(N, M, device="meta")}, ValueError,
        r"attn_mask is on meta, query is on cpu"),
    "attn_mask a list": (
        {"attn_mask": [[False] * M] * N}, TypeError, r"attn_mask must be a tensor, got list"),
    "padding for the queries": (
        {"key_padding_mask": blocked(B, N)}, ValueError,
        r"key_padding_mask \(2, 3\) must have shape \(b, m\) = \(2, 5\)"),
    "padding transposed": (
        {"key_padding_mask": blocked(M, B)}, ValueError, r"key_padding_mask \(5, 2\)"),
    "padding without a batch": (
        {"key_padding_mask": blocked(M)}, ValueError, r"key_padding_mask \(5,\)"),
    "padding with axes for the scores": (
        {"key_padding_mask": blocked(B, 1, 1, M)}, ValueError, r"key_padding_mask \(2, 1, 1, 5\)"),
    "integer padding": (
        {"key_padding_mask": tensor(B, M, dtype=torch.int32)}, TypeError,
        r"key_padding_mask must be boolean .*got torch.int32"),
    "padding on another device": (
        {"key_padding_mask": blocked(B, M, device="meta")}, ValueError,
        r"key_padding_mask is on meta"),
    "is_causal excuses nothing": (
        {"attn_mask": blocked(M, N), "is_causal": True}, ValueError, r"attn_mask \(5, 3\)"),
    "no batch, attn_mask with one": (
        {"query": tensor(N, E), "key": tensor(M, E), "value": tensor(M, E),
         "attn_mask": blocked(B * H, N, M)}, ValueError,
        r"attn_mask \(8, 3, 5\) must have shape \(n, m\) = \(3, 5\) or \(h, n, m\) = \(4, 3, 5\)"),
    "no batch, padding with one": (
        {"query": tensor(N, E), "key": tensor(M, E), "value": tensor(M, E),
         "key_padding_mask": blocked(1, M)}, ValueError,
        r"key_padding_mask \(1, 5\) must have shape \(m,\) = \(5,\)"),
    "no batch, value's length": (
        {"query": tensor(N, E), "key": tensor(M, E), "value": tensor(7, E)}, ValueError,
        r"value's length \(7\) must equal key's length \(5\)"),
}  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("case", CALLS.values(), ids=CALLS.keys())
def test_arguments_that_do_not_fit_are_named(case, need_weights, training):
    change, error, message = case
    module = MultiheadAttention(E, H, batch_first=True).train(training)
    fine = {"query": tensor(B, N, E), "key": tensor(B, M, E), "value": tensor(B, M, E)}
    module(**fine, need_weights=need_weights)
    with pytest.raises(error, match=message):
        module(**{**fine, **change}, need_weights=need_weights)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_nested_query_is_refused_with_the_remedy(need_weights, training):
    module = MultiheadAttention(E, H, batch_first=True).train(training)
    query = torch.nested.nested_tensor([tensor(2, E), tensor(3, E)], layout=torch.jagged)
    with pytest.raises(TypeError, match=r"query must be a dense tensor.*use_nested_tensor"):
        module(query, tensor(B, M, E), tensor(B, M, E), need_weights=need_weights)


def test_batch_axis_follows_the_layout():
    module = MultiheadAttention(E, H)
    with pytest.raises(ValueError, match=r"got 2, 3, 3 on axis 1, .* batch_first=False"):
        module(tensor(N, 2, E), tensor(M, 3, E), tensor(M, 3, E))
    with pytest.raises(ValueError, match=r"value's length \(4\) must equal key's length \(5\)"):
        module(tensor(N, B, E), tensor(M, B, E), tensor(4, B, E))
    with pytest.raises(ValueError, match=r"attn_mask \(2, 2\) .* \(3, 5\) .* \(8, 3, 5\)"):
        module(tensor(N, B, E), tensor(M, B, E), tensor(M, B, E), attn_mask=blocked(B, B))


def test_widths_of_keys_and_values_are_their_own():
    module = MultiheadAttention(E, H, kdim=10, vdim=7, batch_first=True)
    module(tensor(B, N, E), tensor(B, M, 10), tensor(B, M, 7))
    with pytest.raises(ValueError, match=r"key's width \(24\) must be 10"):
        module(tensor(B, N, E), tensor(B, M, E), tensor(B, M, 7))
    with pytest.raises(ValueError, match=r"value's width \(24\) must be 7"):
        module(tensor(B, N, E), tensor(B, M, 10), tensor(B, M, E))


def test_dropout_set_later_is_looked_at():
    module = MultiheadAttention(E, H)
    module.dropout = 2
    with pytest.raises(ValueError, match=r"dropout_p \(2\) must be between 0 and 1"):
        module(tensor(N, B, E), tensor(M, B, E), tensor(M, B, E))


def test_whole_module_elsewhere_is_fine():
    module = MultiheadAttention(E, H, device="meta")
    x = tensor(N, B, E, device="meta")
    assert module(x, x, x, attn_mask=blocked(N, N, device="meta"))[0].is_meta


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_input_inside_a_ready_stack_is_refused_with_the_remedy():
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)
    stack = nn.TransformerEncoder(layer, 1).eval()
    ours = MultiheadAttention(E, H, batch_first=True)
    ours.load_state_dict(stack.layers[0].self_attn.state_dict())
    padding = torch.tensor([[False] * 3, [False, False, True]])
    x = torch.randn(B, N, E)
    with torch.no_grad():
        expected = stack(x, src_key_padding_mask=padding)
        stack.layers[0].self_attn = ours
        with pytest.raises(TypeError, match="use_nested_tensor = False"):
            stack(x, src_key_padding_mask=padding)
        stack.use_nested_tensor = False
        found = stack(x, src_key_padding_mask=padding)
    torch.testing.assert_close(found[~padding], expected[~padding])

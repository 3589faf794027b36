"""Bad arguments: each is refused in words that name it, what was given and what fits."""

import pytest
import torch

from annotated_attention import (
    MultiheadAttention,
    as_blocked,
    block_future,
    block_others,
    block_padding,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from annotated_attention.attention import masked_softmax
from tests.settings import B, D, E, H, M, N


def tensor(*shape, **options):
    return torch.zeros(*shape, **options)


def blocked(*shape, **options):
    return torch.zeros(*shape, dtype=torch.bool, **options)


def make(**changed):
    """Make a module with one bad setting."""
    return lambda: MultiheadAttention(**{"embed_dim": E, "num_heads": H} | changed)


def call(training=True, settings=None, **changed):
    """Call a module in a way that is fine, but for what is changed."""
    shapes = {"query": (B, N, E), "key": (B, M, E), "value": (B, M, E)}
    settings = {"batch_first": True} | (settings or {})
    given = {name: tensor(*shape) for name, shape in shapes.items()} | changed
    return lambda: MultiheadAttention(E, H, **settings).train(training)(**given)


def function(**changed):
    """Call the function in a way that is fine, but for what is changed."""
    shapes = {"query": (N, D), "key": (M, D), "value": (M, 7)}
    given = {name: tensor(*shape) for name, shape in shapes.items()} | changed
    return lambda: scaled_dot_product_attention(**given)


ALONE = {"query": tensor(N, E), "key": tensor(M, E), "value": tensor(M, E)}
NESTED = torch.nested.nested_tensor([tensor(2, E), tensor(3, E)], layout=torch.jagged)
CORE = [
    (make(embed_dim=10), ValueError, "embed_dim (10) must be divisible by num_heads (4)"),
    (make(embed_dim=0), ValueError, "embed_dim (0) must be at least 1"),
    (make(embed_dim=24.0), TypeError, "embed_dim (24.0) must be an integer"),
    (make(num_heads=-4), ValueError, "num_heads (-4) must be at least 1"),
    (make(num_heads=True), TypeError, "num_heads (True) must be an integer"),
    (make(kdim=0), ValueError, "kdim (0) must be at least 1"),
    (make(vdim=2.5), TypeError, "vdim (2.5) must be an integer"),
    (make(dropout=1.5), ValueError, "dropout (1.5) must be between 0 and 1"),
    (make(dropout=float("nan")), ValueError, "dropout (nan) must be between 0 and 1"),
    (make(dropout="0.1"), TypeError, "dropout ('0.1') must be a number"),
    (make(dropout=True), TypeError, "dropout (True) must be a number"),
    (make(dtype=torch.int64), TypeError, "dtype (torch.int64) must be a floating-point dtype"),
    (make(dtype="float32"), TypeError, "dtype ('float32') must be a floating-point dtype"),
    (call(query=tensor(B, N, 20)), ValueError, "query's width (20) must be 24"),
    (call(key=tensor(B, M, 20)), ValueError, "key's width (20) must be 24"),
    (call(settings={"kdim": 10}), ValueError, "key's width (24) must be 10"),
    (call(settings={"vdim": 7}), ValueError, "value's width (24) must be 7"),
    (call(query=tensor(E)), ValueError, "query, key and value must have three axes, or two"),
    (call(query=tensor(1, B, N, E)), ValueError, "got query (1, 2, 3, 24), key (2, 5, 24)"),
    (call(key=tensor(M, E)), ValueError, "got query (2, 3, 24), key (5, 24), value (2, 5, 24)"),
    (
        call(value=tensor(7, M, E)), ValueError,
        "query, key and value must have the same batch size, got 2, 2, 7 on axis 0, which is the "
        "batch with batch_first=True",
    ),
    (
        call(settings={"batch_first": False}, query=tensor(N, 7, E)), ValueError,
        "got 7, 5, 5 on axis 1, which is the batch with batch_first=False",
    ),
    (call(value=tensor(B, 7, E)), ValueError, "value's length (7) must equal key's length (5)"),
    (call(**ALONE | {"value": tensor(7, E)}), ValueError, "value's length (7) must equal key's"),
    (
        call(
            settings={"batch_first": False}, query=tensor(N, B, E), key=tensor(M, B, E),
            value=tensor(7, B, E),
        ), ValueError, "value's length (7) must equal key's length (5)",
    ),
    (call(query=tensor(B, N, E).long()), TypeError, "query must be floating point, got torch.int6"),
    (
        call(query=tensor(B, N, E).double()), TypeError,
        "query (torch.float64) must have the parameters' dtype (torch.float32)",
    ),
    (
        call(value=tensor(B, M, E, device="meta")), ValueError,
        "value is on meta, the parameters are on cpu",
    ),
    (call(key=None), TypeError, "key must be a tensor, got NoneType"),
    (call(query=NESTED), TypeError, "query must be a dense tensor, got a nested one; inside"),
    (
        call(attn_mask=blocked(M, N)), ValueError,
        "attn_mask (5, 3) must have shape (n, m) = (3, 5) or (b * h, n, m) = (8, 3, 5)",
    ),
    (call(attn_mask=blocked(M, N), is_causal=True), ValueError, "attn_mask (5, 3) must have"),
    (call(attn_mask=blocked(B, N, M)), ValueError, "attn_mask (2, 3, 5) must have shape"),
    (call(attn_mask=blocked(1, M)), ValueError, "attn_mask (1, 5) must have shape"),
    (
        call(**ALONE, attn_mask=blocked(B * H, N, M)), ValueError,
        "attn_mask (8, 3, 5) must have shape (n, m) = (3, 5) or (h, n, m) = (4, 3, 5)",
    ),
    (
        call(
            settings={"batch_first": False}, query=tensor(N, B, E), key=tensor(M, B, E),
            value=tensor(M, B, E), attn_mask=blocked(B, B),
        ), ValueError, "attn_mask (2, 2) must have shape (n, m) = (3, 5)",
    ),
    (
        call(attn_mask=tensor(N, M).long()), TypeError,
        "attn_mask must be boolean (True = blocked) or floating point (added), got torch.int64",
    ),
    (call(attn_mask=[[False] * M] * N), TypeError, "attn_mask must be a tensor, got list"),
    (
        call(attn_mask=blocked(N, M, device="meta")), ValueError,
        "attn_mask is on meta, query is on cpu",
    ),
    (
        call(key_padding_mask=blocked(B, N)), ValueError,
        "key_padding_mask (2, 3) must have shape (b, m) = (2, 5)",
    ),
    (call(key_padding_mask=blocked(M)), ValueError, "key_padding_mask (5,) must have shape"),
    (
        call(**ALONE, key_padding_mask=blocked(1, M)), ValueError,
        "key_padding_mask (1, 5) must have shape (m,) = (5,)",
    ),
    (call(key_padding_mask=tensor(B, M).int()), TypeError, "key_padding_mask must be boolean"),
    (function(query=tensor(D)), ValueError, "query must have at least two axes, got shape (6,)"),
    (function(value=None), TypeError, "value must be a tensor, got NoneType"),
    (function(key=tensor(M, 4)), ValueError, "key's width (4) must equal query's width (6)"),
    (function(value=tensor(2, 7)), ValueError, "value's length (2) must equal key's length (5)"),
    (
        function(query=tensor(2, N, D), key=tensor(3, M, D)), ValueError,
        "the leading axes of query (2, 3, 6), key (3, 5, 6) and value (5, 7) must broadcast",
    ),
    (function(dropout_p=1.5), ValueError, "dropout_p (1.5) must be between 0 and 1"),
    (function(blocked=tensor(N, M)), TypeError, "blocked must be boolean, got torch.float32"),
    (
        function(bias=tensor(N, M).half()), TypeError,
        "bias (torch.float16) must have query's dtype (torch.float32)",
    ),
    (
        function(blocked=blocked(M, N)), ValueError,
        "blocked (5, 3) must broadcast to (..., n, m) = (3, 5)",
    ),
    (function(bias=tensor(B, N, M)), ValueError, "bias (2, 3, 5) must broadcast to (..., n, m)"),
    (
        function(score=lambda q, k: q @ k.mT.flip(-1)[..., :4]), ValueError,
        "score must return (..., n, m) = (..., 3, 5), got (3, 4)",
    ),
    (
        lambda: masked_softmax(tensor(N, M), blocked(B, N, M)), ValueError,
        "masks (2, 3, 5) must broadcast to (3, 5)",
    ),
    (
        lambda: split_heads(tensor(N, 10), 4), ValueError,
        "the width of x (10) must be divisible by num_heads (4)",
    ),
    (lambda: split_heads(tensor(N, 10), 0), ValueError, "divisible by num_heads (0)"),
    (lambda: split_heads(tensor(10), 2), ValueError, "x must have shape (..., n, h * d), got (10,"),
    (lambda: merge_heads(tensor(N, D)), ValueError, "x must have shape (..., h, n, d), got (3, 6)"),
    (
        lambda: block_padding(tensor(B), M), TypeError,
        "lengths must hold integers, got torch.float32",
    ),
    (lambda: block_padding(blocked(B), M), TypeError, "lengths must hold integers, got torch.bool"),
    (
        lambda: block_padding(tensor(B, 1).long(), M), ValueError,
        "lengths must have shape (b,), got (2, 1)",
    ),
    (lambda: block_padding(tensor(B).long(), -1), ValueError, "m (-1) must not be negative"),
    (lambda: block_future(-3), ValueError, "n (-3) and m (-3) must not be negative"),
    (lambda: block_future(3, -1), ValueError, "n (3) and m (-1) must not be negative"),
    (lambda: block_others([2, -1]), ValueError, "sizes (2, -1) must not be negative"),
    (
        lambda: as_blocked(tensor(2), true_means="blocked"), TypeError,
        "mask must be boolean or hold integers, got torch.float32",
    ),
    (
        lambda: as_blocked(blocked(2), true_means="masked"), ValueError,
        "true_means ('masked') must be \"blocked\" or \"allowed\"",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "error", "words"), CORE, ids=[words for *_, words in CORE])
def test_core(bad, error, words):
    with pytest.raises(error) as raised:
        bad()
    assert words in str(raised.value)


def test_good_calls_are_not_refused():
    make()(), call()(), function()()
    call(settings={"kdim": 10, "vdim": 7}, key=tensor(B, M, 10), value=tensor(B, M, 7))()
    module = MultiheadAttention(E, H, device="meta")
    x = tensor(N, B, E, device="meta")
    assert module(x, x, x, attn_mask=blocked(N, N, device="meta"))[0].is_meta

"""Bad arguments: each is refused in words that name it, what was given and what fits."""

import pytest
import torch

from annotated_attention import (
    MultiheadAttention,
    as_blocked,
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
SECOND = {"batch_first": False}  # and inputs for it
LAST = {"query": tensor(N, B, E), "key": tensor(M, B, E), "value": tensor(M, B, E)}
VALUES = [
    (make(embed_dim=10), "embed_dim (10) must be divisible by num_heads (4)"),
    (make(embed_dim=0), "embed_dim (0) must be at least 1"),
    (make(dropout=float("nan")), "dropout (nan) must be between 0 and 1"),
    (call(query=tensor(B, N, 20)), "query's width (20) must be 24"),
    (call(settings={"vdim": 7}), "value's width (24) must be 7"),
    (call(query=tensor(1, B, N, E)), "must have three axes, or two without a batch, got q"),
    (call(key=tensor(M, E)), "got query (2, 3, 24), key (5, 24), value (2, 5, 24)"),
    (call(value=tensor(7, M, E)), "got 2, 2, 7 on axis 0, which is the batch"),
    (call(settings=SECOND, query=tensor(N, 7, E)), "got 7, 5, 5 on axis 1, which is the batch"),
    (call(value=tensor(B, 7, E)), "value's length (7) must equal key's length (5)"),
    (call(**ALONE | {"value": tensor(7, E)}), "value's length (7) must equal key's length (5)"),
    (call(settings=SECOND, **LAST | {"value": tensor(7, B, E)}), "value's length (7) must equal"),
    (
        call(value=tensor(B, M, E, device="meta")),
        "value must be on the parameters' device (cpu), got m",
    ),
    (call(attn_mask=blocked(M, N)), "attn_mask (5, 3) must have shape (n, m) = (3, 5) or (b"),
    (call(attn_mask=blocked(B, N, M)), "attn_mask (2, 3, 5) must have shape"),
    (call(**ALONE, attn_mask=blocked(B * H, N, M)), "(3, 5) or (h, n, m) = (4, 3, 5)"),
    (call(settings=SECOND, **LAST, attn_mask=blocked(B, B)), "attn_mask (2, 2) must have shape"),
    (
        call(attn_mask=blocked(N, M, device="meta")),
        "attn_mask must be on query's device (cpu), got meta",
    ),
    (call(key_padding_mask=blocked(B, N)), "_mask (2, 3) must have shape (b, m) = (2, 5)"),
    (call(**ALONE, key_padding_mask=blocked(1, M)), "(1, 5) must have shape (m,) = (5,)"),
    (function(query=tensor(D)), "query must have at least two axes, got shape (6,)"),
    (function(key=tensor(M, 4)), "key's width (4) must equal query's width (6)"),
    (function(value=tensor(2, 7)), "value's length (2) must equal key's length (5)"),
    (function(query=tensor(2, N, D), key=tensor(3, M, D)), "the leading axes of query (2, 3, 6),"),
    (function(query=tensor(N, 0), key=tensor(M, 0)), "query's width (0) must be at least 1"),
    (function(key=tensor(M, D, device="meta")), "key must be on query's device (cpu), got meta"),
    (function(blocked=blocked(N, M, device="meta")), "blocked must be on query's device (cpu), go"),
    (function(bias=tensor(N, M, device="meta")), "bias must be on query's device (cpu), got meta"),
    (
        function(value=tensor(2, M, 7), blocked=blocked(2, N, M)),
        "blocked (2, 3, 5) must broadcast to (..., n, m) = (3, 5)",
    ),
    (function(dropout_p=1.5), "dropout_p (1.5) must be between 0 and 1"),
    (function(blocked=blocked(M, N)), "blocked (5, 3) must broadcast to (..., n, m) = (3, 5)"),
    (function(bias=tensor(B, N, M)), "bias (2, 3, 5) must broadcast to (..., n, m)"),
    (function(score=lambda q, k: (q @ k.mT)[..., :4]), "score must return (..., n, m) ="),
    (lambda: masked_softmax(tensor(N, M), blocked(B, N, M)), "(2, 3, 5) must broadcast to (3, 5)"),
    (lambda: split_heads(tensor(N, 10), 4), "width of x (10) must be divisible by num_heads (4)"),
    (lambda: split_heads(tensor(N, 10), 0), "divisible by num_heads (0)"),
    (lambda: split_heads(tensor(10), 2), "x must have shape (..., n, h * d), got (10,)"),
    (lambda: merge_heads(tensor(N, D)), "x must have shape (..., h, n, d), got (3, 6)"),
    (lambda: block_padding(tensor(B, 1).long(), M), "lengths must have shape (b,), got (2, 1)"),
    (lambda: as_blocked(blocked(2), true_means="masked"), "true_means ('masked') must be"),
]
TYPES = [
    (make(embed_dim=24.0), "embed_dim (24.0) must be an integer"),
    (make(num_heads=True), "num_heads (True) must be an integer"),
    (make(dropout="0.1"), "dropout ('0.1') must be a number"),
    (make(dropout=True), "dropout (True) must be a number"),
    (make(dtype=torch.int64), "dtype (torch.int64) must be a floating-point dtype"),
    (make(dtype="float32"), "dtype ('float32') must be a floating-point dtype"),
    (call(query=tensor(B, N, E).long()), "query must be floating point, got torch.int64"),
    (call(query=tensor(B, N, E).double()), "query (torch.float64) must have the parameters' dtype"),
    (call(key=None), "key must be a tensor, got NoneType"),
    (call(query=NESTED), "query must be a dense tensor, got a nested one; inside"),
    (call(attn_mask=tensor(N, M).long()), "attn_mask must be boolean (True = blocked) or floating"),
    (call(attn_mask=[[False] * M] * N), "attn_mask must be a tensor, got list"),
    (function(value=None), "value must be a tensor, got NoneType"),
    (function(query=tensor(N, D).long()), "query must be floating point, got torch.int64"),
    (function(key=tensor(M, D).double()), "key (torch.float64) must have query's dtype (torch.flo"),
    (function(value=NESTED), "value must be a dense tensor, got a nested one"),
    (function(blocked=[[False] * M] * N), "blocked must be a tensor, got list"),
    (function(blocked=tensor(N, M)), "blocked must be boolean, got torch.float32"),
    (function(bias=tensor(N, M).half()), "bias (torch.float16) must have query's dtype"),
    (lambda: block_padding(tensor(B), M), "lengths must hold integers, got torch.float32"),
    (lambda: block_padding(blocked(B), M), "lengths must hold integers, got torch.bool"),
    (lambda: as_blocked(tensor(2), true_means="blocked"), "mask must be boolean or hold integers"),
]
CORE = [(ValueError, *row) for row in VALUES] + [(TypeError, *row) for row in TYPES]


@pytest.mark.parametrize(("error", "bad", "words"), CORE, ids=[words for *_, words in CORE])
def test_core(error, bad, words):
    with pytest.raises(error) as raised:
        bad()
    assert words in str(raised.value)


def test_what_has_no_numbers_is_not_refused():
    module = MultiheadAttention(E, H, device="meta")
    x = tensor(N, B, E, device="meta")
    assert module(x, x, x, attn_mask=blocked(N, N, device="meta"))[0].is_meta

"""Bad arguments of layers, models and attention today: each is refused in words that name it.

One table: a call, the error, and words of its message. The core's own is in test_errors.
"""

import re

import pytest
import torch

from annotated_attention import (
    LearnedPositionalEncoding,
    MultiheadAttention,
    PositionalEncoding,
    Seq2SeqTransformer,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from annotated_attention.modern import (
    AlibiBias,
    BiasedAttention,
    BucketedBias,
    CachedAttention,
    GroupedQueryAttention,
    KVCache,
    LatentAttention,
    PagedCache,
    RotaryAttention,
    RotaryEmbedding,
    StaticCache,
    WindowAttention,
    WindowCache,
    alibi_slopes,
    block_by_position,
    block_other_documents,
    group_heads,
    interleaved_to_half,
    relative_buckets,
    repeat_heads,
    rotary_frequencies,
    rotate,
    tiled_attention,
    with_sink,
)

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D


def numbers(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def ids(*shape, fill=3):
    return torch.full(shape, fill)


def model(**change):
    """Call a Transformer with one layer on each side."""
    given = {"src": numbers(B, M, E), "tgt": numbers(B, N, E)} | change
    return lambda: Transformer(E, H, 1, 1, 7, batch_first=True)(**given)


def layers(change):
    kinds = (TransformerEncoderLayer, TransformerDecoderLayer)
    return [lambda kind=kind: kind(**{"d_model": E, "nhead": H} | change) for kind in kinds]


def stacks(number):
    pairs = (
        (TransformerEncoder, TransformerEncoderLayer),
        (TransformerDecoder, TransformerDecoderLayer),
    )
    return [lambda kind=kind, layer=layer: kind(layer(E, H, 7), number) for kind, layer in pairs]


def seq2seq(**change):
    given = {"src": ids(B, M), "tgt": ids(B, N)} | change
    return lambda: Seq2SeqTransformer(11, 13, E, H, 1, 1, 7, max_len=10)(**given)


def positions(*shape, **settings):
    kinds = (PositionalEncoding, LearnedPositionalEncoding)
    settings = {"d_model": D, "max_len": 10, "batch_first": True} | settings
    return [lambda kind=kind: kind(**settings)(numbers(*shape)) for kind in kinds]


def turned(**change):
    given = {"x": numbers(B, N, D), "cos": numbers(N, 3), "sin": numbers(N, 3)}
    return lambda: rotate(**given | change)


def embedded(**change):
    given = {"x": numbers(B, N, D), "positions": torch.arange(N)}
    return lambda: RotaryEmbedding(D)(**given | change)


def scaled(**settings):
    options = {name: settings.pop(name) for name in ("base", "max_length") if name in settings}
    d = settings.pop("d", D)
    kinds = (rotary_frequencies, RotaryEmbedding)
    return [lambda kind=kind: kind(d, scaling=settings, **options) for kind in kinds]


def bias(kind=AlibiBias, **change):
    given = {"positions": torch.arange(N), "key_positions": torch.arange(M)}
    return lambda: kind(H)(**given | change)


def biased(position_bias, **options):
    return lambda: BiasedAttention(E, H, position_bias, **options)


def cached(x=None, cache=None, mask=None, **options):
    x = numbers(B, N, E) if x is None else x
    return lambda: CachedAttention(E, H, batch_first=True, **options)(x, cache, mask)


def latent(x=None, cache=None, mask=None, **change):
    x = numbers(B, N, E) if x is None else x
    options = {"latent_dim": 8, "rotary_dim": 2, "batch_first": True} | change
    return lambda: LatentAttention(E, H, **options)(x, cache, mask)


def each_cache(call):
    """Make each cache with three tokens of two texts, and call ``call`` with it."""
    made = (
        KVCache,
        lambda: StaticCache(B, H, 9, D),
        lambda: PagedCache(9, 4, H, D),
    )

    def used(empty):
        cache = empty()
        cache.append(K, K)
        try:
            call(cache)
        finally:
            assert int(cache.length) == 3  # nothing is lost

    return [lambda empty=empty: used(empty) for empty in made]


K = numbers(B, H, N, D)
LINEAR = {"rope_type": "linear"}
YARN = {"rope_type": "yarn", "factor": 2.0}

VALUES = [
    # Layers, stacks and models
    (layers({"nhead": 5}), "d_model (24) must be divisible by nhead (5)"),
    (layers({"activation": "swish"}), 'activation (\'swish\') must be "relu", "gelu" or'),
    (stacks(-1), "num_layers (-1) must be at least 0"),
    (model(src=numbers(3, M, E)), "tgt and memory must have the same batch size, got 2, 3 on"),
    (model(src_mask=numbers(M, N)), "src_mask (5, 3) must have shape (n, m) = (5, 5)"),
    (model(memory_key_padding_mask=numbers(B, N)), "memory_key_padding_mask (2, 3) must have"),
    (lambda: Seq2SeqTransformer(0, 13), "src_vocab (0) must be at least 1"),
    (
        lambda: Seq2SeqTransformer(11, 13, share_embeddings=True),
        "src_vocab (11) and tgt_vocab (13) must be equal to share",
    ),
    (seq2seq(tgt=torch.tensor([[3, -1, 4]] * B)), "tgt holds ids from -1 to 4; its vocab"),
    (seq2seq(src=ids(0, M), tgt=ids(0, N)), "src must have shape (b, n), with at least one seq"),
    (seq2seq(src=ids(3, M)), "tgt and memory must have the same batch size, got 2, 3 on"),
    (positions(B, 11, D), "x is 11 tokens long; there are max_len (10) positions"),
    (positions(B, N, 7), "x must have three axes, or two without a batch, the last of them 6 wide"),
    (positions(N, D, max_len=0), "max_len (0) must be at least 1"),
    # Rotary positions
    (turned(x=numbers(D)), "x (6,) must have shape (..., n, d), with d even"),
    (turned(x=numbers(N, 3)), "x (3, 3) must have shape (..., n, d), with d even"),
    (turned(cos=numbers(N, 2)), "cos (3, 2) must have shape (..., n, r) = (..., 3, 3)"),
    (turned(layout=None), 'layout (None) must be "half" or "interleaved"'),
    (lambda: RotaryEmbedding(7), "head_dim (7) must be even"),
    (lambda: RotaryAttention(12, 2, add_zero_attn=True), "add_zero_attn must be False"),
    (embedded(x=numbers(B, 4)), "x must have shape (..., n, 6), got (2, 4)"),
    (embedded(positions=torch.arange(M)), "positions (5,) must have shape (n,) = (3,), or (b, n)"),
    (scaled(factor=2.0), "scaling's rope_type (None) must be one of default, linear, dynamic"),
    (scaled(**LINEAR), "scaling of rope_type 'linear' must have factor"),
    (scaled(**LINEAR, factor=0), "scaling's factor (0) must be above 0"),
    (scaled(**LINEAR, factor=2.0, rope_theta=1.0), "scaling's rope_theta (1.0) must be above 1"),
    (scaled(base=9, rope_type="default", rope_theta=5), "base (9) must be None, or scaling's rope"),
    (scaled(rope_type="default", partial_rotary_factor=0.5), "must not have partial_rotary_factor"),
    (scaled(full_attention=LINEAR), "scaling's rope_type (None) must be one of default, linear"),
    (scaled(**YARN), "'yarn' must have original_max_position_embeddings"),
    (scaled(rope_type="dynamic", factor=2.0), "max_length (None) must be given"),
    (scaled(rope_type="dynamic", factor=2.0, max_length=8, d=2), "head_dim (2) must be at least 4"),
    # Biases by distance
    (lambda: alibi_slopes(0), "num_heads (0) must be at least 1"),
    (lambda: BucketedBias(3, 7), "num_buckets (7) must be even and at least 4"),
    (lambda: BucketedBias(3, 1, bidirectional=False), "num_buckets (1) must be at least 2"),
    (lambda: relative_buckets(numbers(1, 1), max_distance=8), "max_distance (8) must be above 8"),
    (biased(AlibiBias(3)), "position_bias must have num_heads (4), got 3"),
    (biased(torch.nn.Linear(D, H)), "position_bias must have num_heads (4), got None"),
    (biased(AlibiBias(H), add_bias_kv=True), "add_bias_kv must be False"),
    (bias(positions=ids(B, N)), "positions must have shape (n,), got (2, 3)"),
    # Caches
    (each_cache(lambda cache: cache.append(K[:1], K[:1])), "k (1, 4, 3, 6) must have the shape of"),
    (each_cache(lambda cache: cache.append(K, K[..., :5])), "v (2, 4, 3, 5) must have the shape"),
    (each_cache(lambda cache: cache.append(K, K[:, :, :2])), "as many sequences, heads and tokens"),
    (each_cache(lambda cache: cache.append(K, K[0])), "v (4, 3, 6) must have four axes"),
    (each_cache(lambda cache: cache.crop(-1)), "length (-1) must not be negative"),
    (each_cache(lambda cache: cache.reorder(ids(1, 2))), "index (1, 2) must have one axis"),
    (each_cache(lambda cache: cache.crop([1, 2, 3]))[2], "length [1, 2, 3] must be one number, or"),
    (each_cache(lambda cache: cache.reorder(ids(1, fill=0)))[1], "index (1) must name 2 sequences"),
    (lambda: StaticCache(B, H, 0, D), "max_length (0) must be at least 1"),
    (lambda: PagedCache(0, 4, H, D), "num_pages (0) must be at least 1"),
    (cached(mask=numbers(N, B)), "key_padding_mask (3, 2) must have shape (b, m) = (2, 3)"),
    # Windows, documents, sinks and tiles
    (lambda: block_by_position(torch.arange(N), N, 0), "window (0) must be at least 1"),
    (lambda: WindowCache(2, -1), "sinks (-1) must be at least 0"),
    (
        lambda: WindowAttention(E, H, 4, sinks=1, batch_first=True)(
            numbers(B, N, E), WindowCache(3)
        ),
        "cache (window 3, sinks 0) must have window 4 and sinks 1",
    ),
    (lambda: block_other_documents(ids(N)), "documents (3,) must have two axes"),
    (lambda: with_sink(K, K[..., 0], numbers(2)), "and sink (2,) must be (..., h, n, d_v)"),
    (lambda: tiled_attention(K, K, K, tile=0), "tile (0) must be at least 1"),
    (lambda: tiled_attention(K[0], K[0], K[0], mask_mod=print), "needs queries with four axes"),
    # Grouped heads and latents
    (lambda: GroupedQueryAttention(E, H, 3), "num_heads (4) must be divisible by num_kv_heads (3)"),
    (
        lambda: group_heads(GroupedQueryAttention(E, H, 2), 4),
        "the heads of module's keys (2) must be divisible by num_kv_heads (4)",
    ),
    (lambda: group_heads(MultiheadAttention(E, H, kdim=5), 2), "module must have no kdim or vdim"),
    (lambda: repeat_heads(numbers(B, 3, M, D), H), "num_heads (4) must be divisible by the heads"),
    (latent(rotary_dim=3), "rotary_dim (3) must be even"),
    (lambda: LatentAttention(20, 3, 8, 2), "embed_dim (20) must be divisible by num_heads (3), or"),
    (latent(numbers(N, E)), "x (3, 24) must have three axes"),
    (latent(mask=numbers(N, B)), "key_padding_mask (3, 2) must have shape (b, m) = (2, 3)"),
]
TYPES = [
    (model(tgt=numbers(B, N, E).double()), "query (torch.float64) must have the parameters'"),
    (stacks(2.0), "num_layers (2.0) must be an integer"),
    (seq2seq(src=numbers(B, M)), "src must be int64 or int32, got torch.float32"),
    (embedded(x=ids(B, N, D)), "x must be floating point, got torch.int64"),
    (lambda: RotaryEmbedding(D, base="10000"), "base ('10000') must be a number"),
    (lambda: RotaryEmbedding(D, scaling="linear"), "scaling ('linear') must be a dictionary"),
    (scaled(**LINEAR, factor="2"), "scaling's factor ('2') must be a number"),
    (bias(BucketedBias, positions=numbers(N)), "positions must hold integers, got torch.float32"),
    (lambda: relative_buckets(numbers(N, M)), "distance must hold integers, got torch.float32"),
    (each_cache(lambda cache: cache.append([1], K)), "k must be a tensor, got list"),
    (
        each_cache(lambda cache: cache.append(K.half(), K)),
        "k (torch.float16) must have the dtype of the cache (torch.float32)",
    ),
    (each_cache(lambda cache: cache.crop(2.5)), "length (2.5) must be an integer"),
    (each_cache(lambda cache: cache.reorder([0, 1])), "index must be a tensor, got list"),
    (each_cache(lambda cache: cache.reorder(numbers(2))), "index must be int64 or int32, got"),
    (cached(numbers(B, N, E).double()), "x (torch.float64) must have the parameters' dtype"),
    (cached(rotary="half"), "'str' object is not callable"),
    (cached(kdim=5), "unexpected keyword argument 'kdim'"),
    (lambda: WindowAttention(E, H, 2, sinks=None), "sinks (None) must be an integer"),
    (lambda: block_other_documents(numbers(B, N)), "documents must hold integers"),
    (lambda: tiled_attention(K, K, K, blocked=numbers(N, N)), "blocked must be boolean"),
    (lambda: group_heads(RotaryAttention(E, H), 2), "module must be a MultiheadAttention or Grou"),
]
OTHERS = [  # the first are refused by Python and PyTorch themselves
    (turned(x=[[0.0] * D] * N), AttributeError, "'list' object has no attribute"),
    (embedded(positions=range(N)), AttributeError, "'range' object has no attribute 'shape'"),
    (cached(cache={}), AttributeError, "'dict' object has no attribute 'length'"),
    (lambda: interleaved_to_half(numbers(9, 4), 3), RuntimeError, "the size of dim 0 (9)"),
    (lambda: repeat_heads(numbers(M, D), H), IndexError, "Dimension out of range"),
    (latent(dtype="float16"), TypeError, "dtype"),
    (each_cache(lambda cache: cache.reorder(torch.tensor([0, 2]))), IndexError, "index"),
    (each_cache(lambda cache: cache.reorder(torch.tensor([0, -1]))), IndexError, "index"),
    (each_cache(lambda cache: cache.append(*[K.repeat(1, 1, 3, 1)] * 2))[1], IndexError, "bounds"),
    (
        each_cache(lambda cache: cache.append(K.clone().requires_grad_(), K))[1:],
        RuntimeError,
        "keeps no graph: use torch.no_grad(), or KVCache",
    ),
]
TABLE = [
    *((calls, ValueError, words) for calls, words in VALUES),
    *((calls, TypeError, words) for calls, words in TYPES),
    *OTHERS,
]


@pytest.mark.parametrize(("calls", "error", "words"), TABLE, ids=[row[2] for row in TABLE])
def test_what_does_not_fit_is_named(calls, error, words):
    for call in calls if isinstance(calls, list) else [calls]:
        with pytest.raises(error, match=re.escape(words)):
            call()

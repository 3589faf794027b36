"""Bad arguments: each is refused in words that name it, what was given and what fits."""

import re

import pytest
import torch

from annotated_attention.modern import (
    AlibiBias,
    BiasedAttention,
    BucketedBias,
    CachedAttention,
    KVCache,
    LatentAttention,
    RotaryAttention,
    RotaryEmbedding,
    interleaved_to_half,
    relative_buckets,
    rotary_frequencies,
    rotate,
)

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D


def numbers(*shape):
    return torch.zeros(*shape)


def turned(**change):
    return rotate(**{"x": numbers(B, N, D), "cos": numbers(N, 3), "sin": numbers(N, 3)} | change)


def embedded(**change):
    return RotaryEmbedding(D)(**{"x": numbers(B, N, D), "positions": torch.arange(N)} | change)


def scaled(settings, **options):
    return rotary_frequencies(D, scaling=settings, **options)


def linear(factor):
    return {"rope_type": "linear", "factor": factor}


def bias(kind=AlibiBias, **change):
    return kind(H)(**{"positions": torch.arange(N), "key_positions": torch.arange(M)} | change)


def biased(position_bias):
    return BiasedAttention(E, H, position_bias)


def cached(cache, **options):
    return CachedAttention(E, H, **options)(numbers(N, B, E), cache)


def latent(cache=None, rotary_dim=2, **options):
    module = LatentAttention(E, H, latent_dim=8, rotary_dim=rotary_dim, **options)
    return module(numbers(N, B, E), cache)


VALUES = {
    "x must have shape (..., n, d), got (6,)": lambda: turned(x=numbers(D)),
    "cos (3, 2) must have shape (..., n, r) = (..., 3, 3)": lambda: turned(cos=numbers(N, 2)),
    "sin (5, 3) must have shape (..., n, r) = (..., 3, 3)": lambda: turned(sin=numbers(M, 3)),
    "sin (3,) must have shape (..., n, r)": lambda: turned(sin=numbers(3)),
    "num_heads (-4) must be at least 1": lambda: interleaved_to_half(numbers(E), -4),
    "base (nan) must be above 1": lambda: RotaryEmbedding(D, base=float("nan")),
    "scaling's factor (0) must be above 0": lambda: scaled(linear(0)),
    "scaling's original_max_position_embeddings (-8) must be above 0": lambda: scaled(
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": -8}
    ),
    "positions must have shape (n,), got (2, 3)": lambda: bias(
        positions=torch.arange(N).expand(B, -1)
    ),
    "key_positions must have shape (m,), got ()": lambda: bias(
        BucketedBias, key_positions=torch.tensor(M)
    ),
    "rotary_dim (3) must be even": lambda: latent(rotary_dim=3),
}
TYPES = {
    "x must be a tensor, got list": lambda: turned(x=[[0.0] * D] * N),
    "cos must be a tensor, got float": lambda: turned(cos=0.0),
    "sin must be a tensor, got NoneType": lambda: turned(sin=None),
    "x must be a tensor, got NoneType": lambda: embedded(x=None),
    "x must be floating point, got torch.int64": lambda: embedded(x=numbers(B, N, D).long()),
    "positions must be a tensor, got range": lambda: embedded(positions=range(N)),
    "positions must be a tensor, got int": lambda: RotaryEmbedding(D).angles(3),
    "dtype ('float32') must be a floating-point dtype": lambda: RotaryEmbedding(D).angles(
        torch.arange(N), "float32"
    ),
    "weight must be a tensor, got list": lambda: interleaved_to_half([0.0] * E, H),
    "num_heads (4.0) must be an integer": lambda: interleaved_to_half(numbers(E), 4.0),
    "scaling ('linear') must be a dictionary": lambda: RotaryAttention(E, H, scaling="linear"),
    "scaling's factor ('2') must be a number": lambda: scaled(linear("2")),
    "length (2.5) must be an integer": lambda: scaled(linear(2.0), length=2.5),
    "dtype (torch.int64) must be": lambda: scaled(None, dtype=torch.int64),
    "positions must hold integers, got torch.float32": lambda: bias(positions=numbers(N)),
    "key_positions must hold integers, got torch.bool": lambda: bias(
        BucketedBias, key_positions=numbers(M).bool()
    ),
    "key_positions must be a tensor, got range": lambda: bias(key_positions=range(M)),
    "distance must hold integers, got torch.float32": lambda: relative_buckets(numbers(N, M)),
    "distance must be a tensor, got int": lambda: relative_buckets(-3),
    "dtype (torch.int32) must be": lambda: BucketedBias(H, dtype=torch.int32),
    "position_bias must be a module with num_heads, as AlibiBias has, got Linear": lambda: biased(
        torch.nn.Linear(D, H)
    ),
    "position_bias must be a module with num_heads, as AlibiBias has, got NoneType": lambda: biased(
        None
    ),
    "rotary ('half') must be callable": lambda: cached(None, rotary="half"),
    "cache must be a Cache, such as KVCache, got dict": lambda: cached({}),
    "rotary (6) must be callable": lambda: latent(rotary=D),
    "cache must be a Cache, such as KVCache, got tuple": lambda: latent((numbers(1), numbers(1))),
    "scale ('1') must be a number": lambda: latent(scale="1"),
    "dtype ('float16') must be": lambda: latent(dtype="float16"),
}


def test_what_fits_is_not_refused():
    for call in (turned, embedded, bias, latent, lambda: bias(BucketedBias)):
        call()
    cached(KVCache(), rotary=RotaryEmbedding(D))
    latent(KVCache(), rotary=RotaryEmbedding(2), scale=1, dtype=torch.float32)
    scaled(linear(2), length=torch.tensor(9), dtype=torch.float64)


@pytest.mark.parametrize(("message", "call"), VALUES.items(), ids=VALUES.keys())
def test_values_that_do_not_fit_are_named(message, call):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("message", "call"), TYPES.items(), ids=TYPES.keys())
def test_types_that_do_not_fit_are_named(message, call):
    with pytest.raises(TypeError, match=re.escape(message)):
        call()

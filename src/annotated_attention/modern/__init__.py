"""Attention today: what models since 2017 have changed, one file per idea, on the final class.

Examples:
    >>> import torch
    >>> from annotated_attention.modern import RotaryAttention
    >>> attention = RotaryAttention(embed_dim=24, num_heads=4, batch_first=True)
    >>> x = torch.randn(2, 5, 24)
    >>> attention(x, x, x, is_causal=True)[0].shape
    torch.Size([2, 5, 24])
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.modern.biases import (
        AlibiBias,
        BiasedAttention,
        BucketedBias,
        alibi_slopes,
        relative_buckets,
    )
    from annotated_attention.modern.cache import (
        Cache,
        KVCache,
        StaticCache,
        block_later,
    )
    from annotated_attention.modern.cached_attention import CachedAttention
    from annotated_attention.modern.decoder import LanguageModel, Settings
    from annotated_attention.modern.frequencies import rotary_frequencies
    from annotated_attention.modern.generation import choose, generate
    from annotated_attention.modern.grouped import (
        GroupedQueryAttention,
        group_heads,
        repeat_heads,
    )
    from annotated_attention.modern.latent import LatentAttention
    from annotated_attention.modern.paged import PagedCache
    from annotated_attention.modern.rotary import (
        RotaryAttention,
        RotaryEmbedding,
        half_to_interleaved,
        interleaved_to_half,
        rotate,
    )
    from annotated_attention.modern.tiles import merge_parts, tiled_attention
    from annotated_attention.modern.windows import (
        WindowAttention,
        WindowCache,
        block_other_documents,
        block_outside,
        with_sink,
    )

__all__ = [
    "AlibiBias",
    "BiasedAttention",
    "BucketedBias",
    "Cache",
    "CachedAttention",
    "GroupedQueryAttention",
    "KVCache",
    "LanguageModel",
    "LatentAttention",
    "PagedCache",
    "RotaryAttention",
    "RotaryEmbedding",
    "Settings",
    "StaticCache",
    "WindowAttention",
    "WindowCache",
    "alibi_slopes",
    "block_later",
    "block_other_documents",
    "block_outside",
    "choose",
    "generate",
    "group_heads",
    "half_to_interleaved",
    "interleaved_to_half",
    "merge_parts",
    "relative_buckets",
    "repeat_heads",
    "rotary_frequencies",
    "rotate",
    "tiled_attention",
    "with_sink",
]

import_lazily(__name__)

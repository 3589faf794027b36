"""Multi-head attention you can read, run and trust."""

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import (
    as_blocked,
    block_future,
    block_others,
    block_padding,
    merge_masks,
)
from annotated_attention.multihead import MultiheadAttention

__all__ = [
    "MultiheadAttention",
    "as_blocked",
    "block_future",
    "block_others",
    "block_padding",
    "merge_heads",
    "merge_masks",
    "scaled_dot_product_attention",
    "split_heads",
]

"""Multi-head attention you can read, run and trust."""

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.heads import merge_heads, split_heads

__all__ = ["merge_heads", "scaled_dot_product_attention", "split_heads"]

"""Multi-head attention you can read, run and trust.

Examples:
    >>> import torch
    >>> from annotated_attention import MultiheadAttention  # in place of PyTorch's class
    >>> attention = MultiheadAttention(embed_dim=24, num_heads=4, batch_first=True)
    >>> x = torch.randn(2, 5, 24)
    >>> output, weights = attention(x, x, x, is_causal=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 24]), torch.Size([2, 5, 5]))
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
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
    from annotated_attention.positions import (
        LearnedPositionalEncoding,
        PositionalEncoding,
        sinusoidal_code,
    )
    from annotated_attention.seq2seq import Seq2SeqTransformer
    from annotated_attention.transformer import (
        Transformer,
        TransformerDecoder,
        TransformerDecoderLayer,
        TransformerEncoder,
        TransformerEncoderLayer,
    )

__version__ = "0.1.0"

__all__ = [
    "LearnedPositionalEncoding",
    "MultiheadAttention",
    "PositionalEncoding",
    "Seq2SeqTransformer",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "as_blocked",
    "block_future",
    "block_others",
    "block_padding",
    "merge_heads",
    "merge_masks",
    "scaled_dot_product_attention",
    "sinusoidal_code",
    "split_heads",
]

import_lazily(__name__)

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

from annotated_attention.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from annotated_attention.heads import merge_heads as merge_heads
from annotated_attention.heads import split_heads as split_heads
from annotated_attention.masks import as_blocked as as_blocked
from annotated_attention.masks import block_future as block_future
from annotated_attention.masks import block_padding as block_padding
from annotated_attention.masks import merge_masks as merge_masks
from annotated_attention.multihead import MultiheadAttention as MultiheadAttention
from annotated_attention.positions import LearnedPositionalEncoding as LearnedPositionalEncoding
from annotated_attention.positions import PositionalEncoding as PositionalEncoding
from annotated_attention.positions import sinusoidal_code as sinusoidal_code
from annotated_attention.seq2seq import Seq2SeqTransformer as Seq2SeqTransformer
from annotated_attention.transformer import Transformer as Transformer
from annotated_attention.transformer import TransformerDecoder as TransformerDecoder
from annotated_attention.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from annotated_attention.transformer import TransformerEncoder as TransformerEncoder
from annotated_attention.transformer import TransformerEncoderLayer as TransformerEncoderLayer

__version__ = "0.1.0"

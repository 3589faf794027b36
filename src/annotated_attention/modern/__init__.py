"""Attention today: what models since 2017 have changed, one file per idea, on the final class.

What does not fit is refused as there: a wrong type or dtype by a TypeError, a size, a shape or a
setting by a ValueError, in words that name it. ``Raises`` tells only what else can happen.

Examples:
    >>> import torch
    >>> from annotated_attention.modern import RotaryAttention
    >>> attention = RotaryAttention(embed_dim=24, num_heads=4, batch_first=True)
    >>> x = torch.randn(2, 5, 24)
    >>> attention(x, x, x, is_causal=True)[0].shape
    torch.Size([2, 5, 24])
"""

from annotated_attention.modern.biases import AlibiBias as AlibiBias
from annotated_attention.modern.biases import BiasedAttention as BiasedAttention
from annotated_attention.modern.biases import BucketedBias as BucketedBias
from annotated_attention.modern.biases import alibi_slopes as alibi_slopes
from annotated_attention.modern.biases import relative_buckets as relative_buckets
from annotated_attention.modern.cache import Cache as Cache
from annotated_attention.modern.cache import KVCache as KVCache
from annotated_attention.modern.cache import StaticCache as StaticCache
from annotated_attention.modern.cache import block_by_position as block_by_position
from annotated_attention.modern.cached_attention import CachedAttention as CachedAttention
from annotated_attention.modern.decoder import LanguageModel as LanguageModel
from annotated_attention.modern.frequencies import rotary_frequencies as rotary_frequencies
from annotated_attention.modern.generation import choose as choose
from annotated_attention.modern.generation import generate as generate
from annotated_attention.modern.grouped import GroupedQueryAttention as GroupedQueryAttention
from annotated_attention.modern.grouped import group_heads as group_heads
from annotated_attention.modern.grouped import repeat_heads as repeat_heads
from annotated_attention.modern.latent import LatentAttention as LatentAttention
from annotated_attention.modern.paged import PagedCache as PagedCache
from annotated_attention.modern.rotary import RotaryAttention as RotaryAttention
from annotated_attention.modern.rotary import RotaryEmbedding as RotaryEmbedding
from annotated_attention.modern.rotary import half_to_interleaved as half_to_interleaved
from annotated_attention.modern.rotary import interleaved_to_half as interleaved_to_half
from annotated_attention.modern.rotary import rotate as rotate
from annotated_attention.modern.settings import Settings as Settings
from annotated_attention.modern.tiles import merge_parts as merge_parts
from annotated_attention.modern.tiles import tiled_attention as tiled_attention
from annotated_attention.modern.windows import WindowAttention as WindowAttention
from annotated_attention.modern.windows import WindowCache as WindowCache
from annotated_attention.modern.windows import block_other_documents as block_other_documents
from annotated_attention.modern.windows import with_sink as with_sink

"""Parts of both model families: their sizes, the stack of layers, and tables of embeddings."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from annotated_attention.transformer import TransformerEncoder, TransformerEncoderLayer


@dataclass(frozen=True)
class Sizes:
    """The sizes and settings of both kinds of model."""

    tokens: int  # in the vocabulary
    positions: int  # the longest sequence
    width: int  # e
    heads: int  # h
    layers: int
    hidden: int  # the width inside a feed-forward part
    activation: Callable[[Tensor], Tensor]
    eps: float  # of every layer norm


def build_stack(sizes: Sizes, norm_first: bool) -> TransformerEncoder:
    """Build the layers, which differ between the two kinds only in the place of the norms.

    Dropout is 0: the checkpoints' own training drops elsewhere than these layers do.
    """
    layer = TransformerEncoderLayer(
        sizes.width, sizes.heads, sizes.hidden, dropout=0.0, activation=sizes.activation,
        layer_norm_eps=sizes.eps, batch_first=True, norm_first=norm_first,
    )  # fmt: skip
    norm = nn.LayerNorm(sizes.width, sizes.eps) if norm_first else None
    return TransformerEncoder(layer, sizes.layers, norm)


def empty_table(rows: int, width: int) -> nn.Embedding:
    """Create an embedding without initial values: drawing them would take a second for nothing."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


def check_tokens(tokens: Tensor, positions: nn.Embedding) -> None:
    """Refuse tokens for which there are no positions."""
    if tokens.dim() != 2:
        raise ValueError(f"tokens must have shape (b, n), got {tuple(tokens.shape)}")
    if tokens.size(1) > positions.num_embeddings:
        raise ValueError(
            f"tokens {tuple(tokens.shape)} are longer than the {positions.num_embeddings} "
            f"positions that the model has"
        )

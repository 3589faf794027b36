"""BERT-type checkpoints: sentence encoders."""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.masks import block_padding
from annotated_attention.pretrained.checkpoint import (
    Config,
    fill_stored,
    open_weights,
    read_tokenizer,
)
from annotated_attention.transformer import TransformerEncoder, TransformerEncoderLayer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
# Which stored parts make up each of ours, one below the other; the later ones are in every layer.
PARTS = {
    "words": ("embeddings.word_embeddings",),
    "positions": ("embeddings.position_embeddings",),
    "kinds": ("embeddings.token_type_embeddings",),
    "norm": ("embeddings.LayerNorm",),
    "self_attn.in_proj": tuple(f"attention.self.{x}" for x in ("query", "key", "value")),
    "self_attn.out_proj": ("attention.output.dense",),
    "norm1": ("attention.output.LayerNorm",),
    "linear1": ("intermediate.dense",),
    "linear2": ("output.dense",),
    "norm2": ("output.LayerNorm",),
}
UNREAD = r"embeddings\.position_ids|pooler\.dense\.(weight|bias)"


class SentenceEncoder(nn.Module):
    """A BERT-type encoder on ``TransformerEncoder``: post-LN, learned positions, mean pooling.

    Examples:
        >>> from annotated_attention.pretrained import SentenceEncoder, load_encoder
        >>> model = load_encoder(folder)
        >>> isinstance(model, SentenceEncoder), model.training
        (True, False)
        >>> tokens, blocked = model.tokenize(["the cat drank milk", "thirsty"])
        >>> model(tokens, blocked).shape
        torch.Size([2, 4, 24])

    Source: Devlin et al. (2019), section 3; Reimers and Gurevych (2019), section 3.
    """

    def __init__(self, config: Config, tokenizer: Any) -> None:
        """Create the parts; ``load_encoder`` fills them.

        Dropout is 0: the checkpoint's own training drops elsewhere than these layers do.

        Args:
            config: the checkpoint's settings.
            tokenizer: a tokeniser of the library ``tokenizers``.
        """
        super().__init__()
        e, eps = config.size("hidden_size"), config.number("layer_norm_eps")
        self.words = nn.Embedding(config.size("vocab_size"), e)
        self.positions = nn.Embedding(config.size("max_position_embeddings"), e)
        self.kinds = nn.Embedding(config.size("type_vocab_size"), e)  # the second is for pairs
        self.norm = nn.LayerNorm(e, eps)
        layer = TransformerEncoderLayer(
            e,
            config.heads("hidden_size", "num_attention_heads"),
            config.size("intermediate_size"),
            dropout=0.0,
            activation=config.choice("hidden_act", ACTIVATIONS),
            layer_norm_eps=eps,
            batch_first=True,
        )
        self.encoder = TransformerEncoder(layer, config.size("num_hidden_layers"))
        self.pad, self.tokenizer = config.size("pad_token_id", at_least=0), tokenizer

    def forward(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Compute the hidden state of every token.

        Args:
            tokens: (b, n), integers.
            key_padding_mask: (b, n), True = blocked: padding.

        Returns:
            (b, n, e), the hidden states of the last layer.

        Raises:
            ValueError: ``tokens`` has not two axes, or is longer than the model has positions.
        """
        return self.encoder(self.embed(tokens), src_key_padding_mask=key_padding_mask)

    def embed(self, tokens: Tensor) -> Tensor:
        """Add up the embeddings of the tokens, their positions and the first token type.

        Args:
            tokens: (b, n), integers.

        Returns:
            (b, n, e), normed: what goes into the first layer.

        Raises:
            ValueError: as ``forward``.

        Examples:
            The same token at two positions:

            >>> import torch
            >>> from annotated_attention.pretrained import load_encoder
            >>> first, _, third = load_encoder(folder).embed(torch.tensor([[3, 5, 3]]))[0]
            >>> torch.equal(first, third)
            False
        """
        longest = self.positions.num_embeddings
        if tokens.dim() != 2:
            raise ValueError(f"tokens must have shape (b, n), got {tuple(tokens.shape)}")
        if tokens.size(1) > longest:
            raise ValueError(
                f"tokens {tuple(tokens.shape)} are longer than the {longest} positions that the "
                "model has"
            )
        positions = self.positions.weight[: tokens.size(1)]        # (n, e)
        x = self.words(tokens) + positions + self.kinds.weight[0]  # (b, n, e)
        return self.norm(x)

    def tokenize(self, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Split sentences into tokens, and pad the shorter ones.

        Args:
            sentences: b sentences.

        Returns:
            The tokens, (b, n), and ``blocked``, (b, n), True for padding.

        Raises:
            TypeError: ``sentences`` is one string.
            ValueError: there are no sentences.

        Examples:
            >>> from annotated_attention.pretrained import load_encoder
            >>> tokens, blocked = load_encoder(folder).tokenize(["the cat drank milk", "it was"])
            >>> blocked
            tensor([[False, False, False, False],
                    [False, False,  True,  True]])
        """
        if isinstance(sentences, str):
            raise TypeError("sentences must be a list of strings, got one string")
        if not sentences:
            raise ValueError("sentences is empty: there must be at least one")
        rows = [torch.tensor(self.tokenizer.encode(text).ids) for text in sentences]
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad)
        blocked = block_padding(torch.tensor([len(row) for row in rows]), tokens.size(1))
        device = self.words.weight.device
        return tokens.to(device), blocked.to(device)

    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Compute one vector of length 1 for every sentence, without gradients.

        Args:
            sentences: b sentences.

        Returns:
            (b, e). The product of two rows is the cosine between them.

        Raises:
            TypeError: as ``tokenize``.
            ValueError: as ``tokenize`` and ``forward``.

        Examples:
            A sentence has the same vector whether it is padded or not:

            >>> import torch
            >>> from annotated_attention.pretrained import load_encoder
            >>> model = load_encoder(folder)
            >>> vectors = model.encode(["the cat drank milk", "it was thirsty"])
            >>> torch.testing.assert_close(vectors[1:], model.encode(["it was thirsty"]))
        """
        with torch.no_grad():
            tokens, blocked = self.tokenize(sentences)
            pooled = mean_pool(self(tokens, blocked), blocked)  # (b, e)
            return F.normalize(pooled, dim=-1)


def mean_pool(states: Tensor, blocked: Tensor) -> Tensor:
    """Average the states of each sentence's real tokens.

    Args:
        states: (b, n, e).
        blocked: (b, n), True for padding. Each row needs at least one real token.

    Returns:
        (b, e).

    Examples:
        >>> import torch
        >>> from annotated_attention.pretrained import mean_pool
        >>> states = torch.tensor([[[1.0, 2], [3, 4], [9, 9]]])
        >>> mean_pool(states, torch.tensor([[False, False, True]]))
        tensor([[2., 3.]])
    """
    real = (~blocked)[..., None].to(states.dtype)  # (b, n, 1)
    return (states * real).sum(1) / real.sum(1)    # (b, e)


def load_encoder(
    folder: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> SentenceEncoder:
    """Read a BERT-type checkpoint.

    The pooler's matrix, which sentence encoders do not use, is not read.

    Args:
        folder: holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
        dtype: Dtype of the parameters, whatever the file's is.

    Returns:
        The model, in evaluation mode, on the CPU.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: the extra ``trained`` is not installed.
        ValueError: a file cannot be read, a field of the configuration names something that
            cannot be built here, or a tensor is missing, superfluous or of the wrong shape.

    Examples:
        >>> from annotated_attention.pretrained import load_encoder
        >>> model = load_encoder(folder)  # of a BERT-type checkpoint
        >>> vectors = model.encode(["the cat drank milk", "it was thirsty"])
        >>> vectors.norm(dim=-1).round(decimals=3).tolist()
        [1.0, 1.0]
    """
    config = Config(folder, "bert")
    config.require(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    tokenizer = read_tokenizer(config.folder, config.size("vocab_size"))
    with torch.device("meta"):  # sizes without memory; no random number is drawn
        model = SentenceEncoder(config, tokenizer).to(dtype)
    names = {name: stored_names(name) for name in model.state_dict()}
    with open_weights(config.folder) as weights:
        return fill_stored(model, weights, names, UNREAD)


def stored_names(name: str) -> list[str]:
    """Give the names of the stored tensors that make up a parameter of ``SentenceEncoder``."""
    part, kind = re.split(r"[._](?=weight$|bias$)", name)
    prefix = ""
    if part.startswith("encoder."):
        _, _, number, part = part.split(".", 3)
        prefix = f"encoder.layer.{number}."
    return [f"{prefix}{stored}.{kind}" for stored in PARTS[part]]

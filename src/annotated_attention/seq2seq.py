"""A whole model: it reads the token ids of one sequence and scores the tokens of another."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.checks import check_integers, check_sizes
from annotated_attention.positions import PositionalEncoding
from annotated_attention.transformer import Transformer


class Seq2SeqTransformer(nn.Module):
    """Read a sequence of token ids and predict another, each token from the tokens before it.

    Embeddings times sqrt(e), plus positions, go through the ``Transformer`` and become a score for
    each token of the target vocabulary. All tensors are batch-first. The model makes its own masks:
    it finds padding by the ids and hides it, and it hides the future of each target token.

    Examples:
        Two sequences to read, the second padded with 0; ids of the target begin with 1:

        >>> import torch
        >>> from annotated_attention import Seq2SeqTransformer
        >>> model = Seq2SeqTransformer(src_vocab=11, tgt_vocab=13, d_model=24, nhead=4, pad=0)
        >>> src = torch.tensor([[5, 6, 7, 8, 2], [5, 9, 2, 0, 0]])
        >>> tgt = torch.tensor([[1, 4, 3], [1, 7, 2]])
        >>> model(src, tgt).shape
        torch.Size([2, 3, 13])
        >>> model.eval().greedy(src, start=1, end=2, max_new=4)[:, 0]
        tensor([1, 1])

    Source: Vaswani et al. (2017), sections 3.1, 3.4 and 3.5.
    """

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        *,
        pad: int | None = None,
        max_len: int = 5000,
        positions: nn.Module | None = None,
        share_embeddings: bool = False,
        **settings: Any,
    ) -> None:
        """Create the parameters.

        Args:
            src_vocab: size of the source vocabulary; its ids are 0 to src_vocab - 1.
            tgt_vocab: size of the target vocabulary.
            dropout: as in ``TransformerEncoderLayer``, and on embeddings with positions.
            pad: the id of padding in both vocabularies; None means that there is no padding.
            max_len: the length of the longest sequence.
            positions: module that adds positions to embeddings, (b, n, e), in place of a
                ``PositionalEncoding``.
            share_embeddings: whether one matrix embeds both sides and scores the output.
            **settings: for ``Transformer``: ``activation``, ``norm_first``, ``attention``, ...

        All other arguments are those of ``Transformer``.

        Raises:
            TypeError: as ``Transformer`` does.
            ValueError: as ``Transformer`` does; a vocabulary below 1; or vocabularies of different
                sizes that should share a matrix.
        """
        super().__init__()
        check_sizes({"src_vocab": src_vocab, "tgt_vocab": tgt_vocab})
        if share_embeddings and src_vocab != tgt_vocab:
            raise ValueError(
                f"src_vocab ({src_vocab}) and tgt_vocab ({tgt_vocab}) must be equal to share"
            )
        self.transformer = Transformer(
            d_model,
            nhead,
            num_encoder_layers,
            num_decoder_layers,
            dim_feedforward,
            dropout,
            batch_first=True,
            **settings,
        )
        made: Any = {name: settings.get(name) for name in ("device", "dtype")}
        self.pad, self.scale = pad, math.sqrt(d_model)
        self.embed_src = nn.Embedding(src_vocab, d_model, **made)
        self.embed_tgt = nn.Embedding(tgt_vocab, d_model, **made)
        sinusoidal = PositionalEncoding(d_model, dropout, max_len, True, **made)
        self.positions = sinusoidal if positions is None else positions
        self.project = nn.Linear(d_model, tgt_vocab, bias=False, **made)
        if share_embeddings:
            self.embed_src.weight = self.project.weight = self.embed_tgt.weight
        for embedding in (self.embed_src, self.embed_tgt):
            nn.init.normal_(embedding.weight, std=1 / self.scale)  # times sqrt(e): 1, as positions
        if not share_embeddings:
            nn.init.xavier_uniform_(self.project.weight)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Score every token of the vocabulary as the next token, at each position of ``tgt``.

        Args:
            src: (b, m), the ids to read.
            tgt: (b, n), the ids written so far, which begin with a start token.

        Returns:
            (b, n, tgt_vocab): scores (logits). Row i scores token i + 1 and sees tokens 0 to i.

        Raises:
            TypeError: ids that are not integers.
            ValueError: shapes that do not fit, an empty batch or sequence, a sequence longer than
                there are positions, or an id that the vocabulary does not have (on a CPU and not
                compiled; otherwise PyTorch's own error).
        """
        memory = self.encode(src)
        return self.decode(tgt, memory, self._padding(src))

    def encode(self, src: Tensor) -> Tensor:
        """Read ``src``, (b, m): a row per token, (b, m, e). Errors: as in a call of the model."""
        x = self._embed("src", src, self.embed_src)  # (b, m, e)
        padding = self._padding(src)
        return self.transformer.encoder(x, src_key_padding_mask=padding)  # (b, m, e)

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        """Score the token after each token of ``tgt``, given the encoded source.

        Args:
            tgt: (b, n), the ids written so far.
            memory: (b, m, e), the result of ``encode``.
            padding: (b, m), True where ``src`` is padding, or None.

        Returns:
            Scores (logits), (b, n, tgt_vocab). Errors: as in a call of the model.
        """
        x = self._embed("tgt", tgt, self.embed_tgt)
        x = self.transformer.decoder(
            x,
            memory,
            tgt_is_causal=True,
            tgt_key_padding_mask=self._padding(tgt),
            memory_key_padding_mask=padding,
        )
        return self.project(x)  # (b, n, ...)

    @torch.no_grad()
    def greedy(self, src: Tensor, start: int, end: int, max_new: int) -> Tensor:
        """Append the token with the highest score, again and again, until every sequence has ended.

        Call ``eval()`` first, because with dropout the result is random. The whole prefix is
        computed again for each token, which keeps the code short, but is not fast.

        Args:
            src: (b, m), the ids to read.
            start: the id that every target sequence begins with.
            end: the id after which a sequence is complete.
            max_new: how many tokens to write at most, ``end`` included.

        Returns:
            (b, n): the ids, n at most 1 + ``max_new``. They are ``start``, the written tokens, and
            after the first ``end`` only ``pad``, or ``end`` if there is no ``pad``. Errors: as in a
            call of the model; ``max_new`` longer than the positions fails on the way.
        """
        memory, padding = self.encode(src), self._padding(src)
        written = src.new_full((src.size(0), 1), start)         # (b, 1)
        complete = torch.zeros_like(written, dtype=torch.bool)  # (b, 1)
        for _ in range(max_new):
            scores = self.decode(written, memory, padding)[:, -1:]  # (b, 1, ...)
            following = scores.argmax(-1)                           # (b, 1)
            fill = end if self.pad is None else self.pad
            following = following.masked_fill(complete, fill)  # (b, 1)
            written = torch.cat([written, following], 1)       # (b, ...)
            complete = complete | (following == end)           # (b, 1)
            if complete.all():
                break
        return written  # (b, n)

    def _padding(self, ids: Tensor) -> Tensor | None:
        """Tell which ids are padding, in the shape of ``ids``."""
        return None if self.pad is None else ids == self.pad

    def _embed(self, name: str, ids: Tensor, embedding: nn.Embedding) -> Tensor:
        """Turn ids into scaled embeddings with positions."""
        return self.positions(_look_up(name, ids, embedding) * self.scale)


def _look_up(name: str, ids: Tensor, embedding: nn.Embedding) -> Tensor:
    """Turn ids into embeddings, or say what is wrong with the ids."""
    check_integers(**{name: ids}, indices=True)
    if ids.dim() != 2 or 0 in ids.shape:
        raise ValueError(
            f"{name} must have shape (b, n), with at least one sequence and one token, "
            f"got {tuple(ids.shape)}"
        )
    try:
        return embedding(ids)
    except IndexError:  # on a CPU, the embedding looks; nothing else here looks at values
        raise ValueError(
            f"{name} holds ids from {ids.min()} to {ids.max()}; its vocabulary ends at "
            f"{embedding.num_embeddings - 1}"
        ) from None

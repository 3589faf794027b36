"""Encoder and decoder layers, their stacks, and the Transformer.

Each class takes the place of the one in ``torch.nn`` that has its name: the same arguments with the
same meanings, the same parameters under the same names, the same initial values from the same seed,
the same results and gradients.

Masks: a boolean is True where a query must not see a key, a floating-point mask is added to the
scores. In all signatures n is the length of ``tgt``, m that of ``src`` and ``memory``.

Arguments that exist only here come last, by name alone.

Source: Vaswani et al. (2017), section 3 and figure 1, between embeddings and projection.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.checks import check_masks, check_sequences, check_settings, check_sizes
from annotated_attention.masks import block_future
from annotated_attention.multihead import MultiheadAttention

Activation = str | Callable[[Tensor], Tensor]
Mask = Tensor | None


class _Layer(nn.Module):
    """What both layers have in common: their parts, the residuals and the place of the norms."""

    attentions: tuple[str, ...]  # the names of the attention modules; one sublayer more follows
    activation: Callable[[Tensor], Tensor]
    self_attn: nn.Module
    multihead_attn: nn.Module
    dropout1: nn.Dropout
    dropout2: nn.Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        attention: Callable[..., nn.Module] = MultiheadAttention,
    ) -> None:
        """Create the parameters.

        Args:
            d_model: e, the width of input and output.
            nhead: h, the number of heads; must divide ``d_model``.
            dim_feedforward: the width inside the feed-forward network.
            dropout: probability of zeroing, in training: an attention weight, a number inside the
                feed-forward network, a number that a sublayer adds.
            activation: ``"relu"``, ``"gelu"`` or a function of one tensor.
            layer_norm_eps: number that a norm adds to the variance.
            batch_first: input and output are (b, n, e) instead of (n, b, e).
            norm_first: normalise the input of a sublayer (pre-LN) instead of the sum (post-LN).
            bias: whether projections and norms have a bias.
            device: Device of the parameters.
            dtype: Dtype of the parameters.
            attention: class of the attention, with the arguments of ``MultiheadAttention``.
        """
        super().__init__()
        sizes = {"d_model": d_model, "nhead": nhead, "dim_feedforward": dim_feedforward}
        check_settings(sizes, dropout, dtype)
        self.d_model, self.nhead = d_model, nhead
        self.batch_first, self.norm_first = batch_first, norm_first
        self.__module__ = "torch.nn"  # for ``torch.fx``, as in ``MultiheadAttention``
        named: dict[Any, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}
        if not callable(activation) and activation not in named:
            raise ValueError(f'activation ({activation!r}) must be "relu", "gelu" or a function')
        self.activation = activation if callable(activation) else named[activation]
        # In PyTorch's order, so that one seed draws the same numbers in both.
        made: Any = (bias, device, dtype)
        options: Any = {"batch_first": batch_first, "device": device, "dtype": dtype}
        for name in self.attentions:
            setattr(self, name, attention(d_model, nhead, dropout, bias, **options))
        self.linear1 = nn.Linear(d_model, dim_feedforward, *made)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, *made)
        for i in range(1, len(self.attentions) + 2):  # a norm and a dropout for each sublayer
            setattr(self, f"norm{i}", nn.LayerNorm(d_model, layer_norm_eps, True, *made))
            setattr(self, f"dropout{i}", nn.Dropout(dropout))

    def reset_parameters(self) -> None:
        """Draw every matrix anew (Xavier); set biases to 0, and the scales of norms to 1.

        A new layer starts as PyTorch's does instead: Xavier in the attention only, and what
        ``nn.Linear`` draws in the feed-forward network, biases included.
        """
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)

    def _residual(self, i: int, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Add what sublayer i makes of ``x``; normalise its input (pre-LN) or the sum (post-LN)."""
        norm = getattr(self, f"norm{i}")
        if self.norm_first:
            return x + sublayer(norm(x))
        return norm(x + sublayer(x))

    def _sa_block(
        self, x: Tensor, attn_mask: Mask, key_padding_mask: Mask, is_causal: bool = False
    ) -> Tensor:
        """Self-attention: queries, keys and values come from the same tokens."""
        masks: Any = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        attended = self.self_attn(x, x, x, need_weights=False, is_causal=is_causal, **masks)
        return self.dropout1(attended[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        """Transform each token separately: a linear layer, the activation, a linear layer."""
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return getattr(self, f"dropout{len(self.attentions) + 1}")(x)


class TransformerEncoderLayer(_Layer):
    """Let the tokens of a sequence attend to each other, then transform each one separately.

    ``x = norm1(x + self_attn(x))``, then ``x = norm2(x + feed_forward(x))``; with ``norm_first``
    ``x = x + self_attn(norm1(x))``, then ``x = x + feed_forward(norm2(x))``.

    Examples:
        >>> import torch
        >>> from annotated_attention import TransformerEncoderLayer
        >>> layer = TransformerEncoderLayer(24, nhead=4, dim_feedforward=10, batch_first=True)
        >>> layer(torch.randn(2, 5, 24), is_causal=True).shape
        torch.Size([2, 5, 24])

    Source: ``norm_first`` is Xiong et al. (2020), figure 1.
    """

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Self-attention, then the feed-forward network.

        Args:
            src: the sequence: (m, b, e); with ``batch_first`` (b, m, e); without a batch (m, e).
            src_mask: which tokens each token may not see, (m, m) or (b * h, m, m).
            src_key_padding_mask: which tokens no token may see, (b, m), or (m,) without a batch.
            is_causal: also hide token j from token i when j > i.

        Returns:
            The sequence, in the shape of ``src``.
        """
        check_sequences({"src": src}, [self.d_model], self.batch_first)
        masks = (src_mask, src_key_padding_mask)
        check_masks(*masks, src, src, self.nhead, self.batch_first, part="src")
        # Self-attention: queries, keys and values come from the same tokens.
        x = self._residual(1, src, lambda x: self._sa_block(x, *masks, is_causal=is_causal))
        # The feed-forward network.
        return self._residual(2, x, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Attend to the sequence itself, then to the encoder's result, then transform each token.

    Three sublayers, each with its residual and its norm, as in ``TransformerEncoderLayer``:
    ``self_attn``, ``multihead_attn`` (cross-attention) and the feed-forward network.

    Examples:
        >>> import torch
        >>> from annotated_attention import TransformerDecoderLayer
        >>> layer = TransformerDecoderLayer(24, nhead=4, dim_feedforward=10, batch_first=True)
        >>> tgt, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> layer(tgt, memory, tgt_is_causal=True).shape
        torch.Size([2, 3, 24])
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Self-attention, cross-attention, then the feed-forward network.

        Args:
            tgt: the sequence: (n, b, e); with ``batch_first`` (b, n, e); without a batch (n, e).
            memory: the encoder's result, in the same layout: (m, b, e), (b, m, e) or (m, e).
            tgt_mask: as a ``TransformerEncoderLayer``'s; so are the others of ``tgt``.
            memory_mask: which rows of ``memory`` each token may not see, (n, m) or (b * h, n, m).
            memory_key_padding_mask: which rows of ``memory`` no token may see, (b, m) or (m,).
            memory_is_causal: also hide row j of ``memory`` from token i when j > i.

        Returns:
            The sequence, in the shape of ``tgt``.
        """
        check_sequences({"tgt": tgt, "memory": memory}, [self.d_model] * 2, self.batch_first)
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        others = (memory_mask, memory_key_padding_mask, memory_is_causal)
        check_masks(*own[:2], tgt, tgt, self.nhead, self.batch_first, part="tgt")
        check_masks(*others[:2], tgt, memory, self.nhead, self.batch_first, part="memory")
        # Self-attention: queries, keys and values come from the same tokens.
        x = self._residual(1, tgt, lambda x: self._sa_block(x, *own))
        # Cross-attention: queries come from the tokens, keys and values from ``memory``.
        x = self._residual(2, x, lambda x: self._mha_block(x, memory, *others))
        # The feed-forward network.
        return self._residual(3, x, self._ff_block)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Mask,
        key_padding_mask: Mask,
        is_causal: bool = False,
    ) -> Tensor:
        """Cross-attention: queries come from the tokens, keys and values from ``mem``."""
        masks: Any = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
        attended = self.multihead_attn(
            x, mem, mem, need_weights=False, is_causal=is_causal, **masks
        )
        return self.dropout2(attended[0])


class _Stack(nn.Module):
    """Copies of one layer, of which each takes the output of the one before it."""

    def __init__(
        self, layer: nn.Module, num_layers: int, norm: nn.Module | None, reset: bool
    ) -> None:
        """Copy a layer with its weights, or draw those of each copy anew."""
        super().__init__()
        check_sizes({"num_layers": num_layers}, least=0)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        if reset:
            for copied in self.layers:
                copied.reset_parameters()  # type: ignore[operator]
        self.num_layers, self.norm = num_layers, norm

    def _through(self, x: Tensor, *memory: Tensor, **masks: Any) -> Tensor:
        """Pass ``x`` through all layers, and through the norm at the end if there is one."""
        for layer in self.layers:
            x = layer(x, *memory, **masks)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """A stack of encoder layers: each takes the output of the one before it.

    Examples:
        >>> import torch
        >>> from annotated_attention import TransformerEncoder, TransformerEncoderLayer
        >>> layer = TransformerEncoderLayer(24, 4, dim_feedforward=10, batch_first=True)
        >>> encoder = TransformerEncoder(layer, num_layers=3, reset_parameters=True)
        >>> encoder(torch.randn(2, 5, 24)).shape
        torch.Size([2, 5, 24])
    """

    def __init__(
        self,
        encoder_layer: nn.Module,
        num_layers: int,
        norm: nn.Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
        *,
        reset_parameters: bool = False,
    ) -> None:
        """Copy the layer, with its weights.

        Args:
            encoder_layer: the layer to copy; it is not used itself.
            num_layers: how many copies.
            norm: module for the result of the last layer; pre-LN layers need one.
            enable_nested_tensor: accepted and ignored, as is ``mask_check``: in PyTorch they select
                a fast path.
            reset_parameters: draw new weights for each copy, by its ``reset_parameters()``, so
                that the layers start different. Otherwise all start with the weights of
                ``encoder_layer``.
        """
        super().__init__(encoder_layer, num_layers, norm, reset_parameters)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """Pass ``src`` through all layers; ``mask`` is what a layer calls ``src_mask``."""
        padding, causal = src_key_padding_mask, bool(is_causal)
        return self._through(src, src_mask=mask, src_key_padding_mask=padding, is_causal=causal)


class TransformerDecoder(_Stack):
    """A stack of decoder layers, all of which attend to the same ``memory``.

    Examples:
        >>> import torch
        >>> from annotated_attention import TransformerDecoder, TransformerDecoderLayer
        >>> layer = TransformerDecoderLayer(24, 4, dim_feedforward=10, batch_first=True)
        >>> decoder = TransformerDecoder(layer, num_layers=3, reset_parameters=True)
        >>> decoder(torch.randn(2, 3, 24), torch.randn(2, 5, 24), tgt_is_causal=True).shape
        torch.Size([2, 3, 24])
    """

    def __init__(
        self,
        decoder_layer: nn.Module,
        num_layers: int,
        norm: nn.Module | None = None,
        *,
        reset_parameters: bool = False,
    ) -> None:
        """Copy the layer; the arguments are those of ``TransformerEncoder``."""
        super().__init__(decoder_layer, num_layers, norm, reset_parameters)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Pass ``tgt`` through all layers; the arguments are those of a layer."""
        return self._through(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=bool(tgt_is_causal),
            memory_is_causal=memory_is_causal,
        )


class Transformer(nn.Module):
    """Encode one sequence, and decode another while attending to the result.

    Examples:
        >>> import torch
        >>> from annotated_attention import Transformer
        >>> model = Transformer(24, 4, 3, 2, dim_feedforward=10, batch_first=True)
        >>> src, tgt = torch.randn(2, 5, 24), torch.randn(2, 3, 24)
        >>> model(src, tgt, tgt_is_causal=True).shape
        torch.Size([2, 3, 24])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: nn.Module | None = None,
        custom_decoder: nn.Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        final_norm: bool = True,
        attention: Callable[..., nn.Module] = MultiheadAttention,
    ) -> None:
        """Create both stacks, and draw each of their matrices anew (Xavier).

        Args:
            num_encoder_layers: how many layers the encoder has.
            num_decoder_layers: how many layers the decoder has.
            custom_encoder: module in place of the encoder, with the same call and its own weights.
            custom_decoder: module in place of the decoder, with the same call and its own weights.
            final_norm: end each stack made here with a norm, as PyTorch's does. Pre-LN layers
                need it, since they end in a sum; post-LN layers end in a norm of their own, and
                the paper has no other.

        All other arguments are those of a layer, see ``TransformerEncoderLayer``.
        """
        super().__init__()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        sizes: Any = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        options: Any = (batch_first, norm_first, bias, device, dtype)
        encoder, decoder = custom_encoder, custom_decoder
        if encoder is None:
            pattern: Any = TransformerEncoderLayer(*sizes, *options, attention=attention)
            norm = copy.deepcopy(pattern.norm1) if final_norm else None
            encoder = TransformerEncoder(pattern, num_encoder_layers, norm)
        if decoder is None:
            pattern = TransformerDecoderLayer(*sizes, *options, attention=attention)
            norm = copy.deepcopy(pattern.norm1) if final_norm else None
            decoder = TransformerDecoder(pattern, num_decoder_layers, norm)
        self.encoder, self.decoder = encoder, decoder
        # After copying, so that the layers start different; a stack of the caller's stays as it is.
        for stack, given in ((encoder, custom_encoder), (decoder, custom_decoder)):
            for parameter in stack.parameters():
                if given is None and parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Encode ``src``, and decode ``tgt`` while attending to the result.

        This method makes no masks. To hide the future in the decoder, pass ``tgt_is_causal=True``;
        to hide padding in ``src``, pass both ``src_key_padding_mask`` and
        ``memory_key_padding_mask``. What is named after ``src`` goes to the encoder, see a call of
        ``TransformerEncoderLayer``. What is named after ``tgt`` or ``memory``, which is the
        encoder's result, goes to the decoder, see a call of ``TransformerDecoderLayer``.

        Args:
            src: the sequence to encode: (m, b, e); with ``batch_first`` (b, m, e); or (m, e).
            tgt: the sequence to decode, in the same layout: (n, b, e), (b, n, e) or (n, e).

        Returns:
            One row for each token of ``tgt``, in its shape.
        """
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Return the causal mask to be added to scores, (sz, sz): ``-inf`` above the diagonal."""
        blocked = block_future(sz, device=device)
        return torch.zeros(sz, sz, device=device, dtype=dtype).masked_fill(blocked, -math.inf)

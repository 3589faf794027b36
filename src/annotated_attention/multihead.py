"""Multi-head attention, the final class: it takes the place of ``torch.nn.MultiheadAttention``."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.attention import compute_attention, scaled_scores
from annotated_attention.checks import check_attended, check_masks, check_sequences, check_settings
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import (
    attention_to_heads,
    block_future,
    merge_masks,
    padding_to_heads,
)


class MultiheadAttention(nn.Module):
    """Let every query attend to all keys several times at once, once in each head.

    ``MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O`` with
    ``head_i = Attention(Q W_Q_i, K W_K_i, V W_V_i)``.

    It takes the place of ``torch.nn.MultiheadAttention`` in a model: the same arguments, parameters
    and initial values, the same results and gradients. Where PyTorch's class is inconsistent, this
    one does the same with weights and without, in training and in inference:

    - a fully masked row, a query whose keys are all blocked, is zeros before ``out_proj``;
    - ``is_causal`` alone suffices, and applies together with any other mask;
    - ``out_proj`` is called, so its hooks and adapters run;
    - a bad argument is named, in a ValueError for a size, a shape or a device that does not fit, in
      a TypeError for another type or dtype, or a nested tensor.

    Examples:
        >>> import torch
        >>> from annotated_attention import MultiheadAttention
        >>> attention = MultiheadAttention(embed_dim=24, num_heads=4, batch_first=True)
        >>> query, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> output, weights = attention(query, memory, memory)
        >>> output.shape, weights.shape
        (torch.Size([2, 3, 24]), torch.Size([2, 3, 5]))

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    # ``torch.nn.TransformerEncoderLayer`` reads this flag. If it were True, the layer would take
    # the parameters and compute attention itself, without calling this module.
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Create the parameters.

        Args:
            embed_dim: e, the width of the queries and of the output.
            num_heads: h; must divide ``embed_dim``. Each head is d = e / h wide.
            dropout: probability of zeroing a weight in training.
            bias: give all four projections a bias.
            add_bias_kv: add a learned key and value, which are always visible.
            add_zero_attn: add a key and value of zeros, which are always visible.
            kdim: the width of the keys; None means e.
            vdim: the width of the values; None means e.
            batch_first: input and output are (b, n, e) instead of (n, b, e).
            device: Device of the parameters.
            dtype: Dtype of the parameters.
        """
        super().__init__()
        kdim, vdim = (embed_dim if width is None else width for width in (kdim, vdim))
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "kdim": kdim, "vdim": vdim}
        check_settings(sizes, dropout, dtype)
        # Python's integers, also where NumPy's were given; every size that is kept.
        embed_dim, num_heads, kdim, vdim = map(int, sizes.values())
        self.embed_dim, self.kdim, self.vdim = embed_dim, kdim, vdim
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.num_kv_heads = num_heads  # of keys and values; a subclass may have fewer
        self.dropout, self.batch_first = float(dropout), batch_first
        self.add_zero_attn = add_zero_attn
        # ``torch.fx`` takes a module for one step if it lives in ``torch.nn``, as PyTorch's class
        # does; from here on this one says so, too.
        self.__module__ = "torch.nn"

        def create(exists: bool, *shape: int) -> nn.Parameter | None:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if exists else None

        # PyTorch's names and shapes, so that a ``state_dict`` fits both; None where a setting
        # leaves a parameter out. One packed matrix where the widths allow it: from one seed,
        # packed and separate matrices start with different values.
        e, packed = embed_dim, kdim == vdim == embed_dim
        self.in_proj_weight = create(packed, 3 * e, e)  # W_Q, W_K and W_V, one below the other
        self.q_proj_weight = create(not packed, e, e)
        self.k_proj_weight = create(not packed, e, kdim)
        self.v_proj_weight = create(not packed, e, vdim)
        self.in_proj_bias = create(bias, 3 * e)
        self.bias_k = create(add_bias_kv, 1, 1, e)  # the key and the value that are appended
        self.bias_v = create(add_bias_kv, 1, 1, e)
        self.out_proj = nn.Linear(e, e, bias, device, dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw initial values in PyTorch's order; ``out_proj`` has drawn its weight itself."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if (weight := getattr(self, name)) is not None:
                nn.init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                nn.init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                nn.init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compare every query with every key, and mix the values by the result.

        Args:
            query: what asks: (n, b, e); with ``batch_first`` (b, n, e); without a batch (n, e).
            key: what the queries are compared with, in the same layout: (m, b, kdim),
                (b, m, kdim) or (m, kdim).
            value: what is mixed, one row per key: (m, b, vdim), (b, m, vdim) or (m, vdim).
            key_padding_mask: which keys no query may see: (b, m), or (m,) without a batch.
                Boolean, True = blocked; or floating point, added to the scores.
            need_weights: also return the weights. False is faster, and without dropout takes
                memory linear in n with no mask, ``is_causal`` alone or ``key_padding_mask`` alone.
                PyTorch's fused kernel, which computes it then, has no second derivative and none in
                forward mode (``torch.func.jvp``): for these ask for weights, or call within
                ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``.
            attn_mask: which keys each query may not see: (n, m) for all, or (b * h, n, m) where
                mask i * h + j is for sample i and head j. Boolean or floating point, as above;
                the two masks may differ in that.
            average_attn_weights: return the mean of the weights over the heads.
            is_causal: also hide key j from query i when j > i, whatever ``attn_mask`` says.

        Returns:
            The output, in the layout of ``query``, and the weights or None. The weights are
            (b, n, m) or, not averaged, (b, h, n, m), without b if there is no batch, with a column
            for each appended key. They are what the values were mixed with: after dropout, as
            PyTorch's, so their rows need not sum to 1 in training.
        """
        # Check, once: shapes, dtypes and devices, never values. A parameter says which of them fit.
        parameter: Any = self.q_proj_weight if self.in_proj_weight is None else self.in_proj_weight
        given = {"query": query, "key": key, "value": value}
        widths, batch_first = (self.embed_dim, self.kdim, self.vdim), self.batch_first
        check_sequences(given, widths, batch_first, parameter)
        check_masks(attn_mask, key_padding_mask, query, key, self.num_heads, batch_first)
        # Project: W_Q, W_K and W_V make queries, keys and values, in the layout that was given.
        q, k, v = self._project(query, key, value)
        # Split: each sample and each head gets a slice of its own. ``...`` is ``num_kv_heads``.
        q = split_heads(self._batch_first(q), self.num_heads)     # (b, h, n, d)
        k = split_heads(self._batch_first(k), self.num_kv_heads)  # (b, ..., m, d)
        v = split_heads(self._batch_first(v), self.num_kv_heads)  # (b, ..., m, d)
        # Merge the masks into a boolean one and a floating-point one.
        blocked, bias, is_causal = self._prepare_masks(attn_mask, key_padding_mask, q, k, is_causal)
        # Append the extra keys and values, if any. No mask holds them, so they are always visible.
        k, v = self._append(k, self.bias_k), self._append(v, self.bias_v)  # (b, ..., d)
        # Attend: score, mask, softmax and mix, in all heads at once. A subclass may replace this.
        attended = self.attend(
            q, k, v, blocked=blocked, bias=bias, is_causal=is_causal, need_weights=need_weights
        )
        heads, weights = check_attended(attended, q)
        # Merge the heads side by side, and project out: W_O mixes them, in the query's layout.
        output = self.out_proj(self._as_given(merge_heads(heads), query))  # (..., e)
        # Weights that nobody asked for are dropped, even if a subclass's ``attend`` returns them.
        if weights is None or not need_weights:
            return output, None
        weights = weights.mean(1) if average_attn_weights else weights
        return output, weights if query.dim() == 3 else weights.squeeze(0)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Score each key against each query, before masks and softmax. Override to change it.

        A class that overrides this method attends step by step, with or without weights, because
        the fused kernel can only compute the scaled dot product.

        Args:
            q: (b, h, n, d), the projected queries of each head.
            k: (b, h, m, d), the projected keys; the appended ones come last.

        Returns:
            The scores, (b, h, n, m), scaled.

        Examples:
            >>> import torch
            >>> from annotated_attention import MultiheadAttention
            >>> class DistanceAttention(MultiheadAttention):
            ...     def score(self, q, k):
            ...         return -torch.cdist(q, k).square() / (2 * self.head_dim**0.5)
            >>> x = torch.randn(5, 2, 24)
            >>> DistanceAttention(24, 4)(x, x, x, is_causal=True)[0].shape
            torch.Size([5, 2, 24])
        """
        return scaled_scores(q, k)  # (b, h, n, m)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        blocked: Tensor | None,
        bias: Tensor | None,
        is_causal: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each head. Override to replace the whole step between the projections.

        Args:
            q: (b, h, n, d), the projected queries of each head.
            k: (b, h, m, d), the projected keys; the appended ones come last.
            v: (b, h, m, d), the projected values; the appended ones come last.
            blocked: as in ``scaled_dot_product_attention``; so are ``bias`` and ``need_weights``.
            is_causal: never True with appended keys, which are dealt with in ``blocked``.

        Returns:
            The heads' outputs, (b, h, n, d), and the weights after dropout, (b, h, n, m), or None.
        """
        # A ``score`` that was replaced, in a subclass or by ``module.score = ...``, is passed on.
        # Otherwise none is passed on, and the fused kernel may compute the scores itself.
        overridden = "score" in self.__dict__ or type(self).score is not MultiheadAttention.score
        return compute_attention(
            q,
            k,
            v,
            blocked=blocked,
            bias=bias,
            is_causal=is_causal,
            need_weights=need_weights,
            dropout_p=self.dropout if self.training else 0.0,
            score=self.score if overridden else None,
        )

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Make queries, keys and values, in the layout that was given."""
        bias = self.in_proj_bias  # of the three projections
        kv = self.num_kv_heads * self.head_dim
        rows = (self.embed_dim, kv, kv)
        matrices: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            if query is key is value:  # one product instead of three
                return F.linear(query, self.in_proj_weight, bias).split(rows, -1)
            matrices = self.in_proj_weight.split(rows)
        biases: Any = (None, None, None) if bias is None else bias.split(rows)
        return tuple(map(F.linear, (query, key, value), matrices, biases))

    def _prepare_masks(
        self,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        q: Tensor,
        k: Tensor,
        is_causal: bool,
    ) -> tuple[Tensor | None, Tensor | None, bool]:
        """Merge the masks by broadcasting; none of them hides a key that will be appended."""
        masks = [attention_to_heads(attn_mask, self.num_heads), padding_to_heads(key_padding_mask)]
        # Without appended keys, ``is_causal`` stays a flag, and the fused kernel needs no mask in
        # memory. With appended keys it becomes a mask, because the kernel would hide some of them.
        appended = (self.bias_k is not None) + self.add_zero_attn
        if appended:
            masks += [block_future(q.size(2), k.size(2), q.device)] if is_causal else []
            masks = [None if mask is None else F.pad(mask, (0, appended)) for mask in masks]
            is_causal = False
        return *merge_masks(*masks, dtype=q.dtype), is_causal

    def _append(self, x: Tensor, learned: Tensor | None) -> Tensor:
        """Append the learned key or value, then one of zeros, to every head."""
        if learned is not None:
            learned = split_heads(learned, self.num_kv_heads).to(x.dtype)  # (1, h, 1, d)
            x = torch.cat([x, learned.expand(x.size(0), -1, -1, -1)], -2)  # (b, h, m, d)
        return F.pad(x, (0, 0, 0, 1)) if self.add_zero_attn else x         # (b, h, ..., d)

    def _batch_first(self, x: Tensor) -> Tensor:
        """Bring one of the three layouts to (b, n, e)."""
        if x.dim() == 2:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _as_given(self, x: Tensor, query: Tensor) -> Tensor:
        """Bring (b, n, e) back to the layout of ``query``."""
        if query.dim() == 2:
            return x.squeeze(0)
        return x if self.batch_first else x.transpose(0, 1)

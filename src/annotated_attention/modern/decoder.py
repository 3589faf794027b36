"""A language model of today: the parts of the chapters before, put together."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.attention import compute_attention
from annotated_attention.checks import check_integers
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.modern.cache import Cache, block_by_position
from annotated_attention.modern.cached_attention import next_positions
from annotated_attention.modern.grouped import repeat_heads
from annotated_attention.modern.rotary import RotaryEmbedding, rotate
from annotated_attention.modern.settings import ACTIVATIONS, Settings
from annotated_attention.modern.windows import WindowCache

Rotation = tuple[Tensor, Tensor]  # the cosines and sines of the new tokens' positions
Part = tuple[slice, slice, Tensor | None]  # some queries, the keys they need, and a mask if any
Parts = Callable[[int, int | None, bool], list[Part]]  # see ``parts_by_kind``


class LanguageModel(nn.Module):
    """A decoder as Llama, Mistral, Qwen, SmolLM, OLMo 2 and Gemma 3 are built: it scores the next.

    The names of its parts are those of transformers' checkpoints of Llama.

    Examples:
        Five tokens at once, and in chunks of 3 and 2 with a cache for each layer:

        >>> import torch
        >>> from annotated_attention.modern import KVCache, LanguageModel, Settings
        >>> model = LanguageModel(Settings(
        ...     vocab_size=11, embed_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
        ...     hidden_dim=40, window=3))
        >>> tokens, caches = torch.tensor([[3, 1, 4, 1, 5]]), [KVCache() for _ in model.layers]
        >>> chunks = [model(part, caches) for part in tokens.split([3, 2], dim=1)]
        >>> torch.testing.assert_close(torch.cat(chunks, dim=1), model(tokens))

    Source: Touvron et al. (2023), section 2.2.
    """

    def __init__(self, settings: Settings) -> None:
        """Create the parts, with PyTorch's initial values."""
        super().__init__()
        self.settings = settings
        e, vocab_size = settings.embed_dim, settings.vocab_size
        self.embed_tokens = nn.Embedding(vocab_size, e)
        self.layers = nn.ModuleList(DecoderBlock(settings, window) for window in settings.windows)
        self.norm = nn.RMSNorm(e, settings.norm_eps)
        self.lm_head = None if settings.tie_embeddings else nn.Linear(e, vocab_size, bias=False)
        width = settings.head_dim if settings.rotary_dim is None else settings.rotary_dim
        self.rotary: RotaryEmbedding | None = RotaryEmbedding(  # with None, nothing is rotated
            width,
            base=settings.rotary_base,
            scaling=settings.rotary_scaling,
            max_length=settings.max_length,
        )
        local = settings.local_base
        self.local_rotary = None if local is None else RotaryEmbedding(width, base=local)

    def forward(
        self,
        tokens: Tensor,
        caches: Sequence[Cache] | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Score every token of the vocabulary as the next token, at every position.

        Args:
            tokens: (b, n), integers: the new tokens.
            caches: one for each layer, with the keys and values of the tokens before; None means
                that there are none.
            key_padding_mask: (b, m), True = blocked: padding, with a column for each token so far,
                kept and new. Positions count a row's real tokens alone, so that padding on the
                left changes nothing.

        Returns:
            The logits, (b, n, vocab_size).
        """
        return self.logits(self.states(tokens, caches, key_padding_mask))

    def states(
        self,
        tokens: Tensor,
        caches: Sequence[Cache] | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Compute what ``logits`` takes: the last layer's states, (b, n, e), normed."""
        check_call(self, tokens, caches, key_padding_mask)
        kept = [None] * len(self.layers) if caches is None else caches
        x = self.embed_tokens(tokens)  # (b, n, e)
        if self.settings.scale_embeddings:
            x = x * x.new_tensor(self.settings.embed_dim).sqrt()  # (b, n, e)
        # Rotations and masks are made once for each kind of layer.
        positions = next_positions(kept[0], tokens.size(1), tokens.device)  # (..., n)
        rotations = self.rotations(positions, key_padding_mask, x.dtype)
        parts = parts_by_kind(positions, kept[0], key_padding_mask)
        for layer, rotation, cache in zip(self.layers, rotations, kept, strict=True):
            x = layer(x, rotation, parts, cache)  # (b, n, e)
        return self.norm(x)                       # (b, n, e)

    def logits(self, states: Tensor) -> Tensor:
        """Compare states, (..., e), with every token of the vocabulary: (..., vocab_size)."""
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return F.linear(states, head.weight)

    def rotations(
        self, positions: Tensor, key_padding_mask: Tensor | None, dtype: torch.dtype
    ) -> list[Rotation | None]:
        """Give each layer the cosines and sines of positions, (n,) or (b, n), without padding."""
        if key_padding_mask is not None:
            real = (~key_padding_mask).cumsum(1) - 1                     # (b, m)
            positions = real.gather(1, positions.expand(len(real), -1))  # (b, n)
        made = {
            rotary: None if rotary is None else rotary.angles(positions.clamp(min=0), dtype)
            for rotary in {self.rotary, self.local_rotary}
        }
        local = self.rotary if self.local_rotary is None else self.local_rotary
        each = [made[local if window else self.rotary] for window in self.settings.windows]
        return [None if i in self.settings.nope_layers else x for i, x in enumerate(each)]


class DecoderBlock(nn.Module):
    """One layer: attention, then the feed-forward part, each normed and added."""

    def __init__(self, settings: Settings, window: int | None) -> None:
        """Create the parts; a norm that ``settings.norms`` does not name changes nothing."""
        super().__init__()

        def norm(place: str) -> nn.Module:
            here = settings.norms in (place, "both")
            return nn.RMSNorm(settings.embed_dim, settings.norm_eps) if here else nn.Identity()

        self.input_layernorm = norm("before")
        self.self_attn = DecoderAttention(settings, window)
        self.attention_norm = norm("after")
        self.post_attention_layernorm = norm("before")
        self.mlp = GatedFeedForward(settings)
        self.feedforward_norm = norm("after")

    def forward(
        self, x: Tensor, rotation: Rotation | None, parts: Parts, cache: Cache | None = None
    ) -> Tensor:
        """Take (b, n, e) to (b, n, e); the other arguments are those of the attention."""
        attended, _ = self.self_attn(self.input_layernorm(x), rotation, parts, cache)
        x = x + self.attention_norm(attended)              # (b, n, e)
        made = self.mlp(self.post_attention_layernorm(x))  # (b, n, e)
        return x + self.feedforward_norm(made)             # (b, n, e)


class DecoderAttention(nn.Module):
    """Causal self-attention in groups, with heads of a width of their own.

    ``o_proj`` reads the heads side by side, head i in features i * d to (i + 1) * d: there, or in
    ``attend``, a head can be silenced. ``pretrained.attention_weights`` collects the weights.
    """

    def __init__(self, settings: Settings, window: int | None) -> None:
        """Create the matrices; in a layer with a window, a query sees so many keys at most."""
        super().__init__()
        e, d = settings.embed_dim, settings.head_dim
        h, g = settings.num_heads, settings.num_kv_heads
        self.num_heads, self.num_kv_heads, self.window = h, g, window
        self.q_proj = nn.Linear(e, h * d, settings.qkv_bias)
        self.k_proj = nn.Linear(e, g * d, settings.qkv_bias)
        self.v_proj = nn.Linear(e, g * d, settings.qkv_bias)
        self.o_proj = nn.Linear(h * d, e, settings.out_bias)
        self.scale, self.whole, eps = settings.scale, settings.qk_norm_whole, settings.norm_eps
        normed = settings.qk_norm or self.whole
        self.q_norm = nn.RMSNorm(h * d if self.whole else d, eps) if normed else nn.Identity()
        self.k_norm = nn.RMSNorm(g * d if self.whole else d, eps) if normed else nn.Identity()

    def forward(
        self,
        x: Tensor,
        rotation: Rotation | None,
        parts: Parts,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each token to itself and to those before it, also those in the cache.

        Args:
            x: (b, n, e), the states of the new tokens.
            rotation: the cosines and the sines of their positions; None rotates nothing.
            parts: says which of m keys these tokens may see, given m and the window.
            cache: keeps the keys and values of these tokens behind those of earlier calls.
            need_weights: also return the weights.

        Returns:
            (b, n, e), and the weights, (b, h, n, m), or None.
        """
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        # Queries and keys are normed all together, each head alone, or not at all.
        q, k = (self.q_norm(q), self.k_norm(k)) if self.whole else (q, k)
        q = split_heads(q, self.num_heads)     # (b, h, n, d)
        k = split_heads(k, self.num_kv_heads)  # (b, g, n, d)
        v = split_heads(v, self.num_kv_heads)  # (b, g, n, d)
        q, k = (q, k) if self.whole else (self.q_norm(q), self.k_norm(k))
        if rotation is not None:
            q, k = rotate_part(q, *rotation), rotate_part(k, *rotation)  # (b, ..., n, d)
        # From here on keys and values are those of all tokens, kept and new.
        if cache is not None:
            k, v = cache.append(k, v)  # (b, g, m, d)
        heads, weights = self.attend_in_parts(q, k, v, parts, need_weights)
        return self.o_proj(merge_heads(heads)), weights

    def attend_in_parts(
        self, q: Tensor, k: Tensor, v: Tensor, parts: Parts, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with all queries at once; where a prompt is longer than the window, with some.

        These need only the keys that their windows reach.
        """
        attended = [
            self.attend(q[:, :, rows], k[:, :, columns], v[:, :, columns], blocked, need_weights)
            for rows, columns, blocked in parts(k.size(-2), self.window, need_weights)
        ]
        return torch.cat([heads for heads, _ in attended], -2), attended[0][1]

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, blocked: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each head, to the keys and values of its group. Override to change it.

        Args:
            q: (b, h, n, d), the queries of new tokens.
            k: (b, g, m, d), the keys of all tokens, or of those that a window reaches.
            v: (b, g, m, d), their values.
            blocked: broadcastable to (b, h, n, m); True = blocked. None where no mask is needed: a
                single query sees all m keys, and of as many queries as keys each sees its own key
                and those before.
            need_weights: whether the weights are asked for.

        Returns:
            The heads' outputs, (b, h, n, d), and the weights, (b, h, n, m), or None.
        """
        if need_weights:  # step by step, each head needs a copy of the keys and values of its group
            k, v = repeat_heads(k, self.num_heads), repeat_heads(v, self.num_heads)
        return compute_attention(
            q,
            k,
            v,
            blocked=blocked,
            is_causal=blocked is None and q.size(-2) > 1,
            need_weights=need_weights,
            scale=self.scale,
            enable_gqa=not need_weights,
        )


class GatedFeedForward(nn.Module):
    """A feed-forward part in which one product opens and closes the features of another.

    Source: Shazeer (2020), section 2, equation 6, where the activation is SiLU.
    """

    def __init__(self, settings: Settings) -> None:
        """Create the three matrices."""
        super().__init__()
        e, hidden, bias = settings.embed_dim, settings.hidden_dim, settings.mlp_bias
        self.gate_proj = nn.Linear(e, hidden, bias)
        self.up_proj = nn.Linear(e, hidden, bias)
        self.down_proj = nn.Linear(hidden, e, bias)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, x: Tensor) -> Tensor:
        """Take (b, n, e) to (b, n, e), each token by itself."""
        gate = self.activation(self.gate_proj(x))      # (b, n, ...)
        return self.down_proj(gate * self.up_proj(x))  # (b, n, e)


def rotate_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first 2r features of (b, h, n, d) by the angles of r pairs, (..., n, r)."""
    width = 2 * cos.size(-1)
    rotated = rotate(x[..., :width], cos, sin)  # (b, h, n, ...)
    return rotated if width == x.size(-1) else torch.cat([rotated, x[..., width:]], -1)


def parts_by_kind(positions: Tensor, cache: Cache | None, key_padding_mask: Tensor | None) -> Parts:
    """Give a function that says which keys the new tokens may see, once for each kind of layer.

    Given m keys, a window, and whether all weights are wanted, it lists parts: some of the queries,
    the keys that they need, and what is blocked among these, or None where ``attend`` needs no
    mask. There is more than one part where a prompt is longer than the window.

    Args:
        positions: (n,) or (b, n), of the new tokens, with padding counted.
        cache: of one of the layers, before the new tokens are appended.
        key_padding_mask: as in ``LanguageModel``.
    """
    n, kept = positions.size(-1), 0 if cache is None else cache.length

    def block(queries: Tensor, keys: slice, m: int, window: int | None) -> Tensor:
        blocked = block_by_position(queries, keys.stop - keys.start, window)
        if key_padding_mask is None:
            return blocked
        # A cache of fixed size gives more keys than there are tokens; those are in the future.
        missing = max(0, m - key_padding_mask.size(1))
        padding = F.pad(key_padding_mask, (0, missing))[:, -m:][:, keys]
        return blocked | padding[:, None, None]

    @lru_cache
    def parts(m: int, window: int | None, whole: bool) -> list[Part]:
        if isinstance(kept, Tensor) or m > kept + n:  # not yet filled, or rows of several lengths
            return [(slice(0, n), slice(0, m), block(positions, slice(0, m), m, window))]
        found: list[Part] = []
        size = n if whole or window is None else window
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            # The queries are the last n of m tokens, so that query i is at key m - n + i.
            reach = 0 if whole or window is None else m - n + start - window + 1
            keys = slice(max(0, reach), m - n + rows.stop)
            few, many = rows.stop - rows.start, keys.stop - keys.start
            blocked = None
            if key_padding_mask is not None or few not in (1, many) or many > (window or many):
                last = torch.arange(many - few, many, device=positions.device)
                blocked = block(last, keys, m, window)
            found.append((rows, keys, blocked))
        return found

    return parts


def check_call(
    model: LanguageModel,
    tokens: Tensor,
    caches: Sequence[Cache] | None,
    key_padding_mask: Tensor | None,
) -> None:
    """Refuse arguments of ``LanguageModel`` that do not fit it or each other."""
    check_integers(indices=True, tokens=tokens)
    if tokens.dim() != 2 or not tokens.size(1):
        raise ValueError(f"tokens must have shape (b, n), got {tuple(tokens.shape)}")
    if caches is not None and len(caches) != len(model.layers):
        raise ValueError(
            f"caches ({len(caches)}) must be as many as the layers ({len(model.layers)})"
        )
    for i, (cache, window) in enumerate(zip(caches or (), model.settings.windows, strict=False)):
        if isinstance(cache, WindowCache) and (cache.window, cache.sinks) != (window, 0):
            raise ValueError(
                f"caches[{i}] (window {cache.window}, sinks {cache.sinks}) must have window "
                f"{window}, as its layer has, and no sinks"
            )
    if key_padding_mask is None:
        return
    if key_padding_mask.dtype != torch.bool:
        raise TypeError(f"key_padding_mask must be boolean, got {key_padding_mask.dtype}")
    length = caches[0].length if caches else 0
    if isinstance(length, int):  # a tensor would have to be looked into
        wanted = (tokens.size(0), length + tokens.size(1))
        given = tuple(key_padding_mask.shape)
        if given != wanted:
            raise ValueError(f"key_padding_mask {given} must have shape (b, m) = {wanted}")

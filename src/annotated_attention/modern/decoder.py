"""A language model of today: the parts of the chapters before, put together, and what it writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.attention import compute_attention
from annotated_attention.checks import check_settings, check_sizes, check_tensors
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.modern.cache import Cache, block_by_position
from annotated_attention.modern.cached_attention import next_positions
from annotated_attention.modern.frequencies import check_number
from annotated_attention.modern.grouped import repeat_heads
from annotated_attention.modern.rotary import RotaryEmbedding, rotate
from annotated_attention.modern.windows import WindowCache

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
LAYER_TYPES = ("full_attention", "sliding_attention")  # two of transformers' words

# What a layer gets from the model: cosines and sines, and the masks of its kind.
Rotation = tuple[Tensor, Tensor]
Block = Callable[[int, int | None], Tensor]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The sizes and choices that make one family's model out of ``LanguageModel``.

    Attributes:
        vocab_size: how many tokens there are to choose from.
        embed_dim: e, the width of the states between the layers.
        num_layers: how many layers.
        num_heads: h, the heads of the queries.
        num_kv_heads: g, the heads of the keys and values; must divide h.
        head_dim: d, the width of one head; h * d need not be e.
        hidden_dim: the width inside a feed-forward part.
        norm_eps: what each RMSNorm adds to the mean of the squares, so that it never divides by 0.
        rotary_base: the pairs turn by 1 per position, then ever less, see ``rotary_frequencies``.
        rotary_scaling: how the frequencies change for long sequences, see ``rotary_frequencies``.
            A kept key stays as it is, so ``"dynamic"`` fits no cache beyond ``max_length``.
        rotary_dim: how many features of a head turn, the first ones; even. None means all, and is
            replaced by d.
        layer_types: the kind of each layer, ``"full_attention"`` or ``"sliding_attention"``; none
            means that all are of one kind, sliding where there is a ``window``, and is replaced by
            their kinds.
        window: how many keys a query of a sliding layer sees, itself included.
        qk_norm: norm the queries and keys of each head, before they turn.
        qkv_bias: give W_Q, W_K and W_V a bias.
        out_bias: give W_O a bias.
        mlp_bias: give the matrices of the feed-forward parts a bias.
        tie_embeddings: score the next token with the matrix that embeds tokens.
        activation: the function of the gate: ``"silu"``, ``"gelu"``, ``"gelu_tanh"``, ``"relu"``.
        max_length: how many tokens the model was trained for, where ``rotary_scaling`` needs it;
            nothing is refused beyond.

    Examples:
        The sizes of SmolLM2-135M, and the memory of a token in its cache, in numbers:

        >>> from annotated_attention.modern import Settings
        >>> small = Settings(
        ...     vocab_size=49152, embed_dim=576, num_layers=30, num_heads=9, num_kv_heads=3,
        ...     head_dim=64, hidden_dim=1536, rotary_base=100_000, tie_embeddings=True)
        >>> 2 * small.num_layers * small.num_kv_heads * small.head_dim
        11520
    """

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_dim: int
    norm_eps: float = 1e-6
    rotary_base: float = 10_000.0
    rotary_scaling: Mapping[str, Any] | None = None
    rotary_dim: int | None = None
    layer_types: tuple[str, ...] = ()
    window: int | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    tie_embeddings: bool = False
    activation: str = "silu"
    max_length: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings from which no model can be built, and write down what was left out."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        sizes = [field.name for field in fields(self) if field.type is int]
        optional = [x for x in ("rotary_dim", "window", "max_length") if given[x] is not None]
        check_sizes({name: given[name] for name in (*sizes, *optional)})
        for name in (field.name for field in fields(self) if field.type is bool):
            if not isinstance(given[name], bool):
                raise TypeError(f"{name} ({given[name]!r}) must be True or False")
        check_settings({"num_heads": self.num_heads, "num_kv_heads": self.num_kv_heads})
        check_number("norm_eps", self.norm_eps)
        if not self.norm_eps > 0:
            raise ValueError(f"norm_eps ({self.norm_eps}) must be above 0")
        if not isinstance(self.activation, str) or self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation ({self.activation!r}) must be one of {', '.join(ACTIVATIONS)}"
            )
        self._settle_rotation()
        self._settle_layers()

    def _settle_rotation(self) -> None:
        """Refuse a rotation that cannot be, and write down how many features turn."""
        turned = self.head_dim if self.rotary_dim is None else self.rotary_dim
        if turned > self.head_dim or turned % 2:
            raise ValueError(
                f"rotary_dim ({turned}) must be even, and at most head_dim ({self.head_dim})"
            )
        object.__setattr__(self, "rotary_dim", turned)
        make_rotary(self)

    def _settle_layers(self) -> None:
        """Refuse kinds of layers that cannot be, and write down the kind of each."""
        if not self.layer_types:
            kind = LAYER_TYPES[self.window is not None]
            object.__setattr__(self, "layer_types", (kind,) * self.num_layers)
        types = self.layer_types
        if not isinstance(types, tuple) or len(types) != self.num_layers:
            raise ValueError(
                f"layer_types ({types!r}) must be a tuple with the kind of {self.num_layers} layers"
            )
        if odd := [kind for kind in types if kind not in LAYER_TYPES]:
            raise ValueError(f"layer_types' {odd[0]!r} must be one of {', '.join(LAYER_TYPES)}")
        if ("sliding_attention" in types) != (self.window is not None):
            raise ValueError(
                f"window ({self.window}) must be given where layer_types has sliding_attention, "
                f"and only there"
            )

    @property
    def windows(self) -> list[int | None]:
        """The window of each layer; None where a query sees all keys before it."""
        return [self.window if kind == "sliding_attention" else None for kind in self.layer_types]


class DecoderAttention(nn.Module):
    """Causal self-attention in groups, with heads of a width of their own.

    ``o_proj`` reads the heads side by side, head i in features i * d to (i + 1) * d: there, or in
    ``attend``, a head can be silenced. ``pretrained.attention_weights`` collects the weights.
    """

    def __init__(self, settings: Settings, window: int | None) -> None:
        """Create the matrices; a layer with a window hides what is before it."""
        super().__init__()
        e, d = settings.embed_dim, settings.head_dim
        h, g = settings.num_heads, settings.num_kv_heads
        self.num_heads, self.num_kv_heads, self.window = h, g, window
        self.q_proj = nn.Linear(e, h * d, settings.qkv_bias)
        self.k_proj = nn.Linear(e, g * d, settings.qkv_bias)
        self.v_proj = nn.Linear(e, g * d, settings.qkv_bias)
        self.o_proj = nn.Linear(h * d, e, settings.out_bias)
        self.q_norm = nn.RMSNorm(d, settings.norm_eps) if settings.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(d, settings.norm_eps) if settings.qk_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        rotation: Rotation | None,
        block: Block,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each token to itself and to those before it, also those in the cache.

        Args:
            x: (b, n, e), the states of the new tokens.
            rotation: the cosines and the sines of their positions; None turns nothing.
            block: says which of m keys these tokens may not see, given m and the window.
            cache: keeps the keys and values of these tokens behind those of earlier calls.
            need_weights: also return the weights.

        Returns:
            (b, n, e), and the weights, (b, h, n, m), or None.
        """
        # With ``qk_norm``, each head of queries and keys is normed; else its norm changes nothing.
        q = self.q_norm(split_heads(self.q_proj(x), self.num_heads))     # (b, h, n, d)
        k = self.k_norm(split_heads(self.k_proj(x), self.num_kv_heads))  # (b, g, n, d)
        v = split_heads(self.v_proj(x), self.num_kv_heads)               # (b, g, n, d)
        if rotation is not None:
            q, k = rotate_part(q, *rotation), rotate_part(k, *rotation)  # (b, ..., n, d)
        # From here on keys and values are those of all tokens, kept and new.
        if cache is not None:
            k, v = cache.append(k, v)  # (b, g, m, d)
        # The model's ``block`` makes the mask for so many keys, and for this layer's window if any.
        blocked = block(k.size(-2), self.window)  # (..., n, m)
        heads, weights = self.attend(q, k, v, blocked, need_weights)
        return self.o_proj(merge_heads(heads)), weights

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, blocked: Tensor, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each head, to the keys and values of its group. Override to change it.

        Args:
            q: (b, h, n, d), the queries of the new tokens.
            k: (b, g, m, d), the keys of all tokens.
            v: (b, g, m, d), the values of all tokens.
            blocked: broadcastable to (b, h, n, m); True = blocked.
            need_weights: whether the weights are asked for.

        Returns:
            The heads' outputs, (b, h, n, d), and the weights, (b, h, n, m), or None.
        """
        k, v = repeat_heads(k, self.num_heads), repeat_heads(v, self.num_heads)  # (b, h, m, d)
        return compute_attention(
            q,
            k,
            v,
            blocked=blocked,
            bias=None,
            is_causal=False,
            dropout_p=0.0,
            need_weights=need_weights,
            score=None,
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


class DecoderBlock(nn.Module):
    """One layer: attention, then the feed-forward part, each normed before and added after."""

    def __init__(self, settings: Settings, window: int | None) -> None:
        """Create the parts."""
        super().__init__()
        self.input_layernorm = nn.RMSNorm(settings.embed_dim, settings.norm_eps)
        self.self_attn = DecoderAttention(settings, window)
        self.post_attention_layernorm = nn.RMSNorm(settings.embed_dim, settings.norm_eps)
        self.mlp = GatedFeedForward(settings)

    def forward(
        self, x: Tensor, rotation: Rotation | None, block: Block, cache: Cache | None = None
    ) -> Tensor:
        """Take (b, n, e) to (b, n, e); the other arguments are those of the attention."""
        attended, _ = self.self_attn(self.input_layernorm(x), rotation, block, cache)
        x = x + attended                                       # (b, n, e)
        return x + self.mlp(self.post_attention_layernorm(x))  # (b, n, e)


class LanguageModel(nn.Module):
    """A decoder as Llama, Mistral, Qwen and SmolLM2 are built: it scores the next token.

    The names of its parts are those of transformers' checkpoints of these families.

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
        self.rotary: RotaryEmbedding | None = make_rotary(settings)  # with None, nothing turns

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
        # These count padding, too, as masks do; rotations leave it out.
        positions = next_positions(kept[0], tokens.size(1), tokens.device)  # (..., n)
        x = self.embed_tokens(tokens)                                       # (b, n, e)
        # Rotations are computed once, and so is a mask: layers with the same window share it.
        rotation = self.rotation(positions, key_padding_mask, x)
        block = masks_by_kind(positions, key_padding_mask)
        for layer, cache in zip(self.layers, kept, strict=True):
            x = layer(x, rotation, block, cache)  # (b, n, e)
        return self.norm(x)                       # (b, n, e)

    def logits(self, states: Tensor) -> Tensor:
        """Compare states, (..., e), with every token of the vocabulary: (..., vocab_size)."""
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return F.linear(states, head.weight)

    def rotation(
        self, positions: Tensor, key_padding_mask: Tensor | None, x: Tensor
    ) -> Rotation | None:
        """Give the cosines and sines for positions, (n,) or (b, n), once padding is not counted."""
        if self.rotary is None:
            return None
        if key_padding_mask is not None:
            real = (~key_padding_mask).cumsum(1) - 1                  # (b, m)
            positions = real.gather(1, positions.expand(len(x), -1))  # (b, n)
        return self.rotary.angles(positions.clamp(min=0), x.dtype)    # (..., n, r), (..., n, r)


def rotate_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the first 2r features of (b, h, n, d) by the angles of r pairs, (..., n, r)."""
    turned, still = x.tensor_split([2 * cos.size(-1)], -1)
    return torch.cat([rotate(turned, cos, sin), still], -1)  # (b, h, n, d)


def masks_by_kind(positions: Tensor, key_padding_mask: Tensor | None) -> Block:
    """Give a function that makes the mask for m keys and a window, once for each kind of layer."""

    @lru_cache
    def block(m: int, window: int | None) -> Tensor:
        blocked = block_by_position(positions, m, window)
        if key_padding_mask is None:
            return blocked  # (..., n, m)
        # A cache of fixed size gives more keys than there are tokens; those are in the future.
        missing = max(0, m - key_padding_mask.size(1))
        padding = F.pad(key_padding_mask, (0, missing))[:, -m:]  # (b, m)
        return blocked | padding[:, None, None]                  # (b, 1, n, m)

    return block


def make_rotary(settings: Settings) -> RotaryEmbedding:
    """Make the rotation that all layers share."""
    return RotaryEmbedding(
        settings.head_dim if settings.rotary_dim is None else settings.rotary_dim,
        base=settings.rotary_base,
        scaling=settings.rotary_scaling,
        max_length=settings.max_length,
    )


def check_call(
    model: LanguageModel,
    tokens: Tensor,
    caches: Sequence[Cache] | None,
    key_padding_mask: Tensor | None,
) -> None:
    """Refuse arguments of ``LanguageModel`` that do not fit it or each other."""
    check_tensors(tokens=tokens)
    if tokens.dtype not in (torch.int64, torch.int32):  # PyTorch embeds no others
        raise TypeError(f"tokens must be int64 or int32, got {tokens.dtype}")
    if tokens.dim() != 2 or not tokens.size(1):
        raise ValueError(f"tokens must have shape (b, n), got {tuple(tokens.shape)}")
    if caches is not None and len(caches) != len(model.layers):
        raise ValueError(
            f"caches ({len(caches)}) must be as many as the layers ({len(model.layers)})"
        )
    if odd := [cache for cache in caches or () if not hasattr(cache, "length")]:
        raise TypeError(f"caches must be Caches, such as KVCache, got {type(odd[0]).__name__}")
    for i, (cache, window) in enumerate(zip(caches or (), model.settings.windows, strict=False)):
        if isinstance(cache, WindowCache) and (cache.window, cache.sinks) != (window, 0):
            raise ValueError(
                f"caches[{i}] (window {cache.window}, sinks {cache.sinks}) must have window "
                f"{window}, as its layer has, and no sinks"
            )
    if key_padding_mask is None:
        return
    check_tensors(key_padding_mask=key_padding_mask)
    if key_padding_mask.dtype != torch.bool:
        raise TypeError(f"key_padding_mask must be boolean, got {key_padding_mask.dtype}")
    length = caches[0].length if caches else 0
    if isinstance(length, int):  # a tensor would have to be looked into
        wanted = (tokens.size(0), length + tokens.size(1))
        given = tuple(key_padding_mask.shape)
        if given != wanted:
            raise ValueError(f"key_padding_mask {given} must have shape (b, m) = {wanted}")

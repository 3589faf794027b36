"""The sizes and choices that make one family's model out of ``LanguageModel``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from annotated_attention.checks import check_number, check_settings, check_sizes
from annotated_attention.modern.frequencies import read_scaling

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
LAYER_TYPES = ("full_attention", "sliding_attention")  # two of transformers' words


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
        local_base: the base of sliding layers, which are then not scaled; None means that of all.
        nope_layers: the numbers of layers, from 0, whose queries and keys are not rotated.
        norms: where the norms of a layer stand: ``"before"`` its parts, ``"after"`` them, or
            ``"both"``.
        scale: factor on the scores; None means 1 / sqrt(d).
        scale_embeddings: multiply them by sqrt(e).
        qk_norm: norm the queries and keys of each head, before they are rotated.
        qk_norm_whole: norm those of all heads together instead.
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
    local_base: float | None = None
    nope_layers: tuple[int, ...] = ()
    norms: str = "before"
    scale: float | None = None
    scale_embeddings: bool = False
    qk_norm: bool = False
    qk_norm_whole: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    tie_embeddings: bool = False
    activation: str = "silu"
    max_length: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings from which no model can be built, and write down what was left out."""
        _check(self)
        if self.rotary_dim is None:
            object.__setattr__(self, "rotary_dim", self.head_dim)
        usual = (LAYER_TYPES[self.window is not None],) * self.num_layers
        object.__setattr__(self, "layer_types", tuple(self.layer_types) or usual)

    @property
    def windows(self) -> list[int | None]:
        """The window of each layer; None where a query sees all keys before it."""
        return [self.window if kind == "sliding_attention" else None for kind in self.layer_types]


def _check(settings: Settings) -> None:
    """Refuse settings from which no model can be built."""
    s = settings
    sizes = ("vocab_size", "embed_dim", "num_layers", "head_dim", "hidden_dim")
    optional = [x for x in ("rotary_dim", "window", "max_length") if getattr(s, x) is not None]
    check_sizes({name: getattr(s, name) for name in (*sizes, *optional)})
    check_settings({"num_heads": s.num_heads, "num_kv_heads": s.num_kv_heads})
    check_number("norm_eps", s.norm_eps, above=0)
    check_number("scale", 1.0 if s.scale is None else s.scale)
    for name, options in (("activation", [*ACTIVATIONS]), ("norms", ["before", "after", "both"])):
        if (found := getattr(s, name)) not in options:
            raise ValueError(f"{name} ({found!r}) must be one of {', '.join(options)}")
    rotary_dim = s.head_dim if s.rotary_dim is None else s.rotary_dim
    if rotary_dim > s.head_dim or rotary_dim % 2:
        raise ValueError(
            f"rotary_dim ({rotary_dim}) must be even, and at most head_dim ({s.head_dim})"
        )
    read_scaling(rotary_dim, s.rotary_base, s.rotary_scaling, s.max_length)
    read_scaling(rotary_dim, s.local_base, None, None)
    if s.layer_types and len(s.layer_types) != s.num_layers:
        raise ValueError(f"layer_types {s.layer_types} must be the kinds of {s.num_layers} layers")
    if odd := [kind for kind in s.layer_types if kind not in LAYER_TYPES]:
        raise ValueError(f"layer_types' {odd[0]!r} must be one of {', '.join(LAYER_TYPES)}")
    if s.layer_types and ("sliding_attention" in s.layer_types) != (s.window is not None):
        raise ValueError(
            f"window ({s.window}) must be given where layer_types has sliding_attention, and only "
            f"there"
        )

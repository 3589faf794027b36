"""The sizes of whole Transformers with their costs, and presets of published models."""

from dataclasses import dataclass

from annotated_attention.checks import check_settings, check_sizes
from annotated_attention.counting.formulas import (
    attention_kept,
    attention_parameters,
    cache_numbers,
    feedforward_flops,
    product_flops,
    projection_flops,
    score_flops,
)

PARTS = ("projections", "scores and mix", "feed-forward", "norms", "embeddings, output")


@dataclass(frozen=True)
class Model:
    """The sizes of a Transformer, with its counts by part, in the order of ``PARTS``.

    Attributes:
        embed_dim: e, the model width.
        num_heads: h, the number of heads; must divide e.
        feedforward: f, the width inside a feed-forward network.
        layers: how many layers have self-attention and a feed-forward network: an encoder's, or,
            with a causal mask, those of a model that is only a decoder.
        decoder_layers: how many layers have cross-attention as well, to the output of ``layers``.
        vocabulary: how many tokens have an embedding.
        positions: how many rows all other learned tables have in total, such as one for positions.
        norms: how many layer norms there are outside the layers.
        output: what turns the last layer's output into a number for each token of the vocabulary:
            "tied", the embeddings again; or "none", nothing.
        activation: between the linear maps of the feed-forward network, "relu" or "gelu".
        num_kv_heads: g, the number of heads of keys and values, which groups of queries share;
            must divide ``num_heads``. None means ``num_heads``.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size that is too small, ``embed_dim`` not divisible by ``num_heads`` or
            ``num_heads`` by ``num_kv_heads``, no layer at all, or an unknown ``output`` or
            ``activation``.

    Examples:
        >>> from annotated_attention.counting import PARTS, PRESETS, Model
        >>> small = Model(embed_dim=24, num_heads=4, feedforward=10, vocabulary=13)
        >>> for part in PARTS:
        ...     print(f"{part:19}{small.parameters()[part]:7,}")
        projections         43,200
        scores and mix           0
        feed-forward         6,168
        norms                1,440
        embeddings, output     312
        >>> sum(PRESETS["gpt2"].parameters().values())
        124439808
    """

    embed_dim: int = 512
    num_heads: int = 8
    feedforward: int = 2048
    layers: int = 6
    decoder_layers: int = 6
    vocabulary: int = 37000
    positions: int = 0
    norms: int = 0
    output: str = "tied"
    activation: str = "relu"
    num_kv_heads: int | None = None

    def __post_init__(self) -> None:
        """Refuse sizes from which no model can be built."""
        widths = ("embed_dim", "num_heads", "feedforward", "vocabulary")
        check_settings({name: getattr(self, name) for name in widths})
        counts = ("layers", "decoder_layers", "positions", "norms")
        check_sizes({name: getattr(self, name) for name in counts}, least=0)
        if not self.layers + self.decoder_layers:
            raise ValueError("layers (0) and decoder_layers (0) must not both be 0")
        for name, fits in (("output", ("tied", "none")), ("activation", ("relu", "gelu"))):
            if getattr(self, name) not in fits:
                raise ValueError(f"{name} ({getattr(self, name)!r}) must be one of {fits}")
        if self.num_kv_heads is not None:
            check_settings({"num_heads": self.num_heads, "num_kv_heads": self.num_kv_heads})

    def parameters(self) -> dict[str, int]:
        """Count the learned numbers; every linear map and norm has a bias.

        Examples:
            >>> from annotated_attention.counting import PRESETS
            >>> PRESETS["gpt2"].parameters()["embeddings, output"] == (50257 + 1024) * 768
            True
        """
        e, f = self.embed_dim, self.feedforward
        attentions, networks, norms = self._parts()
        return _by_part(
            attentions * attention_parameters(e, shared=self._shared),
            0,
            networks * (2 * e * f + f + e),
            norms * 2 * e,
            (self.vocabulary + self.positions) * e,
        )

    def flops(self, length: int, batch: int = 1) -> dict[str, int]:
        """Count the FLOPs of a forward pass; source and target are both of this length.

        Examples:
            Twice the length takes twice the FLOPs for projections, and four times those for scores:

            >>> from annotated_attention.counting import PRESETS
            >>> short, long = (PRESETS["gpt2"].flops(length) for length in (512, 1024))
            >>> [long[part] / short[part] for part in ("projections", "scores and mix")]
            [2.0, 4.0]
        """
        check_sizes({"length": length, "batch": batch})
        n, b, e = length, batch, self.embed_dim
        attentions, networks, _ = self._parts()
        return _by_part(
            attentions * projection_flops(n, n, e, b=b, shared=self._shared),
            attentions * score_flops(n, n, e, b=b),
            networks * feedforward_flops(n, e, self.feedforward, b=b),
            0,
            (self.output != "none") * product_flops(b * n, e, self.vocabulary),
        )

    def kept(self, length: int, batch: int = 1, *, fused: bool = False) -> dict[str, int]:
        """Count the numbers kept for the backward pass, up to the output of the model.

        A feed-forward network keeps its input and the numbers in between: once after ReLU, whose
        derivative can be read from its output, and twice around GELU. A norm keeps its input, and
        two statistics for each token.

        Examples:
            The fused kernel keeps one number for each row of weights:

            >>> from annotated_attention.counting import PRESETS
            >>> model = PRESETS["gpt2"]
            >>> [model.kept(1024, fused=fused)["scores and mix"] for fused in (False, True)]
            [150994944, 147456]
        """
        check_sizes({"length": length, "batch": batch})
        n, b, e, h = length, batch, self.embed_dim, self.num_heads
        attentions, networks, norms = self._parts()
        each = attention_kept(n, n, e, h, b=b, shared=self._shared, fused=fused)
        # Cross-attention keeps the encoding, too, and all layers look at the same.
        encoding = b * n * e * (self.decoder_layers > 0)
        weights = attentions * b * h * n * (1 if fused else n)
        between = self.feedforward * {"relu": 1, "gelu": 2}[self.activation]
        return _by_part(
            attentions * each + encoding - weights,
            weights,
            networks * b * n * (e + between),
            norms * b * n * (e + 2),
            (self.output != "none") * b * n * e,
        )

    def step_flops(self, length: int, batch: int = 1) -> dict[str, int]:
        """Count the FLOPs of generating one more token with a cache.

        Args:
            length: how many tokens the new one sees, itself included; the source's length, too.
            batch: how many sequences are generated at once.

        Examples:
            Without a cache, the last of 1024 tokens takes a thousand times as many FLOPs:

            >>> from annotated_attention.counting import PRESETS
            >>> model = PRESETS["gpt2"]
            >>> sum(model.flops(1024).values()) / sum(model.step_flops(1024).values())
            1024.0
        """
        check_sizes({"length": length, "batch": batch})
        m, b, e, cross = length, batch, self.embed_dim, self.decoder_layers
        running = cross or self.layers  # an encoder has run before
        projections = projection_flops(1, 1, e, b=b, shared=self._shared)
        return _by_part(
            # Cross-attention finds its keys and values in the cache: it projects in and out only.
            running * projections + cross * projection_flops(1, 0, e, b=b),
            (running + cross) * score_flops(1, m, e, b=b),
            running * feedforward_flops(1, e, self.feedforward, b=b),
            0,
            (self.output != "none") * product_flops(b, e, self.vocabulary),
        )

    def cache(self, length: int, batch: int = 1) -> int:
        """Count the numbers in the cache, when this many tokens have been read and generated.

        Examples:
            Keys and values of 12 layers, 768 numbers wide:

            >>> from annotated_attention.counting import PRESETS
            >>> PRESETS["gpt2"].cache(length=1024, batch=3) == 2 * 12 * 768 * 1024 * 3
            True
        """
        check_sizes({"length": length, "batch": batch})
        cached = 2 * self.decoder_layers or self.layers
        return cache_numbers(length, self._shared, b=batch, layers=cached)

    def crossover(self) -> int:
        """Return the length beyond which scores and mixing take more FLOPs than projections.

        It is 2e, or e + g * d where groups of queries share g heads of keys.

        Examples:
            >>> from annotated_attention.counting import PRESETS
            >>> model = PRESETS["gpt2"]
            >>> counts = model.flops(model.crossover())
            >>> model.crossover(), counts["projections"] == counts["scores and mix"]
            (1536, True)
        """
        return self.embed_dim + self._shared

    @property
    def _shared(self) -> int:
        """Give the width of all keys: e, or g * d where groups of queries share g heads."""
        return self.embed_dim // self.num_heads * (self.num_kv_heads or self.num_heads)

    def _parts(self) -> tuple[int, int, int]:
        """Count the attentions, the feed-forward networks and the norms."""
        plain, cross = self.layers, self.decoder_layers
        return plain + 2 * cross, plain + cross, 2 * plain + 3 * cross + self.norms


def _by_part(*counts: int) -> dict[str, int]:
    """Name the counts by their parts."""
    return dict(zip(PARTS, counts, strict=True))


# Published sizes. A row for each of BERT's two segments counts as a position; its pooler, which one
# of its two pretraining tasks needs, is left out.
PRESETS = {
    "transformer-base": Model(),
    "transformer-big": Model(1024, 16, 4096),
    "bert-base": Model(768, 12, 3072, 12, 0, 30522, 512 + 2, 1, "none", "gelu"),
    "bert-large": Model(1024, 16, 4096, 24, 0, 30522, 512 + 2, 1, "none", "gelu"),
    "gpt2": Model(768, 12, 3072, 12, 0, 50257, 1024, 1, "tied", "gelu"),
    "gpt2-xl": Model(1600, 25, 6400, 48, 0, 50257, 1024, 1, "tied", "gelu"),
}

"""What attention costs: parameters, FLOPs and memory, as formulas.

    python -m annotated_attention.counting --embed-dim 512 --num-heads 8 --length 1024
    python -m annotated_attention.counting --preset gpt2 --batch 8 --bytes 2

Letters are the book's: b samples, n queries, m keys, h heads, model width e; and f, the width
inside a feed-forward network. All counts are exact integers, each tested against PyTorch's own:

- **Parameters** are numbers that are learned, what ``numel`` adds up.
- **FLOPs** are the multiplications and additions of matrix products, what
  ``torch.utils.flop_counter`` counts where no fused kernel hides them: 2ndm for (n, d) times
  (d, m). Softmax, norms, activations and sums of tensors are left out, and a mask saves nothing.
- **Kept** numbers wait from the forward pass for the backward pass: everything in the storages that
  autograd saves on a CPU, each storage once, parameters and integers left out; without dropout, and
  with a gradient for every input. Times the bytes of one number that is memory, but for the numbers
  that the fused kernel keeps in place of the weights: in half precision these stay in float32.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from annotated_attention.checks import check_settings

BACKWARD = 2  # FLOPs of the backward pass, per FLOP of the forward pass; see ``backward_flops``


# Attention


def attention_parameters(
    e: int,
    *,
    kdim: int | None = None,
    vdim: int | None = None,
    bias: bool = True,
    add_bias_kv: bool = False,
) -> int:
    """Count the parameters of multi-head attention: 4e² + 4e, whatever the number of heads.

    Args:
        e: the width of the queries and of the output.
        kdim: the width of the keys; None means e.
        vdim: the width of the values; None means e.
        bias: whether the four projections have a bias.
        add_bias_kv: whether a learned key and value are appended.

    Source: Vaswani et al. (2017), section 3.2.2.
    """
    kdim, vdim = (e if width is None else width for width in (kdim, vdim))
    return e * (e + kdim + vdim + e) + bias * 4 * e + add_bias_kv * 2 * e


def product_flops(n: int, d: int, m: int) -> int:
    """Count the FLOPs of (n, d) times (d, m): n · m sums of d products.

    A sum of d numbers takes d - 1 additions; the usual count, torch's too, is d. With a bias to
    add it is exact.
    """
    return 2 * n * d * m


def projection_flops(
    n: int, m: int, e: int, *, b: int = 1, kdim: int | None = None, vdim: int | None = None
) -> int:
    """Count the FLOPs of the four projections: 8bne² in self-attention, where n = m.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the width of the queries and of the output.
        b: the number of samples.
        kdim: the width of the keys; None means e.
        vdim: the width of the values; None means e.
    """
    kdim, vdim = (e if width is None else width for width in (kdim, vdim))
    queries, output = product_flops(b * n, e, e), product_flops(b * n, e, e)
    return queries + product_flops(b * m, kdim, e) + product_flops(b * m, vdim, e) + output


def score_flops(n: int, m: int, e: int, *, b: int = 1) -> int:
    """Count the FLOPs of the scores and of mixing the values: 4bnme.

    Both are h products per sample, of width d = e / h, so h cancels. Appended keys count in m.
    """
    return 2 * product_flops(b * n, e, m)


def attention_flops(n: int, m: int, e: int, *, b: int = 1) -> int:
    """Count the FLOPs of attention, forward: 4bne(2e + n) in self-attention, where n = m."""
    return projection_flops(n, m, e, b=b) + score_flops(n, m, e, b=b)


def backward_flops(forward: int, without: int = 0) -> int:
    """Count the FLOPs of the backward pass: twice the forward pass.

    A product has two gradients, one for each factor, and each is a product of the same three sizes.

    Args:
        forward: the FLOPs of the forward pass.
        without: those of its products with a factor that needs no gradient, such as a first
            projection of data.
    """
    return BACKWARD * forward - without


def attention_kept(
    n: int, m: int, e: int, h: int, *, b: int = 1, memory: int = 0, fused: bool = False
) -> int:
    """Count the numbers that attention keeps for its backward pass.

    These are the queries' input, queries, keys, values and the merged heads, be(3n + 2m), and then
    either all weights, bhnm, or what the fused kernel keeps in their place, one number for each
    query and head, bhn. One token all alone keeps e numbers more with its weights: its key and
    value are in one piece where the packed projection has written them, its query beside them.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the model width.
        h: the number of heads.
        b: the number of samples.
        memory: the width of what keys and values are made from, where it is not what the queries
            are made from: 0 in self-attention, e in cross-attention, kdim + vdim if they are two.
        fused: without the weights.
    """
    return b * e * (3 * n + 2 * m) + b * m * memory + b * h * n * (1 if fused else m)


def cache_numbers(m: int, e: int, *, b: int = 1, layers: int = 1) -> int:
    """Count the numbers in a cache of the keys and values of m tokens: 2bme in each layer."""
    return 2 * b * m * e * layers


# The other parts of a layer


def feedforward_parameters(e: int, f: int, *, bias: bool = True) -> int:
    """Count the parameters of two linear maps, from e to f and back: 2ef + f + e."""
    return 2 * e * f + bias * (f + e)


def feedforward_flops(n: int, e: int, f: int, *, b: int = 1) -> int:
    """Count the FLOPs of two linear maps, from e to f and back: 4bnef."""
    return 2 * product_flops(b * n, e, f)


def feedforward_kept(n: int, e: int, f: int, *, b: int = 1, activation: str = "relu") -> int:
    """Count what the two linear maps keep: the input, and what stands between them.

    The derivative of ReLU can be read from its output, which the second map keeps anyway. GELU
    keeps its input besides.
    """
    return b * n * (e + f * {"relu": 1, "gelu": 2}[activation])


def norm_parameters(e: int, *, bias: bool = True) -> int:
    """Count the parameters of a layer norm: e factors and e biases."""
    return e + bias * e


def norm_kept(n: int, e: int, *, b: int = 1) -> int:
    """Count what a layer norm keeps: its input, and two statistics for each token."""
    return b * n * (e + 2)


# The whole model


PARTS = ("projections", "scores and mix", "feed-forward", "norms", "embeddings, output")


@dataclass(frozen=True)
class Model:
    """The sizes of a Transformer. Its counts come by part, in the order of ``PARTS``.

    Attributes:
        embed_dim: e.
        num_heads: h; must divide e.
        feedforward: f.
        layers: how many layers have self-attention and a feed-forward network: an encoder's, or,
            with a causal mask, those of a model that is only a decoder.
        decoder_layers: how many have cross-attention, too, and look at the output of ``layers``.
        vocabulary: how many tokens the embeddings know.
        positions: how many rows other learned tables have together, such as one for positions.
        norms: how many layer norms there are outside the layers.
        output: what turns the last layer's output into a number for each token of the vocabulary:
            "tied", the embeddings again; "own", a matrix without bias; or "none", nothing.
        activation: between the linear maps of the feed-forward network, "relu" or "gelu".
        bias: whether projections, feed-forward networks and norms have biases.
        embeddings: how many matrices embed: 1, or 2 where source and target have one each.

    Raises:
        TypeError: a size is no integer.
        ValueError: a size that is too small, ``embed_dim`` not divisible by ``num_heads``, no
            layer at all, or an unknown ``output`` or ``activation``.
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
    bias: bool = True
    embeddings: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes from which no model can be built."""
        widths = ("embed_dim", "num_heads", "feedforward", "vocabulary")
        check_settings({name: getattr(self, name) for name in widths}, 0.0, None)
        for name in ("layers", "decoder_layers", "positions", "norms", "embeddings"):
            _check_at_least(0, name, getattr(self, name))
        if not self.layers + self.decoder_layers:
            raise ValueError("layers (0) and decoder_layers (0) must not both be 0")
        for name, fits in (("output", ("tied", "own", "none")), ("activation", ("relu", "gelu"))):
            if getattr(self, name) not in fits:
                raise ValueError(f"{name} ({getattr(self, name)!r}) must be one of {fits}")

    def parameters(self) -> dict[str, int]:
        """Count the learned numbers."""
        e, bias = self.embed_dim, self.bias
        attentions, networks, norms = self._parts()
        tables = self.vocabulary * (self.embeddings + (self.output == "own")) + self.positions
        return _by_part(
            attentions * attention_parameters(e, bias=bias),
            0,
            networks * feedforward_parameters(e, self.feedforward, bias=bias),
            norms * norm_parameters(e, bias=bias),
            tables * e,
        )

    def flops(self, length: int, batch: int = 1) -> dict[str, int]:
        """Count the FLOPs of a forward pass; source and target are both of this length."""
        _check_at_least(1, "length", length)
        _check_at_least(1, "batch", batch)
        n, b, e = length, batch, self.embed_dim
        attentions, networks, _ = self._parts()
        return _by_part(
            attentions * projection_flops(n, n, e, b=b),
            attentions * score_flops(n, n, e, b=b),
            networks * feedforward_flops(n, e, self.feedforward, b=b),
            0,
            (self.output != "none") * product_flops(b * n, e, self.vocabulary),
        )

    def kept(self, length: int, batch: int = 1, *, fused: bool = False) -> dict[str, int]:
        """Count the numbers kept for the backward pass, up to the output of the model."""
        _check_at_least(1, "length", length)
        _check_at_least(1, "batch", batch)
        n, b, e, h = length, batch, self.embed_dim, self.num_heads
        attentions, networks, norms = self._parts()
        own = networks * attention_kept(n, n, e, h, b=b, fused=fused)
        cross = self.decoder_layers * attention_kept(n, n, e, h, b=b, memory=e, fused=fused)
        shared = max(0, self.decoder_layers - 1) * b * n * e  # all look at the same encoding
        weights = attentions * b * h * n * (1 if fused else n)
        return _by_part(
            own + cross - shared - weights,
            weights,
            networks * feedforward_kept(n, e, self.feedforward, b=b, activation=self.activation),
            norms * norm_kept(n, e, b=b),
            (self.output != "none") * b * n * e,
        )

    def step_flops(self, length: int, batch: int = 1) -> dict[str, int]:
        """Count the FLOPs of generating one more token with a cache.

        Args:
            length: how many tokens the new one sees, itself included; the source's length, too.
            batch: how many sequences are generated at once.
        """
        _check_at_least(1, "length", length)
        _check_at_least(1, "batch", batch)
        m, b, e, cross = length, batch, self.embed_dim, self.decoder_layers
        running = cross or self.layers  # an encoder has run before
        return _by_part(
            # Cross-attention finds its keys and values in the cache: it projects in and out only.
            running * projection_flops(1, 1, e, b=b) + cross * projection_flops(1, 0, e, b=b),
            (running + cross) * score_flops(1, m, e, b=b),
            running * feedforward_flops(1, e, self.feedforward, b=b),
            0,
            (self.output != "none") * product_flops(b, e, self.vocabulary),
        )

    def cache(self, length: int, batch: int = 1) -> int:
        """Count the numbers in the cache, when this many tokens have been read and generated."""
        _check_at_least(1, "length", length)
        _check_at_least(1, "batch", batch)
        cached = 2 * self.decoder_layers or self.layers
        return cache_numbers(length, self.embed_dim, b=batch, layers=cached)

    def crossover(self) -> int:
        """Return the length from which scores and mixing take more FLOPs than projections: 2e."""
        return 2 * self.embed_dim

    def _parts(self) -> tuple[int, int, int]:
        """Count the attentions, the feed-forward networks and the norms."""
        plain, cross = self.layers, self.decoder_layers
        return plain + 2 * cross, plain + cross, 2 * plain + 3 * cross + self.norms


def _by_part(*counts: int) -> dict[str, int]:
    return dict(zip(PARTS, counts, strict=True))


def _check_at_least(least: int, name: str, size: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(f"{name} ({size!r}) must be an integer")
    if size < least:
        raise ValueError(f"{name} ({size}) must be at least {least}")


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


# The table


def short(number: int, unit: str = "") -> str:
    """Write a number with three digits and a decimal prefix: 63,082,496 as 63.1 M.

    The last digit is rounded half up, by integers alone, so that it is the same in any language.
    """
    power, digits = divmod(len(str(number)) - 1, 3)
    if power == 0:
        return f"{number} {unit}".rstrip()
    places = 2 - digits
    scaled = (2 * number * 10**places + 1000**power) // (2 * 1000**power)
    if scaled == 1000 * 10**places:  # rounded up to the next prefix
        return short(1000 ** (power + 1), unit)
    whole, fraction = divmod(scaled, 10**places)
    shown = f"{whole}.{fraction:0{places}}" if places else f"{whole}"
    return f"{shown} {'_kMGTPEZYRQ'[power]}{unit}"


def share(part: int, whole: int) -> str:
    """Write a part as a percentage, rounded half up: 1 of 8 as 13 %."""
    return f"{(200 * part + whole) // (2 * whole)} %"


def rows(model: Model, length: int, batch: int = 1, width: int = 4) -> list[list[str]]:
    """Write the counts as the rows of a table, the header first and the total last.

    Args:
        model: the sizes.
        length: of source and target.
        batch: how many sequences.
        width: bytes of one number: 4 for float32, 2 for half precision.
    """
    parameters, flops = model.parameters(), model.flops(length, batch)
    kept, fused = model.kept(length, batch), model.kept(length, batch, fused=True)
    totals = [sum(counts.values()) for counts in (parameters, flops, kept, fused)]
    table = [["", "parameters", "share", "forward", "share", "kept", "kept, fused"]]
    for part in (*PARTS, "total"):
        p, f, k, u = (
            [counts[part] for counts in (parameters, flops, kept, fused)]
            if part != "total"
            else totals
        )
        table.append([
            part, short(p), share(p, totals[0]), short(f, "FLOP"), share(f, totals[1]),
            short(k * width, "B"), short(u * width, "B"),
        ])  # fmt: skip
    return table


def notes(model: Model, length: int, batch: int = 1, width: int = 4) -> list[str]:
    """Write what the table does not hold, a sentence each; see ``rows`` for the arguments."""
    total = sum(model.parameters().values())
    forward = sum(model.flops(length, batch).values())
    scores = model.flops(length, batch)["scores and mix"]
    projections = model.flops(length, batch)["projections"]
    found = [
        f"{total:,} parameters take {short(total * width, 'B')}; with gradients and Adam's two "
        f"averages {short(4 * total * width, 'B')}.",
        f"Forward and backward: {short(forward + backward_flops(forward), 'FLOP')}.",
        f"Scores and mix take {share(scores, projections)} of the projections' FLOPs, and overtake "
        f"them at length 2e = {model.crossover():,}.",
    ]
    if model.output != "none":
        step, cache = sum(model.step_flops(length, batch).values()), model.cache(length, batch)
        found.append(
            f"One more token, with a cache: {short(step, 'FLOP')}; "
            f"the cache holds {short(cache * width, 'B')}."
        )
    return found


def table(model: Model, length: int, batch: int = 1, width: int = 4) -> str:
    """Write the counts for a terminal; see ``rows`` for the arguments."""
    cells = rows(model, length, batch, width)
    columns = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        f"{row[0]:{columns[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], columns[1:], strict=True))
        for row in cells
    ]
    return "\n".join([*lines, "", *notes(model, length, batch, width)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Read sizes from the command line, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m annotated_attention.counting",
        description="Count the parameters, FLOPs and memory of a Transformer.",
    )
    parser.add_argument(
        "--preset", default="transformer-base", choices=PRESETS, metavar="NAME",
        help=f"published sizes, changed by the options below: {', '.join(PRESETS)}",
    )  # fmt: skip
    for field in fields(Model):
        if field.type is int:
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, metavar="N")
    parser.add_argument("--length", type=int, default=512, metavar="N", help="tokens (512)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences (1)")
    parser.add_argument(
        "--bytes", type=int, default=4, metavar="N", help="of one number (4, float32)"
    )
    options = vars(parser.parse_args(arguments))
    given = {name: size for name, size in options.items() if size is not None}
    changes = {field.name: given[field.name] for field in fields(Model) if field.name in given}
    try:
        _check_at_least(1, "bytes", options["bytes"])
        model = replace(PRESETS[options["preset"]], **changes)
        print(table(model, options["length"], options["batch"], options["bytes"]))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The formulas, one function each, with the letters of the package's docstring."""

BACKWARD = 2  # FLOPs of the backward pass, per FLOP of the forward pass; see ``backward_flops``


# Attention


def attention_parameters(
    e: int,
    *,
    kdim: int | None = None,
    vdim: int | None = None,
    shared: int | None = None,
    bias: bool = True,
    add_bias_kv: bool = False,
) -> int:
    """Count the parameters of multi-head attention: 4e² + 4e, whatever the number of heads.

    Args:
        e: the width of the queries and of the output.
        kdim: the width of the keys; None means e.
        vdim: the width of the values; None means e.
        shared: the width that keys and values are projected to, g * d for g heads that groups of
            queries share; None means e, a head for each head of queries.
        bias: whether the four projections have a bias.
        add_bias_kv: whether a learned key and value are appended.

    Examples:
        >>> from annotated_attention import MultiheadAttention
        >>> from annotated_attention.counting import attention_parameters
        >>> attention_parameters(512)
        1050624
        >>> sum(parameter.numel() for parameter in MultiheadAttention(512, 8).parameters())
        1050624

    Source: Vaswani et al. (2017), section 3.2.2.
    """
    kdim, vdim, kv = (e if width is None else width for width in (kdim, vdim, shared))
    return e * e + kv * (kdim + vdim) + e * e + bias * 2 * (e + kv) + add_bias_kv * 2 * kv


def product_flops(n: int, d: int, m: int) -> int:
    """Count the FLOPs of (n, d) times (d, m): n · m sums of d products.

    A sum of d numbers takes d - 1 additions, but the usual count, PyTorch's included, is d. With a
    bias to add, d is exact.

    Examples:
        >>> from annotated_attention.counting import product_flops
        >>> product_flops(3, 6, 5)
        180
    """
    return 2 * n * d * m


def projection_flops(
    n: int,
    m: int,
    e: int,
    *,
    b: int = 1,
    kdim: int | None = None,
    vdim: int | None = None,
    shared: int | None = None,
) -> int:
    """Count the FLOPs of the four projections: 8bne² in self-attention, where n = m.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the width of the queries and of the output.
        b: the number of samples.
        kdim: the width of the keys; None means e.
        vdim: the width of the values; None means e.
        shared: the width that keys and values are projected to, g * d for g heads that groups of
            queries share; None means e.

    Examples:
        >>> from annotated_attention.counting import projection_flops
        >>> projection_flops(3, 5, 24, b=2), projection_flops(3, 5, 24, b=2, shared=6)
        (36864, 19584)
    """
    kdim, vdim, kv = (e if width is None else width for width in (kdim, vdim, shared))
    queries, output = product_flops(b * n, e, e), product_flops(b * n, e, e)
    return queries + product_flops(b * m, kdim, kv) + product_flops(b * m, vdim, kv) + output


def score_flops(n: int, m: int, e: int, *, b: int = 1) -> int:
    """Count the FLOPs of the scores and of mixing the values: 4bnme.

    Both are h products per sample, of width d = e / h, so h cancels. Appended keys count in m.
    Heads that share keys change nothing: each head of queries has scores of its own.

    Examples:
        >>> from annotated_attention.counting import score_flops
        >>> score_flops(3, 5, 24, b=2)
        2880
    """
    return 2 * product_flops(b * n, e, m)


def attention_flops(n: int, m: int, e: int, *, b: int = 1, shared: int | None = None) -> int:
    """Count the FLOPs of attention, forward: 4bne(2e + n) in self-attention, where n = m.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the width of the queries and of the output.
        b: the number of samples.
        shared: the width that keys and values are projected to, see ``projection_flops``.

    Examples:
        >>> from annotated_attention.counting import attention_flops
        >>> attention_flops(3, 5, 24, b=2)
        39744
    """
    return projection_flops(n, m, e, b=b, shared=shared) + score_flops(n, m, e, b=b)


def backward_flops(forward: int, without: int = 0) -> int:
    """Count the FLOPs of the backward pass: twice the forward pass.

    A product has two gradients, one for each factor, and each is a product of the same three sizes.

    Args:
        forward: the FLOPs of the forward pass.
        without: the FLOPs of products with a factor that needs no gradient, such as a first
            projection of data.

    Examples:
        >>> from annotated_attention.counting import attention_flops, backward_flops
        >>> backward_flops(attention_flops(3, 5, 24, b=2))
        79488
    """
    return BACKWARD * forward - without


def attention_kept(
    n: int, m: int, e: int, h: int, *, b: int = 1,
    memory: int = 0, shared: int | None = None, fused: bool = False,
) -> int:  # fmt: skip
    """Count the numbers that attention keeps for its backward pass.

    These are the queries' input, queries, keys, values and the merged heads, be(3n + 2m), and then
    either all weights, bhnm, or what the fused kernel keeps in their place, one number for each
    query and head, bhn. Self-attention of a single token keeps e numbers more with its weights: its
    key and value need no copy, so the whole output of the packed projection is kept, and beside it
    the scaled query.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the model width.
        h: the number of heads.
        b: the number of samples.
        memory: the width of what keys and values are made from, where it is not what the queries
            are made from: 0 in self-attention, e in cross-attention, kdim + vdim if they are two.
        shared: the width that keys and values are projected to, see ``projection_flops``. Where
            the weights are kept, so is a copy of keys and values for each head of queries.
        fused: whether the fused kernel runs, which keeps no weights.

    Examples:
        With the weights, and with the fused kernel, which keeps one number per query and head:

        >>> from annotated_attention.counting import attention_kept
        >>> attention_kept(1024, 1024, 512, 8), attention_kept(1024, 1024, 512, 8, fused=True)
        (11010048, 2629632)
    """
    kv = shared if fused and shared is not None else e
    return b * (3 * n * e + 2 * m * kv + m * memory) + b * h * n * (1 if fused else m)


def cache_numbers(m: int, e: int, values: int | None = None, *, b: int = 1, layers: int = 1) -> int:
    """Count the numbers in a cache of the keys and values of m tokens: 2bme in each layer.

    Args:
        m: the number of tokens.
        e: the width of the keys of all heads: the model width, or g * d where groups of queries
            share g heads.
        values: the width of the values of all heads; None means that of the keys.
        b: the number of samples.
        layers: the number of layers.

    Examples:
        >>> from annotated_attention.counting import cache_numbers
        >>> cache_numbers(1024, 768, layers=12)
        18874368
    """
    return b * m * (e + (e if values is None else values)) * layers


def cache_bytes(
    m: int, e: int, values: int | None = None, *, b: int = 1, layers: int = 1, width: int = 2
) -> int:
    """Count the bytes of a cache: ``width`` for each number, which is 2 in half precision.

    The other arguments are those of ``cache_numbers``. For latent attention, e and ``values`` are
    the widths of the latent and of the key that turns.

    Examples:
        The published sizes of Llama 3 8B, with 8 heads of keys; then those of DeepSeek-V2:

        >>> from annotated_attention.counting import cache_bytes
        >>> cache_bytes(1, 8 * 128, layers=32), cache_bytes(1, 512, 64, layers=60)
        (131072, 69120)
    """
    return width * cache_numbers(m, e, values, b=b, layers=layers)


# Latent attention


def latent_parameters(
    e: int, h: int, c: int, r: int, d: int, *, d_v: int | None = None, queries: int | None = None
) -> int:
    """Count the parameters of latent attention.

    Args:
        e: the model width.
        h: the number of heads.
        c: the width of the latent.
        r: the width of the shared key that turns with the position.
        d: how many features of a head's keys come from the latent.
        d_v: the width of a head's values; None means d.
        queries: the width of the queries' own latent; None means that they have none.

    Examples:
        >>> from annotated_attention.counting import latent_parameters
        >>> from annotated_attention.modern import LatentAttention
        >>> latent_parameters(24, 4, c=8, r=2, d=6)
        1976
        >>> module = LatentAttention(24, 4, latent_dim=8, rotary_dim=2)
        >>> sum(parameter.numel() for parameter in module.parameters())
        1976

    Source: DeepSeek-AI (2024), section 2.1.
    """
    d_v = d if d_v is None else d_v
    asked = e * h * (d + r) if queries is None else queries * (e + 1 + h * (d + r))
    return asked + e * (c + r) + c + c * h * (d + d_v) + h * d_v * e


def latent_flops(
    n: int, m: int, e: int, h: int, c: int, r: int, d: int, *, b: int = 1,
    d_v: int | None = None, queries: int | None = None, absorb: bool = False,
) -> int:  # fmt: skip
    """Count the FLOPs of latent attention, forward, for n new tokens among m.

    The plain form makes keys and values of all m tokens from their latents, also of those that a
    cache has kept. The absorbed form scores and mixes wider vectors instead.

    Args:
        n: the number of new tokens, which are the queries.
        m: the number of tokens that they may look at, kept and new.
        e: the model width.
        h: the number of heads.
        c: the width of the latent.
        r: the width of the shared key that turns with the position.
        d: how many features of a head's keys come from the latent.
        b: the number of samples.
        d_v: the width of a head's values; None means d.
        queries: the width of the queries' own latent; None means that they have none.
        absorb: whether the absorbed form is computed.

    Examples:
        One token more, when 1000 are kept:

        >>> from annotated_attention.counting import latent_flops
        >>> latent_flops(1, 1001, 512, 8, c=64, r=16, d=64)
        134770944
        >>> latent_flops(1, 1001, 512, 8, c=64, r=16, d=64, absorb=True)
        3698944
    """
    d_v = d if d_v is None else d_v
    scores = latent_score_flops(n, m, h, c, r, d, b=b, d_v=d_v, absorb=absorb)
    asked = product_flops(b * n, e, h * (d + r))
    if queries is not None:
        asked = product_flops(b * n, e, queries) + product_flops(b * n, queries, h * (d + r))
    outside = asked + product_flops(b * n, e, c + r) + product_flops(b * n, h * d_v, e)
    if absorb:
        moved = product_flops(b * h * n, d, c) + product_flops(b * h * n, c, d_v)
        return outside + moved + scores
    return outside + product_flops(b * m, c, h * (d + d_v)) + scores


def latent_score_flops(
    n: int, m: int, h: int, c: int, r: int, d: int, *, b: int = 1,
    d_v: int | None = None, absorb: bool = False,
) -> int:  # fmt: skip
    """Count the FLOPs of the scores and of mixing, which are among those of ``latent_flops``.

    The arguments are those of ``latent_flops``.

    Examples:
        >>> from annotated_attention.counting import latent_score_flops
        >>> latent_score_flops(1, 1001, 8, c=64, r=16, d=64)
        2306304
    """
    d_v = d if d_v is None else d_v
    key, value = (c + r, c) if absorb else (d + r, d_v)
    return product_flops(b * h * n, key, m) + product_flops(b * h * n, m, value)


def latent_kept(
    n: int, e: int, h: int, c: int, r: int, d: int, *, b: int = 1,
    d_v: int | None = None, queries: int | None = None,
) -> int:  # fmt: skip
    """Count the numbers that the plain form of latent attention keeps for its backward pass.

    These are the input; the latent and the shared key before the norm, its statistic, and its
    result twice; queries, keys, values and merged heads; all weights, since no fused kernel on a
    CPU takes values of another width than the keys; and the cosines and sines of n positions, once
    for queries and once for keys. A single token keeps less.

    Args:
        n: the number of tokens, at least 2.
        e: the model width.
        h: the number of heads.
        c: the width of the latent.
        r: the width of the shared key that turns with the position.
        d: how many features of a head's keys come from the latent.
        b: the number of samples.
        d_v: the width of a head's values; None means d.
        queries: the width of the queries' own latent; None means that they have none.

    Examples:
        >>> from annotated_attention.counting import latent_kept
        >>> latent_kept(1024, 512, 8, c=64, r=16, d=64)
        11518976
    """
    d_v, asked = d if d_v is None else d_v, 0 if queries is None else 3 * queries + 1
    heads = h * (2 * (d + r) + 2 * d_v)
    return b * n * (e + asked + 3 * c + r + 1 + heads + h * n) + 2 * n * r


def latent_cache_numbers(m: int, c: int, r: int, *, b: int = 1, layers: int = 1) -> int:
    """Count the numbers that latent attention keeps of m tokens: bm(c + r) in each layer.

    Examples:
        >>> from annotated_attention.counting import latent_cache_numbers
        >>> latent_cache_numbers(1024, 512, 64, layers=60)
        35389440
    """
    return cache_numbers(m, c, r, b=b, layers=layers)


# The other parts of a layer


def feedforward_parameters(e: int, f: int, *, bias: bool = True) -> int:
    """Count the parameters of two linear maps, from e to f and back: 2ef + f + e.

    Examples:
        >>> from annotated_attention.counting import feedforward_parameters
        >>> feedforward_parameters(512, 2048)
        2099712
    """
    return 2 * e * f + bias * (f + e)


def feedforward_flops(n: int, e: int, f: int, *, b: int = 1) -> int:
    """Count the FLOPs of two linear maps, from e to f and back: 4bnef.

    Examples:
        >>> from annotated_attention.counting import feedforward_flops
        >>> feedforward_flops(3, 24, 10, b=2)
        5760
    """
    return 2 * product_flops(b * n, e, f)


def feedforward_kept(n: int, e: int, f: int, *, b: int = 1, activation: str = "relu") -> int:
    """Count the numbers that the two linear maps keep: the input, and the activations in between.

    The derivative of ReLU can be read from its output, which the second map keeps anyway. GELU
    keeps its input besides.

    Examples:
        >>> from annotated_attention.counting import feedforward_kept
        >>> feedforward_kept(3, 24, 10, b=2)
        204
        >>> feedforward_kept(3, 24, 10, b=2, activation="gelu")
        264
    """
    return b * n * (e + f * {"relu": 1, "gelu": 2}[activation])


def norm_parameters(e: int, *, bias: bool = True) -> int:
    """Count the parameters of a layer norm: e factors and e biases.

    Examples:
        >>> from annotated_attention.counting import norm_parameters
        >>> norm_parameters(512)
        1024
    """
    return e + bias * e


def norm_kept(n: int, e: int, *, b: int = 1) -> int:
    """Count the numbers that a layer norm keeps: its input, and two statistics for each token.

    Examples:
        >>> from annotated_attention.counting import norm_kept
        >>> norm_kept(3, 24, b=2)
        156
    """
    return b * n * (e + 2)

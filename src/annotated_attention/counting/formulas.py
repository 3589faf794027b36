"""The formulas, one function each, with the letters of the package's docstring."""

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

    Examples:
        >>> from annotated_attention import MultiheadAttention
        >>> from annotated_attention.counting import attention_parameters
        >>> attention_parameters(512)
        1050624
        >>> sum(parameter.numel() for parameter in MultiheadAttention(512, 8).parameters())
        1050624

    Source: Vaswani et al. (2017), section 3.2.2.
    """
    kdim, vdim = (e if width is None else width for width in (kdim, vdim))
    return e * (e + kdim + vdim + e) + bias * 4 * e + add_bias_kv * 2 * e


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

    Examples:
        >>> from annotated_attention.counting import projection_flops
        >>> projection_flops(3, 5, 24, b=2)
        36864
    """
    kdim, vdim = (e if width is None else width for width in (kdim, vdim))
    queries, output = product_flops(b * n, e, e), product_flops(b * n, e, e)
    return queries + product_flops(b * m, kdim, e) + product_flops(b * m, vdim, e) + output


def score_flops(n: int, m: int, e: int, *, b: int = 1) -> int:
    """Count the FLOPs of the scores and of mixing the values: 4bnme.

    Both are h products per sample, of width d = e / h, so h cancels. Appended keys count in m.

    Examples:
        >>> from annotated_attention.counting import score_flops
        >>> score_flops(3, 5, 24, b=2)
        2880
    """
    return 2 * product_flops(b * n, e, m)


def attention_flops(n: int, m: int, e: int, *, b: int = 1) -> int:
    """Count the FLOPs of attention, forward: 4bne(2e + n) in self-attention, where n = m.

    Examples:
        >>> from annotated_attention.counting import attention_flops
        >>> attention_flops(3, 5, 24, b=2)
        39744
    """
    return projection_flops(n, m, e, b=b) + score_flops(n, m, e, b=b)


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
    n: int, m: int, e: int, h: int, *, b: int = 1, memory: int = 0, fused: bool = False
) -> int:
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
        fused: whether the fused kernel runs, which keeps no weights.

    Examples:
        With the weights, and with the fused kernel, which keeps one number per query and head:

        >>> from annotated_attention.counting import attention_kept
        >>> attention_kept(1024, 1024, 512, 8), attention_kept(1024, 1024, 512, 8, fused=True)
        (11010048, 2629632)
    """
    return b * e * (3 * n + 2 * m) + b * m * memory + b * h * n * (1 if fused else m)


def cache_numbers(m: int, e: int, *, b: int = 1, layers: int = 1) -> int:
    """Count the numbers in a cache of the keys and values of m tokens: 2bme in each layer.

    Examples:
        >>> from annotated_attention.counting import cache_numbers
        >>> cache_numbers(1024, 768, layers=12)
        18874368
    """
    return 2 * b * m * e * layers


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

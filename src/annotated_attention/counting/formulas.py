"""The formulas, one function each, with the letters of the package's docstring."""


def attention_parameters(e: int, *, shared: int | None = None) -> int:
    """Count the parameters of multi-head attention: 4e² + 4e, whatever the number of heads.

    Args:
        e: the model width.
        shared: the width that keys and values are projected to, g * d for g heads that groups of
            queries share; None means e, a head for each head of queries.

    Examples:
        >>> from annotated_attention import MultiheadAttention
        >>> from annotated_attention.counting import attention_parameters
        >>> attention_parameters(512)
        1050624
        >>> sum(parameter.numel() for parameter in MultiheadAttention(512, 8).parameters())
        1050624

    Source: Vaswani et al. (2017), section 3.2.2.
    """
    kv = e if shared is None else shared
    return 2 * (e + kv) * (e + 1)


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


def projection_flops(n: int, m: int, e: int, *, b: int = 1, shared: int | None = None) -> int:
    """Count the FLOPs of the four projections: 8bne² in self-attention, where n = m.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the model width.
        b: the number of samples.
        shared: the width that keys and values are projected to, g * d for g heads that groups of
            queries share; None means e.

    Examples:
        >>> from annotated_attention.counting import projection_flops
        >>> projection_flops(3, 5, 24, b=2), projection_flops(3, 5, 24, b=2, shared=6)
        (36864, 19584)
    """
    kv = e if shared is None else shared
    return 2 * product_flops(b * n, e, e) + 2 * product_flops(b * m, e, kv)


def score_flops(n: int, m: int, e: int, *, b: int = 1) -> int:
    """Count the FLOPs of the scores and of mixing the values: 4bnme.

    Both are h products per sample, of width d = e / h, so h cancels.
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
        e: the model width.
        b: the number of samples.
        shared: the width that keys and values are projected to, see ``projection_flops``.

    Examples:
        >>> from annotated_attention.counting import attention_flops
        >>> attention_flops(3, 5, 24, b=2)
        39744
    """
    return projection_flops(n, m, e, b=b, shared=shared) + score_flops(n, m, e, b=b)


def attention_kept(
    n: int, m: int, e: int, h: int, *, b: int = 1, shared: int | None = None, fused: bool = False
) -> int:
    """Count the numbers that attention keeps for its backward pass.

    These are the queries' input, queries, keys, values and the merged heads, be(3n + 2m), and then
    either all weights, bhnm, or what the fused kernel keeps in their place, one number for each
    query and head, bhn. What cross-attention makes keys and values from comes on top of that, once
    for all layers. Self-attention of a single token keeps e numbers more with its weights: its key
    and value need no copy, so the whole output of the packed projection is kept, and beside it the
    scaled query.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the model width.
        h: the number of heads.
        b: the number of samples.
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
    return b * (3 * n * e + 2 * m * kv) + b * h * n * (1 if fused else m)


def attention_traffic(
    n: int, m: int, e: int, h: int, *, b: int = 1, tile: int | None = None
) -> int:
    """Count the numbers that scores, softmax and mix read from memory and write to it.

    Step by step, each of the three reads what it is given and writes what it makes, once: with
    queries, keys, values and output, the (n, m) scores and weights are written once each, and read
    once each: b(2e(n + m) + 4hnm). In tiles, only queries, keys, values and output pass through
    memory, with the log-sum-exp, and each tile of queries reads all keys and values again:
    b(2ne + hn + 2me · ⌈n / tile⌉). This takes for granted that a tile of everything fits into the
    fast memory of a processor, and that nothing else stays there. Masks, dropout and the
    projections are left out; a causal mask saves nothing.

    Args:
        n: the number of queries.
        m: the number of keys.
        e: the model width, of queries, keys and values.
        h: the number of heads.
        b: the number of samples.
        tile: the number of queries in a tile; None means step by step.

    Examples:
        >>> from annotated_attention.counting import attention_traffic
        >>> attention_traffic(4096, 4096, 512, 8), attention_traffic(4096, 4096, 512, 8, tile=128)
        (545259520, 138444800)

    Source: Dao et al. (2022), section 3.1, but for the order of the loops.
    """
    if tile is None:
        return b * (2 * e * (n + m) + 4 * h * n * m)
    return b * (2 * n * e + h * n + 2 * m * e * -(-n // tile))


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


def window_scores(n: int, window: int, *, sinks: int = 0) -> int:
    """Count the scores that are visible in one head: query i sees min(i + 1, w + sinks) keys.

    Args:
        n: the number of tokens, each a query and a key.
        window: w, how many keys a query sees at most, itself included.
        sinks: how many of the first keys each query sees besides.

    Examples:
        Without a window half of all pairs are visible; with one, the number grows with n alone:

        >>> from annotated_attention.counting import window_scores
        >>> window_scores(8192, 8192), window_scores(8192, 1024)
        (33558528, 7864832)

    Source: Beltagy et al. (2020), section 3.1.
    """
    full = min(n, window + sinks)
    return full * (full + 1) // 2 + (n - full) * full


def window_kept(m: int, window: int, *, sinks: int = 0) -> int:
    """Count the tokens that a rolling cache keeps after m: at most w - 1, and the first ones.

    Times the numbers of one token, which ``cache_numbers`` counts, this is its size. A new query
    brings the w-th key itself.

    Args:
        m: the number of tokens that have come.
        window: w, how many keys a query sees at most, itself included.
        sinks: how many of the first tokens are kept for good.

    Examples:
        A layer of Mistral 7B, with 8 heads of keys that are 128 wide, after 32,768 tokens:

        >>> from annotated_attention.counting import cache_bytes, window_kept
        >>> cache_bytes(32768, 8 * 128), cache_bytes(window_kept(32768, 4096), 8 * 128)
        (134217728, 16773120)

    Source: Jiang et al. (2023), section 2.
    """
    return min(m, window - 1 + sinks)


def latent_flops(
    n: int,
    m: int,
    e: int,
    h: int,
    c: int,
    r: int,
    d: int,
    *,
    b: int = 1,
    queries: int | None = None,
    absorb: bool = False,
) -> int:
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
        d: the width of a head's values, and how many features of its keys come from the latent.
        b: the number of samples.
        queries: the width of the queries' own latent; None means that they have none.
        absorb: whether the absorbed form is computed.

    Examples:
        One token more, when 1000 are kept:

        >>> from annotated_attention.counting import latent_flops
        >>> latent_flops(1, 1001, 512, 8, c=64, r=16, d=64)
        134770944
        >>> latent_flops(1, 1001, 512, 8, c=64, r=16, d=64, absorb=True)
        3698944

    Source: DeepSeek-AI (2024), section 2.1.
    """
    if queries is None:
        asked = product_flops(b * n, e, h * (d + r))
    else:
        asked = product_flops(b * n, e, queries) + product_flops(b * n, queries, h * (d + r))
    outside = asked + product_flops(b * n, e, c + r) + product_flops(b * n, h * d, e)
    made = 2 * product_flops(b * h * (n if absorb else m), d, c)
    key, value = (c + r, c) if absorb else (d + r, d)
    return outside + made + product_flops(b * h * n, key + value, m)


def feedforward_flops(n: int, e: int, f: int, *, b: int = 1) -> int:
    """Count the FLOPs of two linear maps, from e to f and back: 4bnef.

    Examples:
        >>> from annotated_attention.counting import feedforward_flops
        >>> feedforward_flops(3, 24, 10, b=2)
        5760
    """
    return 2 * product_flops(b * n, e, f)

"""With a cache, in chunks of any size, attention computes what it computes all at once."""

import pytest
import torch

from annotated_attention import MultiheadAttention, block_future
from annotated_attention.modern import (
    CachedAttention,
    KVCache,
    PagedCache,
    RotaryAttention,
    RotaryEmbedding,
    StaticCache,
    block_later,
)

B, N, H, D = 2, 12, 4, 6
E = H * D
LONGEST = 15
CHUNKS = [[12], [1] * 12, [5, 4, 3], [1, 11], [7, 1, 1, 3]]
DOUBLE = {"dtype": torch.float64}


def static(b=B, h=H, d=D, **options):
    return StaticCache(b, h, LONGEST, d, **options)


def paged(b=B, h=H, d=D, **options):
    return PagedCache(11, 4, h, d, **options)


CACHES = {"grows": lambda *sizes, **options: KVCache(), "static": static, "paged": paged}
EACH_CACHE = pytest.mark.parametrize("kind", CACHES)
EACH_CHUNKING = pytest.mark.parametrize("chunks", CHUNKS, ids=lambda x: "+".join(map(str, x)))
ROTATED = pytest.mark.parametrize("rotary", [False, True], ids=["unrotated", "rotary"])


def make(rotary=False, batch_first=True, **options):
    torch.manual_seed(0)
    turned = RotaryEmbedding(D) if rotary else None
    options = DOUBLE | options
    return CachedAttention(E, H, batch_first=batch_first, rotary=turned, **options)


def tokens(*shape, seed=1, **options):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, E, generator=source, dtype=torch.float64, **options)


def written(module, x, cache, chunks, **options):
    return torch.cat([module(part, cache, **options)[0] for part in x.split(chunks, 1)], 1)


def gradients(output, *inputs):
    mixture = torch.arange(output.numel(), dtype=output.dtype).view(output.shape).cos()
    return torch.autograd.grad((output * mixture).sum(), inputs)


@pytest.mark.parametrize("batch_first", [True, False])
def test_without_a_cache_it_is_the_final_class(batch_first):
    ours = make(batch_first=batch_first)
    final = MultiheadAttention(E, H, batch_first=batch_first, dtype=torch.float64)
    final.load_state_dict(ours.state_dict())
    for x in (tokens(B, N, requires_grad=True), tokens(N, requires_grad=True)):
        found, expected = ours(x)[0], final(x, x, x, is_causal=True, need_weights=False)[0]
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            gradients(found, x, *ours.parameters()), gradients(expected, x, *final.parameters())
        )
        weights = ours(x, need_weights=True)[1]
        said = final(x, x, x, is_causal=True, average_attn_weights=False)[1]
        torch.testing.assert_close(weights, said)


def test_rotated_without_a_cache_it_is_rotary_attention():
    ours = make(rotary=True)
    other = RotaryAttention(E, H, batch_first=True, dtype=torch.float64)
    other.load_state_dict(ours.state_dict())
    x = tokens(B, N, requires_grad=True)
    found, expected = ours(x)[0], other(x, x, x, is_causal=True)[0]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, x), gradients(expected, x))


@ROTATED
@EACH_CHUNKING
@EACH_CACHE
@torch.no_grad()
def test_in_chunks_of_any_size(kind, chunks, rotary):
    module, x = make(rotary), tokens(B, N)
    cache = CACHES[kind](**DOUBLE)
    torch.testing.assert_close(written(module, x, cache, chunks), module(x)[0])
    assert int(cache.length) == N


@ROTATED
@EACH_CHUNKING
def test_gradients_flow_through_the_cache(chunks, rotary):
    module, x = make(rotary), tokens(B, N, requires_grad=True)
    inputs = [x, *module.parameters()]
    found, expected = written(module, x, KVCache(), chunks), module(x)[0]
    torch.testing.assert_close(gradients(found, *inputs), gradients(expected, *inputs))


@pytest.mark.parametrize("kind", ["static", "paged"])
def test_a_graph_is_refused_where_none_is_kept(kind):
    module, x = make(), tokens(B, N)
    cache = CACHES[kind](**DOUBLE)
    with pytest.raises(RuntimeError, match=f"{type(cache).__name__} keeps no graph: use torch.no"):
        module(x, cache)
    assert int(cache.length) == 0
    module.requires_grad_(False)(x, cache)


@ROTATED
@EACH_CACHE
@torch.no_grad()
def test_sentences_padded_on_the_left_are_as_alone(kind, rotary):
    module, x = make(rotary), tokens(B, N)
    lengths = (N, 7)
    padding = torch.arange(N) < N - torch.tensor(lengths)[:, None]
    cache, outputs, kept = CACHES[kind](**DOUBLE), [], 0
    for part in x.split([9, 1, 2], 1):
        kept += part.size(1)
        m = LONGEST if kind == "static" else kept
        seen = torch.zeros(B, LONGEST, dtype=torch.bool)
        seen[:, :N] = padding
        outputs.append(module(part, cache, seen[:, :m])[0])
    found = torch.cat(outputs, 1)
    assert found.isfinite().all()
    for i, length in enumerate(lengths):
        torch.testing.assert_close(found[i, N - length :], module(x[i, N - length :])[0])


@torch.no_grad()
def test_a_padding_mask_of_numbers_is_added():
    module, x = make(), tokens(B, 5)
    blocked = torch.tensor([[True, False, False, False, False], [False] * 5])
    added = torch.zeros(B, 5, dtype=torch.float64).masked_fill(blocked, -torch.inf)
    cache = KVCache()
    module(x[:, :3], cache)
    found = module(x[:, 3:], cache, added)[0]
    torch.testing.assert_close(found, module(x, key_padding_mask=blocked)[0][:, 3:])


@ROTATED
@EACH_CACHE
@torch.no_grad()
def test_after_cropping(kind, rotary):
    module, x = make(rotary), tokens(B, N)
    cache = CACHES[kind](**DOUBLE)
    written(module, tokens(B, 10, seed=2), cache, [10])
    cache.crop(99)
    assert int(cache.length) == 10
    cache.crop(0)
    written(module, x[:, :9], cache, [5, 4])
    written(module, tokens(B, 2, seed=3), cache, [2])
    cache.crop(7)
    assert int(cache.length) == 7
    torch.testing.assert_close(written(module, x[:, 7:], cache, [1, 4]), module(x)[0][:, 7:])


@ROTATED
@EACH_CACHE
@pytest.mark.parametrize("index", [[1, 0, 2], [2, 2, 0], [0, 0, 0]], ids=str)
@torch.no_grad()
def test_after_reordering(kind, rotary, index):
    module, beams = make(rotary), torch.tensor(index)
    first, second = tokens(3, 7), tokens(3, 5, seed=2)
    cache = CACHES[kind](3, **DOUBLE)
    written(module, first, cache, [3, 4])
    cache.reorder(beams)
    found = written(module, second, cache, [1, 4])
    whole = torch.cat([first[beams], second], 1)
    torch.testing.assert_close(found, module(whole)[0][:, 7:])


@pytest.mark.parametrize("kind", ["grows", "paged"])
@torch.no_grad()
def test_one_sequence_becomes_several_and_several_become_one(kind):
    module, first, second = make(), tokens(1, 7), tokens(3, 5, seed=2)
    cache = CACHES[kind](1, **DOUBLE)
    written(module, first, cache, [7])
    cache.reorder(torch.tensor([0, 0, 0]))
    found = written(module, second, cache, [2, 3])
    whole = torch.cat([first.expand(3, -1, -1), second], 1)
    torch.testing.assert_close(found, module(whole)[0][:, 7:])
    cache.reorder(torch.tensor([1]))
    torch.testing.assert_close(
        module(second[:1], cache)[0], module(torch.cat([whole[1:2], second[:1]], 1))[0][:, 12:]
    )


@torch.no_grad()
def test_pages_are_shared_until_one_is_written():
    cache = PagedCache(9, 4, H, D)
    k, v = torch.randn(2, 1, H, 10, D)
    cache.append(k, v)
    page = 2 * 4 * H * D
    assert cache.numel() == 3 * page
    cache.reorder(torch.tensor([0, 0, 0]))
    assert cache.numel() == 3 * page
    new = torch.randn(3, H, 1, D)
    keys, values = cache.append(new, new)
    assert cache.numel() == 5 * page  # two full pages are shared, the last one is everybody's own
    assert [table[:2] for table in cache.tables] == [[0, 1]] * 3
    assert len({table[2] for table in cache.tables}) == 3
    assert keys[:, :, :10].equal(k.expand(3, -1, -1, -1))
    assert values[:, :, :10].equal(v.expand(3, -1, -1, -1))
    assert keys[:, :, 10:].equal(new)
    cache.crop(8)
    assert cache.numel() == 2 * page
    cache.crop(0)
    assert cache.numel() == 0


@torch.no_grad()
def test_a_pool_that_is_full_says_so_and_loses_nothing():
    cache = PagedCache(3, 4, H, D)
    k = torch.randn(2, H, 4, D)
    cache.append(k, k)
    with pytest.raises(RuntimeError, match="all 3 pages are in use"):
        cache.append(k, k)
    assert cache.length == 4
    cache.reorder(torch.tensor([1]))
    keys, _ = cache.append(k[:1], k[:1])
    assert keys.equal(torch.cat([k[1:], k[:1]], 2))


@torch.no_grad()
def test_a_static_cache_that_is_full_raises():
    cache, k = StaticCache(1, H, 5, D), torch.randn(1, H, 4, D)
    cache.append(k, k)
    with pytest.raises(IndexError, match="out of bounds"):
        cache.append(k, k)


@EACH_CACHE
@torch.no_grad()
def test_nothing_asks_for_the_heads_of_the_queries_or_for_equal_widths(kind):
    """Grouped heads keep fewer keys, and latent attention keeps two things of different width."""
    h, d, wide = 1, 3, 7
    kinds = {
        "grows": KVCache(),
        "static": StaticCache(B, h, LONGEST, d, wide),
        "paged": PagedCache(11, 4, h, d, wide),
    }
    cache = kinds[kind]
    k, v = torch.randn(B, h, 9, d), torch.randn(B, h, 9, wide)
    for chunk in ((0, 5), (5, 9)):
        keys, values = cache.append(k[:, :, slice(*chunk)], v[:, :, slice(*chunk)])
    assert keys[:, :, :9].equal(k)
    assert values[:, :, :9].equal(v)


@torch.no_grad()
def test_numbers_that_are_held():
    k = torch.randn(B, H, 5, D)
    grows, fixed = KVCache(), static()
    assert grows.numel() == grows.length == 0
    for cache in (grows, fixed):
        cache.append(k, k)
    assert grows.numel() == 2 * B * 5 * E
    assert fixed.numel() == 2 * B * LONGEST * E


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("n", [1, 3])
def test_the_mask_ends_in_the_lower_right_corner(start, n):
    from torch.nn.attention.bias import causal_lower_right

    m = start + n
    blocked = block_later(start + torch.arange(n), m)
    allowed = causal_lower_right(n, m)._materialize()
    assert blocked.equal(~allowed)
    assert blocked.equal(block_future(m)[start:])
    behind = block_later(start + torch.arange(n), LONGEST)
    assert behind[:, :m].equal(blocked)
    assert behind[:, m:].all()


@pytest.mark.parametrize("kind", ["grows", "static"])
@torch.no_grad()
def test_compiled(kind):
    torch.compiler.reset()
    module, x = make(rotary=True), tokens(B, N)
    backend = "aot_eager" if kind == "static" else "eager"  # it is written to in place
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    cache, expected = CACHES[kind](**DOUBLE), module(x)[0]
    first = [compiled(part, cache)[0] for part in x[:, :6].split([4, 1, 1], 1)]
    # A static cache has compiled what it needs; one that grows has learned that its sizes change.
    with torch.compiler.set_stance("fail_on_recompile"):
        rest = [compiled(part, cache)[0] for part in x[:, 6:].split(1, 1)]
    torch.testing.assert_close(torch.cat([*first, *rest], 1), expected)


@torch.no_grad()
def test_a_static_cache_compiles_once():
    """One program for every step, also after cropping and reordering."""
    torch.compiler.reset()
    module, x, programs = make(rotary=True), tokens(B, N), []

    def backend(graph, _):
        programs.append(graph)
        return graph

    compiled = torch.compile(module, backend=backend, fullgraph=True)
    cache, padding = static(**DOUBLE), torch.zeros(B, LONGEST, dtype=torch.bool)
    steps = [compiled(part, cache, padding)[0] for part in x.split(1, 1)]
    torch.testing.assert_close(torch.cat(steps, 1), module(x)[0])
    cache.crop(9)
    cache.reorder(torch.tensor([1, 0]))
    again = torch.cat([x.flip(0)[:, :9], x[:, 9:]], 1)
    found = compiled(x[:, 9:10], cache, padding)[0]  # with the strides of the others
    torch.testing.assert_close(found, module(again)[0][:, 9:10])
    assert len(programs) == 1


@EACH_CACHE
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@torch.no_grad()
def test_half_precision_and_autocast(kind, dtype):
    x, exact = tokens(B, N).float(), make(True, dtype=torch.float32)
    expected = exact(x)[0]
    halved = make(True, dtype=torch.float32).to(dtype)
    found = written(halved, x.to(dtype), CACHES[kind](dtype=dtype), [5, 4, 3])
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)
    with torch.autocast("cpu", dtype):
        found = written(exact, x, CACHES[kind](dtype=dtype), [5, 4, 3])
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)


@EACH_CACHE
@torch.no_grad()
def test_without_a_batch(kind):
    module, x = make(True), tokens(N)
    cache = CACHES[kind](1, **DOUBLE)
    found = torch.cat([module(part, cache)[0] for part in x.split([5, 4, 3])])
    torch.testing.assert_close(found, module(x)[0])
    cache.crop(9)
    m = LONGEST if kind == "static" else N
    padding = torch.zeros(m, dtype=torch.bool)
    output, weights = module(x[9:], cache, padding, need_weights=True)
    torch.testing.assert_close(output, found[9:])
    assert weights.shape == (H, 3, m)


def test_dropout_only_in_training():
    torch.manual_seed(2)
    module, x = make(dropout=0.5), tokens(B, N)
    assert not module(x)[0].allclose(module(x)[0])
    module.eval()
    assert module(x)[0].equal(module(x)[0])


K = torch.zeros(B, H, 3, D)


def kept(cache):
    cache.append(K, K)
    return cache


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: kept(KVCache()).append(K[:1], K), ValueError,
         r"k \(1, 4, 3, 6\) must have the shape of what is kept, \(2, 4, 3, 6\), on all axes"),
        (lambda: kept(KVCache()).append(K, K[..., :5]), ValueError, r"v \(2, 4, 3, 5\) must have"),
        (lambda: kept(KVCache()).append(K, K[:, :, :2]), ValueError,
         r"v \(2, 4, 2, 6\) must have as many samples, heads and tokens as k \(2, 4, 3, 6\)"),
        (lambda: KVCache().append(K, K[:1]), ValueError, r"v \(1, 4, 3, 6\) must have as many"),
        (lambda: static().append(K[:, :3], K), ValueError, r"k \(2, 3, 3, 6\) must have"),
        (lambda: kept(paged()).append(K[:, :3], K), ValueError, r"k \(2, 3, 3, 6\) must have"),
        (lambda: kept(paged()).append(K[:1], K[:1]), ValueError, r"k \(1, 4, 3, 6\) must have"),
        (lambda: static().reorder(torch.tensor([0])), ValueError, r"index \(1\) must name 2 seq"),
        (lambda: StaticCache(B, H, 0, D), ValueError, r"max_length \(0\) must be at least 1"),
        (lambda: StaticCache(B, H, 9.0, D), TypeError, r"max_length \(9.0\) must be an integer"),
        (lambda: PagedCache(0, 4, H, D), ValueError, r"num_pages \(0\) must be at least 1"),
        (lambda: make(add_zero_attn=True), ValueError, "add_zero_attn must be False"),
        (lambda: make(kdim=5), ValueError, r"kdim \(5\) must be embed_dim \(24\)"),
        (lambda: make(vdim=5), ValueError, r"vdim \(5\) must be embed_dim \(24\)"),
        (lambda: make()(tokens(B, 3)[..., :5]), ValueError, r"x's width \(5\) must be 24"),
        (lambda: make()(tokens(B, 3).float()), TypeError, r"x \(torch.float32\) must have the"),
        (lambda: make()(tokens(B, 3), key_padding_mask=torch.zeros(3, B)), ValueError,
         r"key_padding_mask \(3, 2\) must have shape \(b, m\) = \(2, 3\)"),
        (lambda: make()(tokens(B, 3), KVCache(), torch.zeros(B, 3).long()), TypeError,
         r"key_padding_mask must be boolean"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda cache: cache.crop(2.5), TypeError, r"length \(2.5\) must be an integer"),
        (lambda cache: cache.crop(None), TypeError, r"length \(None\) must be an integer"),
        (lambda cache: cache.crop(torch.tensor([1, 2])), TypeError, r"length \(tensor\(\[1, 2\]\)"),
        (lambda cache: cache.crop(-1), ValueError, r"length \(-1\) must not be negative"),
        (lambda cache: cache.reorder([0, 1]), TypeError, "index must be a tensor, got list"),
        (lambda cache: cache.reorder(torch.tensor([0.0, 1.0])), TypeError,
         r"index must be int64 or int32, got torch.float32"),
        (lambda cache: cache.reorder(torch.tensor([True, False])), TypeError, "got torch.bool"),
        (lambda cache: cache.reorder(torch.tensor([[0, 1]])), ValueError,
         r"index \(1, 2\) must have one axis"),
        (lambda cache: cache.reorder(torch.tensor([0, 2])), ValueError,
         r"index names sequence 2; the sequences kept are 0 to 1"),
        (lambda cache: cache.reorder(torch.tensor([0, -1])), ValueError, "names sequence -1"),
        (lambda cache: cache.append([1], K), TypeError, "k must be a tensor, got list"),
        (lambda cache: cache.append(K, K[0]), ValueError, r"v \(4, 3, 6\) must have four axes"),
    ],
)  # fmt: skip
@EACH_CACHE
@torch.no_grad()
def test_each_cache_names_what_does_not_fit_and_loses_nothing(kind, call, error, message):
    cache = kept(CACHES[kind]())
    with pytest.raises(error, match=message):
        call(cache)
    assert int(cache.length) == 3
    cache.crop(torch.tensor(2))  # as a static cache says its length
    cache.reorder(torch.tensor([1, 0], dtype=torch.int32))
    assert int(cache.length) == 2


@EACH_CACHE
def test_an_empty_cache_has_nothing_to_reorder(kind):
    cache = CACHES[kind]()
    cache.reorder(torch.tensor([1, 0]))
    assert int(cache.length) == 0


def test_a_mask_for_the_new_tokens_alone_is_refused():
    module, cache = make(), KVCache()
    module(tokens(B, 3), cache)
    with pytest.raises(ValueError, match=r"must have shape \(b, m\) = \(2, 5\)"):
        module(tokens(B, 2), cache, torch.zeros(B, 2, dtype=torch.bool))

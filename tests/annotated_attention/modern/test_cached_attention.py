"""In chunks of any size, with any cache, attention computes what it computes all at once."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from annotated_attention import MultiheadAttention
from annotated_attention.modern import (
    CachedAttention,
    KVCache,
    LatentAttention,
    PagedCache,
    RotaryAttention,
    RotaryEmbedding,
    StaticCache,
)
from tests.settings import REPRODUCIBLE, B, D, E, H, assert_same, results

N, G, C, R, ROOM = 9, 2, 8, 2, 13
KINDS = {
    "plain": lambda **options: CachedAttention(E, H, **options),
    "rotary": lambda **options: CachedAttention(E, H, rotary=RotaryEmbedding(D), **options),
    "grouped": lambda **options: CachedAttention(
        E, H, rotary=RotaryEmbedding(D), num_kv_heads=G, **options
    ),
    "latent": lambda **options: LatentAttention(E, H, C, R, **options),
    "absorbed": lambda **options: LatentAttention(E, H, C, R, **options),
}
CACHES = ["none", "grows", "fixed size", "pages"]


def attention(kind, batch_first=True, dtype=torch.float64, **options):
    torch.random.default_generator.manual_seed(0)
    module = KINDS[kind](batch_first=batch_first, dtype=dtype, **options)
    for x in module.parameters():
        if x.dim() == 1:  # biases are 0 at first, and would hide that they stand in a wrong place
            torch.nn.init.normal_(x)
    return module


def empty(name, kind, b=B, dtype=torch.float64):
    sizes = {"grouped": (G, D, D), "latent": (1, C, R), "absorbed": (1, C, R)}.get(kind, (H, D, D))
    return {
        "none": lambda: None,
        "grows": KVCache,
        "fixed size": lambda: StaticCache(b, sizes[0], ROOM, *sizes[1:], dtype=dtype),
        "pages": lambda: PagedCache(12, 3, *sizes, dtype=dtype),
    }[name]()


def tokens(*shape, seed=1, dtype=torch.float64, **options):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, E, generator=source, dtype=dtype, **options)


def called(module, kind, x, cache, padding=None, **options):
    """Call a module; its mask has a column for each key that the cache returns."""
    options |= {"absorb": True} if kind == "absorbed" else {}
    m = ROOM if isinstance(cache, StaticCache) else x.size(-2 if module.batch_first else 0)
    m += cache.length if isinstance(cache, KVCache | PagedCache) else 0
    seen = None if padding is None else padding[:, :m]
    return module(x, cache, seen, **options)


def chunked(module, kind, x, cache, chunks, padding=None, axis=1):
    parts = x.split(chunks, axis)
    return torch.cat([called(module, kind, part, cache, padding)[0] for part in parts], axis)


CHUNKS = st.sampled_from([[N], [1] * N, [4, 3, 2], [1, N - 1], [5, 1, 1, 2]])


@settings(REPRODUCIBLE, max_examples=80)
@given(
    kind=st.sampled_from([*KINDS]),
    cache=st.sampled_from(CACHES),
    chunks=CHUNKS,
    left=st.integers(0, 5),
    form=st.sampled_from(["boolean", "float"]),
    batch_first=st.booleans(),
)
def test_in_chunks_it_is_what_it_is_at_once(kind, cache, chunks, left, form, batch_first):
    """Also with a second text that is padded on the left; its words are then as alone."""
    assume(cache != "none" or chunks == [N])
    module, x = attention(kind, batch_first), tokens(B, N).requires_grad_(cache == "grows")
    module.requires_grad_(cache == "grows")
    given_x = x if batch_first else x.transpose(0, 1)
    padding = torch.arange(ROOM) < torch.tensor([[0], [left]])
    if form == "float":
        padding = torch.zeros(B, ROOM, dtype=x.dtype).masked_fill(padding, -torch.inf)
    axis = 1 if batch_first else 0
    found = chunked(module, kind, given_x, empty(cache, kind), chunks, padding, axis)
    plain = kind.replace("absorbed", "latent")
    whole = called(module, plain, given_x, None, padding)[0]
    sources = dict(module.named_parameters()) | {"x": x}
    assert_same(results([found], sources), results([whole], sources))
    rows = found if batch_first else found.transpose(0, 1)
    alone = x[1:, left:] if batch_first else x[1:, left:].transpose(0, 1)
    words = called(module, plain, alone, None)[0]
    torch.testing.assert_close(rows[1, left:], words[0] if batch_first else words[:, 0])
    assert rows.isfinite().all()


@settings(REPRODUCIBLE, max_examples=30)
@given(
    kind=st.sampled_from([*KINDS]),
    lengths=st.lists(st.integers(0, 7), min_size=3, max_size=3),
    chunks=st.sampled_from([[3], [1, 1, 1], [2, 1]]),
)
@torch.no_grad()
def test_texts_of_different_lengths_are_as_alone(kind, lengths, chunks):
    module, prompts, more = attention(kind), tokens(3, 7), tokens(3, 3, seed=2)
    cache = empty("pages", kind)
    called(module, kind, prompts, cache)  # padded on the right
    cache.crop(lengths)
    found = torch.cat([module(part, cache)[0] for part in more.split(chunks, 1)], 1)
    for i, length in enumerate(lengths):
        whole = torch.cat([prompts[i, :length], more[i]])[None]
        expected = called(module, kind, whole, None)[0]
        torch.testing.assert_close(found[i], expected[0, length:])


@pytest.mark.parametrize("cache", CACHES[1:])
@torch.no_grad()
def test_one_new_token_gets_a_mask_only_where_something_is_to_be_hidden(cache):
    """On a GPU, PyTorch's kernel for shared heads takes no mask; places not written need one."""

    class Noting(CachedAttention):
        def attend(self, *given, **options):
            masked.append(options["blocked"] is not None)
            return super().attend(*given, **options)

    class Windowed(Noting):
        def block(self, positions, m):
            return super().block(positions, m) | (torch.arange(m) <= positions[:, None] - 3)

    x, always = tokens(1, N), cache == "fixed size"
    for kind, expected in ((Noting, [True, always, always]), (Windowed, [True] * 3)):
        masked: list[bool] = []
        module = kind(E, H, num_kv_heads=G, batch_first=True, dtype=x.dtype)
        kept = empty(cache, "grouped", b=1)
        found = torch.cat([module(part, kept)[0] for part in x.split([N - 2, 1, 1], 1)], 1)
        assert masked == expected
        torch.testing.assert_close(found, module(x)[0])


@pytest.mark.parametrize("batch_first", [True, False])
def test_without_a_cache_it_is_the_final_class_and_rotary_attention(batch_first):
    for kind, other in (("plain", MultiheadAttention), ("rotary", RotaryAttention)):
        ours = attention(kind, batch_first)
        final = other(E, H, batch_first=batch_first, dtype=torch.float64)
        final.load_state_dict(ours.state_dict())
        for x in (tokens(B, N, requires_grad=True), tokens(N, requires_grad=True)):
            expected = final(x, x, x, is_causal=True, average_attn_weights=False)
            assert_same(
                results(ours(x, need_weights=True), dict(ours.named_parameters()) | {"x": x}),
                results(expected, dict(final.named_parameters()) | {"x": x}),
            )
            assert ours(x)[1] is None
            torch.testing.assert_close(ours(x)[0], expected[0])


@pytest.mark.parametrize("cache", CACHES[1:])
@torch.no_grad()
def test_without_a_batch(cache):
    module, x, kept = attention("grouped"), tokens(N), empty(cache, "grouped", b=1)
    parts = x.split([4, 3, 2])
    torch.testing.assert_close(torch.cat([module(x, kept)[0] for x in parts]), module(x)[0])
    kept.crop(7)
    padding = torch.zeros(ROOM if cache == "fixed size" else N, dtype=torch.bool)
    output, weights = module(x[7:], kept, padding, need_weights=True)
    torch.testing.assert_close(output, module(x)[0][7:])
    assert weights.shape == (H, 2, len(padding))


@pytest.mark.parametrize(("kind", "cache"), [("grouped", "fixed size"), ("latent", "grows")])
@torch.no_grad()
def test_compiles_whole_and_not_anew_for_each_step(kind, cache):
    torch.compiler.reset()
    module, x, kept = attention(kind), tokens(B, N), empty(cache, kind)
    backend = "aot_eager" if cache == "fixed size" else "eager"  # it is written to in place
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    first = [compiled(part, kept)[0] for part in x[:, :6].split([4, 1, 1], 1)]
    # A static cache has compiled what it needs; one that grows has learned that its sizes change.
    with torch.compiler.set_stance("fail_on_recompile"):
        rest = [compiled(part, kept)[0] for part in x[:, 6:].split(1, 1)]
        torch.testing.assert_close(torch.cat([*first, *rest], 1), module(x)[0])
        if cache == "fixed size":
            kept.crop(7)
            kept.reorder(torch.tensor([1, 0]))
            again = torch.cat([x.flip(0)[:, :7], x[:, 7:]], 1)
            found = compiled(x[:, 7:8], kept)[0]
            torch.testing.assert_close(found, module(again)[0][:, 7:8])


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["grouped", "latent", "absorbed"])
@torch.no_grad()
def test_half_precision_and_autocast(kind, cache, dtype):
    chunks = [4, 3, 2] if cache != "none" else [N]
    x, exact = tokens(B, N, dtype=torch.float32), attention(kind, dtype=torch.float32)
    expected = called(exact, kind, x, None)[0]
    halved = attention(kind, dtype=torch.float32).to(dtype)
    found = chunked(halved, kind, x.to(dtype), empty(cache, kind, dtype=dtype), chunks)
    with torch.autocast("cpu", dtype):
        mixed = chunked(exact, kind, x, empty(cache, kind, dtype=dtype), chunks)
    for each in (found, mixed):
        assert each.dtype == dtype
        torch.testing.assert_close(each.float(), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_applied_in_training_alone(kind):
    module, x = attention(kind, dropout=0.5), tokens(B, N)
    for need_weights in (True, False):
        one, other = (called(module, kind, x, None, need_weights=need_weights)[0] for _ in range(2))
        assert not one.equal(other)
    module.eval()
    fused, (stepwise, weights) = (
        called(module, kind, x, None)[0],
        called(module, kind, x, None, need_weights=True),
    )
    torch.testing.assert_close(fused, stepwise)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, N, dtype=x.dtype))

"""Windows, documents and sinks are the same by mask, by rule, in tiles and in chunks."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from annotated_attention import scaled_dot_product_attention
from annotated_attention.modern import (
    CachedAttention,
    KVCache,
    PagedCache,
    RotaryEmbedding,
    StaticCache,
    WindowAttention,
    WindowCache,
    block_by_position,
    block_other_documents,
    tiled_attention,
    with_sink,
)
from annotated_attention.modern.tiles import tiles
from tests.settings import REPRODUCIBLE, B, D, E, H, assert_same, results

N, G = 9, 2
WINDOWS, SINKS = st.integers(1, 11), st.integers(0, 4)
CHUNKS = st.sampled_from([[N], [1] * N, [4, 3, 2], [1, N - 1], [N - 1, 1], [5, 1, 1, 2]])


def randn(*shape, seed=0, dtype=torch.float64):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=source, dtype=torch.float64).to(dtype)


def attention(window, sinks=0, kind=WindowAttention, **options):
    torch.random.default_generator.manual_seed(0)
    given = () if kind is CachedAttention else (window,)
    options |= {} if kind is CachedAttention else {"sinks": sinks}
    return kind(E, H, *given, batch_first=True, dtype=torch.float64, **options)


@settings(REPRODUCIBLE, max_examples=60)
@given(n=st.integers(1, 9), free=st.integers(0, 3), start=st.integers(0, 4), w=WINDOWS, sinks=SINKS)
def test_masks_say_for_each_pair_what_their_words_say(n, free, start, w, sinks):
    positions, m = start + torch.arange(n), start + n + 1 + free
    expected = [[not (j <= p and (j > p - w or j < sinks)) for j in range(m)] for p in positions]
    assert block_by_position(positions, m, w, sinks=sinks).tolist() == expected
    each = torch.stack([positions, positions + 1])
    both = block_by_position(each, m, w, sinks=sinks)
    assert both.shape == (2, 1, n, m)
    for row, blocked in zip(each, both, strict=True):
        assert blocked[0].equal(block_by_position(row, m, w, sinks=sinks))
    assert block_by_position(positions, m, start + n).equal(block_by_position(positions, m))


@settings(REPRODUCIBLE, max_examples=60)
@given(
    window=WINDOWS,
    sinks=SINKS,
    chunks=CHUNKS,
    rotary=st.booleans(),
    groups=st.sampled_from([G, H]),
    kind=st.sampled_from(["rolling", "grows", "fixed size", "pages"]),
)
def test_in_chunks_it_is_what_a_mask_gives_at_once(window, sinks, chunks, rotary, groups, kind):
    options = {"rotary": RotaryEmbedding(D) if rotary else None, "num_kv_heads": groups}
    module, x = attention(window, sinks, **options), randn(B, N, E)
    whole = attention(window, kind=CachedAttention, **options)
    whole.block = lambda positions, m: block_by_position(positions, m, window, sinks=sinks)
    cache = {
        "rolling": lambda: WindowCache(window, sinks),
        "grows": KVCache,
        "fixed size": lambda: StaticCache(B, groups, N + 2, D, dtype=x.dtype),
        "pages": lambda: PagedCache(12, 3, groups, D, dtype=x.dtype),
    }[kind]()
    learns = kind in ("rolling", "grows")
    x.requires_grad_(learns)
    for y in (module, whole):
        y.requires_grad_(learns)
    found = torch.cat([module(part, cache)[0] for part in x.split(chunks, 1)], 1)
    assert_same(
        results([found], dict(module.named_parameters()) | {"x": x}),
        results([whole(x)[0]], dict(whole.named_parameters()) | {"x": x}),
    )


@settings(REPRODUCIBLE, max_examples=60)
@given(window=WINDOWS, sinks=SINKS, chunks=CHUNKS)
def test_a_rolling_cache_keeps_what_it_says_and_frees_the_rest(window, sinks, chunks):
    cache, k, v = WindowCache(window, sinks), randn(B, H, N, D), randn(B, H, N, 7, seed=1)
    end = 0
    for part, values in zip(k.split(chunks, 2), v.split(chunks, 2), strict=True):
        before = cache.positions
        keys, given = cache.append(part, values)
        places = torch.cat([before, torch.arange(end, end + part.size(2))])
        assert keys.equal(k[:, :, places])
        assert given.equal(v[:, :, places])
        end += part.size(2)
        later = block_by_position(torch.arange(end, end + 20), end + 20, window, sinks=sinks)
        needed = (~later[:, :end]).any(0).nonzero()[:, 0]
        first = torch.arange(min(sinks, end))  # at their positions, also if no window sees them
        assert cache.positions.tolist() == sorted({*needed.tolist(), *first.tolist()})
        assert (cache.length, cache.dropped) == (end, end - len(cache.positions))
        assert cache.keys.equal(k[:, :, cache.positions])
        assert cache.numel() == B * H * len(cache.positions) * (D + 7)
        if cache.dropped:
            assert cache.keys.untyped_storage().nbytes() == cache.keys.numel() * 8


@torch.no_grad()
def test_crop_and_reorder_go_on_where_the_window_is_still_there():
    module, x, new = attention(4, 2), randn(B, N, E), randn(3, 6, E, seed=1)
    cache, rows = WindowCache(4, 2), torch.tensor([1, 1, 0])
    module(x[:, :5], cache)  # nothing is dropped up to here
    cache.reorder(rows)
    for length in (3, 2, 0):
        cache.crop(length)
        assert cache.positions.tolist() == [*range(length)]
        expected = module(torch.cat([x[rows, :length], new], 1))[0][:, length:]
        torch.testing.assert_close(module(new, cache)[0], expected)
        for lost in (3, cache.length - 1):
            with pytest.raises(ValueError, match=rf"h \({lost}\) must be at most 2 or at least"):
                cache.crop(lost)
        cache.crop(cache.length + 1)
        assert cache.length == length + 6


RULES = {
    "window": lambda b, h, i, j: (j <= i) & (j > i - 3),
    "sinks": lambda b, h, i, j: (j <= i) & ((j > i - 3) | (j < 2)),
    "documents": lambda b, h, i, j: (j <= i) & (DOCUMENTS[b, i] == DOCUMENTS[b, j]),
    "both sides": lambda b, h, i, j: (j - i).abs() < 3,
    "nothing for some": lambda b, h, i, j: (j < i) & (h > 0),
}
DOCUMENTS = torch.tensor([[0] * 4 + [1] * 8, [5] * 2 + [3] * 7 + [5] * 3])
MASKS = {
    "window": block_by_position(torch.arange(12), 12, 3),
    "sinks": block_by_position(torch.arange(12), 12, 3, sinks=2),
    "documents": block_by_position(torch.arange(12), 12) | block_other_documents(DOCUMENTS),
}


def drawn(d=D):
    x = {name: randn(B, H, 12, d, seed=i) for i, name in enumerate(("query", "key", "value"))}
    return {name: t.requires_grad_() for name, t in x.items()}


@pytest.mark.parametrize("tile", [1, 5])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_a_mask_in_tiles_and_in_flex_attention(name, tile):
    rule, x = RULES[name], drawn(8)  # before torch 2.7 flex_attention takes powers of two alone
    index = (torch.arange(size) for size in (B, H, 12, 12))
    b, h, i, j = torch.meshgrid(*index, indexing="ij")
    visible = rule(b, h, i, j).expand(B, H, 12, 12)
    if name in MASKS:
        assert MASKS[name].expand_as(visible).equal(~visible)
    expected, _ = scaled_dot_product_attention(*x.values(), blocked=~visible)
    output, _ = tiled_attention(**x, mask_mod=rule, tile=tile)
    assert_same(results([output], x), results([expected], x))
    theirs = create_block_mask(rule, B, H, 12, 12, device="cpu", BLOCK_SIZE=tile)
    visited = torch.zeros(12, 12, dtype=torch.bool)
    for rows, columns in tiles(12, 12, False, tile, lambda r, c: visible[..., r, c]):
        for column in columns:
            visited[rows, column] = True
    dense = theirs.to_dense().bool().any(0).any(0)
    wide = dense.repeat_interleave(tile, 0).repeat_interleave(tile, 1)[:12, :12]
    assert visited.equal(wide)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is not compiled
        flexed = flex_attention(*(t.detach() for t in x.values()), block_mask=theirs)
    torch.testing.assert_close(flexed, expected.detach())


def test_a_rule_goes_with_the_other_masks():
    x, blocked = drawn(), randn(12, 12, seed=5) > 0.7
    options = {"blocked": blocked, "is_causal": True, "tile": 4}
    output, _ = tiled_attention(**x, mask_mod=RULES["both sides"], **options)
    every = blocked | MASKS["window"]
    expected, _ = scaled_dot_product_attention(*x.values(), blocked=every)
    assert_same(results([output], x), results([expected], x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_sink_is_gpt_oss(dtype):
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    class Layer(torch.nn.Module):
        num_key_value_groups = 1

    layer = Layer()
    layer.sinks = torch.nn.Parameter(randn(H, seed=7, dtype=dtype))
    x = {name: t.detach().to(dtype).requires_grad_() for name, t in drawn().items()}
    added = torch.zeros(12, 12, dtype=dtype).masked_fill(MASKS["window"], -torch.inf)
    added[3] = -torch.inf  # its only key is then the sink
    theirs, _ = eager_attention_forward(layer, *x.values(), added, scaling=D**-0.5)
    found = with_sink(*tiled_attention(**x, bias=added, tile=5), layer.sinks)
    assert found.dtype == dtype
    sources = x | {"sinks": layer.sinks}
    assert_same(results([found], sources), results([theirs.transpose(1, 2)], sources))


def test_a_rolling_cache_is_refused_where_key_j_is_taken_to_be_at_position_j():
    module, cache, x = attention(0, kind=CachedAttention), WindowCache(3), randn(B, 6, E)
    torch.testing.assert_close(module(x, cache)[0], module(x)[0])  # nothing was dropped before
    with pytest.raises(ValueError, match="cache gave 3 keys of 7 tokens"):
        module(x[:, :1], cache)

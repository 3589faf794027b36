"""Each formula equals what PyTorch counts, exactly, over a sweep of sizes that all differ."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention import MultiheadAttention, counting
from annotated_attention.counting import PRESETS, Model, short
from annotated_attention.counting import __main__ as command
from annotated_attention.modern import (
    CachedAttention,
    GroupedQueryAttention,
    KVCache,
    LatentAttention,
    WindowCache,
    block_by_position,
    tiled_attention,
)
from annotated_attention.modern.tiles import tiles

# b, n, m, h, d; the last ones are where products can read what others must copy
SIZES = [(2, 3, 5, 4, 6), (3, 8, 2, 5, 4), (1, 6, 4, 3, 2), (4, 5, 7, 1, 3)]
EDGES = list(itertools.product((1, 2), (1, 7), (1, 5), (1, 4), (1, 6)))


class Readable(GroupedQueryAttention):
    """Goes step by step, whether weights are asked for or not."""

    def attend(self, *args: Any, **options: Any) -> Any:
        return super().attend(*args, **options | {"need_weights": True})


def numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def flops(run: Callable[..., Any], *inputs: Tensor, **options: Any) -> int:
    """Count forward; backward is twice as much. Fused kernels, which hide theirs, are off."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = run(*inputs, **options)
        forward = counter.get_total_flops()
        (output[0] if isinstance(output, tuple) else output).sum().backward()
    assert counter.get_total_flops() == 3 * forward
    return forward


def kept(module: nn.Module, *inputs: Tensor, **options: Any) -> int:
    """Count the numbers in the distinct storages of floating point that autograd saves."""
    alive = []
    numbers = {}
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}

    def save(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if x.is_floating_point() and storage.data_ptr() not in parameters:
            numbers[storage.data_ptr()] = storage.nbytes() // x.element_size()
            alive.append(x)  # or its address could be used again
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        module(*inputs, **options)
    return sum(numbers.values())


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


# Older ones compute shared heads of keys on a CPU step by step, and keep every step.
ROWS = torch.zeros(1, 2, 3, 8, requires_grad=True)
SHARED = F.scaled_dot_product_attention(ROWS, *[ROWS[:, :1]] * 2, enable_gqa=True)
FUSES_GROUPS = "FlashAttention" in SHARED.grad_fn.name()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_attention(size: tuple[int, ...]) -> None:
    """Parameters, FLOPs, kept numbers and caches, also where groups share heads of keys."""
    b, n, m, h, d = size
    e = h * d
    assert counting.attention_parameters(e) == numel(nn.MultiheadAttention(e, h)) == 4 * e * (e + 1)
    for g in (x for x in range(1, h + 1) if h % x == 0):
        module = GroupedQueryAttention(e, h, g, batch_first=True)
        assert counting.attention_parameters(e, shared=g * d) == numel(module)
        x, y = randn(b, n, e), randn(b, m, e)
        for need_weights in (True, False):
            formula = counting.attention_flops(n, m, e, b=b, shared=g * d)
            assert flops(module, x, y, y, need_weights=need_weights) == formula
            sizes = {"b": b, "shared": g * d, "fused": not need_weights}
            found = kept(module, x, y, y, need_weights=need_weights)
            if g == h or need_weights or FUSES_GROUPS:
                assert found == counting.attention_kept(n, m, e, h, **sizes) + y.numel()
        cache = KVCache()
        keys, values = cache.append(torch.empty(b, g, m, d), torch.empty(b, g, m, 7))
        assert counting.cache_numbers(m, g * d, g * 7, b=b) == cache.numel()
        found = counting.cache_bytes(m, g * d, g * 7, b=b, layers=3, width=4)
        assert found == 3 * (keys.nbytes + values.nbytes)
        assert counting.cache_bytes(m, g * d) == 2 * 2 * m * g * d


@pytest.mark.parametrize("fused", [False, True])
def test_kept_by_self_attention(fused: bool) -> None:
    for b, n, _, h, d in [*SIZES, *EDGES]:
        e = h * d
        x, module = randn(b, n, e), MultiheadAttention(e, h, batch_first=True)
        options = {"need_weights": not fused}
        formula = counting.attention_kept(n, n, e, h, b=b, fused=fused)
        alone = (b == n == 1 and not fused) * e
        assert kept(module, x, x, x, **options) == formula + alone
        assert kept(module, x, x, x, is_causal=True, **options) == formula + alone
        theirs = nn.MultiheadAttention(e, h, batch_first=True)
        assert kept(theirs, x, x, x, **options) == formula + (0 if fused else x.numel())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_traffic(size: tuple[int, ...]) -> None:
    """Step by step, what each takes and gives; in tiles, as the loop of the package cuts them."""
    b, n, m, h, d = size
    q, k, v = (torch.randn(b, h, length, d) for length in (n, m, m))
    scores = q @ k.mT
    weights = scores.softmax(-1)
    passed = (q, k, scores), (scores, weights), (weights, v, weights @ v)
    moved = sum(x.numel() for step in passed for x in step)
    assert counting.attention_traffic(n, m, h * d, h, b=b) == moved
    for tile in (1, 2, n, n + 3):
        output, lse = tiled_attention(q, k, v, tile=tile)
        visits = [
            q[..., rows, :].numel()
            + sum(x[..., columns, :].numel() for columns in visited for x in (k, v))
            for rows, visited in tiles(n, m, False, tile)
        ]
        expected = sum(visits) + output.numel() + lse.numel()
        assert counting.attention_traffic(n, m, h * d, h, b=b, tile=tile) == expected


@pytest.mark.parametrize("sinks", [0, 2])
@pytest.mark.parametrize("window", [1, 3, 9])
def test_windows(window: int, sinks: int) -> None:
    """Scores as the mask has them, and tokens as the cache keeps them."""
    cache = WindowCache(window, sinks)
    for n in range(1, 9):
        visible = ~block_by_position(torch.arange(n), n, window, sinks=sinks)
        assert counting.window_scores(n, window, sinks=sinks) == visible.sum()
        cache.append(randn(2, 4, 1, 6), randn(2, 4, 1, 5))
        kept = counting.window_kept(n, window, sinks=sinks)
        assert counting.cache_numbers(kept, 4 * 6, 4 * 5, b=2) == cache.numel()


@pytest.mark.parametrize("absorb", [False, True])
@pytest.mark.parametrize("queries", [None, 9])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_latent_attention(size: tuple[int, ...], queries: int | None, absorb: bool) -> None:
    b, n, before, h, d = size
    e, c, r = h * d, 7, 4
    sizes: Any = {"h": h, "c": c, "r": r, "d": d, "b": b, "queries": queries, "absorb": absorb}
    module = LatentAttention(e, h, c, r, query_latent_dim=queries, batch_first=True)
    x, cache = randn(b, before + n, e), KVCache()
    formula = counting.latent_flops(before + n, before + n, e, **sizes)
    assert flops(module, x, absorb=absorb) == formula
    module(x[:, :before], cache)
    formula = counting.latent_flops(n, before + n, e, **sizes)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(x[:, before:], cache, absorb=absorb)
    assert counter.get_total_flops() == formula


class Whole(nn.Module):
    """PyTorch's own layers between embeddings and output, with our attention in them."""

    def __init__(self, model: Model, fused: bool, norm_first: bool) -> None:
        super().__init__()
        e, h, self.model = model.embed_dim, model.num_heads, model
        options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        options |= {"activation": model.activation}
        self.embed = nn.Embedding(model.vocabulary, e)
        self.places = nn.Embedding(model.positions, e)
        self.norms = nn.ModuleList(nn.LayerNorm(e) for _ in range(model.norms))
        self.plain, self.cross = nn.ModuleList(), nn.ModuleList()
        for _ in range(model.layers):
            self.plain.append(nn.TransformerEncoderLayer(e, h, model.feedforward, **options))
        for _ in range(model.decoder_layers):
            self.cross.append(nn.TransformerDecoderLayer(e, h, model.feedforward, **options))
        kind = GroupedQueryAttention if fused else Readable
        for layer in (*self.plain, *self.cross):
            for name in ("self_attn", "multihead_attn"):
                if hasattr(layer, name):
                    setattr(layer, name, kind(e, h, model.num_kv_heads or h, batch_first=True))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.embed(source) + self.places.weight[: source.size(1)]
        for layer in self.plain:
            x = layer(x)
        if self.cross:
            memory = self.norms[0](x) if len(self.norms) > 1 else x
            x = self.embed(target)
            for layer in self.cross:
                x = layer(x, memory)
        x = self.norms[-1](x) if self.norms else x
        return x @ self.embed.weight.T if self.model.output == "tied" else x


MODELS = [
    Model(24, 4, 7, 2, 3, 11, positions=9, norms=2),
    Model(20, 5, 9, 3, 0, 13, positions=8, norms=1, activation="gelu"),
    Model(24, 4, 7, 2, 3, 11, positions=9, norms=2, num_kv_heads=2),
    Model(6, 1, 4, 2, 2, 5, positions=8, output="none"),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_whole_models(model: Model) -> None:
    for b, n, norm_first in ((2, 3, True), (1, 5, False)):
        source, target = torch.randint(model.vocabulary, (2, b, n))
        for fused in (False, True):
            module = Whole(model, fused, norm_first)
            attentions = sum(isinstance(part, GroupedQueryAttention) for part in module.modules())
            rows = attentions * b * model.num_heads * n
            counts = model.kept(n, b, fused=fused)
            if model.num_kv_heads is None or not fused or FUSES_GROUPS:
                assert kept(module, source, target) == sum(counts.values())
            assert counts["scores and mix"] == rows * (1 if fused else n)
        assert numel(module) == sum(model.parameters().values())
        counts = model.flops(n, b)
        assert flops(module, source, target) == sum(counts.values())
        scores = attentions * counting.score_flops(n, n, model.embed_dim, b=b)
        assert counts["scores and mix"] == scores


@pytest.mark.parametrize("groups", [None, 2])
def test_generating_with_a_cache(groups: int | None) -> None:
    """One more token through layers with a cache, the way a decoder-only model generates."""
    model = Model(24, 4, 7, 3, 0, 11, num_kv_heads=groups)
    b, e = 2, 24
    layers = [CachedAttention(e, 4, num_kv_heads=groups or 4, batch_first=True) for _ in range(3)]
    caches = [KVCache() for _ in layers]
    for length in range(1, 6):
        found = counting.product_flops(b, e, 11)
        for layer, cache in zip(layers, caches, strict=True):
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                layer(randn(b, 1, e), cache, need_weights=True)
            found += counter.get_total_flops() + counting.feedforward_flops(1, e, 7, b=b)
        assert found == sum(model.step_flops(length, b).values())
        assert sum(cache.numel() for cache in caches) == model.cache(length, b)


def test_generating_with_cross_attention() -> None:
    """A decoder's step: its own keys and values and those of the source are both in caches."""
    model = Model(24, 4, 7, 2, 3, 11)
    b, m, e = 2, 5, 24
    row, keys, weight = randn(b, 1, e), randn(b, m, e), randn(e, e)

    def step() -> Tensor:
        x = row
        for _ in range(model.decoder_layers):
            for projections in (4, 2):
                for _ in range(projections):
                    x = x @ weight
                x = (x @ keys.mT) @ keys
            x = (x @ randn(e, 7)) @ randn(7, e)
        return x @ randn(e, 11)

    assert flops(step) == sum(model.step_flops(m, b).values())
    assert model.cache(m, b) == model.decoder_layers * 2 * 2 * keys.numel()


# Parameters, as their authors' code has them, and heads; BERT's with two segments, no pooler.
PUBLISHED = {
    "transformer-base": (63_082_496, 8),
    "transformer-big": (214_245_376, 16),
    "bert-base": (108_891_648, 12),
    "bert-large": (334_092_288, 16),
    "gpt2": (124_439_808, 12),
    "gpt2-xl": (1_557_611_200, 25),
}


def test_presets_are_the_published_models() -> None:
    found = {name: (sum(x.parameters().values()), x.num_heads) for name, x in PRESETS.items()}
    assert found == PUBLISHED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embed_dim": 10, "num_heads": 4}, r"embed_dim \(10\) must be divisible by"),
        ({"layers": -1}, r"layers \(-1\) must be at least 0"),
        ({"layers": 0, "decoder_layers": 0}, r"must not both be 0"),
        ({"output": "all"}, r"output \('all'\) must be one of"),
        ({"num_kv_heads": 16}, r"num_heads \(8\) must be divisible by num_kv_heads"),
    ],
)
def test_bad_sizes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Model(**change)


@pytest.mark.parametrize("count", ["flops", "kept", "step_flops", "cache"])
def test_bad_lengths(count: str) -> None:
    with pytest.raises(ValueError, match=r"length \(0\) must be at least 1"):
        getattr(Model(), count)(0)
    with pytest.raises(TypeError, match=r"batch \(True\) must be an integer"):
        getattr(Model(), count)(3, True)


def test_short_numbers() -> None:
    shown = {
        0: "0 B",
        999: "999 B",
        1000: "1.00 kB",
        1005: "1.01 kB",
        10_049: "10.0 kB",
        63_082_496: "63.1 MB",
        999_499: "999 kB",
        999_500: "1.00 MB",
        10**24: "1.00 YB",
    }
    assert {number: short(number, "B") for number in shown} == shown
    assert short(7) == "7"


def test_what_the_table_says() -> None:
    """With batches, other widths and groups; the docstrings show the rest of it."""
    model, n, b, width = MODELS[0], 500, 3, 2
    header, first, *_, last = counting.rows(model, n, b, width)
    found = dict(zip(header, last, strict=True))
    kept = sum(model.kept(n, b).values())
    assert (found["kept"], found["share"]) == (short(width * kept, "B"), "100 %")
    flops = model.flops(n, b)
    assert first[4] == f"{100 * flops['projections'] / sum(flops.values()):.0f} %"
    for cache_width in (None, 1):
        said = " ".join(counting.notes(model, n, b, width, cache_width))
        assert f"take {short(width * sum(model.parameters().values()), 'B')}; with" in said
        assert f"a cache: {short(sum(model.step_flops(n, b).values()), 'FLOP')};" in said
        assert f"holds {short((cache_width or width) * model.cache(n, b), 'B')}." in said
    assert "cache" not in " ".join(counting.notes(MODELS[-1], n))
    assert "pass them beyond length 36." in " ".join(counting.notes(MODELS[2], n))


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        ("--embed-dim 24 --num-heads 4 --layers 0 --length 7", (Model(24, 4, layers=0), 7)),
        (
            "--preset gpt2 --num-kv-heads 4 --batch 3 --bytes 2 --cache-bytes 1",
            (replace(PRESETS["gpt2"], num_kv_heads=4), 512, 3, 2, 1),
        ),
    ):
        command.main(arguments.split())
        assert capsys.readouterr().out == counting.table(*expected) + "\n"
    for arguments, message in (
        ("--embed-dim 10", "error: embed_dim (10) must be divisible by num_heads (8)"),
        ("--cache-bytes 0", "error: cache_bytes (0) must be at least 1"),
    ):
        with pytest.raises(SystemExit) as stop:
            command.main(arguments.split())
        assert stop.value.code == 2
        assert message in capsys.readouterr().err

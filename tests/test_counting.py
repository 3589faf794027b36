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

from annotated_attention import (
    MultiheadAttention,
    Seq2SeqTransformer,
    counting,
    scaled_dot_product_attention,
)
from annotated_attention.counting import PRESETS, Model, share, short
from annotated_attention.counting import __main__ as command
from annotated_attention.modern import (
    CachedAttention,
    GroupedQueryAttention,
    KVCache,
    LatentAttention,
)

# b, n, m, h, d, f; the last ones are where products can read what others must copy
SIZES = [(2, 3, 5, 4, 6, 7), (3, 8, 2, 5, 4, 9), (1, 6, 4, 3, 2, 5), (4, 5, 7, 1, 3, 8)]
EDGES = list(itertools.product((1, 2), (1, 7), (1, 5), (1, 4), (1, 6), (3,)))


class Readable(MultiheadAttention):
    """Goes step by step, whether weights are asked for or not."""

    def attend(self, *args: Any, **options: Any) -> Any:
        return super().attend(*args, **options | {"need_weights": True})


def numel(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def flops(run: Callable[..., Any], *inputs: Tensor, **options: Any) -> tuple[int, int]:
    """Count forward, and backward; fused kernels, which torch does not see into, are off."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = run(*inputs, **options)
        forward = counter.get_total_flops()
        (output[0] if isinstance(output, tuple) else output).sum().backward()
    return forward, counter.get_total_flops() - forward


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


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("extra", [True, False])
@pytest.mark.parametrize("kind", [MultiheadAttention, nn.MultiheadAttention])
def test_parameters_of_attention(kind: Any, bias: bool, extra: bool) -> None:
    options = {"bias": bias, "add_bias_kv": extra}
    for _, _, _, h, d, f in SIZES:
        e = h * d
        for widths in ({}, {"kdim": f}, {"vdim": f}, {"kdim": f, "vdim": f + 1}):
            expected = numel(kind(e, h, **options, **widths, device="meta"))
            assert counting.attention_parameters(e, **options, **widths) == expected
    assert counting.attention_parameters(e) == 4 * e**2 + 4 * e


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_grouped_attention(size: tuple[int, ...], bias: bool) -> None:
    """Fewer heads of keys take fewer parameters, FLOPs and numbers in a cache."""
    b, n, m, h, d, f = size
    e = h * d
    for g in (x for x in range(1, h + 1) if h % x == 0):
        module = GroupedQueryAttention(e, h, g, bias=bias, batch_first=True)
        assert counting.attention_parameters(e, shared=g * d, bias=bias) == numel(module)
        x, y = randn(b, n, e), randn(b, m, e)
        for need_weights in (True, False):
            formula = counting.attention_flops(n, m, e, b=b, shared=g * d)
            found = flops(module, x, y, y, need_weights=need_weights)
            assert found == (formula, counting.backward_flops(formula))
            sizes = {"b": b, "memory": e, "shared": g * d, "fused": not need_weights}
            found = kept(module, x, y, y, need_weights=need_weights)
            assert found == counting.attention_kept(n, m, e, h, **sizes)

        for values in (d, f):
            cache, widths = KVCache(), (g * d, *(() if values == d else (g * values,)))
            keys, values = cache.append(torch.empty(b, g, m, d), torch.empty(b, g, m, values))
            assert counting.cache_numbers(m, *widths, b=b) == cache.numel()
            assert (
                counting.cache_bytes(m, *widths, b=b) == keys.half().nbytes + values.half().nbytes
            )
            found = counting.cache_bytes(m, *widths, b=b, layers=3, width=4)
            assert found == 3 * (keys.nbytes + values.nbytes)


@pytest.mark.parametrize("queries", [None, 9])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_latent_attention(size: tuple[int, ...], queries: int | None) -> None:
    b, n, before, h, d, c = size
    e, r, d_v = h * d + 1, 4, d + 3
    sizes = {"h": h, "c": c, "r": r, "d": d, "d_v": d_v, "queries": queries}
    module = LatentAttention(
        e, h, c, r, head_dim=d, value_dim=d_v, query_latent_dim=queries, batch_first=True
    )
    assert counting.latent_parameters(e, **sizes) == numel(module)
    x = randn(b, before + n, e)
    for absorb in (False, True):
        for need_weights in (True, False):
            options = {"absorb": absorb, "need_weights": need_weights}
            formula = counting.latent_flops(before + n, before + n, e, **sizes, b=b, absorb=absorb)
            assert flops(module, x, **options) == (formula, counting.backward_flops(formula))
            cache = KVCache()
            module(x[:, :before], cache)
            assert cache.numel() == counting.latent_cache_numbers(before, c, r, b=b)
            formula = counting.latent_flops(n, before + n, e, **sizes, b=b, absorb=absorb)
            assert flops(module, x[:, before:], cache, **options)[0] == formula
            if not absorb:
                found = kept(module, x, need_weights=need_weights)
                assert found == counting.latent_kept(before + n, e, **sizes, b=b)
        key, value, heads = (c + r, c, 1) if absorb else (d + r, d_v, h)
        q, k = randn(b, h, n, key), randn(b, heads, before, key)
        found = flops(scaled_dot_product_attention, q, k, randn(b, heads, before, value))[0]
        of_heads = {name: sizes[name] for name in ("h", "c", "r", "d", "d_v")}
        assert found == counting.latent_score_flops(n, before, **of_heads, b=b, absorb=absorb)


def test_products() -> None:
    for n, d, m, *_ in SIZES:
        forward, backward = flops(torch.matmul, randn(n, d), randn(d, m))
        assert forward == counting.product_flops(n, d, m)
        assert backward == counting.backward_flops(forward)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_flops_of_attention(size: tuple[int, ...]) -> None:
    b, n, m, h, d, f = size
    e = h * d
    x, y, z = randn(b, n, e), randn(b, m, e), randn(b, m, f)
    for need_weights in (True, False):
        module = MultiheadAttention(e, h, batch_first=True)
        found = flops(module, x, x, x, need_weights=need_weights)
        formula = counting.attention_flops(n, n, e, b=b)
        assert found == (formula, counting.backward_flops(formula))
        assert formula == 4 * b * n * e * (2 * e + n)

        found = flops(module, x, y, y, need_weights=need_weights)
        formula = counting.attention_flops(n, m, e, b=b)
        assert found == (formula, counting.backward_flops(formula))

    # Data needs no gradient, so three projections have one product less in the backward pass.
    data = x.detach()
    formula = counting.attention_flops(n, n, e, b=b)
    without = 3 * counting.product_flops(b * n, e, e)
    found = flops(module, data, data, data)
    assert found == (formula, counting.backward_flops(formula, without))

    for widths, pair in (({"kdim": f}, (z, y)), ({"vdim": f}, (y, z)), ({"kdim": f}, (z, y))):
        wide = MultiheadAttention(e, h, **widths, add_bias_kv=True, batch_first=True)
        formula = counting.projection_flops(n, m, e, b=b, **widths)
        formula += counting.score_flops(n, m + 1, e, b=b)
        found = flops(wide, x, *pair)
        assert found == (formula, counting.backward_flops(formula))


@pytest.mark.parametrize("fused", [False, True])
def test_kept_by_attention(fused: bool) -> None:
    for b, n, m, h, d, f in [*SIZES, *EDGES]:
        e = h * d
        x, y, other, wide = randn(b, n, e), randn(b, m, e), randn(b, m, e), randn(b, m, f)
        module = MultiheadAttention(e, h, batch_first=True)
        different = MultiheadAttention(e, h, vdim=f, batch_first=True)
        options = {"need_weights": not fused}
        for name, made, inputs, keys, memory in (
            ("self", module, (x, x, x), n, 0),
            ("cross", module, (x, y, y), m, e),
            ("three", module, (x, y, other), m, 2 * e),
            ("widths", different, (x, y, wide), m, e + f),
        ):
            if f == e and name == "widths":
                continue
            found = kept(made, *inputs, **options)
            formula = counting.attention_kept(n, keys, e, h, b=b, memory=memory, fused=fused)
            alone = name == "self" and b == n == 1 and not fused
            assert found == formula + alone * e, (name, b, n, m, h, d)
        causal = kept(module, x, x, x, is_causal=True, **options)
        formula = counting.attention_kept(n, n, e, h, b=b, fused=fused)
        assert causal == formula + (b == n == 1 and not fused) * e


def test_bytes_of_the_fused_kernel_in_half_precision() -> None:
    """The statistics stay in float32; everything else takes half."""
    module = MultiheadAttention(24, 4, batch_first=True, dtype=torch.bfloat16)
    sizes: dict[torch.dtype, int] = {}

    def save(x: Tensor) -> Tensor:
        if x.dim() == 3:
            sizes[x.dtype] = x.numel()
        return x

    x = torch.randn(2, 7, 24, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        module(x, x, x, need_weights=False)
    assert sizes == {torch.float32: 2 * 4 * 7}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_other_parts(activation: str, bias: bool) -> None:
    for b, n, _, h, d, f in SIZES:
        e = h * d
        between = {"relu": nn.ReLU(), "gelu": nn.GELU()}[activation]
        network = nn.Sequential(nn.Linear(e, f, bias), between, nn.Linear(f, e, bias))
        norm = nn.LayerNorm(e, bias=bias)
        x = randn(b, n, e)
        formula = counting.feedforward_flops(n, e, f, b=b)
        assert flops(network, x) == (formula, counting.backward_flops(formula))
        assert numel(network) == counting.feedforward_parameters(e, f, bias=bias)
        saved = counting.feedforward_kept(n, e, f, b=b, activation=activation)
        assert kept(network, x) == saved
        assert flops(norm, x) == (0, 0)
        assert numel(norm) == counting.norm_parameters(e, bias=bias)
        assert kept(norm, x) == counting.norm_kept(n, e, b=b)


def attention(model: Model, fused: bool) -> nn.Module:
    e, h, g = model.embed_dim, model.num_heads, model.num_kv_heads
    if model.latent_dim:
        return Latent(e, h, model.latent_dim, model.rotary_dim, batch_first=True)
    if g:
        kind = GroupedQueryAttention if fused else ReadableGroups
        return kind(e, h, g, bias=model.bias, batch_first=True)
    kind = MultiheadAttention if fused else Readable
    return kind(e, h, bias=model.bias, batch_first=True)


class ReadableGroups(Readable, GroupedQueryAttention):
    """Goes step by step, with heads of keys that groups share."""


class CachedGroups(CachedAttention, GroupedQueryAttention):
    """Heads of keys that groups share, in a cache."""


class Latent(LatentAttention):
    """Is called as the other attentions are; the mask is its own."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        return super().forward(x)


class Whole(nn.Module):
    """PyTorch's own layers between embeddings and output, with our attention in them."""

    def __init__(self, model: Model, fused: bool, norm_first: bool) -> None:
        super().__init__()
        e, h, self.model = model.embed_dim, model.num_heads, model
        options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        options |= {"bias": model.bias, "activation": model.activation}
        self.embed = nn.Embedding(model.vocabulary, e)
        self.places = nn.Embedding(model.positions, e)
        self.norms = nn.ModuleList(nn.LayerNorm(e, bias=model.bias) for _ in range(model.norms))
        self.plain, self.cross = nn.ModuleList(), nn.ModuleList()
        for _ in range(model.layers):
            self.plain.append(nn.TransformerEncoderLayer(e, h, model.feedforward, **options))
        for _ in range(model.decoder_layers):
            self.cross.append(nn.TransformerDecoderLayer(e, h, model.feedforward, **options))
        for layer in (*self.plain, *self.cross):
            for name in ("self_attn", "multihead_attn"):
                if hasattr(layer, name):
                    setattr(layer, name, attention(model, fused))
        if model.output == "own":
            self.own = nn.Linear(e, model.vocabulary, bias=False)

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
        if self.model.output == "own":
            return self.own(x)
        return x @ self.embed.weight.T if self.model.output == "tied" else x


MODELS = [
    Model(24, 4, 7, 2, 3, 11, positions=9, norms=2),
    Model(24, 4, 7, 2, 1, 11, positions=9, norms=2, output="own", bias=False),
    Model(20, 5, 9, 3, 0, 13, positions=8, norms=1, activation="gelu"),
    Model(24, 4, 7, 2, 3, 11, positions=9, norms=2, num_kv_heads=2),
    Model(24, 4, 7, 2, 0, 11, positions=9, norms=1, latent_dim=10, rotary_dim=2),
    Model(6, 1, 4, 2, 2, 5, positions=8, output="none"),
]


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_whole_models(model: Model, norm_first: bool) -> None:
    for b, n in ((2, 3), (1, 5)):
        source, target = torch.randint(model.vocabulary, (2, b, n))
        for fused in (False, True):
            module = Whole(model, fused, norm_first)
            formula = sum(model.kept(n, b, fused=fused).values())
            assert kept(module, source, target) == formula
        assert numel(module) == sum(model.parameters().values())
        forward = sum(model.flops(n, b).values())
        found = flops(module, source, target)
        assert found == (forward, counting.backward_flops(forward))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_the_books_own_model(shared: bool, norm_first: bool) -> None:
    model = Model(24, 4, 7, 2, 3, 11, norms=2, embeddings=2 - shared)
    model = replace(model, output="tied" if shared else "own")
    b, n = 2, 5
    source, target = torch.randint(model.vocabulary, (2, b, n))
    for fused, attention in ((False, Readable), (True, MultiheadAttention)):
        module = Seq2SeqTransformer(
            11, 11, 24, 4, 2, 3, 7, 0.0,
            share_embeddings=shared, norm_first=norm_first, attention=attention,
        )  # fmt: skip
        assert kept(module, source, target) == sum(model.kept(n, b, fused=fused).values())
    assert numel(module) == sum(model.parameters().values())
    forward = sum(model.flops(n, b).values())
    assert flops(module, source, target) == (forward, counting.backward_flops(forward))


def test_parts_of_a_model() -> None:
    """What belongs to which part, counted by PyTorch module by module."""
    model = MODELS[0]
    b, n = 2, 3
    module = Whole(model, fused=False, norm_first=True)
    source, target = torch.randint(model.vocabulary, (2, b, n))
    with FlopCounterMode(display=False, depth=9) as counter:
        module(source, target)
    counts: dict[str, int] = {}
    for name, operations in counter.get_flop_counts().items():
        counts[name.rpartition(".")[2]] = counts.get(name.rpartition(".")[2], 0) + sum(
            operations.values()
        )
    found = model.flops(n, b)
    assert counts["linear1"] + counts["linear2"] == found["feed-forward"]
    attention = counts["self_attn"] + counts["multihead_attn"]
    assert attention == found["projections"] + found["scores and mix"]
    products = [m for name, m in module.named_modules() if name.endswith("attn")]
    assert model.parameters()["projections"] == sum(map(numel, products))
    norms = [m for m in module.modules() if isinstance(m, nn.LayerNorm)]
    assert model.parameters()["norms"] == sum(map(numel, norms))
    assert found["embeddings, output"] == counting.product_flops(b * n, 24, 11)
    attentions = model.layers + 2 * model.decoder_layers
    for fused, m in ((False, n), (True, 1)):
        assert model.kept(n, b, fused=fused)["scores and mix"] == attentions * b * 4 * n * m


def test_generating_with_a_cache() -> None:
    """One more token through layers with a cache, the way a decoder-only model generates."""
    model = Model(24, 4, 7, 3, 0, 11)
    b, e, h = 2, model.embed_dim, model.num_heads
    modules = [MultiheadAttention(e, h, batch_first=True) for _ in range(model.layers)]
    networks = [nn.Sequential(nn.Linear(e, 7), nn.ReLU(), nn.Linear(7, e)) for _ in modules]
    embed = nn.Embedding(11, e)
    caches: list[Any] = [None] * model.layers
    for length in range(1, 6):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            x = embed(torch.randint(11, (b, 1)))
            for i, (module, network) in enumerate(zip(modules, networks, strict=True)):
                q, *new = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
                caches[i] = (
                    [torch.cat(old, 1) for old in zip(caches[i], new, strict=True)]
                    if (caches[i])
                    else new
                )
                parts = (t.unflatten(-1, (h, -1)).transpose(1, 2) for t in (q, *caches[i]))
                heads = F.scaled_dot_product_attention(*parts)
                x = network(x + module.out_proj(heads.transpose(1, 2).flatten(2)))
            x @ embed.weight.T
        assert counter.get_total_flops() == sum(model.step_flops(length, b).values())
        assert sum(t.numel() for cache in caches for t in cache) == model.cache(length, b)


@pytest.mark.parametrize("model", MODELS[3:5], ids=["groups", "latents"])
def test_generating_with_less_to_keep(model: Model) -> None:
    """Groups of queries share heads of keys, or latents are kept and the absorbed form is taken."""
    model = replace(model, decoder_layers=0)
    b, m, e, h = 2, 5, model.embed_dim, model.num_heads
    found, numbers = counting.product_flops(b, e, model.vocabulary), 0
    for _ in range(model.layers):
        cache = KVCache()
        if model.latent_dim:
            module: nn.Module = LatentAttention(
                e, h, model.latent_dim, model.rotary_dim, batch_first=True
            )
            options = {"absorb": True}
        else:
            module = CachedGroups(e, h, num_kv_heads=model.num_kv_heads, batch_first=True)
            options = {}
        module(randn(b, m - 1, e), cache)
        found += flops(module, randn(b, 1, e), cache, need_weights=True, **options)[0]
        found += counting.feedforward_flops(1, e, model.feedforward, b=b)
        numbers += cache.numel()
    assert sum(model.step_flops(m, b).values()) == found
    assert model.cache(m, b) == numbers


def test_generating_with_cross_attention() -> None:
    """A decoder's step: its own keys and values and those of the source are both in caches."""
    model = Model(24, 4, 7, 2, 3, 11)
    b, m, e = 2, 5, 24
    row, keys = randn(b, 1, e), randn(b, m, e)
    weight = randn(e, e)

    def step() -> Tensor:
        x = row
        for _ in range(model.decoder_layers):
            for projections in (4, 2):
                for _ in range(projections):
                    x = x @ weight
                x = (x @ keys.mT) @ keys
            x = (x @ randn(e, 7)) @ randn(7, e)
        return x @ randn(e, 11)

    assert flops(step)[0] == sum(model.step_flops(m, b).values())
    assert model.cache(m, b) == model.decoder_layers * 2 * 2 * keys.numel()


# As their authors' code has them; BERT's with two segments, without its pooler.
REFERENCES = {
    "bert-base": {},
    "bert-large": {
        "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "gpt2": {},
    "gpt2-xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
}  # fmt: skip


@pytest.mark.parametrize("name", REFERENCES)
def test_presets_with_public_code(name: str) -> None:
    import transformers  # for seconds, and for this test alone

    with torch.device("meta"):
        if name.startswith("bert"):
            config = transformers.BertConfig(**REFERENCES[name])
            reference = transformers.BertModel(config, add_pooling_layer=False)
        else:
            config = transformers.GPT2Config(**REFERENCES[name])
            reference = transformers.GPT2LMHeadModel(config)
    assert sum(PRESETS[name].parameters().values()) == numel(reference)
    heads = config.num_attention_heads
    assert PRESETS[name].num_heads == heads


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big"])
def test_presets_with_pytorchs_transformer(name: str) -> None:
    model = PRESETS[name]
    e, h, f = {"transformer-base": (512, 8, 2048), "transformer-big": (1024, 16, 4096)}[name]
    assert (model.embed_dim, model.num_heads, model.feedforward) == (e, h, f)
    reference = nn.Transformer(e, h, 6, 6, f, batch_first=True, device="meta")
    final_norms = 2 * counting.norm_parameters(e)  # the paper's model has none
    embeddings = model.vocabulary * e
    assert sum(model.parameters().values()) == numel(reference) - final_norms + embeddings


def test_the_crossover() -> None:
    for e in (6, 10, 64):
        for g in (None, 1):
            model, equal = (
                Model(e, 2, 4 * e, 1, 1, num_kv_heads=g),
                2 * e if g is None else 3 * e // 2,
            )
            for length, sign in ((equal - 1, -1), (equal, 0), (equal + 1, 1)):
                counts = model.flops(length)
                difference = counts["scores and mix"] - counts["projections"]
                assert (difference > 0) - (difference < 0) == sign
            assert model.crossover() == equal
    latent = Model(64, 2, 9, 1, 0, latent_dim=11, rotary_dim=4)
    below, above = (latent.flops(latent.crossover() - x) for x in (1, 0))
    assert below["scores and mix"] < below["projections"]
    assert above["scores and mix"] >= above["projections"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embed_dim": 10, "num_heads": 4}, r"embed_dim \(10\) must be divisible by num_heads"),
        ({"feedforward": 0}, r"feedforward \(0\) must be at least 1"),
        ({"vocabulary": -3}, r"vocabulary \(-3\) must be at least 1"),
        ({"layers": -1}, r"layers \(-1\) must be at least 0"),
        ({"layers": 0, "decoder_layers": 0}, r"must not both be 0"),
        ({"output": "all"}, r"output \('all'\) must be one of"),
        ({"activation": "tanh"}, r"activation \('tanh'\) must be one of"),
        ({"num_kv_heads": 0}, r"num_kv_heads \(0\) must be at least 1"),
        ({"num_kv_heads": 3}, r"num_heads \(8\) must be divisible by num_kv_heads \(3\)"),
        ({"latent_dim": 9}, r"rotary_dim \(None\) must be given with latent_dim \(9\)"),
        ({"rotary_dim": 4}, r"rotary_dim \(4\) must be None without latent_dim"),
        ({"latent_dim": 0, "rotary_dim": 4}, r"latent_dim \(0\) must be at least 1"),
        ({"latent_dim": 9, "rotary_dim": 3}, r"rotary_dim \(3\) must be even"),
        ({"latent_dim": 9, "rotary_dim": 4}, r"decoder_layers \(6\) must be 0 with latent_dim"),
        (
            {"latent_dim": 9, "rotary_dim": 4, "decoder_layers": 0, "num_kv_heads": 2},
            r"num_kv_heads \(2\) must be None with latent_dim \(9\)",
        ),
    ],
)
def test_bad_sizes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Model(**change)


def test_sizes_of_the_wrong_type() -> None:
    for name in ("layers", "num_kv_heads"):
        with pytest.raises(TypeError, match=rf"{name} \(2.0\) must be an integer"):
            Model(**{name: 2.0})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"latent_dim \('9'\) must be an integer"):
        Model(latent_dim="9", rotary_dim=4, decoder_layers=0)  # type: ignore[arg-type]
    for count in (Model().flops, Model().kept, Model().step_flops, Model().cache):
        with pytest.raises(ValueError, match=r"length \(0\) must be at least 1"):
            count(0)
        with pytest.raises(TypeError, match=r"batch \(True\) must be an integer"):
            count(3, True)


def test_short_numbers() -> None:
    shown = {
        0: "0 B", 999: "999 B", 1000: "1.00 kB", 1005: "1.01 kB", 10_049: "10.0 kB",
        63_082_496: "63.1 MB", 999_499: "999 kB", 999_500: "1.00 MB", 10**24: "1.00 YB",
    }  # fmt: skip
    assert {number: short(number, "B") for number in shown} == shown
    assert short(7) == "7"
    assert short(12_345) == "12.3 k"
    assert [share(part, 8) for part in (0, 1, 4, 8)] == ["0 %", "13 %", "50 %", "100 %"]


def test_what_the_table_says() -> None:
    model, n, b, width = MODELS[0], 500, 3, 2
    total = {
        "parameters": sum(model.parameters().values()),
        "forward": sum(model.flops(n, b).values()),
        "kept": width * sum(model.kept(n, b).values()),
        "kept, fused": width * sum(model.kept(n, b, fused=True).values()),
    }
    units = {"parameters": "", "forward": "FLOP", "kept": "B", "kept, fused": "B"}
    header, *_, last = counting.rows(model, n, b, width)
    found = dict(zip(header, last, strict=True))
    assert {name: found[name] for name in total} == {
        name: short(number, units[name]) for name, number in total.items()
    }
    said = " ".join(counting.notes(model, n, b, width))
    weights = total["parameters"] * width
    assert f"take {short(weights, 'B')}; with gradients" in said
    assert f"averages {short(4 * weights, 'B')}." in said
    assert f"backward: {short(3 * total['forward'], 'FLOP')}." in said
    assert "length 2e = 48." in said
    assert f"a cache: {short(sum(model.step_flops(n, b).values()), 'FLOP')};" in said
    assert f"holds {short(width * model.cache(n, b), 'B')}." in said
    assert "cache" not in " ".join(counting.notes(MODELS[-1], n))
    less = " ".join(counting.notes(model, n, b, 4, cache_width=1))
    assert f"holds {short(model.cache(n, b), 'B')}." in less
    assert "overtake them at length 36." in " ".join(counting.notes(MODELS[3], n))


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--embed-dim", "24", "--num-heads", "4", "--layers", "0", "--length", "7"])
    printed = capsys.readouterr().out
    model = Model(24, 4, layers=0)
    assert printed == counting.table(model, 7) + "\n"
    lines = printed.splitlines()
    assert len({len(line) for line in lines[: len(counting.PARTS) + 2]}) == 1  # aligned
    assert f"{sum(model.parameters().values()):,} parameters take" in printed
    command.main(["--preset", "bert-base", "--bytes", "2", "--batch", "3"])
    assert capsys.readouterr().out == counting.table(PRESETS["bert-base"], 512, 3, 2) + "\n"
    command.main(["--preset", "gpt2", "--num-kv-heads", "4", "--cache-bytes", "1"])
    grouped = replace(PRESETS["gpt2"], num_kv_heads=4)
    assert capsys.readouterr().out == counting.table(grouped, 512, cache_width=1) + "\n"
    command.main(["--preset", "gpt2", "--latent-dim", "256", "--rotary-dim", "32"])
    latent = replace(PRESETS["gpt2"], latent_dim=256, rotary_dim=32)
    assert capsys.readouterr().out == counting.table(latent, 512) + "\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--embed-dim", "10"], "error: embed_dim (10) must be divisible by num_heads (8)"),
        (["--length", "0"], "error: length (0) must be at least 1"),
        (["--bytes", "0"], "error: bytes (0) must be at least 1"),
        (["--cache-bytes", "0"], "error: cache_bytes (0) must be at least 1"),
        (["--num-kv-heads", "3"], "error: num_heads (8) must be divisible by num_kv_heads (3)"),
        (["--latent-dim", "9"], "error: rotary_dim (None) must be given with latent_dim (9)"),
        (["--length", "many"], "error: argument --length: invalid int value: 'many'"),
        (["--preset", "gpt9"], "argument --preset: invalid choice: 'gpt9'"),
    ],
)
def test_bad_arguments(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err

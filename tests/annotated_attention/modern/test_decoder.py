"""The language model: what the tests of ``pretrained`` cannot see, and what is written with it.

That it computes what Llama, Mistral and Qwen compute is proved there, on their checkpoints.
"""

from functools import partial
from unittest.mock import create_autospec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_attention.modern import (
    KVCache,
    LanguageModel,
    PagedCache,
    Settings,
    WindowCache,
    choose,
    generate,
)
from annotated_attention.modern import decoder as decoder_module
from annotated_attention.modern.rotary import RotaryEmbedding, rotate
from annotated_attention.pretrained import attention_weights
from tests.settings import REPRODUCIBLE

SIZES = {
    "vocab_size": 29,
    "embed_dim": 20,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 6,
    "hidden_dim": 14,
}
MIXED = {"layer_types": ("sliding_attention", "full_attention", "sliding_attention"), "window": 2}
TOKENS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 8]])
PADDING = torch.tensor([[False] * 5, [True, True, False, False, False]])


def made(**changes):
    torch.random.default_generator.manual_seed(4)
    return LanguageModel(Settings(**SIZES | changes)).double()


def test_partial_rotation_turns_the_first_features():
    turned, still = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 2)
    angles = RotaryEmbedding(4).angles(torch.arange(5))
    found = decoder_module.rotate_part(torch.cat([turned, still], -1), *angles)
    assert found.equal(torch.cat([rotate(turned, *angles), still], -1))
    model = made(rotary_dim=4, rotary_base=90.0)
    assert (model.rotary.head_dim, model.rotary.base) == (4, 90.0)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_queries_and_keys_are_normed_where_it_is_asked_for(qk_norm):
    attention = made(qk_norm=qk_norm).layers[0].self_attn
    normed = {name for name, _ in attention.named_parameters() if "norm" in name}
    assert normed == ({"q_norm.weight", "k_norm.weight"} if qk_norm else set())


def test_rotations_and_masks_are_computed_once(monkeypatch):
    """The one for all layers, the others for each kind of layer."""
    counted = []
    for place, name in ((RotaryEmbedding, "angles"), (decoder_module, "block_by_position")):
        counted.append(create_autospec(real := getattr(place, name), side_effect=real))
        monkeypatch.setattr(place, name, counted[-1])
    model = made(num_layers=4, window=2, layer_types=MIXED["layer_types"] + ("full_attention",))
    model(TOKENS, None, PADDING)
    assert [calls.call_count for calls in counted] == [1, 1 + 3]  # 2, 2 and 1 of the 5 queries


def test_no_mask_where_none_is_needed():
    """Nor a copy of shared heads, nor a key outside the window: what ``attend`` is given."""
    model, caches = made(**MIXED), [KVCache() for _ in range(3)]
    given = []

    def noting(usual, q, k, v, blocked, need_weights):
        assert k.size(1) == v.size(1) == 2
        given.append((q.size(2), k.size(2), blocked is not None))
        return usual(q, k, v, blocked, need_weights)

    for layer in model.layers[:2]:  # one with a window of 2, one without
        layer.self_attn.attend = partial(noting, layer.self_attn.attend)
    for tokens, expected in (
        (TOKENS, [(2, 2, False), (2, 3, True), (1, 2, False), (5, 5, False)]),
        (TOKENS[:, :1], [(1, 2, False), (1, 6, False)]),
        (TOKENS[:, :2], [(2, 3, True), (2, 8, True)]),
    ):
        given.clear()
        model(tokens, caches)
        assert given == expected


def test_padding_counts_no_position_wherever_it_stands():
    """A prompt that is padded on the right leaves a gap before what follows."""
    hidden = torch.tensor([[False, False, True, True, False]])
    model, real = made(), ~hidden[0]
    found = model(TOKENS[:1], None, hidden)[:, real]
    torch.testing.assert_close(found, model(TOKENS[:1, real]))


def test_without_rotation_one_layer_knows_no_order():
    model = made(num_layers=1)
    model.rotary = None
    turned = TOKENS[:, [3, 0, 2, 1, 4]]
    torch.testing.assert_close(model(TOKENS)[:, -1], model(turned)[:, -1])
    rotated = made(num_layers=1)
    assert not torch.allclose(rotated(TOKENS)[:, -1], rotated(turned)[:, -1])


def test_rows_of_different_lengths_in_pages():
    """Sequences go on at their own places; each equals the one that is alone."""
    model = made(**MIXED)
    caches = [PagedCache(9, 2, 2, 6, dtype=torch.float64) for _ in model.layers]
    with torch.no_grad():
        model(TOKENS[:, :4], caches)
        for cache in caches:
            cache.crop([4, 2])
        logits = model(TOKENS[:, 3:], caches)
    for row, begun in enumerate((4, 2)):
        alone = torch.cat([TOKENS[row, :begun], TOKENS[row, 3:]])[None]
        torch.testing.assert_close(logits[row], model(alone)[0, begun:])


def test_heads_can_be_looked_at_and_silenced():
    """The weights are what the values are mixed with; W_O reads the heads side by side."""
    model, mixed = made(num_layers=1), []
    block = model.layers[0].self_attn
    silenced = lambda _, given: given[0].index_fill(-1, torch.arange(6, 12), 0)  # noqa: E731
    hook = block.o_proj.register_forward_pre_hook(silenced)
    found = model(TOKENS)
    hook.remove()
    usual = block.attend

    def attend(q, k, v, blocked, need_weights):
        heads, weights = usual(q, k, v, blocked, need_weights)
        if weights is not None:
            mixed.append((heads, weights @ v.repeat_interleave(2, 1)))
        return heads.index_fill(1, torch.tensor([1]), 0), weights

    block.attend = attend
    torch.testing.assert_close(found, model(TOKENS))
    with attention_weights(model) as weights:
        model(TOKENS, None, PADDING)
    torch.testing.assert_close(*mixed[0])
    assert weights[0].shape == (2, 4, 5, 5)
    assert weights[0].triu(1).eq(0).all()
    assert weights[0][1, :, :, :2].eq(0).all()


@settings(REPRODUCIBLE, max_examples=12)
@given(
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    top_k=st.sampled_from([None, 1, 3, 99]),
    top_p=st.sampled_from([None, 0.4, 0.9, 1.0]),
    mixed=st.booleans(),
    stops=st.booleans(),
)
def test_what_is_written(temperature, top_k, top_p, mixed, stops):
    """The same from one seed, with a cache and without; a row that stops repeats its stop."""
    model = made(**MIXED if mixed else {})
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}

    def written(steps=9, **more):
        drawn = generate(
            model,
            TOKENS,
            steps,
            key_padding_mask=PADDING,
            **options | more,
            generator=torch.Generator().manual_seed(8),
        )
        return torch.stack([*drawn], 1)

    whole = written()
    assert whole.shape == (2, 9)
    assert not whole.requires_grad
    assert whole.equal(written(use_cache=False))
    if not temperature:  # each row as if it were alone
        alone = torch.stack([*generate(model, TOKENS[1:, 2:], 9)], 1)
        assert whole[1:].equal(alone)
    if stops:
        stop = int(whole[1, 2])
        first = [row.index(stop) if stop in row else 9 for row in whole.tolist()]
        shorter = written(stops={stop})
        assert shorter.size(1) == min(9, max(first) + 1)
        for row, at in enumerate(first):
            assert shorter[row, : at + 1].equal(whole[row, : shorter.size(1)][: at + 1])
            assert shorter[row, at:].eq(stop).all()


def test_choices_are_those_of_transformers():
    """Only what is left by its filters is drawn, as often as it should be."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = torch.randn(1, 11, generator=torch.Generator().manual_seed(1))
    filtered = TemperatureLogitsWarper(0.8)(None, logits)
    filtered = TopPLogitsWarper(0.9)(None, TopKLogitsWarper(6)(None, filtered))
    many = logits.expand(20_000, -1)
    drawn = choose(many, 0.8, 6, 0.9, torch.Generator().manual_seed(2))
    shares = drawn.bincount(minlength=11) / len(many)
    assert shares.gt(0).equal(filtered[0].isfinite())
    torch.testing.assert_close(shares, filtered[0].softmax(-1), rtol=0, atol=0.02)


def test_tokens_come_one_by_one():
    """Nothing is computed that nobody asks for, and the mode of gradients stays the caller's."""
    model = made()
    tokens = generate(model, TOKENS, 10**9)
    assert next(tokens).shape == next(tokens).shape == (2,)
    assert torch.is_grad_enabled()


MODEL = made()


def set_(**changes):
    return lambda: Settings(**SIZES | changes)


def write(*given, **options):
    return lambda: generate(MODEL, *(given or (TOKENS, 2)), **options)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (set_(vocab_size=2.0), TypeError, r"vocab_size \(2.0\) must be an integer"),
        (set_(window=0), ValueError, r"window \(0\) must be at least 1"),
        (set_(num_kv_heads=3), ValueError, r"num_heads \(4\) must be divisible by num_kv_heads"),
        (set_(norm_eps="0"), TypeError, r"norm_eps \('0'\) must be a number"),
        (set_(norm_eps=0.0), ValueError, r"norm_eps \(0.0\) must be above 0"),
        (set_(activation="swish"), ValueError, r"activation \('swish'\) must be one of silu, gelu"),
        (set_(rotary_dim=8), ValueError, r"rotary_dim \(8\) must be even, and at most head_dim"),
        (set_(rotary_dim=3), ValueError, r"rotary_dim \(3\) must be even"),
        (set_(rotary_base=1.0), ValueError, r"base \(1.0\) must be above 1"),
        (set_(layer_types=MIXED["layer_types"]), ValueError, r"window \(None\) must be given"),
        (set_(layer_types=("full_attention",) * 3, window=2), ValueError, "and only there"),
        (set_(layer_types=("full_attention",)), ValueError, "must be the kinds of 3 layers"),
        (set_(layer_types=("conv",) * 3), ValueError, r"'conv' must be one of full_attention"),
        (lambda: MODEL([[1]]), TypeError, "tokens must be a tensor"),
        (lambda: MODEL(TOKENS.float()), TypeError, "tokens must be int64 or int32"),
        (lambda: MODEL(TOKENS[:, :0]), ValueError, r"shape \(b, n\), got \(2, 0\)"),
        (lambda: MODEL(TOKENS, [KVCache()]), ValueError, r"caches \(1\) must be as many as the la"),
        (lambda: MODEL(TOKENS, [WindowCache(2)] * 3), ValueError, r"\[0\] \(window 2, sinks 0\)"),
        (lambda: MODEL(TOKENS, None, PADDING.long()), TypeError, "key_padding_mask must be bool"),
        (lambda: MODEL(TOKENS, None, PADDING[:, 1:]), ValueError, r"\(b, m\) = \(2, 5\)"),
        (write(TOKENS[0], 2), ValueError, r"tokens must have shape \(b, n\), got \(5,\)"),
        (write(TOKENS, 0), ValueError, r"steps \(0\) must be at least 1"),
        (write(temperature=-1), ValueError, r"temperature \(-1\)"),
        (write(temperature="1"), TypeError, "not supported between instances of 'str' and"),
        (write(top_k=0), ValueError, r"top_k \(0\) must be at least"),
        (write(top_p=0), ValueError, r"top_p \(0\) must be above 0"),
        (write(stops=["x"]), TypeError, "stops must be integers"),
        (write(key_padding_mask=PADDING.flip(1)), ValueError, "pad on the left"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, words):
    """Before anything is computed."""
    with pytest.raises(error, match=words):
        call()

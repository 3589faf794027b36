"""The attentions inside a model are found, and each is asked with the model's own arguments."""

import functools
import itertools
import math
from functools import partial

import pytest
import torch
from torch import nn

from annotated_attention import Transformer
from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import (
    CachedAttention,
    GroupedQueryAttention,
    LatentAttention,
    RotaryAttention,
)
from attention_doctor import examine_model

B, N, M, E, H = 2, 7, 6, 24, 4
SIZES = {
    "hidden_size": E, "num_attention_heads": H, "num_hidden_layers": 3, "intermediate_size": 32,
}  # fmt: skip
IDS = torch.randint(5, 50, (B, N), generator=torch.Generator().manual_seed(0))
PADDED = torch.ones(B, N, dtype=torch.long)
PADDED[0, 5:] = 0


def bert(implementation):
    import transformers

    settings = transformers.BertConfig(vocab_size=50, attn_implementation=implementation, **SIZES)
    return transformers.BertModel(settings), {"input_ids": IDS, "attention_mask": PADDED}


def gpt2(implementation):
    import transformers

    settings = transformers.GPT2Config(
        vocab_size=50, n_embd=E, n_head=H, n_layer=3, attn_implementation=implementation
    )
    return transformers.GPT2Model(settings), {"input_ids": IDS}


def llama(implementation):
    import transformers

    settings = transformers.LlamaConfig(
        vocab_size=50, num_key_value_heads=2, attn_implementation=implementation, **SIZES
    )
    return transformers.LlamaModel(settings), {"input_ids": IDS, "attention_mask": PADDED}


def qwen3(implementation):
    import transformers

    settings = transformers.Qwen3Config(
        vocab_size=50, num_key_value_heads=2, head_dim=8, attn_implementation=implementation,
        **SIZES,
    )  # fmt: skip
    return transformers.Qwen3Model(settings), {"input_ids": IDS}


def mixtral(implementation):
    import transformers

    """Its routers have a softmax, too."""
    settings = transformers.MixtralConfig(
        vocab_size=50, num_key_value_heads=2, num_local_experts=N,
        attn_implementation=implementation, **SIZES,
    )  # fmt: skip
    return transformers.MixtralModel(settings), {"input_ids": IDS}


def distilbert(implementation):
    import transformers

    settings = transformers.DistilBertConfig(
        vocab_size=50, dim=E, n_heads=H, n_layers=3, hidden_dim=32,
        attn_implementation=implementation,
    )  # fmt: skip
    return transformers.DistilBertModel(settings), {"input_ids": IDS, "attention_mask": PADDED}


def vit(implementation):
    import transformers

    settings = transformers.ViTConfig(
        image_size=8, patch_size=4, attn_implementation=implementation, **SIZES
    )
    return transformers.ViTModel(settings), {"pixel_values": torch.randn(2, 3, 8, 8)}


def whisper(implementation):
    import transformers

    settings = transformers.WhisperConfig(
        vocab_size=50, d_model=E, encoder_layers=3, encoder_attention_heads=H,
        encoder_ffn_dim=32, num_mel_bins=8, max_source_positions=10, pad_token_id=0,
        decoder_start_token_id=1,
        attn_implementation=implementation,
    )  # fmt: skip
    model = transformers.WhisperModel(settings).encoder
    return model, {"input_features": torch.randn(2, 8, 20)}


def t5(_):
    import transformers

    settings = transformers.T5Config(
        vocab_size=50, d_model=E, num_heads=H, d_kv=E // H, d_ff=32, num_layers=3
    )
    return transformers.T5EncoderModel(settings), {"input_ids": IDS, "attention_mask": PADDED}


def bloom(_):
    import transformers

    """Its attention adds a residual that it is given, and takes the distances as a bias."""
    settings = transformers.BloomConfig(vocab_size=50, hidden_size=E, n_head=H, n_layer=3)
    return transformers.BloomModel(settings), {"input_ids": IDS}


def bart(implementation):
    import transformers

    """Its decoder attends to what the encoder has made of the padded input."""
    settings = transformers.BartConfig(
        vocab_size=50, d_model=E, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=H, decoder_attention_heads=H,
        attn_implementation=implementation,
    )  # fmt: skip
    inputs = {"input_ids": IDS, "attention_mask": PADDED, "decoder_input_ids": IDS[:, :5]}
    return transformers.BartModel(settings), inputs


MODELS = [bert, gpt2, llama, qwen3, mixtral, distilbert, vit, whisper, bart, t5, bloom]


@functools.cache
def examined(build, implementation):
    torch.manual_seed(0)
    model, inputs = build(implementation)
    return model, examine_model(model, **inputs)


@pytest.mark.parametrize(
    ("build", "implementation"),
    [
        *itertools.product(MODELS, ["eager"]),
        *itertools.product([bert, gpt2, llama, bart], ["sdpa"]),
    ],
)  # the others call the same function
def test_every_attention_of_a_model_is_found_and_right(build, implementation):
    model, found = examined(build, implementation)
    assert found.ok, found
    assert len(found) == 3
    assert not found.not_examined
    kinds = {t5: 2, bart: 3}  # the first layer of T5 makes the biases of all
    assert len(found.examined) == kinds.get(build, 1)
    assert all("Attention" in type(model.get_submodule(path)).__name__ for path in found)


def test_a_family_without_a_scale_is_not_called_wrong():
    import transformers

    torch.manual_seed(0)
    settings = transformers.T5Config(
        vocab_size=50, d_model=E, num_heads=H, d_kv=E // H, d_ff=32, num_layers=1
    )
    found = examine_model(transformers.T5Model(settings), IDS, decoder_input_ids=IDS[:, :5])
    assert found.ok, found
    assert all("no-scale" in report.codes for report in found.values())


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch's, of its own default
@pytest.mark.parametrize(
    ("transformer", "batch_first"), [(nn.Transformer, False), (Transformer, True)]
)
def test_self_attention_and_both_of_a_decoder(transformer, batch_first):
    torch.manual_seed(0)
    model = transformer(E, H, 2, 2, 32, batch_first=batch_first)
    source, target = torch.randn(B, N, E), torch.randn(B, M, E)
    turn = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    found = examine_model(model, turn(source), turn(target))
    assert found.ok, found
    assert [*found] == [
        "encoder.layers.0.self_attn", "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn",
        "decoder.layers.1.self_attn", "decoder.layers.1.multihead_attn",
    ]  # fmt: skip
    assert [report.version for report in found.values()] == ["right"] * 6
    assert found["encoder.layers.0.self_attn"] is found["encoder.layers.1.self_attn"]
    assert found["encoder.layers.0.self_attn"].name == (
        "MultiheadAttention at encoder.layers.0.self_attn × 2"
    )


class Rotated(nn.Module):
    """A causal self-attention that is given rotation and mask, and may make a mistake."""

    def __init__(self, mistake=""):
        super().__init__()
        self.mistake = mistake
        self.q, self.k, self.v, self.o = (nn.Linear(E, E) for _ in range(4))

    def forward(self, x, rotation, mask):
        def split(x):
            return x.unflatten(-1, (H, -1)).transpose(1, 2)

        def turn(x):
            one, two = x.chunk(2, -1)
            return x * rotation[0] + torch.cat([-two, one], -1) * rotation[1]

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        q = q if self.mistake == "none turned" else turn(q)
        k = k if self.mistake in ("none turned", "queries turned") else turn(k)
        scores = q @ k.mT / math.sqrt(E // H)
        hidden = mask if self.mistake == "inverted" else ~mask
        scores = scores.masked_fill(hidden, -math.inf) if self.mistake != "ignored" else scores
        heads = scores.softmax(-1) @ v
        heads = heads if self.mistake == "merge" else heads.transpose(1, 2)
        return self.o(heads.reshape(x.shape))


def angles(n):
    """Give cosines and sines, each (1, n, d)."""
    d = E // H
    turns = torch.outer(torch.arange(n), 100 ** (-torch.arange(0, d, 2) / d)).repeat(1, 2)
    return turns.cos()[None], turns.sin()[None]


class Model(nn.Module):
    """Gives its attention what a model of today gives: rotations and a causal mask."""

    def __init__(self, *mistakes, diagonal=0):
        super().__init__()
        self.diagonal = diagonal
        self.layers = nn.ModuleList(Rotated(mistake) for mistake in mistakes)

    def forward(self, x):
        n = x.size(1)
        allowed = torch.ones(n, n, dtype=torch.bool).tril(self.diagonal)[None, None]
        for layer in self.layers:
            x = x + layer(x, angles(n), allowed)
        return x


def test_rotation_and_mask_are_those_of_the_model():
    torch.manual_seed(0)
    found = examine_model(Model("", "merge", "inverted", "ignored"), torch.randn(B, N, E))
    reports = [*found.values()]
    assert reports[0].ok, reports[0]
    fine = [reports[0].results.get(test) for test in ("blocked", "equal values", "padding")]
    assert fine == ["fine"] * 3
    assert reports[1].codes == ("merge-without-transpose",)
    assert reports[1].findings[0].where.text == "return self.o(heads.reshape(x.shape))"
    assert "mask-inverted" in reports[2].codes
    assert "mask-ignored" in reports[3].codes
    assert not found.ok
    assert found.asked
    assert found.verdict == "✗ Model: 4 attentions, 4 kinds, 3 wrong"


@pytest.mark.parametrize(
    ("mistake", "code", "form"),
    [
        ("", None, "pair"),
        ("", None, "two"),
        ("", None, "complex"),
        ("queries turned", "rotates-one-side", "complex"),
        ("none turned", "positions-ignored", "two"),
    ],
)
def test_the_rotation_of_the_model_is_continued_to_other_positions(mistake, code, form):
    class Given(Rotated):
        def forward(self, x, allowed, rotation=None, cos=None, sin=None, freqs=None):
            if form == "two":
                rotation = cos, sin
            elif form == "complex":
                rotation = freqs.real, freqs.imag
            return super().forward(x, rotation, allowed)

    class Turns(Model):
        def forward(self, x):
            cos, sin = angles(x.size(1))
            forms = {"pair": {"rotation": (cos, sin)}, "two": {"cos": cos, "sin": sin},
                     "complex": {"freqs": torch.complex(cos, sin)}}  # fmt: skip
            allowed = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
            for layer in self.layers:
                x = x + layer(x, allowed, **forms[form])
            return x

    torch.manual_seed(0)
    model = Turns("")
    model.layers = nn.ModuleList([Given(mistake)])
    found = examine_model(model, torch.randn(B, N, E))["layers.0"]
    assert found.ok == (code is None), found
    assert found.results["rotation"] == ("wrong" if code else "fine")
    assert code is None or found.codes[0] == code


def test_layers_that_go_without_positions_are_a_convention_beside_others():
    torch.manual_seed(0)
    found = examine_model(Model("", "none turned"), torch.randn(B, N, E))
    assert found.ok, found
    assert "positions-ignored" in found["layers.1"].codes
    assert not examine_model(Model("none turned", "none turned"), torch.randn(B, N, E)).ok


@pytest.mark.parametrize(
    ("diagonal", "code"), [(0, None), (1, "causal-off-by-one"), (-1, "causal-hides-itself")]
)
def test_the_mask_that_the_model_makes_is_looked_at(diagonal, code):
    torch.manual_seed(0)
    found = examine_model(Model("", diagonal=diagonal), torch.randn(B, N, E))["layers.0"]
    assert found.ok == (code is None)
    assert code is None or found.codes[0] == code


def test_what_a_decoder_sees_of_its_encoder_is_asked_with_the_mask():
    found = examined(bart, "eager")[1]["decoder.layers.0.encoder_attn"]
    assert found.results["padding"] == found.results["key order"] == "fine"
    assert found.version == "right"


def test_long_inputs_are_cut():
    torch.manual_seed(0)
    model, sizes = Model(""), []
    handle = model.layers[0].q.register_forward_hook(
        lambda _, inputs, output: sizes.append(tuple(inputs[0].shape[:2]))
    )
    found = examine_model(model, torch.randn(3, 40, E))
    handle.remove()
    assert found.ok, found
    assert sizes[0] == (3, 40)
    assert max(b * n for b, n in sizes[1:]) == 12


class Hides(nn.Module):
    """Hides padding by itself: by the lengths it is given, or by a bias that the mask is in."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x, context=None, lengths=None, position_bias=None, attention_mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        if context is not None:
            _, k, v = self.qkv(context).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(E // H)
        if lengths is not None:
            hidden = torch.arange(x.size(1)) >= lengths[:, None, None, None]
            scores = scores.masked_fill(hidden, -math.inf)
        scores = scores if position_bias is None else scores + position_bias
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_hidden_padding_is_no_hidden_future():
    torch.manual_seed(0)
    found = examine_model(Hides(), torch.randn(B, N, E), lengths=torch.tensor([5, 3]))[""]
    assert found.ok, found
    assert any("does not apply to kind self" in reason for reason in found.not_examined)
    (finding,) = (x for x in found.findings if x.code == "visible-unseen")
    assert "`lengths`, which may hide them" in finding.cause


def test_a_mask_that_is_in_the_bias_already_is_not_said_to_be_ignored():
    """As T5 did: the first layer adds the mask to the bias, the others are given both."""
    torch.manual_seed(0)
    mask = torch.zeros(B, 1, 1, N).masked_fill(PADDED[:, None, None] == 0, -1e9)
    bias = torch.randn(1, H, N, N) + mask
    found = examine_model(
        Hides(), torch.randn(B, N, E), position_bias=bias, attention_mask=mask
    )[""]  # fmt: skip
    assert found.ok, found
    assert "order-matters" in found.codes
    bias = torch.zeros(1, H, M, N) + mask
    found = examine_model(
        Hides(), torch.randn(B, M, E), torch.randn(B, N, E), position_bias=bias
    )[""]  # fmt: skip
    assert found.ok, found
    assert found.results["key order"] == "fine"


class Fixed(nn.Module):
    """Works at one length only."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(N, N))
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x, attention_mask):
        assert attention_mask.shape == (len(x), 1, 1, N)
        q, k, v = self.qkv(x).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(E // H) + self.bias + attention_mask
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_what_works_at_one_length_only_is_asked_at_that_length():
    torch.manual_seed(0)
    mask = torch.zeros(B, 1, 1, N)
    found = examine_model(Fixed(), torch.randn(B, N, E), attention_mask=mask)
    assert found.ok, found
    assert found[""].name == "Fixed at the top"
    assert "another number of samples or tokens" in str(found[""])
    assert found[""].results["blocked"] == "fine"


@pytest.mark.parametrize("code", ["merge-without-transpose", "no-scale"])
def test_a_mistake_in_one_layer_is_named(code):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, H, 32, batch_first=True), 3, enable_nested_tensor=False
    )
    model.layers[1].self_attn = MISTAKES[code].version(E, H, batch_first=True)
    found = examine_model(model, torch.randn(B, N, E))
    assert [path for path, report in found.items() if not report.ok] == ["layers.1.self_attn"]
    assert code in found["layers.1.self_attn"].codes


class Layer(nn.Module):
    """Gives an attention what it is called with: a sequence once, or thrice."""

    def __init__(self, attention, times):
        super().__init__()
        self.attention, self.times = attention, times

    def forward(self, x):
        return x + self.attention(*(x,) * self.times)[0]


@pytest.mark.parametrize(
    ("attention", "times", "batch_first"),
    [
        (RotaryAttention, 3, False),
        (partial(GroupedQueryAttention, num_kv_heads=2), 3, True),
        (CachedAttention, 1, False),
        (partial(LatentAttention, latent_dim=8, rotary_dim=2), 1, True),
    ],
)
def test_our_attention_of_today(attention, times, batch_first):
    torch.manual_seed(0)
    model = Layer(attention(E, H, batch_first=batch_first), times)
    found = examine_model(model, torch.randn(*((B, N) if batch_first else (N, B)), E))
    assert found.ok, found
    assert [*found] == ["attention"]
    assert found["attention"].results["samples apart"] == "fine"


def test_the_model_is_left_as_it_was():
    torch.manual_seed(0)
    model, inputs = llama("sdpa")
    model.train()
    before = {name: (id(x), x.clone()) for name, x in model.state_dict(keep_vars=True).items()}
    examine_model(model, **inputs)
    assert model.training
    after = model.state_dict(keep_vars=True)
    assert all(id(after[name]) == address for name, (address, _) in before.items())
    assert all(torch.equal(after[name], value) for name, (_, value) in before.items())
    hooks = [part._forward_hooks or part._forward_pre_hooks for part in model.modules()]
    assert not any(hooks)


def test_a_model_without_attention():
    found = examine_model(nn.Sequential(nn.Linear(E, E), nn.Softmax(-1)), torch.randn(B, N, E))
    assert not found.ok
    assert not found.asked
    assert found.verdict == "✗ Sequential: no attention is found in it"


class Narrow(Rotated):
    """Returns another width than it takes."""

    def forward(self, x, rotation, mask):
        return super().forward(x, rotation, mask)[..., :1]


def test_what_cannot_be_called_again_is_said():
    model = Model("")
    model.layers[0] = Narrow()
    found = examine_model(model, torch.randn(B, N, E))
    assert not found.asked
    assert "it takes (2, 7, 24) and returns (2, 7, 1)" in str(found)
    assert found.verdict == "✗ Model: 1 attention, 1 kind, 1 could not be asked"


def test_an_attention_with_channels_first_is_said_to_be_unseen():
    class Pixels(nn.Module):
        def forward(self, x):
            return (x.mT @ x).softmax(-1)

    found = examine_model(nn.Sequential(Pixels()), torch.randn(3, B, N, E))
    assert found.not_examined == (
        "0: a softmax runs in it, and nothing around it takes hidden states of (b, n, e)",
    )
    assert "not examined\n  - 0: a softmax" in str(found)


def test_a_notebook_shows_every_report():
    torch.manual_seed(0)
    page = examine_model(Model("", "merge"), torch.randn(B, N, E))._repr_html_()
    assert "Rotated at layers.0" in page
    assert "Rotated at layers.1" in page

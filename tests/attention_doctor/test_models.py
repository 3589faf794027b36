"""The attentions of a class inside a model are examined with the model's own arguments."""

import math

import pytest
import torch
from torch import nn

from annotated_attention import Transformer
from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import GroupedQueryAttention, RotaryAttention
from attention_doctor import examine_model

B, N, M, E, H = 2, 7, 6, 24, 4
IDS = torch.randint(5, 50, (B, N), generator=torch.Generator().manual_seed(0))
PADDED = torch.ones(B, N, dtype=torch.long)
PADDED[0, 5:] = 0
SIZES = {
    "hidden_size": E, "num_attention_heads": H, "num_hidden_layers": 2, "intermediate_size": 32,
}  # fmt: skip


def build(name, **settings):
    """Make a small model of a published family."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=50, **settings)
    return getattr(transformers, f"{name}Model")(config)


MODELS = {
    "bert": (lambda: build("Bert", **SIZES), "BertSelfAttention", {"attention_mask": PADDED}),
    "gpt2": (lambda: build("GPT2", n_embd=E, n_head=H, n_layer=2), "GPT2Attention", {}),
    "llama": (lambda: build("Llama", num_key_value_heads=2, **SIZES), "LlamaAttention", {}),
    "llama, padded": (lambda: build("Llama", num_key_value_heads=2, attn_implementation="eager",
                                    **SIZES), "LlamaAttention", {"attention_mask": PADDED}),
    "qwen3": (lambda: build("Qwen3", num_key_value_heads=2, head_dim=8, **SIZES),
              "Qwen3Attention", {}),
    "gpt-oss": (lambda: build("GptOss", num_key_value_heads=2, head_dim=8, num_local_experts=2,
                              num_experts_per_tok=1, sliding_window=4, **SIZES),
                "GptOssAttention", {}),
    "t5": (lambda: _t5(), "T5Attention", {}),
}  # fmt: skip


def _t5():
    import transformers

    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=50, d_model=E, num_heads=H, d_kv=E // H, d_ff=32, num_layers=2
    )
    return transformers.T5EncoderModel(config)


@pytest.mark.parametrize("name", MODELS)
def test_every_attention_of_a_model_is_right(name):
    make, attention, options = MODELS[name]
    found = examine_model(make(), IDS, attention=attention, **options)
    assert found.ok, found
    assert len(found) == 2


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch's, of its own default
@pytest.mark.parametrize(
    ("transformer", "batch_first"), [(nn.Transformer, False), (Transformer, True)]
)
def test_self_attention_and_both_of_a_decoder(transformer, batch_first):
    torch.manual_seed(0)
    model = transformer(E, H, 2, 2, 32, batch_first=batch_first)
    source, target = torch.randn(B, N, E), torch.randn(B, M, E)
    turn = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    found = examine_model(model, turn(source), turn(target), attention="MultiheadAttention")
    assert found.ok, found
    assert [*found][1:4] == [
        "encoder.layers.1.self_attn", "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
    ]  # fmt: skip
    assert [report.version for report in found.values()] == ["right"] * 6
    assert found["encoder.layers.0.self_attn"] is found["encoder.layers.1.self_attn"]
    assert found["encoder.layers.0.self_attn"].name == (
        "MultiheadAttention at encoder.layers.0.self_attn × 2"
    )


class SelfAttention(nn.Module):
    """Hides the future by the mask that the model gives, or by itself."""

    def __init__(self, wrong=""):
        super().__init__()
        self.n_heads, self.qkv, self.out = H, nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.wrong = wrong

    def forward(self, x, attn_mask=None):
        q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(E if self.wrong == "scale" else E // H)
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask, -math.inf)
        heads = scores.softmax(-1) @ v
        return self.out(heads.reshape(x.shape) if self.wrong == "merge"
                        else heads.transpose(1, 2).flatten(2))  # fmt: skip


class Model(nn.Module):
    def __init__(self, diagonal=1, wrong=""):
        super().__init__()
        self.embedding, self.diagonal = nn.Embedding(50, E), diagonal
        self.layers = nn.ModuleList(SelfAttention(wrong) for _ in range(3))

    def forward(self, ids):
        x, n = self.embedding(ids), ids.size(1)
        for layer in self.layers:
            x = x + layer(x, torch.ones(n, n, dtype=torch.bool).triu(self.diagonal))
        return x


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, ""), ({"diagonal": 2}, "causal-off-by-one"),
        ({"wrong": "scale"}, "scale-by-model-width"),
        ({"wrong": "merge"}, "merge-without-transpose"),
    ],
)  # fmt: skip
def test_mistakes_in_a_model_are_named(options, code):
    torch.manual_seed(0)
    model = Model(**options)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found = examine_model(model, IDS, attention=SelfAttention)
    assert [*found] == ["layers.0", "layers.1", "layers.2"]
    assert len(found.examined) == 1
    assert [x.code for x in found.examined[0].findings if x.severity == "wrong"] == [code] * bool(
        code
    )
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


@pytest.mark.parametrize("code", ["", "merge-without-transpose", "rotates-one-side"])
def test_ours(code):
    torch.manual_seed(0)
    version = MISTAKES[code].version if code else GroupedQueryAttention
    if code != "rotates-one-side":
        layer = version(E, H, *[2] * (not code), batch_first=True)
    else:
        layer = version(E, H, batch_first=True)
        assert issubclass(version, RotaryAttention)

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = layer

        def forward(self, x):
            return self.attention(x, x, x, is_causal=True)[0]

    found = examine_model(Wrapped(), torch.randn(B, 5, E), attention=type(layer))
    assert found.ok == (not code)
    assert not code or code in found["attention"].codes


def test_no_attention_is_no_riddle():
    model = nn.Sequential(nn.Linear(E, E), nn.ReLU())
    found = examine_model(model, torch.randn(B, N, E), attention="Attention")
    assert not found.asked
    assert (
        "no Attention is called; name one of these: `--attention` Sequential, Linear, ReLU"
        in " ".join(str(found).split())
    )
    found = examine_model(nn.Sequential(nn.Linear(E, E)), torch.randn(B, E), attention="Linear")
    assert (found.asked, found.ok) == (False, False)
    assert "it takes hidden states of []" in str(found)

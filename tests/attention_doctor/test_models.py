"""The attentions of a class inside a model are examined with the model's own arguments."""

import pytest
import torch
from torch import nn

from annotated_attention import Transformer
from attention_doctor import examine_model
from tests.attention_doctor import demanded

B, N, M, E, H = 2, 7, 6, 24, 4
IDS = torch.randint(5, 50, (B, N), generator=torch.Generator().manual_seed(0))
PADDED = torch.ones(B, N, dtype=torch.long)
PADDED[0, 5:] = 0
SIZES = {
    "hidden_size": E,
    "num_attention_heads": H,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
}
GROUPED = {"num_key_value_heads": 2, **SIZES}
# The family, its settings, and what the model is called with besides.
MODELS = {
    "bert": ("Bert", SIZES, {"attention_mask": PADDED}),
    "gpt2": ("GPT2", {"n_embd": E, "n_head": H, "n_layer": 2}, {}),
    "llama, padded": (
        "Llama",
        {"attn_implementation": "eager", **GROUPED},
        {"attention_mask": PADDED},
    ),
    "gpt-oss": (
        "GptOss",
        {
            "head_dim": 8,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "sliding_window": 4,
            **GROUPED,
        },
        {},
    ),
    "t5": ("T5", {"d_model": E, "num_heads": H, "d_kv": E // H, "d_ff": 32, "num_layers": 2}, {}),
}


def build(name, settings):
    """Make a small model of a published family."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=50, **settings)
    return getattr(transformers, f"{name}{'Encoder' * (name == 'T5')}Model")(config)


@pytest.mark.parametrize("name", MODELS)
def test_every_attention_of_a_model_is_right(name):
    family, settings, options = MODELS[name]
    attention = f"{family}{'Self' * (family == 'Bert')}Attention"
    found = examine_model(build(family, settings), IDS, attention=attention, **options)
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
        "encoder.layers.1.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
    ]
    assert [report.version for report in found.values()] == ["right"] * 6
    assert found["encoder.layers.0.self_attn"] is found["encoder.layers.1.self_attn"]
    assert found["encoder.layers.0.self_attn"].name == (
        "MultiheadAttention at encoder.layers.0.self_attn × 2"
    )


def straight(self, q, k, v):
    """Merge the heads by a reshape."""
    return self.o((self.weigh(q, k) @ v).reshape(len(q), -1, demanded.E))


class Model(nn.Module):
    """The mask that hides the future is the model's."""

    def __init__(self, diagonal=1, **steps):
        super().__init__()
        layer = demanded.varied(
            n_heads=demanded.H,
            forward=lambda self, x, mask: demanded.Attention.forward(self, x, blocked=mask[None]),
            **steps,
        )
        self.embedding, self.diagonal = nn.Embedding(50, demanded.E), diagonal
        self.layers = nn.ModuleList(layer() for _ in range(3))

    def forward(self, ids):
        x, n = self.embedding(ids), ids.size(1)
        for layer in self.layers:
            x = x + layer(x, torch.ones(n, n, dtype=torch.bool).triu(self.diagonal))
        return x


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ({}, []),
        ({"diagonal": 2}, ["causal-off-by-one"]),
        ({"mix": straight}, ["merge-without-transpose"]),
    ],
)
def test_mistakes_in_a_model_are_named(options, codes):
    model = Model(**options)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    found = examine_model(model, IDS, attention=type(model.layers[0]))
    assert [*found] == ["layers.0", "layers.1", "layers.2"]
    assert len(found.examined) == 1
    assert [x.code for x in found.examined[0].findings if x.severity == "wrong"] == codes
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


class Padded(nn.Module):
    """Hides the future, and the end or the beginning of its second sample."""

    def __init__(self, left):
        super().__init__()
        take = {"forward": lambda self, x, mask: demanded.Attention.forward(self, x, x, x, mask)}
        take |= {"hidden": lambda *_: None, "changed": lambda self, x: x + self.blocked[:, None]}
        self.embedding, self.layer = nn.Embedding(50, demanded.E), demanded.varied(**take)()
        self.left = left

    def forward(self, ids):
        n, two = ids.size(1), torch.tensor([0, *[2] * (len(ids) - 1)])[:, None, None]
        padding = torch.arange(n) < two if self.left else torch.arange(n) >= n - two
        hidden = torch.ones(n, n).triu(1).bool() | padding
        return self.layer(self.embedding(ids), hidden * torch.finfo(torch.float32).min)


@pytest.mark.parametrize("left", [True, False])
def test_padding_that_a_model_gives_is_no_choice_of_keys_and_its_rows_leak_nothing(left):
    (report,) = examine_model(Padded(left), IDS, attention="Varied").examined
    assert report.ok, report
    assert "keys-selected" not in report.codes, report
    assert "`mask`, which may hide tokens" in str(report)


class Odd(demanded.Attention):
    """Takes tokens in either layout, and what only looks like them; may return fewer features."""

    def __init__(self, batch_first, width=demanded.E):
        super().__init__()
        self.n_heads, self.batch_first, self.width = demanded.H, batch_first, width

    def forward(self, x, factor, positions=0, residual=0):
        x = (x + positions) * factor
        y = super().forward(x if self.batch_first else x.transpose(0, 1))
        return ((y if self.batch_first else y.transpose(0, 1)) + residual)[..., : self.width]


class OddModel(nn.Module):
    def __init__(self, width=demanded.E):
        super().__init__()
        self.embedding = nn.Embedding(50, demanded.E)
        self.first, self.last = Odd(True), Odd(False, width)

    def forward(self, ids):
        x, factor = self.embedding(ids), torch.ones(1, 1, demanded.E)
        x = self.first(x, factor, torch.zeros_like(x), residual=x)
        x = x.transpose(0, 1)
        return self.last(x, factor, torch.zeros_like(x))


def test_what_is_no_hidden_state_stays_as_the_model_gave_it():
    found = examine_model(OddModel(), IDS, attention="Odd")
    assert found.ok, found
    assert [x.version for x in found.examined] == ["right", "right"]
    assert not any(x.startswith("samples") for y in found.examined for x in y.not_examined)


def test_one_attention_that_could_not_be_asked_is_said():
    found = examine_model(OddModel(width=9), IDS, attention="Odd")
    assert (found["first"].ok, found["last"].asked, found.asked, found.ok) == (True, *[False] * 3)
    assert found.verdict == "✗ OddModel: 2 attentions, 2 kinds, 1 could not be asked"


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

"""Folders that do not fit are refused with the name of what is wrong; nothing is half-loaded."""

import json
import sys

import pytest
import torch

from annotated_attention.pretrained import load_decoder, load_encoder

QUERY = "encoder.layer.1.attention.self.query.weight"


def without(*names):
    return lambda stored: {name: x for name, x in stored.items() if name not in names}


def changed(name, change):
    return lambda stored: stored | {name: change(stored[name]).contiguous()}


BERT_TENSORS = {
    "missing": (without(QUERY), f"lacks {QUERY}$"),
    "many missing": (
        lambda stored: {k: x for k, x in stored.items() if "layer.1" not in k},
        r"lacks encoder\.layer\.1\.\S+, \S+, \S+ and 13 more",
    ),
    "no embedding": (without("embeddings.LayerNorm.bias"), r"lacks embeddings\.LayerNorm\.bias$"),
    "extra": (
        lambda stored: stored | {"cls.predictions.bias": torch.ones(9)},
        r"holds, beyond what fits, cls\.predictions\.bias$",
    ),
    "a layer too many": (
        lambda stored: stored | {QUERY.replace("1", "2"): torch.ones(24, 24)},
        r"holds, beyond what fits, encoder\.layer\.2\.",
    ),
    "too short": (
        changed(QUERY, lambda x: x[:-1]),
        rf"{QUERY} has shape \(23, 24\), and must have \(24, 24\)",
    ),
    "another axis": (
        changed("embeddings.LayerNorm.weight", lambda x: x[None]),
        r"embeddings\.LayerNorm\.weight has shape \(1, 24\), and must have \(24,\)",
    ),
    "turned": (
        changed("encoder.layer.0.intermediate.dense.weight", lambda x: x.mT),
        r"intermediate\.dense\.weight has shape \(24, 10\), and must have \(10, 24\)",
    ),
    "integers": (changed(QUERY, lambda x: x.long()), rf"{QUERY} \(I64\) must be floating point"),
}


@pytest.mark.parametrize("case", BERT_TENSORS.values(), ids=BERT_TENSORS.keys())
def test_tensors_of_an_encoder(bert, copy, case):
    change, words = case
    with pytest.raises(ValueError, match=words):
        load_encoder(copy(bert[1], tensors=change))


GPT2_TENSORS = {
    "missing": (without("transformer.h.2.mlp.c_fc.bias"), r"lacks transformer\.h\.2\.mlp\.c_fc"),
    "a head of its own": (
        lambda stored: stored | {"lm_head.weight": torch.ones(9, 24)},
        r"holds, beyond what fits, lm_head\.weight$",
    ),
    "as a Linear has it": (
        changed("transformer.h.0.attn.c_attn.weight", lambda x: x.mT),
        r"c_attn\.weight has shape \(72, 24\), and must have \(24, 72\)",
    ),
    "a turned embedding": (
        changed("transformer.wte.weight", lambda x: x.mT),
        r"wte\.weight has shape \(24, 9\), and must have \(9, 24\)",
    ),
}


@pytest.mark.parametrize("case", GPT2_TENSORS.values(), ids=GPT2_TENSORS.keys())
def test_tensors_of_a_decoder(gpt2, copy, case):
    change, words = case
    with pytest.raises(ValueError, match=words):
        load_decoder(copy(gpt2[1], tensors=change))


BERT_FIELDS = {
    "model_type": ["roberta", "gpt2", None],
    "hidden_size": [25, 0, -24, "24", 24.0, True, None],
    "num_attention_heads": [0, 5],
    "num_hidden_layers": [0, None],
    "intermediate_size": [0],
    "vocab_size": [0, 3],
    "max_position_embeddings": [0],
    "type_vocab_size": [0],
    "pad_token_id": [-1, None],
    "hidden_act": ["swish", None, ["gelu"]],
    "layer_norm_eps": [0, "1e-12", None],
    "position_embedding_type": ["relative_key"],
    "is_decoder": [True],
    "add_cross_attention": [True],
}
GPT2_FIELDS = {
    "model_type": ["bert"],
    "n_embd": [25],
    "n_inner": ["10", 0],
    "activation_function": ["swish"],
    "layer_norm_epsilon": [0],
    "scale_attn_weights": [False],
    "scale_attn_by_inverse_layer_idx": [True],
    "add_cross_attention": [True],
    "tie_word_embeddings": [False],
}


def test_fields(bert, gpt2, copy, tmp_path):
    """Each is named, with its value."""
    for (_, folder), load, fields in (
        (bert, load_encoder, BERT_FIELDS),
        (gpt2, load_decoder, GPT2_FIELDS),
    ):
        config = tmp_path / "copy" / "config.json"
        original = json.loads((folder / "config.json").read_text())
        if not config.exists():
            copy(folder)
        for name, values in fields.items():
            for value in values:
                config.write_text(json.dumps(original | {name: value}))
                with pytest.raises(ValueError, match=name) as refused:
                    load(config.parent)
                assert repr(value) in str(refused.value) or name == "num_attention_heads"
                assert str(config.parent) in str(refused.value)


def test_sizes_that_do_not_fit_the_tensors(bert, copy):
    with pytest.raises(ValueError, match=r"word_embeddings\.weight has shape \(9, 24\), and must"):
        load_encoder(copy(bert[1], fields={"vocab_size": 10}))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_files(bert, copy, name):
    folder = copy(bert[1])
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"there is no {name} in"):
        load_encoder(folder)


def test_a_pickle_is_never_read(bert, copy):
    folder = copy(bert[1])
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    torch.save({QUERY: Bomb()}, folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="pickled weights are never read"):
        load_encoder(folder)
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load_encoder(folder)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights(gpt2, copy, keep):
    file = copy(gpt2[1]) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors is not a whole safetensors file"):
        load_decoder(file.parent)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.json", '{"model_type": "bert"', "is not JSON"),
        ("config.json", "[]", "must hold an object, got list"),
        ("tokenizer.json", '{"version"', "is not a tokenizer"),
    ],
)
def test_damaged_text(bert, copy, name, text, words):
    folder = copy(bert[1])
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=words) as refused:
        load_encoder(folder)
    assert name in str(refused.value)


@pytest.mark.parametrize("library", ["safetensors", "tokenizers"])
def test_the_extra_is_named(bert, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError, match=rf"{library}, which is not.*annotated-attention\[trained"
    ):
        load_encoder(bert[1])

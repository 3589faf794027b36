"""Folders that do not fit are refused with the name of what is wrong; nothing is half-loaded."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from annotated_attention.pretrained import load_encoder

QUERY = "encoder.layer.1.attention.self.query.weight"


@pytest.fixture
def folder(bert, tmp_path):
    """Give a copy of the checkpoint, to be damaged."""
    return shutil.copytree(bert[1], tmp_path / "bert")


# A change of the stored tensors, and the end of what is said.
TENSORS = [
    (lambda x: x.pop(QUERY), f"lacks {QUERY}"),
    (
        lambda x: [x.pop(name) for name in [*x] if "layer.1" in name],
        "encoder.layer.1.attention.output.dense.bias and 13 more",
    ),
    (lambda x: x.update(new=torch.ones(9)), "holds, beyond what fits, new"),
    (lambda x: x.update({QUERY: torch.ones(23, 24)}), "has shape (23, 24), and must have (24, 24)"),
    (lambda x: x.update({QUERY: x[QUERY].long()}), f"{QUERY} (I64) must be floating point"),
]


@pytest.mark.parametrize(("change", "words"), TENSORS, ids=[words for _, words in TENSORS])
def test_tensors(folder, change, words):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ValueError, match=re.escape(words)):
        load_encoder(folder)


FIELDS = [
    ("model_type", "roberta"),
    ("hidden_size", 25),
    ("hidden_size", 0),
    ("hidden_size", True),
    ("hidden_size", None),
    ("num_attention_heads", 5),
    ("vocab_size", 8),
    ("pad_token_id", -1),
    ("hidden_act", "swish"),
    ("hidden_act", ["gelu"]),
    ("layer_norm_eps", 0),
    ("layer_norm_eps", "1e-12"),
    ("position_embedding_type", "relative_key"),
    ("is_decoder", True),
    ("add_cross_attention", True),
]


def test_fields(folder):
    """Each is named, with its value."""
    config = folder / "config.json"
    original = json.loads(config.read_text())
    for name, value in FIELDS:
        config.write_text(json.dumps(original | {name: value}))
        with pytest.raises(ValueError, match=name) as refused:
            load_encoder(folder)
        assert repr(value) in str(refused.value) or name == "num_attention_heads"
        assert str(folder) in str(refused.value)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


def pickled(path):
    torch.save({QUERY: Bomb()}, path)


def moved(path):
    pickled(path.rename(path.with_name("pytorch_model.bin")))


def text(content):
    return lambda path: path.write_text(content)


@pytest.mark.parametrize(
    ("name", "damage", "error", "words"),
    [
        ("config.json", text('{"model_type": "bert"'), ValueError, "config.json is not JSON"),
        ("config.json", text("[]"), ValueError, "must hold an object, got list"),
        ("tokenizer.json", Path.unlink, FileNotFoundError, "there is no tokenizer.json in"),
        ("tokenizer.json", text('{"version"'), ValueError, "tokenizer.json is not a tokenizer"),
        ("model.safetensors", moved, FileNotFoundError, "pickled weights are never read"),
        ("model.safetensors", pickled, ValueError, "not a whole safetensors file"),
    ],
)
def test_files(folder, name, damage, error, words):
    damage(folder / name)
    with pytest.raises(error, match=re.escape(words)):
        load_encoder(folder)


@pytest.mark.parametrize("library", ["safetensors", "tokenizers"])
def test_the_extra_is_named(bert, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        ImportError, match=rf"{library} is not installed.*annotated-attention\[trained"
    ):
        load_encoder(bert[1])

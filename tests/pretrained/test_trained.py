"""The trained model itself; run where its weights are, and always where the book is checked."""

from pathlib import Path

import pytest
import torch

from annotated_attention import pretrained
from annotated_attention.pretrained import load_encoder

SENTENCES = [
    ["The cat drank milk because it was thirsty."],
    ["A dog.", "It was so thirsty that it drank all of the milk that there was in the house!", ""],
    ["Ünïcödé, 42 and 🙂", "attention is all you need", "one", "two words"],
]


@pytest.fixture(scope="module")
def ours(trained):
    return load_encoder(trained)


@pytest.fixture(scope="module")
def theirs(trained):
    from transformers import BertModel

    return BertModel.from_pretrained(trained, local_files_only=True).eval()


def test_it_is_the_pinned_file(trained):
    found = pretrained.sha256(trained)
    assert found == pretrained.SHA256
    assert (trained / "model.safetensors").stat().st_size == 90_868_376


def test_size(ours):
    assert sum(p.numel() for p in ours.parameters()) == 22_713_216 - 384 * 385  # without a pooler
    attention = ours.encoder.layers[0].self_attn
    assert (len(ours.encoder.layers), attention.num_heads, attention.embed_dim) == (6, 12, 384)


@pytest.mark.parametrize("sentences", SENTENCES, ids=len)
def test_parity(ours, theirs, sentences):
    tokens, blocked = ours.tokenize(sentences)
    with torch.no_grad():
        states = ours(tokens, blocked)
        expected = theirs(tokens, attention_mask=(~blocked).long()).last_hidden_state
    torch.testing.assert_close(states[~blocked], expected[~blocked], rtol=1e-4, atol=1e-5)
    means = torch.stack([x[~row].mean(0) for x, row in zip(expected, blocked, strict=True)])
    vectors = torch.nn.functional.normalize(means, dim=-1)
    torch.testing.assert_close(ours.encode(sentences), vectors, rtol=1e-4, atol=1e-5)


def test_tokens_are_those_of_transformers(ours, trained):
    from transformers import AutoTokenizer

    other = AutoTokenizer.from_pretrained(trained, local_files_only=True)
    for sentences in SENTENCES:
        tokens, blocked = ours.tokenize(sentences)
        expected = other(sentences, padding=True, return_tensors="pt")
        assert tokens.equal(expected["input_ids"])
        assert blocked.equal(expected["attention_mask"] == 0)


def test_no_second_copy_is_kept(trained):
    """The process grows by the parameters, and by nothing of the file's size beside them."""
    import gc

    status = Path("/proc/self/smaps_rollup")
    if not status.exists():
        pytest.skip("memory is read from Linux's /proc")

    def held():
        gc.collect()
        lines = [x.split() for x in status.read_text().splitlines()]
        return 1024 * sum(int(x[1]) for x in lines if x[0] in {"Anonymous:", "Private_Clean:"})

    first = load_encoder(trained)  # what libraries keep for themselves is there after this
    before, mapped = held(), Path("/proc/self/maps").read_text().count("model.safetensors")
    second = load_encoder(trained)
    grown = held() - before
    parameters = sum(p.numel() * p.element_size() for p in second.parameters())
    assert 0.9 * parameters < grown < 1.25 * parameters
    assert Path("/proc/self/maps").read_text().count("model.safetensors") == mapped
    del first

"""BERT computes here what it computes in ``transformers``: outputs and gradients."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

from annotated_attention import MultiheadAttention
from annotated_attention.pretrained import attention_weights, load_encoder, mean_pool

BATCHES = [[1], [5, 2], [3, 13, 1, 7]]  # lengths of the sequences in a batch


@pytest.fixture
def both(bert):
    """Give the model of ``transformers`` and ours."""
    theirs, folder = bert
    return theirs, load_encoder(folder, dtype=torch.float64)


def batch(lengths):
    torch.manual_seed(sum(lengths))
    tokens = torch.randint(1, 9, (len(lengths), max(lengths)))
    blocked = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    return tokens.masked_fill(blocked, 0), blocked


def gradients(output, blocked, *weights):
    """Differentiate a mixture of the outputs at real tokens."""
    torch.manual_seed(9)
    mixture = torch.randn(output.shape, dtype=output.dtype).masked_fill(blocked[..., None], 0)
    return torch.autograd.grad((output * mixture).sum(), weights)


@pytest.mark.parametrize("lengths", BATCHES, ids=str)
def test_outputs_and_gradients(both, lengths):
    theirs, ours = both
    tokens, blocked = batch(lengths)
    expected, output = theirs(tokens, attention_mask=(~blocked).long())[0], ours(tokens, blocked)
    torch.testing.assert_close(output[~blocked], expected[~blocked])
    attention = theirs.encoder.layer[0].attention.self
    parts = [attention.query.weight, attention.key.weight, attention.value.weight]
    words, *rows = gradients(expected, blocked, theirs.get_input_embeddings().weight, *parts)
    weights = (ours.words.weight, ours.encoder.layers[0].self_attn.in_proj_weight)
    right = (words, torch.cat(rows))
    torch.testing.assert_close(gradients(output, blocked, *weights), right)


def test_attention_weights_of_every_head(both):
    """They are collected inside the block alone, and change nothing."""
    theirs, ours = both
    tokens, blocked = batch([3, 5])
    theirs.set_attn_implementation("eager")
    expected = theirs(tokens, attention_mask=(~blocked).long(), output_attentions=True).attentions
    theirs.set_attn_implementation("sdpa")
    plain = ours(tokens, blocked)
    with attention_weights(ours) as weights:
        torch.testing.assert_close(ours(tokens, blocked), plain)
    ours(tokens, blocked)
    for found, right in zip(weights, expected, strict=True):
        rows = ~blocked[:, None].expand(2, 4, 5)
        torch.testing.assert_close(found[rows], right[rows])
    with (
        pytest.raises(ValueError, match=r"Linear.+ holds no MultiheadAttention"),
        attention_weights(torch.nn.Linear(2, 2)),
    ):
        pass


def test_what_is_loaded(bert):
    """Our attention, ready to be used or trained; nothing is drawn, and the file is let go."""
    maps, (_, folder) = Path("/proc/self/maps"), bert
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model = load_encoder(folder)
    assert torch.rand(3).equal(expected)
    assert not maps.exists() or str(folder) not in maps.read_text()
    kinds = {type(x) for x in model.modules() if "attention" in type(x).__name__.lower()}
    assert kinds == {MultiheadAttention}
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.float32, "cpu")}
    assert all(p.requires_grad and p.is_leaf for p in model.parameters())
    assert not model.training


def test_tokenizing_pads_and_never_cuts(bert):
    ours = load_encoder(bert[1], dtype=torch.float64)
    tokens, blocked = ours.tokenize(["the cat drank milk", "it", "was it the cat milk"])
    assert tokens.tolist() == [[1, 2, 3, 4, 0], [6, 0, 0, 0, 0], [7, 6, 1, 2, 4]]
    assert blocked.tolist() == [[False] * 4 + [True], [False] + [True] * 4, [False] * 5]
    for bad, error, words in (
        ("the cat", TypeError, "sentences must be a list"),
        ([], ValueError, "sentences is empty"),
        ([" ".join(["cat"] * 14)], ValueError, r"tokens \(1, 14\) are longer than the 13"),
    ):
        with pytest.raises(error, match=words):
            ours.encode(bad)
    with pytest.raises(ValueError, match=r"tokens must have shape \(b, n\), got \(5,\)"):
        ours(tokens[0])


def test_sentence_vectors(bert):
    """The mean over the real tokens, of length 1, whatever else is in the batch."""
    theirs, folder = bert
    ours = load_encoder(folder, dtype=torch.float64)
    sentences = ["the cat drank milk", "it", "was it the cat milk"]
    vectors = ours.encode(sentences)
    assert not vectors.requires_grad
    for sentence, vector in zip(sentences, vectors, strict=True):
        tokens, _ = ours.tokenize([sentence])
        mean = theirs(tokens).last_hidden_state[0].mean(0)
        torch.testing.assert_close(vector, mean / mean.norm())
    states = torch.randn(2, 3, 6, requires_grad=True)
    blocked = torch.tensor([[False, False, True], [False, False, False]])
    (slope,) = torch.autograd.grad(mean_pool(states, blocked).sum(), states)
    torch.testing.assert_close(slope[..., 0], torch.tensor([[1 / 2, 1 / 2, 0], [1 / 3] * 3]))


@pytest.mark.parametrize("module", ["bert", "find", "collect", "llama"])
def test_examples_run(module, bert):
    """``folder`` is what the docstrings leave to the reader."""
    found = importlib.import_module(f"annotated_attention.pretrained.{module}")
    assert doctest.testmod(found, globs={"folder": bert[1]}).failed == 0

"""Checkpoints compute here what they compute in ``transformers``: outputs and gradients."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

from annotated_attention import MultiheadAttention
from annotated_attention.pretrained import attention_weights, load_decoder, load_encoder, mean_pool

BATCHES = [[1], [5, 2], [3, 13, 1, 7]]  # lengths of the sequences in a batch
LOADS = {"bert": load_encoder, "gpt2": load_decoder}
each_family = pytest.mark.parametrize("family", LOADS)


@pytest.fixture
def both(request, family):
    """Give the model of ``transformers`` and ours."""
    theirs, folder = request.getfixturevalue(family)
    return theirs, LOADS[family](folder, dtype=torch.float64)


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


@each_family
@pytest.mark.parametrize("lengths", BATCHES, ids=str)
def test_outputs_and_gradients(both, family, lengths):
    theirs, ours = both
    tokens, blocked = batch(lengths)
    expected, output = theirs(tokens, attention_mask=(~blocked).long())[0], ours(tokens, blocked)
    torch.testing.assert_close(output[~blocked], expected[~blocked])
    if family == "bert":
        layer, other = ours.encoder.layers[0], theirs.encoder.layer[0]
        attention = other.attention.self
        parts = [attention.query.weight, attention.key.weight, attention.value.weight]
        words, *rows = gradients(expected, blocked, theirs.get_input_embeddings().weight, *parts)
        right = (words, torch.cat(rows))
        weights = (ours.words.weight, layer.self_attn.in_proj_weight)
    else:  # padding at the end is the future of every real token
        torch.testing.assert_close(ours(tokens)[~blocked], expected[~blocked])
        layer, other = ours.decoder.layers[0], theirs.transformer.h[0]
        parts = [other.attn.c_attn.weight, other.mlp.c_fc.weight]
        words, packed, wide = gradients(
            expected, blocked, theirs.get_input_embeddings().weight, *parts
        )
        right = (words, packed.mT, wide.mT)
        weights = (ours.words.weight, layer.self_attn.in_proj_weight, layer.linear1.weight)
    torch.testing.assert_close(gradients(output, blocked, *weights), right)


@each_family
def test_attention_weights_of_every_head(both, family):
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
        assert found.triu(1).eq(0).all() == (family == "gpt2")
    with (
        pytest.raises(ValueError, match=r"Linear.+ holds no MultiheadAttention"),
        attention_weights(torch.nn.Linear(2, 2)),
    ):
        pass


def test_greedy_continuation(gpt2):
    theirs, folder = gpt2
    ours = load_decoder(folder, dtype=torch.float64)
    tokens, _ = batch([4, 4, 4])
    expected = tokens
    for _ in range(6):
        best = theirs(expected).logits[:, -1].argmax(-1)
        expected = torch.cat([expected, best[:, None]], 1)
    found = ours.continue_greedily(tokens, 6)
    assert found.tolist() == expected.tolist()
    assert not found.is_inference()
    with pytest.raises(ValueError, match="steps"):
        ours.continue_greedily(tokens, -1)
    with pytest.raises(ValueError, match="longer than the 13"):
        ours.continue_greedily(tokens, 20)


def test_a_checkpoint_without_the_prefix(gpt2, copy):
    whole, folder = gpt2
    bare = copy(folder, tensors=lambda stored: {
        name.removeprefix("transformer."): x for name, x in stored.items()
    } | {"h.0.attn.bias": torch.ones(1, 1, 13, 13)})  # fmt: skip
    tokens, _ = batch([5, 5])
    ours = load_decoder(bare, dtype=torch.float64)
    torch.testing.assert_close(ours(tokens), whole(tokens).logits)


@each_family
def test_what_is_loaded(family, request):
    """Our attention, ready to be used or trained; nothing is drawn, and the file is let go."""
    maps, (_, folder) = Path("/proc/self/maps"), request.getfixturevalue(family)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    model = LOADS[family](folder)
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


@pytest.mark.parametrize(
    ("module", "family"),
    [("bert", "bert"), ("gpt2", "gpt2"), ("find", "bert"), ("collect", "bert"), ("llama", "bert")],
)
def test_examples_run(module, family, request):
    """``folder`` is what the docstrings leave to the reader."""
    _, folder = request.getfixturevalue(family)
    found = importlib.import_module(f"annotated_attention.pretrained.{module}")
    assert doctest.testmod(found, globs={"folder": folder}).failed == 0

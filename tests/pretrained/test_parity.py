"""Checkpoints compute here what they compute in ``transformers``: outputs and gradients."""

import pytest
import torch

from annotated_attention import MultiheadAttention
from annotated_attention.pretrained import (
    attention_weights,
    load_decoder,
    load_encoder,
    mean_pool,
)

BATCHES = [[1], [5, 2], [3, 13, 1, 7]]  # lengths of the sequences in a batch


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
def test_encoder(bert, lengths):
    theirs, folder = bert
    ours = load_encoder(folder, dtype=torch.float64)
    tokens, blocked = batch(lengths)
    expected = theirs(tokens, attention_mask=(~blocked).long()).last_hidden_state
    output = ours(tokens, blocked)
    torch.testing.assert_close(output[~blocked], expected[~blocked])
    layer, other = ours.encoder.layers[0], theirs.encoder.layer[0]
    mine = gradients(output, blocked, ours.words.weight, layer.self_attn.in_proj_weight)
    attention = other.attention.self
    parts = [attention.query.weight, attention.key.weight, attention.value.weight]
    words, *rows = gradients(expected, blocked, theirs.embeddings.word_embeddings.weight, *parts)
    torch.testing.assert_close(mine, (words, torch.cat(rows)))


@pytest.mark.parametrize("lengths", BATCHES, ids=str)
def test_decoder(gpt2, lengths):
    theirs, folder = gpt2
    ours = load_decoder(folder, dtype=torch.float64)
    tokens, blocked = batch(lengths)
    expected = theirs(tokens, attention_mask=(~blocked).long()).logits
    for padding in (blocked, None):  # padding at the end is the future of every real token
        output = ours(tokens, padding)
        torch.testing.assert_close(output[~blocked], expected[~blocked])
    layer, other = ours.decoder.layers[0], theirs.transformer.h[0]
    mine = gradients(
        output, blocked, ours.words.weight, layer.self_attn.in_proj_weight, layer.linear1.weight
    )
    words, packed, linear1 = gradients(
        expected, blocked, theirs.transformer.wte.weight, other.attn.c_attn.weight,
        other.mlp.c_fc.weight,
    )  # fmt: skip
    torch.testing.assert_close(mine, (words, packed.mT, linear1.mT))


def test_attention_weights_of_every_head(bert, gpt2):
    tokens, blocked = batch([3, 5])
    for (theirs, folder), load in ((bert, load_encoder), (gpt2, load_decoder)):
        theirs.set_attn_implementation("eager")
        expected = theirs(
            tokens, attention_mask=(~blocked).long(), output_attentions=True
        ).attentions
        theirs.set_attn_implementation("sdpa")
        ours = load(folder, dtype=torch.float64)
        plain = ours(tokens, blocked)
        with attention_weights(ours) as weights:
            torch.testing.assert_close(ours(tokens, blocked), plain)
        assert len(weights) == len(expected)
        for found, right in zip(weights, expected, strict=True):
            assert found.shape == (2, 4, 5, 5)
            rows = ~blocked[:, None].expand(2, 4, 5)
            torch.testing.assert_close(found[rows], right[rows])
            if load is load_decoder:
                assert found.triu(1).eq(0).all()


def test_weights_are_collected_only_inside_the_block(bert):
    ours = load_encoder(bert[1], dtype=torch.float64)
    tokens, blocked = batch([3, 5])
    with attention_weights(ours) as weights:
        ours(tokens, blocked)
    ours(tokens, blocked)
    assert len(weights) == 2
    assert (
        ours.encoder.layers[0].self_attn(*[ours.embed(tokens)] * 3, need_weights=False)[1] is None
    )
    with (
        pytest.raises(ValueError, match=r"Linear.+ holds no MultiheadAttention"),
        attention_weights(torch.nn.Linear(2, 2)),
    ):
        pass


def test_it_is_our_attention_that_runs(bert, gpt2):
    for (_, folder), load in ((bert, load_encoder), (gpt2, load_decoder)):
        kinds = [type(m) for m in load(folder).modules() if "attention" in type(m).__name__.lower()]
        assert set(kinds) == {MultiheadAttention}


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
    assert len(set(found[:, 4:].flatten().tolist())) > 1
    assert ours.continue_greedily(tokens, 0).equal(tokens)
    text = ours.complete("the cat", 3)
    assert text.startswith("the cat ")
    assert len(text.split()) == 5


def test_a_checkpoint_without_the_prefix(gpt2, copy):
    whole, folder = gpt2
    bare = copy(folder, tensors=lambda stored: {
        name.removeprefix("transformer."): x for name, x in stored.items()
    } | {"h.0.attn.bias": torch.ones(1, 1, 13, 13)})  # fmt: skip
    tokens, _ = batch([5, 5])
    ours = load_decoder(bare, dtype=torch.float64)
    torch.testing.assert_close(ours(tokens), whole(tokens).logits)


def test_dtype_and_mode(bert, gpt2):
    for (_, folder), load in ((bert, load_encoder), (gpt2, load_decoder)):
        model = load(folder)
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert {p.device.type for p in model.parameters()} == {"cpu"}
        assert not model.training
        assert all(p.requires_grad and p.is_leaf for p in model.parameters())
        assert not list(model.buffers())


def test_no_random_number_is_drawn(bert):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    load_encoder(bert[1])
    assert torch.rand(3).equal(expected)


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


def test_mean_pool_and_its_gradients():
    torch.manual_seed(2)
    states = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    blocked = torch.tensor([[False, False, True], [False, False, False]])
    pooled = mean_pool(states, blocked)
    expected = torch.stack([states[0, :2].mean(0), states[1].mean(0)])
    torch.testing.assert_close(pooled, expected)
    (mine,), (right,) = (
        torch.autograd.grad((x * torch.arange(6)).sum(), states) for x in (pooled, expected)
    )
    torch.testing.assert_close(mine, right)


def test_decoder_refuses(gpt2):
    ours = load_decoder(gpt2[1])
    with pytest.raises(ValueError, match="steps"):
        ours.continue_greedily(torch.ones(1, 2, dtype=torch.long), -1)
    with pytest.raises(ValueError, match="longer than the 13"):
        ours.complete("the cat", 20)
    with pytest.raises(ValueError, match="text"):
        ours.complete("", 2)

"""The whole model: what it computes, what it cannot see, how it writes, and what it refuses."""

import pytest
import torch
from torch import nn

from annotated_attention import (
    LearnedPositionalEncoding,
    MultiheadAttention,
    Seq2SeqTransformer,
    block_future,
)

B, N, M, H, D = 2, 3, 5, 4, 6
E, SRC, TGT = H * D, 11, 13
PAD, START, END = 0, 1, 2


def make(**settings):
    torch.manual_seed(0)
    settings = {"dropout": 0.0, "max_len": 10} | settings
    return Seq2SeqTransformer(SRC, TGT, E, H, 1, 1, 7, **settings)


def ids(generator=0):
    source = torch.Generator().manual_seed(generator)
    src = torch.randint(3, SRC, (B, M), generator=source)
    return src, torch.randint(3, TGT, (B, N), generator=source)


def test_is_pytorchs_transformer_between_embeddings_and_projection():
    model, (src, tgt) = make(dtype=torch.float64), ids()
    theirs = nn.Transformer(E, H, 1, 1, 7, 0.0, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(model.transformer.state_dict())
    table = model.positions.table
    x = model.embed_src.weight[src] * E**0.5 + table[:M]
    y = model.embed_tgt.weight[tgt] * E**0.5 + table[:N]
    expected = theirs(x, y, tgt_mask=block_future(N)) @ model.project.weight.T
    found = model(src, tgt)
    torch.testing.assert_close(found, expected)
    shared = [model.embed_src.weight, model.embed_tgt.weight, model.project.weight]
    torch.testing.assert_close(
        torch.autograd.grad(found.sin().sum(), shared),
        torch.autograd.grad(expected.sin().sum(), shared),
    )


def test_embeddings_start_as_large_as_positions():
    torch.manual_seed(0)
    model = Seq2SeqTransformer(200, 300, 64, H, 1, 1, 7)
    for embedding in (model.embed_src, model.embed_tgt):
        assert (embedding.weight * 8).std().item() == pytest.approx(1, rel=0.05)


def test_padding_changes_nothing():
    model, (src, tgt) = make(pad=PAD), ids()
    expected = model(src, tgt)
    longer = [torch.cat([x, torch.full((B, 2), PAD)], 1) for x in (src, tgt)]
    torch.testing.assert_close(model(*longer)[:, :N], expected)
    assert not torch.allclose(make()(*longer)[:, :N], expected)  # without pad, it is a token
    tgt[:, 1] = PAD  # also in front of a token, which must not see it
    expected = model(src, tgt)[:, 2]
    with torch.no_grad():
        model.embed_tgt.weight[PAD] += 1
    torch.testing.assert_close(model(src, tgt)[:, 2], expected)


def test_sharing_is_one_matrix():
    torch.manual_seed(0)
    model = Seq2SeqTransformer(SRC, SRC, E, H, 1, 1, 7, share_embeddings=True)
    assert model.embed_src.weight is model.embed_tgt.weight is model.project.weight
    assert sum("embed" in name or "project" in name for name, _ in model.named_parameters()) == 1


def test_options_arrive():
    class Other(MultiheadAttention):
        pass

    model = make(norm_first=True, attention=Other, positions=LearnedPositionalEncoding(E, 0.0, 9))
    assert model.transformer.decoder.norm is not None
    assert isinstance(model.transformer.encoder.layers[0].self_attn, Other)
    assert isinstance(model.positions, LearnedPositionalEncoding)


def test_greedy_writes_the_likeliest_token_until_the_end(monkeypatch):
    model = make(pad=PAD).eval()
    lengths = torch.tensor([2, 4])  # how many tokens each sequence gets before its end
    seen = []

    def decode(tgt, memory, padding):
        seen.append(tgt.clone())
        n = tgt.size(1)
        likeliest = torch.where(n > lengths, END, 2 + n)
        return nn.functional.one_hot(likeliest, TGT)[:, None].expand(-1, n, -1).float()

    monkeypatch.setattr(model, "decode", decode)
    found = model.greedy(ids()[0], START, END, max_new=8)
    expected = [[START, 3, 4, END, PAD, PAD], [START, 3, 4, 5, 6, END]]
    assert found.tolist() == expected
    assert len(seen) == 5  # it stops when every sequence is complete
    model.pad = None
    assert model.greedy(ids()[0], START, END, max_new=8)[0].tolist()[3:] == [END] * 3
    assert model.greedy(ids()[0], START, END, max_new=2).shape == (B, 3)
    assert model.greedy(ids()[0], START, END, max_new=0).tolist() == [[START]] * B


def test_greedy_is_what_a_call_predicts():
    model, (src, _) = make(pad=PAD).eval(), ids()
    src[0, 3:] = PAD
    found = model.greedy(src, START, TGT + 1, max_new=6)  # an end that never comes
    torch.testing.assert_close(model(src, found[:, :-1]).argmax(-1), found[:, 1:])
    assert not found.requires_grad


def test_compiles_whole():
    torch.compiler.reset()
    model = make(pad=PAD)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*ids()), model(*ids()))

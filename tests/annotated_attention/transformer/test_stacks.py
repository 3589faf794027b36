"""How layers and stacks start, what they can be built from, and what PyTorch's tools do to them."""

import copy

import pytest
import torch
from torch import nn

from annotated_attention import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

B, N, M, H, D = 2, 3, 5, 4, 6
E, WIDE = H * D, 7
BOTH = pytest.mark.parametrize(
    ("layer", "stack"),
    [
        (TransformerEncoderLayer, TransformerEncoder),
        (TransformerDecoderLayer, TransformerDecoder),
    ],
    ids=["encoder", "decoder"],
)


def make(**settings):
    torch.manual_seed(0)
    settings = {"num_encoder_layers": 2, "dim_feedforward": WIDE, "batch_first": True} | settings
    return Transformer(E, H, num_decoder_layers=2, **settings)


def inputs():
    torch.manual_seed(1)
    return torch.randn(B, M, E), torch.randn(B, N, E)


@BOTH
def test_layers_of_a_stack_start_different_when_asked_and_as_xavier_says(layer, stack):
    torch.manual_seed(0)
    pattern = layer(64, H, 96)
    with torch.no_grad():
        for parameter in pattern.parameters():
            parameter.normal_()
    before = copy.deepcopy(pattern.state_dict())
    first, second = stack(pattern, 2, reset_parameters=True).layers
    for (name, drawn), other in zip(first.named_parameters(), second.parameters(), strict=True):
        if drawn.dim() == 2:
            bound = (6 / sum(drawn.shape)) ** 0.5
            assert bound * 0.98 < drawn.abs().max() <= bound, name
            assert drawn.std().item() == pytest.approx(bound / 3**0.5, rel=0.05), name
            assert not drawn.equal(other), name
        else:
            assert drawn.eq(0 if name.endswith("bias") else 1).all(), name
    torch.testing.assert_close(pattern.state_dict(), before)  # the pattern itself is not touched


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("final_norm", [False, True])
def test_final_norms_are_there_unless_declined(norm_first, final_norm):
    model = make(norm_first=norm_first, final_norm=final_norm)
    assert [x.norm is not None for x in (model.encoder, model.decoder)] == [final_norm] * 2


def test_custom_stacks_keep_their_weights():
    layer = TransformerEncoderLayer(E, H, WIDE, batch_first=True)
    encoder = TransformerEncoder(layer, 1)
    assert not TransformerEncoder(layer, 0).layers  # it adds nothing
    before = copy.deepcopy(encoder.state_dict())
    model = make(custom_encoder=encoder, dropout=0.0)
    assert model.encoder is encoder
    torch.testing.assert_close(encoder.state_dict(), before)
    nn.Transformer(E, H, custom_encoder=(drawn := copy.deepcopy(encoder)))  # PyTorch draws them
    assert not drawn.layers[0].linear1.weight.equal(encoder.layers[0].linear1.weight)
    src, tgt = inputs()
    model.eval()
    torch.testing.assert_close(model(src, tgt), model.decoder(tgt, encoder(src)))
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(E, H, WIDE, batch_first=True), num_layers=1
    )
    assert make(custom_decoder=decoder)(src, tgt).shape == tgt.shape

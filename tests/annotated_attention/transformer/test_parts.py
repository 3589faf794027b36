"""What people replace in a layer, or override, is called, as in PyTorch's layers."""

import numpy
import pytest
import torch
from torch import nn

import annotated_attention as ours
from annotated_attention import Transformer
from tests.settings import B, E, H, M, N

WIDE = 7


def model(module=ours, **options):
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True} | options
    return module.Transformer(E, H, 1, 1, WIDE, **options)


def inputs():
    torch.manual_seed(1)
    return torch.randn(B, M, E), torch.randn(B, N, E)


class Adapter(nn.Module):
    """Adds what it learns to what a layer says; it has no weight of its own by that name."""

    def __init__(self, wrapped):
        super().__init__()
        self.wrapped = wrapped
        self.learned = nn.Linear(wrapped.in_features, wrapped.out_features, bias=False)
        nn.init.zeros_(self.learned.weight)

    def forward(self, x):
        return self.wrapped(x) + self.learned(x)


class Experts(nn.Module):
    """Every expert computes; each token takes the result of one."""

    def __init__(self, wrapped):
        super().__init__()
        self.experts = nn.ModuleList([wrapped, wrapped])

    def forward(self, x):
        both = torch.stack([expert(x) for expert in self.experts])
        return both.gather(0, (x.sum(-1, keepdim=True) > 0).long().expand(both[:1].shape))[0]


class Int8(nn.Module):
    """Holds a weight of integers."""

    def __init__(self, wrapped):
        super().__init__()
        self.step = wrapped.weight.detach().abs().amax() / 127
        self.register_buffer("weight", (wrapped.weight.detach() / self.step).round().to(torch.int8))
        self.bias = wrapped.bias

    def forward(self, x):
        return nn.functional.linear(x, self.weight * self.step, self.bias)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("replacement", [Adapter, Experts, Int8])
def test_a_replaced_layer_of_the_network_is_called(replacement, norm_first):
    replaced, plain = model(norm_first=norm_first), model(norm_first=norm_first)
    for layer in (replaced.encoder.layers[0], replaced.decoder.layers[0]):
        layer.linear1 = replacement(layer.linear1)
    torch.testing.assert_close(replaced(*inputs()), plain(*inputs()), rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("ignore")  # PyTorch calls its tool deprecated
def test_the_linear_layers_can_be_quantized():
    plain = model().eval()
    quantized = torch.ao.quantization.quantize_dynamic(plain, {nn.Linear})
    assert repr(quantized).count("DynamicQuantizedLinear") == 7  # three in attentions
    torch.testing.assert_close(quantized(*inputs()), plain(*inputs()), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    ("layer", "name"),
    [
        ("TransformerEncoderLayer", "_sa_block"),
        ("TransformerEncoderLayer", "_ff_block"),
        ("TransformerDecoderLayer", "_sa_block"),
        ("TransformerDecoderLayer", "_mha_block"),
        ("TransformerDecoderLayer", "_ff_block"),
    ],
)
def test_an_overridden_block_is_called_as_in_pytorchs_layer(layer, name, norm_first):
    """With as many arguments by position, and the same ones by name."""
    memory, tgt = inputs()
    sequences = (tgt,) if layer == "TransformerEncoderLayer" else (tgt, memory)
    found = []
    for module in (nn, ours):
        calls = []

        class Layer(getattr(module, layer)):
            pass

        def block(self, *given, calls=calls, kind=Layer, **options):
            calls.append((len(given), options))
            return 2 * getattr(super(kind, self), name)(*given, **options)

        setattr(Layer, name, block)
        torch.manual_seed(0)
        made = Layer(E, H, WIDE, 0.0, batch_first=True, norm_first=norm_first)
        output = made(*sequences, torch.ones(N, N, dtype=torch.bool).triu(1))
        found.append((output, calls))
    (expected, theirs), (output, mine) = found
    torch.testing.assert_close(output, expected)
    assert mine == theirs != []


def test_sizes_and_dropout_may_be_numpy_numbers():
    sizes = (numpy.int64(x) for x in (E, H, 1, 1, WIDE))
    torch.manual_seed(0)
    made = Transformer(*sizes, numpy.float32(0), batch_first=True)
    assert torch.equal(made(*inputs()), model()(*inputs()))


class Whole(nn.Module):
    """A model, to be traced."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, src, tgt):
        return self.part(src, tgt, tgt_is_causal=True) + self.part.encoder(tgt)


def test_layers_are_leaves_to_the_tracer_of_fx():
    """As PyTorch's are: a check would stop it, and nobody rewrites the inside of a layer."""
    whole = Whole(model()).eval()
    traced = torch.fx.symbolic_trace(whole)
    found = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    layers = [f"part.{x}.layers.0" for x in ("encoder", "decoder", "encoder")]
    assert [target for target in found if "layers" in target] == layers
    torch.testing.assert_close(traced(*inputs()), whole(*inputs()))

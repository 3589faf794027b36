"""Against PyTorch's layers, stacks and model: outputs and gradients, with the same weights."""

import inspect
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import annotated_attention as ours
from annotated_attention import block_future
from tests.settings import (
    REPRODUCIBLE,
    E,
    H,
    M,
    N,
    Setting,
    assert_same,
    random_settings,
    results,
    without_hint,
)

WIDE = 7
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "a function": torch.tanh}
SIZES = {"src": (M, M), "tgt": (N, N), "memory": (N, M)}  # of each attention: queries and keys
PARTS = {  # the attentions that a module is called with masks for
    "TransformerEncoderLayer": ["src"],
    "TransformerDecoderLayer": ["tgt", "memory"],
    "TransformerEncoder": ["src"],
    "TransformerDecoder": ["tgt", "memory"],
    "Transformer": ["src", "tgt", "memory"],
}
SETTINGS = random_settings(
    inputs=["distinct"],
    add_bias_kv=[False],
    add_zero_attn=[False],
    fully_masked=[False],
    need_weights=[False],
    average_attn_weights=[True],
    dropout=[0.0],
    mode=["training", "evaluation"],  # without gradients, PyTorch's layer takes another path
)


def build(module, name, **options):
    """Make PyTorch's class or ours; a stack has two layers and a norm."""
    made = {"dim_feedforward": WIDE} | options
    with warnings.catch_warnings(action="ignore"):  # PyTorch says which fast path it cannot take
        if name == "Transformer":
            return getattr(module, name)(E, H, 2, 1, **made)
        if name.endswith("Layer"):
            return getattr(module, name)(E, H, **made)
        layer = getattr(module, f"{name}Layer")(E, H, **made)
        norm = nn.LayerNorm(E, bias=made.get("bias", True), dtype=made.get("dtype"))
        return getattr(module, name)(layer, 2, norm)


def pair(name, **options):
    """Give PyTorch's module and ours, with the same weights, which were loaded both ways."""
    theirs, mine = (build(module, name, **options) for module in (nn, ours))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in mine.parameters():
            parameter.normal_(0, 0.4, generator=generator)  # biases and norms matter, too
    theirs.load_state_dict(mine.state_dict())
    mine.load_state_dict(theirs.state_dict())
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in mine.named_parameters()] == names  # optimisers go by the order
    return theirs, mine


def arguments(name: str, setting: Setting, module: nn.Module) -> dict[str, torch.Tensor | bool]:
    """Make the call of a module: each attention gets masks, and perhaps a flag, of its own.

    PyTorch's modules are given the flag in their masks.
    """
    given = {x: setting.sequence(M if x == "src" else N, salt=ord(x[0])) for x in PARTS[name]}
    given.pop("memory", None)
    if name.startswith("TransformerDecoder"):
        given["memory"] = setting.sequence(M, salt=5)
    for part in PARTS[name]:
        mask, (n, m) = setting.attention_mask(*SIZES[part]), SIZES[part]
        padding = setting.padding_mask(m)
        if part == "memory" and padding is not None and padding.dim() == 2:
            padding = padding.flip(0)  # not that of src
        if setting.is_causal and module is nn:
            mask = without_hint(mask, n, m)
        named = "mask" if name == "TransformerEncoder" else f"{part}_mask"
        given |= {named: mask, f"{part}_key_padding_mask": padding}
        if setting.is_causal and module is ours:
            alone = name.startswith("TransformerEncoder")
            given["is_causal" if alone else f"{part}_is_causal"] = True
    return given


@settings(REPRODUCIBLE, max_examples=120)
@given(SETTINGS, st.sampled_from([*PARTS]), st.booleans(), st.sampled_from([*ACTIVATIONS]))
def test_is_pytorchs(setting: Setting, name: str, norm_first: bool, activation: str) -> None:
    options = setting.options() | {"norm_first": norm_first, "activation": ACTIVATIONS[activation]}
    found = []
    for kind, module in zip((nn, ours), pair(name, **options), strict=True):
        call = arguments(name, setting, kind)
        sources = {key: x for key, x in call.items() if key in ("src", "tgt", "memory")}
        sources |= dict(module.named_parameters())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Support for mismatched", UserWarning)
            output = module.train(setting.mode == "training")(**call)
        found.append(results([output], sources))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "Transformer"])
def test_same_with_dropout_from_the_same_seed(name, norm_first):
    # Sequence first: batch first, PyTorch's numbers lie in another order, and so do the zeros.
    both = pair(name, dropout=0.4, norm_first=norm_first, dtype=torch.float64)
    inputs = [torch.randn(n, 2, E, dtype=torch.float64) for n in (M, N)][: len(PARTS[name])]
    found = []
    for module in both:
        torch.manual_seed(3)
        found.append(module(*inputs))
    torch.testing.assert_close(*found)
    mine = both[1]
    assert not torch.equal(mine(*inputs), mine(*inputs))  # it was on
    assert torch.equal(mine.eval()(*inputs), mine(*inputs))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", PARTS)
def test_starts_as_pytorchs_from_the_same_seed(name, bias):
    found = []
    for module in (nn, ours):
        torch.manual_seed(0)
        found.append((build(module, name, bias=bias).state_dict(), torch.rand(())))
    (expected, after), (mine, mine_after) = found
    assert list(mine) == list(expected)
    for key in expected:
        assert mine[key].equal(expected[key]), key
    assert mine_after == after  # as many numbers drawn, too


@pytest.mark.parametrize("name", ["MultiheadAttention", *PARTS])
def test_same_signatures(name):
    """Ours come after PyTorch's, by name alone."""
    for method in ("__init__", "forward"):
        theirs, mine = (
            inspect.signature(getattr(getattr(module, name), method)).parameters
            for module in (nn, ours)
        )
        assert [x for x in mine if mine[x].kind != inspect.Parameter.KEYWORD_ONLY] == [*theirs]
        for key, parameter in theirs.items():
            assert mine[key].default == parameter.default, key


def test_generates_the_mask_that_pytorch_does():
    found, expected = (
        module.Transformer.generate_square_subsequent_mask(N, dtype=torch.float64)
        for module in (ours, nn)
    )
    torch.testing.assert_close(found, expected)
    assert found.isinf().equal(block_future(N))

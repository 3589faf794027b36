"""Against PyTorch's class, with the same parameters: random settings, and what they cannot show."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from tests.settings import (
    REPRODUCIBLE,
    B,
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

K_DIM, V_DIM = 10, 7


def pair(setting: Setting) -> list[nn.Module]:
    """Make PyTorch's module and ours with the same parameters, of which none is zero."""
    widths = {"kdim": K_DIM, "vdim": V_DIM} if setting.inputs == "other widths" else {}
    appended = {name: getattr(setting, name) for name in ("add_bias_kv", "add_zero_attn")}
    kinds = (nn.MultiheadAttention, MultiheadAttention)
    theirs, ours = (kind(E, H, **setting.options(), **appended, **widths) for kind in kinds)
    generator = torch.Generator().manual_seed(setting.seed)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    ours.load_state_dict(theirs.state_dict())
    return [module.train(setting.mode == "training") for module in (theirs, ours)]


def sequences(setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """Make query, key and value: one tensor, two or three."""
    query = setting.sequence(N)
    if setting.inputs == "self":
        return query, query, query
    other = setting.inputs == "other widths"
    key = setting.sequence(M, K_DIM if other else E, salt=1)
    if setting.inputs == "key is value":
        return query, key, key
    return query, key, setting.sequence(M, V_DIM if other else E, salt=2)


def call(module: nn.Module, setting: Setting, given: dict[str, Tensor], **changed: bool) -> list:
    """Call a module as the setting says, from the same random state."""
    names = ("need_weights", "average_attn_weights", "is_causal")
    torch.random.default_generator.manual_seed(5)  # torch.manual_seed is slow
    output, weights = module(**given, **{name: getattr(setting, name) for name in names} | changed)
    return [output, weights]


def reference(theirs: nn.Module, setting: Setting, given: dict[str, Tensor], m: int) -> list:
    """Call PyTorch's module; where it does something else, in words that it follows."""
    if setting.is_causal:
        given = given | {"attn_mask": without_hint(given.get("attn_mask"), N, m)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Support for mismatched", UserWarning)
        output, weights = call(theirs, setting, given, is_causal=False)
        if setting.fully_masked:  # without weights neither the output nor a gradient is NaN
            output, _ = call(theirs, setting, given, is_causal=False, need_weights=False)
    return [output, weights]


def check(setting: Setting) -> None:
    """Compare outputs, weights and the gradients of inputs, masks and parameters."""
    theirs, ours = pair(setting)
    tensors = dict(zip(("query", "key", "value"), sequences(setting), strict=True))
    m = N if setting.inputs == "self" else M
    masks = {"attn_mask": setting.attention_mask(N, m), "key_padding_mask": setting.padding_mask(m)}
    given = {name: x for name, x in (tensors | masks).items() if x is not None}
    expected = reference(theirs, setting, given, m)
    before = {name: x.clone() for name, x in given.items()}
    with torch.set_grad_enabled(setting.mode != "inference"):
        found = call(ours, setting, given)
    assert all(torch.equal(given[name], x) for name, x in before.items())  # nothing is written over
    if setting.fully_masked and setting.need_weights:  # PyTorch's weights are NaN, ours zero
        found[1], expected[1] = found[1].detach(), expected[1].detach().nan_to_num(0)
    sources = {}, {}
    if setting.mode != "inference":
        sources = [given | dict(module.named_parameters()) for module in (ours, theirs)]
    assert_same(results(found, sources[0]), results(expected, sources[1]))


@settings(REPRODUCIBLE, max_examples=200)
@given(random_settings())
def test_is_pytorchs(setting: Setting) -> None:
    check(setting)


@settings(REPRODUCIBLE, max_examples=30)
@given(random_settings(dtype=[torch.float32, torch.bfloat16]))
def test_is_pytorchs_in_other_precisions(setting: Setting) -> None:
    check(setting)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"add_bias_kv": True, "add_zero_attn": True},
        {"kdim": K_DIM},
        {"kdim": K_DIM, "vdim": V_DIM, "add_bias_kv": True, "dtype": torch.float64},
        {"device": "meta", "dtype": torch.bfloat16},
    ],
    ids=str,
)
def test_same_parameters_from_the_same_seed(options):
    built = []
    for kind in (nn.MultiheadAttention, MultiheadAttention):
        torch.manual_seed(7)
        built.append(kind(E, H, **options))
    theirs, ours = (module.state_dict() for module in built)
    assert list(ours) == list(theirs)
    order = [[name for name, _ in module.named_parameters()] for module in built]
    assert order[0] == order[1]  # an optimizer's state goes by the order
    for name, wanted in theirs.items():
        assert (ours[name].shape, ours[name].dtype) == (wanted.shape, wanted.dtype)
        assert ours[name].device == wanted.device
        assert ours[name].is_meta or torch.equal(ours[name], wanted), name
    built[0].load_state_dict(ours)
    built[1].load_state_dict(theirs)
    if "device" not in options:
        for module in built:
            torch.manual_seed(8)
            module._reset_parameters()
        assert all(torch.equal(ours[name], wanted) for name, wanted in theirs.items())


@pytest.mark.parametrize("sizes", [(0, N, M), (B, 0, M), (B, N, 0)], ids=str)
@pytest.mark.parametrize("need_weights", [False, True])
def test_nothing_to_compute(sizes, need_weights):
    b, n, m = sizes
    module = MultiheadAttention(E, H, batch_first=True)
    nn.init.normal_(module.out_proj.bias)
    key = torch.randn(b, m, E)
    mask = torch.zeros(n, m, dtype=torch.bool)
    output, weights = module(
        torch.randn(b, n, E), key, key, attn_mask=mask, need_weights=need_weights
    )
    assert output.shape == (b, n, E)
    assert weights is None or weights.shape == (b, n, m)
    if m == 0:  # no keys at all: every row is fully masked
        assert torch.equal(output, module.out_proj.bias.expand_as(output))

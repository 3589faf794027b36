"""Against PyTorch's: options, masks, layouts and dtypes in each pair, and what is excepted."""

import inspect
import itertools
import random
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention, block_future

B, N, M, H, D = 2, 3, 5, 4, 6  # all different: a swapped axis cannot hide
E, K_DIM, V_DIM = H * D, 10, 7
TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-11},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 5e-2, "atol": 4e-2},
}
# Not torch.manual_seed, which keeps a stack trace for each kind of device that is not there.
SEED = torch.random.default_generator.manual_seed
LAYOUTS = ["sequence first", "batch first", "no batch"]
INPUTS = ["self", "key is value", "distinct", "other widths"]
APPENDED = ["nothing", "bias_kv", "zero", "both"]
ATTENTION_MASKS = [None, "boolean", "boolean per head", "float", "float per head", "causal"]
PADDING_MASKS = [None, "boolean", "float"]
WEIGHTS = ["none", "averaged", "per head"]


@dataclass(frozen=True)
class Case:
    layout: str = "batch first"
    inputs: str = "distinct"
    appended: str = "nothing"
    bias: bool = True
    attn_mask: str | None = None
    key_padding_mask: str | None = None
    is_causal: bool = False
    fully_masked: bool = False
    weights: str = "averaged"
    dropout: float = 0.0
    dtype: torch.dtype = torch.float64

    def generator(self, seed):
        return torch.Generator().manual_seed(seed)

    @property
    def m(self):
        return N if self.inputs == "self" else M

    def settings(self):
        widths = {"kdim": K_DIM, "vdim": V_DIM} if self.inputs == "other widths" else {}
        return {
            "dropout": self.dropout,
            "bias": self.bias,
            "add_bias_kv": self.appended in ("bias_kv", "both"),
            "add_zero_attn": self.appended in ("zero", "both"),
            "batch_first": self.layout == "batch first",
            "dtype": self.dtype,
            **widths,
        }

    def tensors(self):
        """Make query, key and value: one tensor, two or three, that carry gradients."""
        source = self.generator(0)

        def make(length, width):
            batch = {
                "sequence first": (length, B),
                "batch first": (B, length),
                "no batch": (length,),
            }
            shape = (*batch[self.layout], width)
            return torch.randn(shape, generator=source, dtype=self.dtype).requires_grad_()

        query = make(N, E)
        if self.inputs == "self":
            return query, query, query
        if self.inputs == "key is value":
            key = make(M, E)
            return query, key, key
        other = self.inputs == "other widths"
        return query, make(M, K_DIM if other else E), make(M, V_DIM if other else E)

    def masks(self):
        """Make the two masks; no row loses all its keys, except one where nothing is left."""
        source = self.generator(1)
        attn_mask, key_padding_mask = None, None
        if self.attn_mask == "causal":
            attn_mask = block_future(N, self.m)
        elif self.attn_mask is not None:
            heads = (H if self.layout == "no batch" else B * H,) if "head" in self.attn_mask else ()
            attn_mask = torch.rand(*heads, N, self.m, generator=source) < 0.3
            attn_mask[..., 0] = False
            if self.fully_masked:
                attn_mask[..., 1, :] = True
            if "float" in self.attn_mask:
                attn_mask = self.added(attn_mask, source)
        if self.key_padding_mask is not None:
            batch = () if self.layout == "no batch" else (B,)
            key_padding_mask = torch.rand(*batch, self.m, generator=source) < 0.3
            key_padding_mask[..., 0] = False
            if "float" in self.key_padding_mask:
                key_padding_mask = self.added(key_padding_mask, source)
        return attn_mask, key_padding_mask

    def added(self, blocked, source):
        added = torch.randn(blocked.shape, generator=source, dtype=self.dtype)
        return added.masked_fill(blocked, -torch.inf).requires_grad_()


# Where PyTorch's module does not do what its arguments say. The sweep then asks it for the same
# thing in words that it does follow; test_differences.py holds a test of each by this name.
EXCEPTIONS = {
    "is_causal without a mask": lambda case: case.is_causal and case.attn_mask is None,
    "is_causal with another mask": lambda case: (
        case.is_causal and case.attn_mask not in (None, "causal")
    ),
    "is_causal with appended keys": lambda case: (
        case.is_causal and case.attn_mask == "causal" and case.appended != "nothing"
    ),
    "a fully masked row": lambda case: case.fully_masked,
    "masks of two kinds": lambda case: (
        case.attn_mask is not None
        and case.key_padding_mask is not None
        and ("float" in case.attn_mask) != (case.key_padding_mask == "float")
    ),
}


def run(module, case, tensors, masks, is_causal, dead=None):
    """Return the output, the weights and every gradient, by name."""
    attn_mask, key_padding_mask = masks
    SEED(5)  # of dropout
    output, weights = module(
        *tensors,
        key_padding_mask=key_padding_mask,
        need_weights=case.weights != "none",
        attn_mask=attn_mask,
        average_attn_weights=case.weights == "averaged",
        is_causal=is_causal,
    )
    found = {"output": output}
    if weights is not None:
        found["weights"] = weights
    if dead is not None:
        axis = 0 if case.layout == "sequence first" else -2
        found["output"] = output.index_select(axis, dead)
        found |= {"weights": weights.index_select(-2, dead)} if weights is not None else {}
    loss = 0.0
    for i, x in enumerate(found.values()):
        loss = loss + (x * torch.randn(x.shape, generator=case.generator(2 + i)).to(x.dtype)).sum()
    sources = dict(module.named_parameters())
    sources |= {f"input {i}": x for i, x in enumerate(tensors)}
    sources |= {f"mask {i}": x for i, x in enumerate(masks) if x is not None and x.requires_grad}
    gradients = torch.autograd.grad(loss, list(sources.values()), allow_unused=True)
    found |= {f"gradient of {name}": g for name, g in zip(sources, gradients, strict=True)}
    return found


def reference(case, module, tensors):
    """Call PyTorch's module; where it is excepted, in words that it follows."""
    attn_mask, key_padding_mask = replace(case, fully_masked=False).masks()
    is_causal = case.is_causal
    if is_causal and (case.attn_mask != "causal" or case.appended != "nothing"):
        future = block_future(N, case.m)
        is_causal = False
        if attn_mask is None:
            attn_mask = future
        elif attn_mask.dtype == torch.bool:
            attn_mask = attn_mask | future
        else:
            attn_mask = attn_mask.detach().masked_fill(future, -torch.inf).requires_grad_()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Support for mismatched", UserWarning)
        alive = torch.tensor([0, 2]) if case.fully_masked else None
        return run(module, case, tensors, (attn_mask, key_padding_mask), is_causal, alive)


def compare(case):
    SEED(6)
    theirs = nn.MultiheadAttention(E, H, **case.settings())
    with torch.no_grad():
        for parameter in theirs.parameters():  # the biases start at 0, which would hide them
            parameter.normal_(0, 0.3)
    ours = MultiheadAttention(E, H, **case.settings())
    ours.load_state_dict(theirs.state_dict())
    tensors = case.tensors()
    expected = reference(case, theirs, tensors)
    alive = torch.tensor([0, 2]) if case.fully_masked else None
    found = run(ours, case, tensors, case.masks(), case.is_causal, alive)
    assert found.keys() == expected.keys(), case
    for name, wanted in expected.items():
        got = found[name]
        if wanted is None:
            assert got is None, (case, name)
            continue
        if case.fully_masked and name == "gradient of mask 0":
            got, wanted = (x.index_select(-2, alive) for x in (got, wanted))
        limits = dict(TOLERANCE[case.dtype])
        limits["atol"] *= max(1.0, float(wanted.detach().abs().max()))
        same_kind = got.shape == wanted.shape and got.dtype == wanted.dtype
        if not (same_kind and torch.allclose(got, wanted, **limits)):  # this is faster
            torch.testing.assert_close(got, wanted, **limits, msg=f"{case}: {name}: ".__add__)


def cases(layout, inputs, appended):
    """Yield the product of all other options; those that say nothing new are left out."""
    masks = itertools.product(ATTENTION_MASKS, PADDING_MASKS, [False, True], [False, True])
    for attn_mask, key_padding_mask, is_causal, fully_masked in masks:
        if fully_masked and (attn_mask in (None, "causal") or appended != "nothing" or is_causal):
            continue
        for weights, dropout in itertools.product(WEIGHTS, [0.0, 0.4]):
            if dropout and (weights == "per head" or is_causal or fully_masked):
                continue
            bias = attn_mask is None or weights == "none"
            yield Case(
                layout, inputs, appended, bias, attn_mask, key_padding_mask, is_causal,
                fully_masked, weights, dropout,
            )  # fmt: skip


GROUPS = [
    (layout, inputs, appended)
    for layout, inputs, appended in itertools.product(LAYOUTS, INPUTS, APPENDED)
    if layout == "batch first" or (inputs != "key is value" and appended in ("nothing", "both"))
]
ALL = {group: list(cases(*group)) for group in GROUPS}
# Layouts and inputs change what goes in and comes out, which one case in four shows.
WHOLE = ("batch first", "distinct")
SWEEP = {
    group: found if group[:2] == WHOLE else random.Random(i).sample(found, len(found) // 4)
    for i, (group, found) in enumerate(ALL.items())
}


@pytest.mark.parametrize("group", SWEEP, ids=", ".join)
def test_is_pytorchs(group):
    for case in SWEEP[group]:
        compare(case)


EVERY = [case for group in SWEEP.values() for case in group]
SAMPLE = random.Random(0).sample(EVERY, 80)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_is_pytorchs_in_other_precisions(dtype):
    for case in SAMPLE:
        compare(replace(case, dtype=dtype))


def test_sweep_meets_every_exception_and_each_is_tested_and_told():
    tests = Path(__file__).with_name("test_differences.py").read_text(encoding="utf-8")
    told = inspect.getdoc(MultiheadAttention).replace("``", "")
    for name, applies in EXCEPTIONS.items():
        assert any(applies(case) for case in EVERY), name
        assert f"\ndef test_{name.replace(' ', '_')}(" in tests
        assert f"\n| {name} " in told


def pairs(cases):
    """Collect the options that come together in a case, two at a time."""
    options = (vars(case).items() for case in cases)
    return {pair for x in options for pair in itertools.combinations(x, 2)}


def test_sweep_has_each_pair_of_options():
    whole = [case for group in ALL.values() for case in group]
    assert pairs(EVERY) == pairs(whole)
    assert len(set(EVERY)) == len(EVERY)


@pytest.mark.parametrize(
    "settings",
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
def test_same_parameters_from_the_same_seed(settings):
    built = []
    for kind in (nn.MultiheadAttention, MultiheadAttention):
        torch.manual_seed(7)
        built.append(kind(E, H, **settings))
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
    if "device" not in settings:
        for module in built:
            torch.manual_seed(8)
            module._reset_parameters()
        assert all(torch.equal(ours[name], wanted) for name, wanted in theirs.items())


def test_same_signatures():
    for method in ("__init__", "forward"):
        theirs = inspect.signature(getattr(nn.MultiheadAttention, method)).parameters
        ours = inspect.signature(getattr(MultiheadAttention, method)).parameters
        assert list(ours) == list(theirs)
        for name, parameter in ours.items():
            assert parameter.default == theirs[name].default, name
            assert parameter.kind == theirs[name].kind, name


def test_same_attributes():
    for settings in ({}, {"kdim": K_DIM, "vdim": V_DIM, "add_bias_kv": True, "bias": False}):
        theirs = nn.MultiheadAttention(E, H, 0.3, **settings)
        ours = MultiheadAttention(E, H, 0.3, **settings)
        for name in ("embed_dim", "num_heads", "head_dim", "kdim", "vdim", "dropout",
                     "batch_first", "add_zero_attn"):  # fmt: skip
            assert getattr(ours, name) == getattr(theirs, name)
        for name in theirs._parameters:
            assert (getattr(ours, name) is None) == (getattr(theirs, name) is None), name
        assert ours.bias_k is None or ours.bias_k.shape == theirs.bias_k.shape


@pytest.mark.parametrize("layout", LAYOUTS)
def test_output_lies_in_memory_as_pytorchs_where_it_is_in_one_piece(layout):
    case = Case(layout, "self")
    theirs = nn.MultiheadAttention(E, H, **case.settings())
    ours = MultiheadAttention(E, H, **case.settings())
    for need_weights in (False, True):
        wanted = theirs(*case.tensors(), need_weights=need_weights)[0]
        output = ours(*case.tensors(), need_weights=need_weights)[0]
        assert output.is_contiguous() or not wanted.is_contiguous()


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

"""Every mistake stays wrong, and is nothing but its mistake: it differs nowhere else."""

import copy
import functools
import pkgutil

import pytest
import torch

from annotated_attention import (
    MultiheadAttention,
    block_future,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from annotated_attention.modern import CachedAttention, GroupedQueryAttention
from attention_doctor import mistakes
from attention_doctor.mistakes import MISTAKES, StepByStep
from attention_doctor.mistakes._steps import PackedAttention
from attention_doctor.mistakes.reshapes import merge_without_transpose, split_without_transpose

H, D = 4, 6
E = H * D


def tokens(*shape):
    source = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, E, generator=source, dtype=torch.float64)


def cross(b=2, **options):
    return (tokens(b, 3), tokens(b, 5), tokens(b, 5) * 2), options


def itself(b, n, **options):
    return (tokens(b, n),) * 3, options


def some(*shape):
    """Block some of them, and the first never."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.4).index_fill(
        -1, torch.tensor(0), False
    )


PADDING = torch.tensor([[False, False, False], [False, True, True], [False, False, True]])
LEFT = torch.tensor([[False] * 5, [True] * 5, [False] * 5])
SITUATIONS = {
    "free": cross(),
    "one sample": cross(1),
    "self": itself(2, 5),
    "padding": itself(3, 3, key_padding_mask=PADDING),
    "padding of one": itself(1, 3, key_padding_mask=PADDING[2:]),
    "mask": itself(2, 5, attn_mask=some(5, 5)),
    "masks": itself(2, 5, attn_mask=some(2, 1, 5, 5).expand(-1, H, -1, -1).flatten(0, 1)),
    "causal": itself(2, 5, is_causal=True),
    "fully masked": cross(attn_mask=LEFT),
}
HALF, TRAINING, EVALUATION = "half precision", "training", "evaluation"
MASKED = {"padding", "padding of one", "mask", "masks", "causal", "fully masked"}
EVERYWHERE = {*SITUATIONS, TRAINING, EVALUATION, HALF}
SEVERAL = EVERYWHERE - {"one sample", "padding of one"}

# Where each differs from the right version with the same weights; those not named do everywhere.
DIFFERS = {
    "input-changed-in-place": {"padding", "padding of one"},  # self-attention: its queries go, too
    "call-instead-of-forward": set(),
    "mask-inverted": MASKED | {HALF},
    "mask-ignored": MASKED | {HALF},
    "mask-after-softmax": (MASKED - {"fully masked"}) | {HALF},
    "mask-multiplied": MASKED | {HALF},
    "padding-mask-on-queries": {"padding", "padding of one"},
    "mask-on-the-wrong-axis": {"padding"},
    "mask-in-the-wrong-order": {"masks"},
    "mask-transposed": MASKED | {HALF},
    "causal-off-by-one": {"causal"},
    "causal-hides-itself": {"causal"},
    "causal-unasked": EVERYWHERE - {"causal"},
    "finite-fill-in-half": {"fully masked", HALF},
    "nan-row": {"fully masked"},
    "heads-in-a-plain-list": {HALF},  # `half()` does not find them
    "batch-mixed-into-sequence": SEVERAL,
    "heads-of-other-samples": SEVERAL,
    "dropout-before-softmax": {TRAINING},
    "dropout-in-evaluation": {EVALUATION},
}
# These are called in another way: see below, and test_with_caches.py.
APART = (CachedAttention, GroupedQueryAttention, PackedAttention)
CALLED = [code for code, entry in MISTAKES.items() if not issubclass(entry.of, APART)]
BY_CODE = pytest.mark.parametrize("code", CALLED)


def made(version, dropout=0.0):
    """Make a version, with the same weights as every other."""
    torch.manual_seed(0)
    return version(E, H, dropout, batch_first=True, dtype=torch.float64).eval()


@functools.cache
def output(version, situation):
    """Run a version; None where it stops with an error."""
    inputs, options = SITUATIONS.get(situation, cross())
    module = made(version, 0.5 if situation in (TRAINING, EVALUATION) else 0.0)
    module.train(situation == TRAINING)
    if situation == HALF:
        inputs, options = [x.half() for x in itself(2, 5)[0]], {"attn_mask": some(5, 5)}
        module.half()
    torch.manual_seed(1)
    try:
        return module(*copy.deepcopy(inputs), **options)[0].detach()
    except (RuntimeError, TypeError, ValueError):
        return None


def same(version, situation, right=MultiheadAttention):
    """Tell whether a version gives what the right one gives; an error is not the same."""
    found, expected = output(version, situation), output(right, situation)
    if found is None:
        return False
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    return torch.allclose(found, expected, rtol=0, atol=0.02 if situation == HALF else 1e-9)


@BY_CODE
def test_differs_where_it_should_and_only_there(code):
    entry = MISTAKES[code]
    found = {where for where in EVERYWHERE if not same(entry.version, where, entry.of)}
    assert found == DIFFERS.get(code, EVERYWHERE)


def test_taken_apart_the_right_version_is_right():
    assert [where for where in EVERYWHERE if not same(StepByStep, where)] == []


@pytest.mark.parametrize("code", sorted(set(CALLED) - {"heads-in-a-plain-list"}))
def test_parameters_are_those_of_the_right_version(code):
    made(MISTAKES[code].version).load_state_dict(made(MISTAKES[code].of).state_dict())


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_tiled_groups_show_where_there_are_several_of_several_heads(heads):
    entry = MISTAKES["groups-tiled"]
    exact = {"batch_first": True, "dtype": torch.float64}
    right, wrong = (kind(24, 6, heads, **exact) for kind in (entry.of, entry.version))
    wrong.load_state_dict(right.state_dict())
    x = tokens(2, 5)
    for options in ({}, {"is_causal": True}, {"need_weights": False}):
        found, expected = (module(x, x, x, **options)[0] for module in (wrong, right))
        assert torch.allclose(found, expected) == (heads in (1, 6))


def test_parameters_that_are_missing_or_not_registered():
    module = made(MISTAKES["output-projection-missing"].version)
    module(*cross()[0])[0].sum().backward()
    assert module.out_proj.weight.grad is None
    module = made(MISTAKES["heads-in-a-plain-list"].version)
    names = {"in_proj_bias", "out_proj.weight", "out_proj.bias"}
    assert set(dict(module.named_parameters())) == names
    module(*cross()[0])[0].sum().backward()
    assert all(head.grad.abs().sum() > 0 for head in module.heads)  # they count, unregistered


def test_call_instead_of_forward_runs_no_hooks():
    seen = []
    for module in (made(MultiheadAttention), made(MISTAKES["call-instead-of-forward"].version)):
        module.register_forward_hook(lambda module, *_: seen.append(type(module).__name__))
        module(*cross()[0])
    assert seen == ["MultiheadAttention"]


@pytest.mark.parametrize("batch_first", [True, False])
def test_input_is_changed_in_place(batch_first):
    module, reference = made(MISTAKES["input-changed-in-place"].version), made(MultiheadAttention)
    module.batch_first = reference.batch_first = batch_first
    query, key, value = (x if batch_first else x.transpose(0, 1) for x in cross()[0])
    padding = torch.tensor([[False] * 4 + [True], [False] * 5])
    expected = reference(query, key, value.clone(), padding)[0]
    samples = value if batch_first else value.transpose(0, 1)
    rest = samples[~padding].clone()
    torch.testing.assert_close(module(query, key, value, padding)[0], expected)
    assert (samples[padding] == 0).all()
    assert torch.equal(samples[~padding], rest)


def test_causal_masks_see_one_token_too_many_and_one_too_few():
    def seen(module):
        x = itself(1, 5)[0][0]
        return module(x, x, x, is_causal=True)[1][0] > 0

    assert torch.equal(seen(made(MultiheadAttention)), ~block_future(5))
    for code, last in (("causal-off-by-one", 1), ("causal-hides-itself", -1)):
        found = seen(made(MISTAKES[code].version))
        assert torch.equal(found, torch.ones(5, 5).tril(last) > 0)


@pytest.mark.parametrize(
    ("code", "split", "merge"),
    [
        ("merge-without-transpose", split_heads, merge_without_transpose),
        ("split-without-transpose", split_without_transpose, merge_heads),
        ("split-and-merge-without-transpose", split_without_transpose, merge_without_transpose),
    ],
)
def test_classes_make_the_mistake_of_the_functions(code, split, merge):
    module, x = made(MISTAKES[code].version), tokens(2, 6)
    packed = (x @ module.in_proj_weight.mT).chunk(3, -1)
    heads, _ = scaled_dot_product_attention(*(split(y, H) for y in packed), is_causal=True)
    expected = module.out_proj(merge(heads))
    torch.testing.assert_close(module(x, x, x, is_causal=True)[0], expected)
    prefix = module(*(x[:, :4],) * 3, is_causal=True)[0]
    assert (expected[:, :4] - prefix).abs().max() > 0.01  # the future, or another split of rows


def test_every_module_enters_its_mistakes():
    entered = {entry.version.__module__.rpartition(".")[2] for entry in MISTAKES.values()}
    there = {module.name for module in pkgutil.iter_modules(mistakes.__path__)}
    assert entered == {name for name in there if not name.startswith("_")}

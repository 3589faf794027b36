"""What is there for speed equals the plain path, and saves what it is there to save."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from annotated_attention import attention
from annotated_attention.attention import compute_attention, scaled_scores
from tests.annotated_attention.test_attention import SHAPES, inputs, random_masks
from tests.settings import REPRODUCIBLE, B, D, H, M, N, assert_same, results

PLAIN = {
    "blocked": None,
    "bias": None,
    "is_causal": False,
    "dropout_p": 0.0,
    "need_weights": True,
    "score": None,
}
# PyTorch compiles its rules for forward derivatives with a tool that it calls deprecated.
DERIVATIVES = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


@pytest.fixture
def no_plain_path(monkeypatch):
    """Fail where the quick path is not taken."""
    monkeypatch.setattr(attention, "masked_softmax", None)


def plainly(*tensors, **options):
    """Compute the same by the formula alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "quick_weights", lambda *given: None)
        return compute_attention(*tensors, **options)


def twice(outputs, sources):
    """Name outputs and gradients, and the gradients of the gradients."""
    mixed = sum((x.square() * torch.linspace(-1, 2, x.numel()).view_as(x)).sum() for x in outputs)
    first = torch.autograd.grad(mixed, list(sources.values()), create_graph=True)
    second = results([x.sin().square() for x in first], sources)
    return results(outputs, sources) | {f"second {name}": x for name, x in second.items()}


@settings(REPRODUCIBLE, max_examples=80)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(SHAPES),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([True, False]),
    st.integers(0, 9),
)
def test_is_the_plain_path(blocked_shape, bias_shape, is_causal, fully_masked, p, training, seed):
    tensors = inputs(B, H, seed=seed)
    blocked, bias = random_masks(blocked_shape, bias_shape, fully_masked, seed)
    options = PLAIN | {"blocked": blocked, "bias": bias, "is_causal": is_causal, "dropout_p": p}
    sources = dict(zip(("query", "key", "value", "bias"), (*tensors, bias), strict=True))
    sources = {name: x for name, x in sources.items() if x is not None}
    before = [x.clone() for x in (*sources.values(), blocked) if x is not None]
    found = []
    for attend in (compute_attention, plainly):
        torch.random.default_generator.manual_seed(5)
        with torch.set_grad_enabled(training):
            outputs = attend(*tensors, **options)
            found.append(twice(outputs, sources) if training else results(outputs, {}))
    assert_same(*found)
    now = [x for x in (*sources.values(), blocked) if x is not None]
    assert all(torch.equal(*both) for both in zip(now, before, strict=True))


class Matrices(TorchDispatchMode):
    """Notes the memory of every (..., n, m) that is made; it stays alive, so none comes twice."""

    def __init__(self):
        super().__init__()
        self.made = {}

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        x = operation(*arguments, **(options or {}))
        if isinstance(x, torch.Tensor) and x.numel() == B * H * N * M:
            self.made[x.untyped_storage().data_ptr()] = x
        return x


@pytest.mark.usefixtures("no_plain_path")
@pytest.mark.parametrize("masks", [(None, None), ((N, M), None), (None, (N, M))], ids=str)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_scores_masks_and_weights_share_one_matrix(mode, masks):
    blocked, bias = random_masks(*masks, fully_masked=True)
    with mode(), Matrices() as matrices:
        compute_attention(*inputs(B, H), **PLAIN | {"blocked": blocked, "bias": bias})
    assert len(matrices.made) == 1


def test_one_sample_keeps_no_more_than_its_share_for_the_backward_pass():
    packed, kept = torch.randn(1, M, 3, H, D, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
        compute_attention(*packed.permute(2, 0, 3, 1, 4), **PLAIN)
    storages = {x.untyped_storage().data_ptr() for x in kept}
    assert packed.untyped_storage().data_ptr() not in storages


@pytest.mark.usefixtures("no_plain_path")
def test_autocast_decides_what_dtype_the_weights_have(monkeypatch):
    """On a GPU it makes the softmax single precision; on a CPU only its being asked is seen."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cpu")
    with Matrices() as matrices:
        compute_attention(*inputs(B, H), **PLAIN)
    assert len(matrices.made) == 2


@DERIVATIVES
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("grad", [torch.no_grad, torch.enable_grad])
def test_what_a_tool_refuses_takes_the_plain_path(grad, bias):
    """The quick one may have begun, and must leave nothing behind."""
    tensors = [x.detach() for x in inputs(B, H)]
    masks = dict(zip(("blocked", "bias"), random_masks((N, M), (N, M), True), strict=True))
    options = PLAIN | (masks if bias else {})

    def attend(query, key, value, way=compute_attention):
        return way(query, key, value, **options)[0]

    with grad():
        expected = attend(*tensors, way=plainly)
        torch.testing.assert_close(torch.func.vmap(attend)(*tensors), expected)
        along = [*map(torch.ones_like, tensors)]
        found, slope = (
            torch.func.jvp(partial(attend, way=way), (*tensors,), (*along,))[1]
            for way in (compute_attention, plainly)
        )
        torch.testing.assert_close(found, slope)
        with forward_ad.dual_level():
            output = attend(*map(forward_ad.make_dual, tensors, along))
            torch.testing.assert_close(forward_ad.unpack_dual(output).tangent, found)


# PyTorch calls its tracer deprecated, and warns of every shape that a Python condition reads.
@pytest.mark.filterwarnings("ignore:.torch.jit.trace", "ignore::torch.jit.TracerWarning")
def test_what_is_traced_without_gradients_has_them_later():
    def attend(*tensors):
        return compute_attention(*tensors, **PLAIN)

    with torch.no_grad():
        traced = torch.jit.trace(attend, inputs(B, H))
    sources = dict(zip("qkv", inputs(B, H), strict=True))
    found, expected = (results(call(*sources.values()), sources) for call in (traced, attend))
    assert_same(found, expected)


@pytest.mark.parametrize("step", ["softmax", "masks"])
def test_out_of_memory_computes_nothing_twice(step, monkeypatch):
    """The plain path needs more memory. The error is planted: a CPU raises another."""
    calls = []

    def full(*given, **options):
        raise torch.OutOfMemoryError("planted")

    def counted(*given):
        calls.append(1)
        return scaled_scores(*given)

    monkeypatch.setattr(attention, "scaled_scores", counted)
    if step == "softmax":
        monkeypatch.setattr(torch, "softmax", full)
    else:
        monkeypatch.setattr(torch.Tensor, "amax", full)
    blocked, _ = random_masks((N, M), None)
    with pytest.raises(torch.OutOfMemoryError, match="planted"):
        compute_attention(*inputs(B, H), **PLAIN | {"blocked": blocked})
    assert len(calls) == 1


def test_a_full_memory_in_line_one_is_not_asked_again(monkeypatch):
    """Nor is any other error of the scores."""
    calls = []

    def full(*given):
        calls.append(1)
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(attention, "scaled_scores", full)
    with pytest.raises(RuntimeError, match="can't allocate"):
        compute_attention(*inputs(B, H), **PLAIN)
    assert len(calls) == 1

"""What PyTorch's tools do to a module, they can do to this one."""

import pickle

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from annotated_attention import MultiheadAttention
from tests.settings import B, E, H, M, N

NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])
PADDING = torch.tensor([[False, False, True, False, False], [False, False, False, True, True]])
BLOCKED = torch.tensor([[False, True, False, False, True], [True] * 5, [False] * 5])
CALLS = {
    "plain": {},
    "a fully masked row": {"attn_mask": BLOCKED},
    "all": {
        "attn_mask": torch.zeros(B * H, N, M).masked_fill(BLOCKED, -torch.inf),
        "key_padding_mask": PADDING,
        "is_causal": True,
    },
}
EACH_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def make(kind=MultiheadAttention, **settings):
    torch.manual_seed(0)
    return kind(E, H, **{"batch_first": True, **settings})


class Same(MultiheadAttention):
    """Leaves the score alone."""


class Doubled(MultiheadAttention):
    def score(self, q, k):
        return 2 * super().score(q, k)


def doubled():
    module = make()
    module.score = lambda q, k: 2 * MultiheadAttention.score(module, q, k)
    return module


def inputs():
    torch.manual_seed(1)
    key = torch.randn(B, M, E, requires_grad=True)
    return torch.randn(B, N, E, requires_grad=True), key, key


def gradients(output, module):
    return torch.autograd.grad(output.square().sum(), list(module.parameters()))


@NEED_WEIGHTS
def test_compiles_whole(need_weights):
    """Also through the compiler's own gradients."""
    torch.compiler.reset()
    module = make(add_bias_kv=need_weights, add_zero_attn=need_weights)
    options = {**CALLS["all"], "need_weights": need_weights}
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    found, expected = compiled(*inputs(), **options), module(*inputs(), **options)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found[0], module), gradients(expected[0], module))


@pytest.mark.parametrize(
    ("build", "fused", "products"),
    [
        (make, True, 4),
        (lambda: make(Same), True, 2),
        (lambda: make(Doubled), False, 4),
        (doubled, False, 2),
    ],
)
def test_compiled_it_goes_the_same_way(build, fused, products):
    """Both ways compute the same, so only the graph shows a kernel or a product that was lost."""
    torch.compiler.reset()
    given, found = inputs() if products == 4 else inputs()[:1] * 3, []

    def backend(graph, _):
        found.extend(node.target for node in graph.graph.nodes if node.op.startswith("call"))
        return graph

    torch.compile(build(), backend=backend, fullgraph=True)(*given, need_weights=False)
    assert found.count(F.scaled_dot_product_attention) == fused
    assert found.count("softmax") == (not fused)
    assert found.count(F.linear) == products


@pytest.mark.parametrize(("masks", "need_weights"), [({}, False), ({"attn_mask": BLOCKED}, True)])
def test_exports_for_all_sizes(masks, need_weights):
    module = make().eval()
    query, key = (x.detach() for x in inputs()[:2])
    b, n, m = (torch.export.Dim(name, min=2, max=100) for name in "bnm")
    shapes = {
        "query": {0: b, 1: n},
        "key": {0: b, 1: m},
        "value": {0: b, 1: m},
        "key_padding_mask": {0: b, 1: m},
        "need_weights": None,
        "is_causal": None,
    } | ({"attn_mask": {0: n, 1: m}} if masks else {})
    options = {"need_weights": need_weights, "is_causal": True, **masks}
    exported = torch.export.export(
        module, (query, key, key + 0, PADDING), options, dynamic_shapes=shapes
    )
    made = [node.target for node in exported.graph.nodes]  # both ways compute the same
    assert (torch.ops.aten.scaled_dot_product_attention.default in made) != need_weights
    assert (torch.ops.aten.softmax.int in made) == need_weights
    query, key = torch.randn(4, 7, E), torch.randn(4, 9, E)
    padding = torch.zeros(4, 9, dtype=torch.bool)
    options |= {name: torch.rand(7, 9) < 0.4 for name in masks}
    torch.testing.assert_close(
        exported.module()(query, key, 2 * key, padding, **options),
        module(query, key, 2 * key, padding, **options),
    )


@NEED_WEIGHTS
@EACH_CALL
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_runs_under_autocast(call, dtype, need_weights):
    class Watching(MultiheadAttention):
        def attend(self, q, k, v, *, bias, **options):
            assert {x.dtype for x in (q, k, v, bias) if x is not None} == {dtype}
            return super().attend(q, k, v, bias=bias, **options)

    appended = {"add_bias_kv": True, "add_zero_attn": True}
    module = make(Watching, **appended)
    expected, _ = make(**appended)(*inputs(), **call)
    theirs = make(nn.MultiheadAttention, **appended)
    for cast in (torch.Tensor.float, lambda x: x.to(dtype)):  # either kind of input
        with torch.autocast("cpu", dtype):
            output, weights = module(*map(cast, inputs()), **call, need_weights=need_weights)
            wanted = theirs(*inputs())[1].dtype
        assert output.dtype == dtype
        assert weights is None if not need_weights else weights.dtype == wanted
        torch.testing.assert_close(output.float(), expected, rtol=0.05, atol=0.02)
        assert all(g.isfinite().all() for g in gradients(output.float(), module))


@NEED_WEIGHTS
def test_gradient_of_each_sample(need_weights):
    module = make()
    parameters = dict(module.named_parameters())

    def loss(parameters, x, padding):
        options = {"need_weights": need_weights}
        output, _ = functional_call(module, parameters, (x, x, x, padding), options)
        return output.square().sum()

    x = inputs()[1].detach()
    found = vmap(grad(loss), (None, 0, 0))(parameters, x, PADDING)
    for i in range(B):
        expected = torch.autograd.grad(loss(parameters, x[i], PADDING[i]), parameters.values())
        torch.testing.assert_close([g[i] for g in found.values()], list(expected))


class Whole(nn.Module):
    """A model that attends, to be traced."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x):
        output, weights = self.attention(x, x, x, is_causal=True)
        return output + 1, weights


@pytest.mark.parametrize("kind", [MultiheadAttention, Doubled])
def test_is_a_leaf_to_the_tracer_of_fx(kind):
    """As PyTorch's class is, and after pickling, too; the class is still found by its own name."""
    whole = pickle.loads(pickle.dumps(Whole(make(kind))))
    assert type(whole.attention) is kind
    traced = torch.fx.symbolic_trace(whole)
    assert [x.target for x in traced.graph.nodes if x.op == "call_module"] == ["attention"]
    x = inputs()[0]
    torch.testing.assert_close(traced(x), whole(x))


@NEED_WEIGHTS
@pytest.mark.parametrize("number", [numpy.int64, numpy.int32, numpy.uint8])
def test_sizes_and_dropout_may_be_numpy_numbers(number, need_weights):
    """Compiled, too, where PyTorch takes such a number for a tensor."""
    torch.compiler.reset()
    torch.manual_seed(0)
    module = MultiheadAttention(number(E), number(H), numpy.float32(0.0), batch_first=True)
    expected = make()(*inputs(), need_weights=need_weights)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    for call in (module, compiled):
        torch.testing.assert_close(call(*inputs(), need_weights=need_weights), expected)


def second(module, **options):
    """Differentiate with respect to the query twice."""
    query, key, value = inputs()
    output, _ = module(query, key, value, **options)
    (first,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
    return torch.autograd.grad(first.square().sum(), query)[0]


def along(module, **options):
    """Differentiate along a direction, forward."""
    query, key, value = (x.detach() for x in inputs())
    given = ((query,), (torch.ones_like(query),))
    return torch.func.jvp(lambda query: module(query, key, value, **options)[0], *given)[1]


# PyTorch compiles its rules for forward derivatives with a tool that it calls deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("derivative", [second, along])
def test_what_the_fused_kernel_does_not_differentiate_has_two_ways_out(derivative):
    """Weights, or PyTorch's other kernel: as the docstring says, and as PyTorch's class."""
    module, theirs = make(), make(nn.MultiheadAttention)
    expected = derivative(theirs)
    for each in (module, theirs):
        with pytest.raises(RuntimeError, match=r"not implement|does not support"):
            derivative(each, need_weights=False)
    torch.testing.assert_close(derivative(module, need_weights=True), expected)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(derivative(module, need_weights=False), expected)

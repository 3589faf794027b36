"""What PyTorch's tools do to a module, they can do to this one."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

from annotated_attention import MultiheadAttention

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])
PADDING = torch.tensor([[False, False, True, False, False], [False, False, False, True, True]])
BLOCKED = torch.tensor([[False, True, False, False, True], [True] * 5, [False] * 5])
CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "padding": {"key_padding_mask": PADDING},
    "a fully masked row": {"attn_mask": BLOCKED},
    "all": {
        "attn_mask": torch.zeros(B * H, N, M).masked_fill(BLOCKED, -torch.inf),
        "key_padding_mask": PADDING,
        "is_causal": True,
    },
}
EACH_CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def make(**settings):
    torch.manual_seed(0)
    return MultiheadAttention(E, H, **{"batch_first": True, **settings})


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


def with_weights(call, other):
    """Ask for weights in turn: each call with and without, and the other option, too."""
    return (len(call) + other) % 2 == 0


def gradients(output, module):
    return torch.autograd.grad(output.square().sum(), list(module.parameters()))


@EACH_CALL
@pytest.mark.parametrize("appended", [False, True])
def test_compiles_whole(call, appended):
    torch.compiler.reset()
    module = make(add_bias_kv=appended, add_zero_attn=appended)
    options = {**call, "need_weights": with_weights(call, appended)}
    # One call with everything also goes through the compiler's own gradients, on either way.
    backend = "aot_eager" if call is CALLS["all"] else "eager"
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    found, expected = compiled(*inputs(), **options), module(*inputs(), **options)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found[0], module), gradients(expected[0], module))


def test_compiles_once_for_all_sizes():
    torch.compiler.reset()
    module = make()
    compiled = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    with torch.compiler.set_stance("default"):
        for b, n in [(2, 3), (3, 5)]:
            x = torch.randn(b, n, E)
            padding = torch.zeros(b, n, dtype=torch.bool)
            torch.testing.assert_close(compiled(x, x, x, padding), module(x, x, x, padding))
    with torch.compiler.set_stance("fail_on_recompile"):
        x = torch.randn(4, 7, E)
        padding = torch.zeros(4, 7, dtype=torch.bool)
        torch.testing.assert_close(compiled(x, x, x, padding), module(x, x, x, padding))


def test_compiles_with_an_overridden_score_and_in_training():
    torch.compiler.reset()
    module = Doubled(E, H, batch_first=True, dropout=0.5)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    assert compiled(*inputs(), need_weights=False)[0].shape == (B, N, E)
    module.eval()
    torch.testing.assert_close(
        compiled(*inputs(), need_weights=False), module(*inputs(), need_weights=False)
    )


def called(module, *given):
    """Compile, and return what the compiled graph calls."""
    torch.compiler.reset()
    found = []

    def backend(graph, _):
        found.extend(node.target for node in graph.graph.nodes if node.op.startswith("call"))
        return graph

    torch.compile(module, backend=backend, fullgraph=True)(*given, need_weights=False)
    return found


@pytest.mark.parametrize("given", [inputs(), inputs()[:1] * 3], ids=["cross", "self"])
@pytest.mark.parametrize("build", [make, lambda: Doubled(E, H, batch_first=True), doubled])
def test_compiled_it_goes_the_same_way(build, given):
    """Both ways compute the same, so only the graph shows a kernel or a product that was lost."""
    found = called(build(), *given)
    fused = build is make
    assert found.count(F.scaled_dot_product_attention) == fused
    assert found.count("softmax") == (not fused)
    assert found.count(F.linear) == (2 if given[0] is given[1] else 4)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_it_goes_the_same_way(strict):
    torch.compiler.reset()
    x = inputs()[0].detach()
    exported = torch.export.export(make(), (x, x, x), {"need_weights": False}, strict=strict)
    found = [node.target for node in exported.graph.nodes]
    assert found.count(torch.ops.aten.scaled_dot_product_attention.default) == 1
    assert torch.ops.aten.softmax.int not in found


@pytest.mark.parametrize(
    ("name", "strict"),
    [*((name, False) for name in CALLS), ("a fully masked row", True), ("all", True)],
)
def test_exports(name, strict):
    """Strictly traced is what is compiled, too: there the plain call and the other masks are."""
    torch.compiler.reset()
    module, call = make().eval(), CALLS[name]
    options = {**call, "need_weights": with_weights(call, strict)}
    query, key = (x.detach() for x in inputs()[:2])
    exported = torch.export.export(module, (query, key, key + 0), options, strict=strict)
    torch.testing.assert_close(
        exported.module()(query, key, 2 * key, **options), module(query, key, 2 * key, **options)
    )


@NEED_WEIGHTS
def test_exports_for_all_sizes(need_weights):
    module = make().eval()
    query, key = (x.detach() for x in inputs()[:2])
    b, n, m = (torch.export.Dim(name, min=2, max=100) for name in "bnm")
    shapes = {
        "query": {0: b, 1: n}, "key": {0: b, 1: m}, "value": {0: b, 1: m},
        "key_padding_mask": {0: b, 1: m}, "need_weights": None, "is_causal": None,
    }  # fmt: skip
    options = {"need_weights": need_weights, "is_causal": True}
    exported = torch.export.export(
        module, (query, key, key + 0, PADDING), options, dynamic_shapes=shapes
    )
    query, key = torch.randn(4, 7, E), torch.randn(4, 9, E)
    padding = torch.zeros(4, 9, dtype=torch.bool)
    torch.testing.assert_close(
        exported.module()(query, key, key + 0, padding, **options),
        module(query, key, key, padding, **options),
    )


@NEED_WEIGHTS
@EACH_CALL
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_runs_under_autocast(call, dtype, need_weights):
    module = make(add_bias_kv=True, add_zero_attn=True)
    expected, _ = module(*inputs(), **call)
    for cast in (torch.Tensor.float, lambda x: x.to(dtype)):  # either kind of input
        with torch.autocast("cpu", dtype):
            output, weights = module(*map(cast, inputs()), **call, need_weights=need_weights)
        assert output.dtype == dtype
        assert (weights is None) != need_weights
        torch.testing.assert_close(output.float(), expected, rtol=0.05, atol=0.02)
        assert all(g.isfinite().all() for g in gradients(output.float(), module))


def test_attend_gets_one_dtype_under_autocast():
    class Watching(MultiheadAttention):
        def attend(self, q, k, v, *, bias, **options):
            assert {x.dtype for x in (q, k, v, bias)} == {torch.bfloat16}
            return super().attend(q, k, v, bias=bias, **options)

    module = Watching(E, H, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    with torch.autocast("cpu", torch.bfloat16):
        module(*inputs(), **CALLS["all"])


def test_bias_of_another_dtype_is_taken_as_pytorchs_takes_it():
    module = make(dtype=torch.float64)
    nn.init.normal_(module.in_proj_bias)
    halved = copy.deepcopy(module)
    halved.in_proj_bias = nn.Parameter(module.in_proj_bias.half())
    x = inputs()[1].double()
    torch.testing.assert_close(halved(x, x, x), module(x, x, x), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(halved(x, x + 0, x), halved(x, x, x))


def test_weights_under_autocast_have_pytorchs_dtype():
    theirs = nn.MultiheadAttention(E, H, batch_first=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert make()(*inputs())[1].dtype == theirs(*inputs())[1].dtype


# Not every kernel knows vmap; PyTorch then calls it once for each sample, and says so.
SLOWLY = pytest.mark.filterwarnings("ignore:There is a performance drop")


@SLOWLY
@NEED_WEIGHTS
@EACH_CALL
def test_vmap_over_samples(call, need_weights):
    module = make()
    padding = call.get("key_padding_mask")
    attention = call.get("attn_mask")
    if attention is not None and attention.dim() == 3:
        attention = attention.unflatten(0, (B, H))
    where = 0 if attention is not None and attention.dim() == 4 else None

    def one(query, key, value, key_padding_mask, attn_mask):
        return module(
            query, key, value, key_padding_mask, need_weights, attn_mask,
            is_causal=call.get("is_causal", False),
        )  # fmt: skip

    axes = (0, 0, 0, None if padding is None else 0, where)
    outputs = (0, 0) if need_weights else (0, None)
    found = vmap(one, axes, outputs)(*inputs(), padding, attention)
    torch.testing.assert_close(found, module(*inputs(), **call, need_weights=need_weights))


@SLOWLY
@NEED_WEIGHTS
@pytest.mark.parametrize("kind", [torch.bool, torch.float32], ids=str)
def test_vmap_over_masks_alone(kind, need_weights):
    module = make()
    masks = torch.stack([BLOCKED, BLOCKED.roll(1, 0), BLOCKED.roll(1, 1)])
    if kind != torch.bool:
        masks = torch.zeros(masks.shape).masked_fill(masks, -torch.inf)

    tensors = inputs()

    def call(mask):
        return module(*tensors, attn_mask=mask, need_weights=need_weights)[0]

    torch.testing.assert_close(vmap(call)(masks), torch.stack([call(mask) for mask in masks]))


@NEED_WEIGHTS
def test_gradient_of_each_sample(need_weights):
    module = make()
    parameters = dict(module.named_parameters())

    def loss(parameters, x, padding):
        output, _ = functional_call(
            module, parameters, (x, x, x, padding), {"need_weights": need_weights}
        )
        return output.square().sum()

    x = inputs()[1].detach()
    found = vmap(grad(loss), (None, 0, 0))(parameters, x, PADDING)
    for i in range(B):
        expected = torch.autograd.grad(loss(parameters, x[i], PADDING[i]), parameters.values())
        torch.testing.assert_close([g[i] for g in found.values()], list(expected))


def test_vmap_over_models():
    modules = [make() for _ in range(3)]
    for i, module in enumerate(modules):
        module.in_proj_weight.data += i
    parameters, _ = torch.func.stack_module_state(modules)
    x = inputs()[1].detach()
    found = vmap(lambda p: functional_call(modules[0], p, (x, x, x)))(parameters)
    torch.testing.assert_close(found[0], torch.stack([m(x, x, x)[0] for m in modules]))


@NEED_WEIGHTS
def test_gradients_are_those_of_finite_differences(need_weights):
    module = make(dtype=torch.float64, add_bias_kv=True)
    tensors = [x[:1].detach().double().requires_grad_() for x in inputs()]

    def call(*tensors):
        return module(*tensors, attn_mask=BLOCKED, need_weights=need_weights)[0]

    assert torch.autograd.gradcheck(call, tensors)


def test_deepcopy_is_equal_and_independent():
    module = make(dropout=0.1, add_bias_kv=True)
    twin = copy.deepcopy(module)
    module.eval(), twin.eval()
    torch.testing.assert_close(twin(*inputs()), module(*inputs()), rtol=0, atol=0)
    nn.init.zeros_(module.in_proj_weight)
    assert (twin.in_proj_weight != 0).any()


@pytest.mark.parametrize("settings", [{}, {"kdim": E + 1, "bias": False}], ids=str)
def test_pickles(settings):
    module = make(dropout=0.25, **settings).eval()
    query, key, value = inputs()
    key = torch.randn(B, M, settings.get("kdim", E))
    again = pickle.loads(pickle.dumps(module))
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for twin in (again, torch.load(buffer, weights_only=False)):
        assert twin.dropout == 0.25
        assert twin.batch_first
        torch.testing.assert_close(twin(query, key, value), module(query, key, value))


@NEED_WEIGHTS
def test_hooks_fire(need_weights):
    module, seen = make(), []
    module.register_forward_pre_hook(lambda _, args: seen.append("before"))
    module.out_proj.register_forward_hook(lambda _, args, output: seen.append("out_proj"))
    module.register_forward_hook(lambda _, args, output: seen.append("after"))
    module.out_proj.register_full_backward_hook(lambda *_: seen.append("backward"))
    module(*inputs(), need_weights=need_weights)[0].sum().backward()
    assert seen == ["before", "out_proj", "after", "backward"]


class LowRank(nn.Module):
    """Adds a trained low-rank product to a frozen linear layer, as LoRA does."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@NEED_WEIGHTS
def test_out_proj_can_be_wrapped(need_weights):
    module = make()
    plain, _ = module(*inputs())
    module.out_proj = LowRank(module.out_proj)
    output, _ = module(*inputs(), need_weights=need_weights)
    added = module.out_proj.up.weight @ module.out_proj.down.weight
    output.sum().backward()
    assert module.out_proj.base.weight.grad is None
    assert (module.out_proj.down.weight.grad != 0).any()
    module.out_proj = module.out_proj.base
    module.out_proj.weight.data += added
    assert not torch.allclose(output, plain)
    torch.testing.assert_close(module(*inputs())[0], output)


def test_parametrized_weights_count():
    module = make()
    nn.utils.parametrizations.weight_norm(module, "in_proj_weight")
    plain = make()
    torch.testing.assert_close(module(*inputs()), plain(*inputs()))
    module.parametrizations.in_proj_weight.original0.data *= 2
    plain.in_proj_weight.data *= 2
    torch.testing.assert_close(module(*inputs()), plain(*inputs()))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_inside_an_encoder_layer(bias, norm_first, batch_first, training):
    layer = nn.TransformerEncoderLayer(
        E, H, 16, dropout=0.2, batch_first=batch_first, norm_first=norm_first, bias=bias
    ).train(training)
    for after in (layer.dropout1, layer.dropout2):  # they draw in the order of the memory
        after.p = 0.0 if batch_first else after.p
    ours = copy.deepcopy(layer)
    ours.self_attn = MultiheadAttention(E, H, 0.2, bias, batch_first=batch_first).train(training)
    ours.self_attn.load_state_dict(layer.self_attn.state_dict())
    x = torch.randn(B, M, E) if batch_first else torch.randn(M, B, E)
    causal = nn.Transformer.generate_square_subsequent_mask(M)
    for options in (
        {},
        {"src_key_padding_mask": PADDING},
        {"src_mask": causal},
        {"src_mask": causal, "is_causal": True},
        {"src_mask": causal, "src_key_padding_mask": PADDING.float() * -9, "is_causal": True},
    ):
        torch.manual_seed(3)
        expected = layer(x, **options)
        torch.manual_seed(3)
        torch.testing.assert_close(ours(x, **options), expected)
        with torch.no_grad():  # in evaluation PyTorch's layer would go past the module
            torch.manual_seed(3)
            torch.testing.assert_close(ours(x, **options), expected)


@torch.no_grad()
def test_evaluation_in_an_encoder_layer_does_not_go_past_it():
    layer = nn.TransformerEncoderLayer(E, H, 16, batch_first=True).eval()
    layer.self_attn = make()
    called = []
    layer.self_attn.attend = lambda q, k, v, **_: called.append(1) or (v, None)
    layer(torch.randn(B, M, E))
    assert called


def test_inside_a_decoder_layer():
    layer = nn.TransformerDecoderLayer(E, H, 16, dropout=0.0)
    ours = copy.deepcopy(layer)
    for name in ("self_attn", "multihead_attn"):
        attention = MultiheadAttention(E, H)
        attention.load_state_dict(getattr(layer, name).state_dict())
        setattr(ours, name, attention)
    target, memory = torch.randn(N, B, E), torch.randn(M, B, E)
    mask = nn.Transformer.generate_square_subsequent_mask(N)
    options = {"tgt_mask": mask, "tgt_is_causal": True}
    torch.testing.assert_close(ours(target, memory, **options), layer(target, memory, **options))


def test_inside_a_stack():
    layer = nn.TransformerEncoderLayer(E, H, 16, batch_first=True)
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    ours = copy.deepcopy(stack)
    for block in ours.layers:
        attention = MultiheadAttention(E, H, batch_first=True).eval()
        attention.load_state_dict(block.self_attn.state_dict())
        block.self_attn = attention
    x = torch.randn(B, M, E)
    causal = nn.Transformer.generate_square_subsequent_mask(M)
    for options in ({}, {"src_key_padding_mask": PADDING}, {"mask": causal}):
        torch.testing.assert_close(ours(x, **options), stack(x, **options))
        with torch.no_grad():
            torch.testing.assert_close(ours(x, **options), stack(x, **options))

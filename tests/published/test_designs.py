"""Every published design, called alike: equal to multi-head attention, clear about bad input."""

import copy
from typing import Any

import pytest
import torch

from annotated_attention import MultiheadAttention, block_future
from annotated_attention.published import DESIGNS, Design, SharedProjection

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
each = pytest.mark.parametrize("name", DESIGNS)
LOADING = [name for name, design in DESIGNS.items() if hasattr(design.module, "load_from")]
each_that_loads = pytest.mark.parametrize("name", LOADING)


def inputs(design: Design, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    """Make query, key and value, one tensor where the design takes one."""
    source = torch.Generator().manual_seed(0)
    query = torch.randn(B, N, E, generator=source, dtype=dtype).requires_grad_()
    if design.kind == "self":
        return query, query, query
    key, value = (torch.randn(B, M, E, generator=source, dtype=dtype) for _ in range(2))
    return query, key.requires_grad_(), value.requires_grad_()


def blocked_for(design: Design, which: str) -> torch.Tensor | None:
    """Make a mask, (b, n, m); other in each sample, and in one of them a row is fully masked."""
    if which == "none":
        return None
    m = N if design.kind == "self" else M
    if which == "causal":
        return block_future(N, m).expand(B, -1, -1)
    blocked = torch.rand(B, N, m, generator=torch.Generator().manual_seed(1)) < 0.4
    blocked[..., 0] = False
    if which == "fully masked":
        blocked[1, 2] = True
    return blocked


def pair(name: str, dtype: torch.dtype = torch.float64) -> tuple[Any, MultiheadAttention]:
    torch.manual_seed(2)
    module, reference = DESIGNS[name].pair(E, H)
    return module.to(dtype), reference.to(dtype)


def call(name: str, module: Any, *given: Any) -> torch.Tensor:
    return DESIGNS[name].call(module, *given)


def gradients(output: torch.Tensor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    mixture = torch.randn(output.shape, generator=torch.Generator().manual_seed(3)).to(output)
    return list(torch.autograd.grad((output * mixture).sum(), tensors, materialize_grads=True))


def test_there_are_seven() -> None:
    assert len(DESIGNS) == len({design.module for design in DESIGNS.values()}) == 7
    assert set(DESIGNS) - set(LOADING) == {"shared projection", "no projection"}


@each
@pytest.mark.parametrize("which", ["none", "some", "causal", "fully masked"])
def test_equal_to_multihead_attention(name: str, which: str) -> None:
    module, reference = pair(name)
    given, blocked = inputs(DESIGNS[name]), blocked_for(DESIGNS[name], which)
    output = call(name, module, *given, blocked)
    mask = None if blocked is None else blocked.repeat_interleave(H, 0)
    expected, _ = reference(*given, attn_mask=mask)
    torch.testing.assert_close(output, expected)
    tensors = list(dict.fromkeys(given))
    mine, theirs = gradients(output, tensors), gradients(expected, tensors)
    assert all(x.isfinite().all() and x.any() for x in mine)
    torch.testing.assert_close(mine, theirs)


def with_gradients(module: Any, output: torch.Tensor) -> Any:
    """Copy a module with its gradients in place of its parameters."""
    found = gradients(output, list(module.parameters()))
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for parameter, gradient in zip(twin.parameters(), found, strict=True):
            parameter.copy_(gradient)
    return twin


@each
def test_gradients_of_the_weights_are_equal(name: str) -> None:
    module, reference = pair(name)
    given, blocked = inputs(DESIGNS[name]), blocked_for(DESIGNS[name], "fully masked")
    mask = blocked.repeat_interleave(H, 0)
    mine = with_gradients(module, call(name, module, *given, blocked))
    theirs = with_gradients(reference, reference(*given, attn_mask=mask)[0])
    expected = copy.deepcopy(module)
    if name in LOADING:  # gradients are laid out as weights are
        expected.load_from(theirs)
    else:
        expected.output = theirs.out_proj
        if isinstance(module, SharedProjection):  # each block is one use of the shared matrix
            own = (expected.to_query, expected.to_key, expected.to_value)
            for linear, part in zip(own, theirs.in_proj_weight.chunk(3), strict=True):
                blocks = [part[i : i + D, i : i + D] for i in range(0, E, D)]
                linear.weight = torch.nn.Parameter(torch.stack(blocks).sum(0))
    torch.testing.assert_close(dict(mine.state_dict()), dict(expected.state_dict()))


@each_that_loads
def test_without_biases(name: str) -> None:
    module: Any = DESIGNS[name].build(E, H).double()
    reference = MultiheadAttention(E, H, bias=False, batch_first=True, dtype=torch.float64)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)  # biases that are left behind would show
    module.load_from(reference)
    given = inputs(DESIGNS[name])
    torch.testing.assert_close(call(name, module, *given, None), reference(*given)[0])


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_with_a_mask(name: str, dtype: torch.dtype) -> None:
    module, _ = pair(name, dtype)
    given = inputs(DESIGNS[name], dtype)
    output = call(name, module, *given, blocked_for(DESIGNS[name], "fully masked"))
    assert output.dtype == dtype
    assert output.isfinite().all()
    assert all(x.isfinite().all() for x in gradients(output, list(dict.fromkeys(given))))


@each
def test_deterministic_in_evaluation_and_trained_by_hooks(name: str) -> None:
    """A module like any other: parameters registered, hooks called, no trace of a call."""
    module, _ = pair(name)
    given = inputs(DESIGNS[name])
    called = []
    module.register_forward_hook(lambda *x: called.append(1))
    before = [x.clone() for x in given]
    first, second = (call(name, module, *given, None) for _ in range(2))
    assert called == [1, 1]
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    torch.testing.assert_close(list(given), before, rtol=0, atol=0)
    twin: Any = DESIGNS[name].build(E, H).double()
    twin.load_state_dict(module.state_dict())
    torch.testing.assert_close(call(name, twin, *given, None), first)


@each
def test_arguments_are_those_of_forward(name: str) -> None:
    expected = {
        "module per head": ("query", "key", "value", "mask"),
        "wide projection": ("x", "mask"),
        "shared projection": ("values", "keys", "query", "mask"),
        "sequence first": ("query", "key", "value", "mask"),
        "weighted scores": ("queries", "keys", "values", "attention_mask", "attention_weights"),
        "no projection": ("queries", "keys", "values", "attention_mask", "attention_weights"),
        "packed projection": ("query", "key", "value", "key_padding_mask", "attn_mask"),
    }
    assert DESIGNS[name].arguments == expected[name]


@each
def test_layout_and_mask_are_as_described(name: str) -> None:
    """In the design's own shapes, a mask of all True blocks everything, or nothing."""
    design = DESIGNS[name]
    module: Any = design.build(E, H).double()
    *named, (own_mask, ones) = own_arguments(design)

    def run(**mask: torch.Tensor) -> torch.Tensor:
        output = module(**dict(named), **mask)
        return output[0] if isinstance(output, tuple) else output

    true, false = run(**{own_mask: ones}), run(**{own_mask: ~ones})
    blocked, allowed = (true, false) if design.true_means == "blocked" else (false, true)
    query = next(x for argument, x in named if argument[0] in "qx")
    assert allowed.shape == query.shape
    torch.testing.assert_close(allowed, run())
    bias = module.get_parameter("out_proj.bias" if name.startswith("packed") else "output.bias")
    torch.testing.assert_close(blocked, bias.expand_as(blocked))


BAD: list[tuple[str, Any, type[Exception], str]] = [
    ("query", lambda x: x[0], ValueError, r"query must have three axes, got shape \(., 24\)"),
    ("query", lambda x: x[..., :7], ValueError, r"width \(7\) must be 24"),
    ("query", lambda x: x.tolist(), TypeError, "must be a tensor, got list"),
    ("query", lambda x: x.float(), TypeError, r"torch.float32\) must have the parameters' dtype"),
    ("key", lambda x: x[:1, :1], ValueError, "same batch size"),
    ("value", lambda x: torch.cat([x, x], 0), ValueError, "must equal key's length|batch size"),
    ("value", lambda x: torch.cat([x, x], 1), ValueError, "must equal key's length|batch size"),
    ("mask", lambda x: x.double(), TypeError, "must be boolean"),
    ("mask", lambda x: x.tolist(), TypeError, "must be a tensor"),
    ("mask", lambda x: torch.cat([x, x], -1), ValueError, "must have shape"),
    ("mask", lambda x: x[None, None], ValueError, "must have shape"),
    ("mask", lambda x: x.flatten()[:1], ValueError, "must have shape"),
]
BAD_CALLS = [
    (name, *bad)
    for name, design in DESIGNS.items()
    for bad in BAD
    if design.kind == "cross" or bad[0] in ("query", "mask")
]


@pytest.mark.parametrize(
    ("name", "what", "spoil", "kind", "message"),
    BAD_CALLS,
    ids=[f"{name}-{what}-{message}" for name, what, _, _, message in BAD_CALLS],
)
def test_bad_input_is_refused(
    name: str, what: str, spoil: Any, kind: type[Exception], message: str
) -> None:
    """In its own layout, order and convention: one argument is spoilt, the others are right."""
    design = DESIGNS[name]
    module: Any = design.build(E, H).double()
    given = dict(own_arguments(design))
    module(**given)
    begins = {"query": ("q", "x"), "key": ("k",), "value": ("v",), "mask": mask_name(design)}
    spoilt = next(argument for argument in given if argument.startswith(begins[what]))
    with pytest.raises(kind, match=message):
        module(**given | {spoilt: spoil(given[spoilt])})


def own_arguments(design: Design) -> list[tuple[str, torch.Tensor]]:
    """Make arguments in the design's own layout, by name, its mask last."""
    sizes = {"b": B, "n": N, "m": N if design.kind == "self" else M, "h": H, "e": E, "b * h": B * H}
    letters = design.layout.strip("()").split(", ")
    shape = [sizes[x] for x in letters]
    of_key = [sizes["m" if x == "n" else x] for x in letters]
    made = [
        (name, torch.randn(shape if name[0] in "qx" else of_key, dtype=torch.float64))
        for name in design.arguments
        if "mask" not in name and "weights" not in name
    ]
    mask = torch.ones([sizes[x] for x in design.mask.strip("()").split(", ")], dtype=torch.bool)
    return [*made, (mask_name(design), mask)]


def mask_name(design: Design) -> str:
    """Name the argument that takes the design's mask: the last one that is called a mask."""
    return [name for name in design.arguments if "mask" in name][-1]


def test_self_attention_alone_says_so() -> None:
    module, _ = pair("wide projection")
    x, y = torch.randn(2, B, N, E, dtype=torch.float64)
    with pytest.raises(ValueError, match="must be one tensor"):
        call("wide projection", module, x, y, y, None)


@pytest.mark.parametrize("name", [x for x in DESIGNS if "(b, h" in DESIGNS[x].mask])
def test_a_mask_without_heads_is_not_taken_for_one_with(name: str) -> None:
    """With b = h, (b, n, m) would broadcast to (b, h, n, m), and b would be read as h."""
    design = DESIGNS[name]
    module: Any = design.build(E, H)
    x = torch.randn(H, N, E)
    given = {key: x for key in design.arguments if "mask" not in key and "weights" not in key}
    with pytest.raises(ValueError, match=r"mask \(4, 3, 3\) must have shape \(b, h, n, "):
        module(**given, **{mask_name(design): torch.zeros(H, N, N, dtype=torch.bool)})


@each
def test_bad_settings_are_refused(name: str) -> None:
    build = DESIGNS[name].build
    with pytest.raises(ValueError, match=r"embed_dim \(10\) must be divisible by num_heads \(4\)"):
        build(10, 4)
    with pytest.raises(ValueError, match=r"num_heads \(0\) must be at least 1"):
        build(E, 0)
    with pytest.raises(TypeError, match="embed_dim"):
        build(24.0, 4)  # type: ignore[arg-type]


BAD_REFERENCES: list[tuple[Any, type[Exception], str]] = [
    (torch.nn.Linear(E, E), TypeError, "must be a MultiheadAttention, got an object of type Linea"),
    (MultiheadAttention(E + H, H), ValueError, r"reference's embed_dim \(28\) must be 24"),
    (MultiheadAttention(E, 3), ValueError, r"reference's num_heads \(3\) must be 4"),
    (MultiheadAttention(E, H, kdim=5), ValueError, r"embed_dim \(24\), got 5 and 24"),
    (MultiheadAttention(E, H, add_zero_attn=True), ValueError, "neither add_bias_kv nor"),
    (MultiheadAttention(E, H, add_bias_kv=True), ValueError, "neither add_bias_kv nor"),
]


@each_that_loads
@pytest.mark.parametrize(("reference", "kind", "message"), BAD_REFERENCES, ids=range(6))
def test_bad_references_are_refused(
    name: str, reference: Any, kind: type[Exception], message: str
) -> None:
    module: Any = DESIGNS[name].build(E, H)
    with pytest.raises(kind, match=message):
        module.load_from(reference)


@each_that_loads
def test_loads_from_pytorchs_module(name: str) -> None:
    module: Any = DESIGNS[name].build(E, H)
    reference = torch.nn.MultiheadAttention(E, H, batch_first=True)
    module.load_from(reference)
    x = torch.randn(B, N, E)
    torch.testing.assert_close(call(name, module, x, x, x, None), reference(x, x, x)[0])


DEMOS = {
    "shared projection": ((10, 20, 256), (10, 50, 256)),
    "weighted scores": ((50, 49, 512), (50, 49, 512)),
    "no projection": ((50, 49, 512), (50, 49, 512)),
}


@pytest.mark.parametrize("name", DEMOS)
def test_runs_at_its_own_demo_sizes(name: str) -> None:
    of_query, of_key = DEMOS[name]
    query, key = torch.randn(of_query), torch.randn(of_key)
    with torch.no_grad():
        output = call(name, DESIGNS[name].build(of_query[-1], 8), query, key, key, None)
    assert output.shape == of_query
    assert output.isfinite().all()

"""Every published design, called alike: equal to multi-head attention, clear about bad input.

Then what each has of its own.
"""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import MultiheadAttention, block_future, block_padding
from annotated_attention.published import (
    DESIGNS,
    Design,
    NoProjection,
    PackedProjection,
    SequenceFirst,
    SharedProjection,
    WeightedScores,
)

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
each = pytest.mark.parametrize("name", DESIGNS)
LOADING = [name for name, design in DESIGNS.items() if hasattr(design.module, "load_from")]


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=source, dtype=torch.float64).to(dtype) for shape in shapes]


def inputs(design: Design, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Make query, key and value, one tensor where the design takes one."""
    query, key, value = (
        x.requires_grad_() for x in tensors((B, N, E), (B, M, E), (B, M, E), dtype=dtype)
    )
    return [query] * 3 if design.kind == "self" else [query, key, value]


def blocked_for(design: Design, which: str) -> Tensor | None:
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


def gradients(output: Tensor, sources: Any) -> list[Tensor]:
    mixture = torch.randn(output.shape, generator=torch.Generator().manual_seed(3)).to(output)
    return list(torch.autograd.grad((output * mixture).sum(), sources, materialize_grads=True))


def with_gradients(module: Any, output: Tensor) -> Any:
    """Copy a module with its gradients in place of its parameters."""
    twin = copy.deepcopy(module)
    found = gradients(output, list(module.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(twin.parameters(), found, strict=True):
            parameter.copy_(gradient)
    return twin


@each
@pytest.mark.parametrize("which", ["none", "some", "causal", "fully masked"])
def test_equal_to_multihead_attention(name: str, which: str) -> None:
    """Outputs, and gradients of inputs and weights; nothing of the inputs is changed."""
    design, (module, reference) = DESIGNS[name], pair(name)
    given, blocked = inputs(design), blocked_for(design, which)
    before = [x.detach().clone() for x in given]
    mask = None if blocked is None else blocked.repeat_interleave(H, 0)

    def run() -> tuple[Tensor, Tensor]:
        return design.call(module, *given, blocked), reference(*given, attn_mask=mask)[0]

    output, expected = run()
    torch.testing.assert_close(output, expected)
    mine, theirs = (gradients(x, list(dict.fromkeys(given))) for x in run())
    assert all(x.isfinite().all() and x.any() for x in mine)
    torch.testing.assert_close(mine, theirs)
    assert all(map(torch.equal, given, before))

    own, other = with_gradients(module, output), with_gradients(reference, expected)
    laid_out = copy.deepcopy(module)  # gradients are laid out as weights are
    if name in LOADING:
        laid_out.load_from(other)
    else:
        laid_out.output = other.out_proj
    if isinstance(module, SharedProjection):  # each block is one use of the shared matrix
        shared = (laid_out.to_query, laid_out.to_key, laid_out.to_value)
        for linear, part in zip(shared, other.in_proj_weight.chunk(3), strict=True):
            blocks = [part[i : i + D, i : i + D] for i in range(0, E, D)]
            linear.weight = torch.nn.Parameter(torch.stack(blocks).sum(0))
    torch.testing.assert_close(dict(own.state_dict()), dict(laid_out.state_dict()))


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_with_a_mask(name: str, dtype: torch.dtype) -> None:
    design, (module, _) = DESIGNS[name], pair(name, dtype)
    given = inputs(design, dtype)
    output = design.call(module, *given, blocked_for(design, "fully masked"))
    assert output.dtype == dtype
    assert output.isfinite().all()
    assert all(x.isfinite().all() for x in gradients(output, list(dict.fromkeys(given))))


@pytest.mark.parametrize("name", LOADING)
def test_loads_from_pytorchs_module_and_without_biases(name: str) -> None:
    design, x = DESIGNS[name], tensors((B, N, E))[0]
    for bias in (True, False):
        reference = torch.nn.MultiheadAttention(
            E, H, bias=bias, batch_first=True, dtype=torch.float64
        )
        module: Any = design.build(E, H).double()
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter)  # biases that are left behind would show
        module.load_from(reference)
        torch.testing.assert_close(design.call(module, x, x, x, None), reference(x, x, x)[0])


@each
def test_layout_and_mask_are_as_described(name: str) -> None:
    """In the design's own shapes, a mask of all True blocks everything, or nothing."""
    design = DESIGNS[name]
    module: Any = design.build(E, H).double()
    *named, (own_mask, ones) = own_arguments(design)

    def run(**mask: Tensor) -> Tensor:
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
    ("mask", lambda x: x.double(), TypeError, "must be boolean"),
    ("mask", lambda x: x.tolist(), TypeError, "must be a tensor"),
    ("mask", lambda x: torch.cat([x, x], -1), ValueError, "must have shape"),
    ("mask", lambda x: x[None, None], ValueError, "must have shape"),
    ("mask", lambda x: x.flatten()[:1], ValueError, "must have shape"),
]


@each
def test_bad_input_is_refused(name: str) -> None:
    """In its own layout, order and convention: one argument is spoilt, the others are right."""
    design = DESIGNS[name]
    module: Any = design.build(E, H).double()
    given = dict(own_arguments(design))
    module(**given)
    begins = {"query": ("q", "x"), "key": ("k",), "value": ("v",), "mask": mask_name(design)}
    for what, spoil, kind, message in BAD:
        if design.kind == "self" and what in ("key", "value"):
            continue
        spoilt = next(argument for argument in given if argument.startswith(begins[what]))
        with pytest.raises(kind, match=message):
            module(**given | {spoilt: spoil(given[spoilt])})


def own_arguments(design: Design) -> list[tuple[str, Tensor]]:
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


@pytest.mark.parametrize("name", [x for x in DESIGNS if "(b, h" in DESIGNS[x].mask])
def test_a_mask_without_heads_is_not_taken_for_one_with(name: str) -> None:
    """With b = h, (b, n, m) would broadcast to (b, h, n, m), and b would be read as h."""
    design = DESIGNS[name]
    module: Any = design.build(E, H)
    x = torch.randn(H, N, E)
    given = {key: x for key in design.arguments if "mask" not in key and "weights" not in key}
    with pytest.raises(ValueError, match=r"mask \(4, 3, 3\) must have shape \(b, h, n, "):
        module(**given, **{mask_name(design): torch.zeros(H, N, N, dtype=torch.bool)})


BAD_REFERENCES: list[tuple[Any, type[Exception], str]] = [
    (torch.nn.Linear(E, E), TypeError, "must be a MultiheadAttention, got an object of type Linea"),
    (MultiheadAttention(E + H, H), ValueError, r"reference's embed_dim \(28\) must be 24"),
    (MultiheadAttention(E, 3), ValueError, r"reference's num_heads \(3\) must be 4"),
    (MultiheadAttention(E, H, kdim=5), ValueError, r"embed_dim \(24\), got 5 and 24"),
    (MultiheadAttention(E, H, add_zero_attn=True), ValueError, "neither add_bias_kv nor"),
    (MultiheadAttention(E, H, add_bias_kv=True), ValueError, "neither add_bias_kv nor"),
]


@each
def test_bad_settings_and_references_are_refused(name: str) -> None:
    build: Any = DESIGNS[name].build
    with pytest.raises(ValueError, match=r"embed_dim \(10\) must be divisible by num_heads \(4\)"):
        build(10, 4)
    with pytest.raises(TypeError, match="embed_dim"):
        build(24.0, 4)
    for reference, kind, message in BAD_REFERENCES if name in LOADING else ():
        with pytest.raises(kind, match=message):
            build(E, H).load_from(reference)


BAD_CALLS: list[tuple[Any, str]] = [
    (
        lambda: DESIGNS["wide projection"].call(None, torch.ones(1), torch.ones(1), None, None),
        "must be one tensor",
    ),
    (lambda: SequenceFirst(H, E, dropout=1.5), r"dropout \(1.5\)"),
    (lambda: PackedProjection(E, H, dropout=1.5), r"dropout \(1.5\)"),
    (lambda: WeightedScores(E, D, D, H, dropout=1.5), r"dropout \(1.5\)"),
    (lambda: WeightedScores(E, 0, D, H), r"key_dim \(0\) must be at least 1"),
    (
        lambda: WeightedScores(10, 3, 7, 4).load_from(MultiheadAttention(10, 5)),
        r"num_heads \* key_dim \(12\) must be embed_dim \(10\)",
    ),
    (
        lambda: WeightedScores(20, 5, 10, 4).load_from(MultiheadAttention(20, 4)),
        r"num_heads \* value_dim \(40\) must be embed_dim",
    ),
    (
        lambda: PackedProjection(E, H, bias=False).load_from(MultiheadAttention(E, H)),
        "there is no place for its biases",
    ),
    (
        lambda: PackedProjection(E, H)(*[torch.randn(N, B, E)] * 3, None, torch.ones(1, N, N) > 0),
        "attn_mask",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_bad_options_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def loaded(module: Any, **options: Any) -> tuple[Any, MultiheadAttention]:
    """Give a sequence-first module the weights of a reference."""
    reference = MultiheadAttention(E, H, dtype=torch.float64, **options)
    module.double().load_from(reference)
    return module, reference


class Relative(SequenceFirst):
    """Adds a number for each distance to the scores."""

    def get_scores(self, query: Tensor, key: Tensor) -> Tensor:
        i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
        return super().get_scores(query, key) + (j - i)[..., None, None]


def test_scores_can_be_overridden() -> None:
    query, key = tensors((N, B, E), (M, B, E))
    module, reference = loaded(Relative(H, E, dropout=0.0))
    bias = (torch.arange(M) - torch.arange(N)[:, None]) / math.sqrt(D)  # the scale covers it, too
    expected, _ = reference(query, key, key, attn_mask=bias.double())
    torch.testing.assert_close(module(query=query, key=key, value=key), expected)


def test_masks_of_integers_and_with_sizes_of_one() -> None:
    query, key = tensors((N, B, E), (M, B, E))
    module, reference = loaded(SequenceFirst(H, E, dropout=0.0))
    future, padding = block_future(N, M), block_padding(torch.tensor([3, 5]), M)
    for mask, options in (
        (~future[..., None], {"attn_mask": future}),
        ((~padding.T[None]).int(), {"key_padding_mask": padding}),
    ):
        output = module(query=query, key=key, value=key, mask=mask)
        torch.testing.assert_close(output, reference(query, key, key, **options)[0])


def test_biases_that_cannot_be_left_out() -> None:
    parameters = SequenceFirst(H, E, bias=False).named_parameters()
    names = [name for name, _ in parameters if name.endswith("bias")]
    assert names == ["value.bias", "output.bias"]


def test_weighted_scores_by_its_own_formula() -> None:
    """d_k, d_v and e that have nothing to do with each other, factors and a mask."""
    h, d_k, d_v, e = 4, 3, 7, 10
    query, key, value, factors = tensors((B, N, e), (B, M, e), (B, M, e), (B, h, N, M))
    blocked = torch.rand(B, h, N, M, generator=torch.Generator().manual_seed(1)) < 0.3
    blocked[..., 0] = False
    module = WeightedScores(e, d_k, d_v, h, dropout=0.0).double()
    heads = []
    for i in range(h):
        of_k, of_v = slice(i * d_k, (i + 1) * d_k), slice(i * d_v, (i + 1) * d_v)
        q = query @ module.to_query.weight[of_k].T + module.to_query.bias[of_k]
        k = key @ module.to_key.weight[of_k].T + module.to_key.bias[of_k]
        v = value @ module.to_value.weight[of_v].T + module.to_value.bias[of_v]
        scores = factors[:, i] * (q @ k.mT) / math.sqrt(d_k)
        heads.append(scores.masked_fill(blocked[:, i], -math.inf).softmax(-1) @ v)
    expected = torch.cat(heads, -1) @ module.output.weight.T + module.output.bias
    output = module(query, key, value, blocked, factors)
    torch.testing.assert_close(output, expected)
    leaves = list(module.parameters())
    torch.testing.assert_close(gradients(output, leaves), gradients(expected, leaves))


@pytest.mark.parametrize("module", [NoProjection(E, H), WeightedScores(E, D, D, H)])
def test_factors_multiply_the_scores(module: Any) -> None:
    module, x = module.double().eval(), tensors((B, N, E))[0]
    ones = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    torch.testing.assert_close(module(x, x, x, None, ones), module(x, x, x))
    even = module(x, x, x, None, ones * 0)  # equal scores, equal weights
    torch.testing.assert_close(even, even[:, :1].expand_as(even))
    for wrong in (torch.ones(B, N, N), torch.ones(B, H, N, N + 1)):
        with pytest.raises(ValueError, match=r"attention_weights \(.*\) must have shape"):
            module(x, x, x, None, wrong.double())
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.bool"):
        module(x, x, x, None, ones.bool())


@pytest.mark.parametrize(
    "name", ["sequence first", "weighted scores", "no projection", "packed projection"]
)
def test_dropout_in_training_alone(name: str) -> None:
    (module, _), x = pair(name), tensors((B, N, E))[0]
    module.dropout = 0.5
    call = DESIGNS[name].call
    assert not call(module, x, x, x, None).equal(call(module, x, x, x, None))
    module.eval()
    assert call(module, x, x, x, None).equal(call(module, x, x, x, None))


def test_packed_masks_are_merged() -> None:
    """The weights are those before dropout."""
    query, key = tensors((N, B, E), (M, B, E))
    module, reference = loaded(PackedProjection(E, H))
    padding = block_padding(torch.tensor([3, 4]), M)
    some = torch.rand(B * H, N, M, generator=torch.Generator().manual_seed(1)) < 0.3
    some[..., 0] = False
    pairs = [(None, None), (padding, None), (padding, some), (padding, block_future(N, M))]
    for masks in pairs:
        expected = reference(query, key, key, masks[0], True, masks[1], False)
        torch.testing.assert_close(module(query, key, key, *masks), expected)
    module.dropout = 0.5
    torch.testing.assert_close(module(query, key, key, *masks)[1], expected[1])
    with pytest.raises(TypeError, match="key_padding_mask must be boolean"):
        module(query, key, key, padding.double())

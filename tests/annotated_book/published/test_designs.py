"""Every published design, called alike: equal to multi-head attention, clear about bad input.

Then what each has of its own.
"""

import math
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import MultiheadAttention, block_future, block_padding
from annotated_book.published import (
    DESIGNS,
    Design,
    NoProjection,
    SequenceFirst,
    SharedProjection,
    WeightedScores,
)

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
each = pytest.mark.parametrize("name", DESIGNS)


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=source, dtype=torch.float64) for shape in shapes]


def inputs(design: type[Design]) -> list[Tensor]:
    """Make query, key and value, one tensor where the design takes one."""
    query, key, value = (x.requires_grad_() for x in tensors((B, N, E), (B, M, E), (B, M, E)))
    return [query] * 3 if design.kind == "self" else [query, key, value]


def blocked_for(design: type[Design]) -> Tensor:
    """Make a mask, (b, n, m); other in each sample, and in one of them a row is fully masked."""
    m = N if design.kind == "self" else M
    blocked = torch.rand(B, N, m, generator=torch.Generator().manual_seed(1)) < 0.4
    blocked[..., 0] = False
    blocked[1, 2] = True
    return blocked


def pair(name: str) -> tuple[Any, MultiheadAttention]:
    torch.manual_seed(2)
    module, reference = DESIGNS[name].pair(E, H)
    return module.double(), reference.double()


def gradients(output: Tensor, sources: Any) -> tuple[Tensor, ...]:
    mixture = torch.randn(output.shape, generator=torch.Generator().manual_seed(3)).to(output)
    return torch.autograd.grad((output * mixture).sum(), sources)


@each
@pytest.mark.parametrize("masked", [False, True])
def test_equal_to_multihead_attention(name: str, masked: bool) -> None:
    """Outputs and gradients; the gradients of a matrix of our class hold those of its parts."""
    design, (module, reference) = DESIGNS[name], pair(name)
    given, blocked = inputs(design), blocked_for(design) if masked else None
    mask = None if blocked is None else blocked.repeat_interleave(H, 0)
    before = [x.detach().clone() for x in given]
    output, expected = design.call(module, *given, blocked), reference(*given, attn_mask=mask)[0]
    torch.testing.assert_close(output, expected)
    parameters, sources = [*module.parameters()], [*dict.fromkeys(given)]
    mine = gradients(output, sources + parameters)
    of_inputs, theirs = (x[: len(sources)] for x in (mine, gradients(expected, sources)))
    torch.testing.assert_close(of_inputs, theirs)
    assert all(map(torch.equal, given, before))

    if not isinstance(module, NoProjection | SharedProjection):
        with torch.no_grad():
            for parameter, gradient in zip(parameters, mine[len(sources) :], strict=True):
                parameter.copy_(gradient)
        expected = gradients(reference(*given, attn_mask=mask)[0], [*reference.parameters()])
        torch.testing.assert_close([*module.as_multihead().parameters()], [*expected])


OWN = {  # what each calls its arguments, its mask last
    name: [
        x
        for x in signature(design.forward).parameters
        if x not in ("self", "key_padding_mask", "attention_weights")
    ]
    for name, design in DESIGNS.items()
}


def own_arguments(name: str) -> dict[str, Tensor]:
    """Make arguments in the design's own layout, in its own order, by name, its mask last."""
    design = DESIGNS[name]
    sizes = {"b": B, "n": N, "m": N if design.kind == "self" else M, "h": H, "e": E, "b * h": B * H}

    def shape(letters: str) -> list[int]:
        return [sizes[x] for x in letters.strip("()").split(", ")]

    *inputs, mask = OWN[name]
    made = {
        x: torch.randn(shape(design.layout if x[0] in "qx" else design.layout.replace("n", "m")))
        for x in inputs
    }
    made = {x: y.double() for x, y in made.items()}
    return made | {mask: torch.ones(shape(design.mask_axes)) > 0}


def run(module: Any, given: dict[str, Tensor]) -> Tensor:
    output = module(**given)
    return output[0] if isinstance(output, tuple) else output


@each
def test_layout_and_mask_are_as_described(name: str) -> None:
    """In the design's own shapes, a mask of all True blocks everything, or nothing."""
    module: Any = DESIGNS[name].build(E, H).double()
    given = own_arguments(name)
    *_, mask = given
    true, false = run(module, given), run(module, given | {mask: ~given[mask]})
    blocked, allowed = (true, false) if DESIGNS[name].true_means == "blocked" else (false, true)
    query = next(x for argument, x in given.items() if argument[0] in "qx")
    assert allowed.shape == query.shape
    assert not allowed.equal(blocked)
    bias = module.get_parameter("out_proj.bias" if name.startswith("packed") else "output.bias")
    torch.testing.assert_close(blocked, bias.expand_as(blocked))
    if DESIGNS[name].true_means == "blocked":
        with pytest.raises(TypeError, match="must be boolean"):
            run(module, given | {mask: given[mask].long()})


BAD: list[tuple[str, Any, type[Exception], str]] = [
    ("qx", lambda x: x[0], ValueError, r"query must have three axes, got shape \(., 24\)"),
    ("qx", lambda x: x[..., :7], ValueError, r"width \(7\) must be 24"),
    ("qx", lambda x: x.float(), TypeError, r"torch.float32\) must have the parameters' dtype"),
    ("k", lambda x: x[:1, :1], ValueError, "same batch size"),
    ("v", lambda x: torch.cat([x, x], 0), ValueError, "must equal key's length|batch size"),
    ("ma", lambda x: x.double(), TypeError, "must be boolean"),
    ("ma", lambda x: x.tolist(), TypeError, "must be a tensor"),
    ("ma", lambda x: torch.cat([x, x], -1), ValueError, "must have shape"),
    ("ma", lambda x: x.flatten()[:1], ValueError, "must have shape"),
]


@each
def test_bad_input_is_refused(name: str) -> None:
    """In its own layout, order and convention: one argument is spoilt, the others are right."""
    module: Any = DESIGNS[name].build(E, H).double()
    given = own_arguments(name)
    for begins, spoil, kind, message in BAD:
        for spoilt in [x for x in given if x[0] in begins]:
            with pytest.raises(kind, match=message):
                run(module, given | {spoilt: spoil(given[spoilt])})


@each
def test_bad_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"embed_dim \(10\) must be divisible by num_heads \(4\)"):
        DESIGNS[name].build(10, 4)


def test_other_bad_calls_are_refused() -> None:
    x = torch.ones(1)
    with pytest.raises(ValueError, match="must be one tensor"):
        DESIGNS["wide projection"].call(DESIGNS["wide projection"].build(E, H), x, x, x + 1, None)
    with pytest.raises(ValueError, match=r"key_dim \(0\) must be at least 1"):
        WeightedScores(E, 0, D, H)
    with pytest.raises(RuntimeError, match="size mismatch for in_proj_weight"):
        WeightedScores(20, 5, 10, 4).as_multihead()


def test_scores_can_be_overridden() -> None:
    query, key = tensors((B, N, E), (B, M, E))
    module, _ = pair("sequence first")
    module.get_scores = lambda q, k: SequenceFirst.get_scores(module, 0 * q, k)
    expected = module.output(module.to_value(key).mean(1, keepdim=True)).expand(B, N, E)
    torch.testing.assert_close(module.call(query, key, key, None), expected)


def test_masks_of_integers_and_with_sizes_of_one() -> None:
    query, key = tensors((B, N, E), (B, M, E))
    module, reference = pair("sequence first")
    q, k = query.transpose(0, 1), key.transpose(0, 1)
    future, padding = block_future(N, M), block_padding(torch.tensor([3, 5]), M)
    for mask, options in (
        (~future[..., None], {"attn_mask": future}),
        ((~padding.T[None]).int(), {"key_padding_mask": padding}),
    ):
        output = module(query=q, key=k, value=k, mask=mask).transpose(0, 1)
        torch.testing.assert_close(output, reference(query, key, key, **options)[0])


def test_weighted_scores_by_its_own_formula() -> None:
    """d_k, d_v and e that have nothing to do with each other, factors and a mask."""
    h, d_k, d_v, e = 4, 3, 7, 10
    query, key, value, factors = tensors((B, N, e), (B, M, e), (B, M, e), (B, h, N, M))
    blocked = torch.rand(B, h, N, M, generator=torch.Generator().manual_seed(1)) < 0.3
    blocked[..., 0] = False
    module = WeightedScores(e, d_k, d_v, h).double()
    heads = []
    for i in range(h):
        of_k, of_v = slice(i * d_k, (i + 1) * d_k), slice(i * d_v, (i + 1) * d_v)
        q = query @ module.to_query.weight[of_k].T + module.to_query.bias[of_k]
        k = key @ module.to_key.weight[of_k].T + module.to_key.bias[of_k]
        v = value @ module.to_value.weight[of_v].T + module.to_value.bias[of_v]
        scores = factors[:, i] * (q @ k.mT) / math.sqrt(d_k)
        heads.append(scores.masked_fill(blocked[:, i], -math.inf).softmax(-1) @ v)
    expected = torch.cat(heads, -1) @ module.output.weight.T + module.output.bias
    torch.testing.assert_close(module(query, key, value, blocked, factors), expected)
    for wrong in (factors[:, 0], torch.cat([factors, factors], -1)):
        with pytest.raises(ValueError, match=r"attention_weights \(.*\) must have shape"):
            module(query, key, value, None, wrong)
    with pytest.raises(TypeError, match=r"attention_weights must be floats, got torch\.bool"):
        module(query, key, value, None, blocked)


def test_packed_masks_are_merged() -> None:
    query, key = tensors((B, N, E), (B, M, E))
    module, reference = pair("packed projection")
    padding = block_padding(torch.tensor([3, 4]), M)
    some = torch.rand(B * H, N, M, generator=torch.Generator().manual_seed(1)) < 0.3
    some[..., 0] = False
    q, k = query.transpose(0, 1), key.transpose(0, 1)
    for masks in [(None, None), (padding, None), (padding, some), (padding, block_future(N, M))]:
        output, weights = module(q, k, k, *masks)
        expected = reference(query, key, key, masks[0], True, masks[1], False)
        torch.testing.assert_close((output.transpose(0, 1), weights), expected)
    with pytest.raises(TypeError, match="key_padding_mask must be boolean"):
        module(q, k, k, padding.double())

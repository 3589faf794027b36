"""What each published design has of its own."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import MultiheadAttention, block_future, block_padding
from annotated_attention.published import (
    ModulePerHead,
    NoProjection,
    PackedBase,
    PackedProjection,
    PrepareHeads,
    SequenceFirst,
    SharedProjection,
    Shortest,
    WeightedScores,
)

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=source, dtype=torch.float64) for shape in shapes]


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_every_head_is_registered() -> None:
    module = ModulePerHead(E, H)
    assert count(module) == count(MultiheadAttention(E, H)) == 4 * E * E + 4 * E
    assert len(module.state_dict()) == 6 * H + 2


def test_shared_projection_is_smaller_and_scales_by_its_own_width() -> None:
    assert count(SharedProjection(256, 8)) == 3 * 32**2 + 256**2 + 256 == 68_864
    query, key, value = tensors((B, N, E), (B, M, E), (B, M, E))
    module = SharedProjection(E, H).double()
    for linear in (module.to_query, module.to_key, module.to_value):
        torch.nn.init.eye_(linear.weight)
    torch.nn.init.eye_(module.output.weight)
    torch.nn.init.zeros_(module.output.bias)
    output = module(value, key, query)
    for i in range(0, E, D):  # each slice by itself
        q, k, v = (x[..., i : i + D] for x in (query, key, value))
        expected = (q @ k.mT / math.sqrt(D)).softmax(-1) @ v
        torch.testing.assert_close(output[..., i : i + D], expected)


class Relative(SequenceFirst):
    """Adds a number for each distance to the scores."""

    def get_scores(self, query: Tensor, key: Tensor) -> Tensor:
        i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
        return super().get_scores(query, key) + (j - i)[..., None, None]


def test_scores_can_be_overridden() -> None:
    query, key = tensors((N, B, E), (M, B, E))
    plain, other = (cls(H, E).double().eval() for cls in (SequenceFirst, Relative))
    other.load_state_dict(plain.state_dict())
    reference = MultiheadAttention(E, H, dtype=torch.float64)
    plain.load_from(reference)
    other.load_from(reference)
    bias = (torch.arange(M) - torch.arange(N)[:, None]) / math.sqrt(D)  # the scale covers it, too
    expected, _ = reference(query, key, key, attn_mask=bias.double())
    torch.testing.assert_close(other(query=query, key=key, value=key), expected)
    assert not torch.allclose(plain(query=query, key=key, value=key), expected)


def test_sequence_first_is_called_by_keyword() -> None:
    x = torch.randn(N, B, E)
    with pytest.raises(TypeError):
        SequenceFirst(H, E)(x, x, x)


@pytest.mark.parametrize("leading", [(), (B,), (N, B), (2, N, B)])
def test_prepare_takes_any_leading_shape(leading: tuple[int, ...]) -> None:
    prepare = PrepareHeads(E, H, D, bias=True).double()
    (x,) = tensors((*leading, E))
    prepared = prepare(x)
    assert prepared.shape == (*leading, H, D)
    assert prepared.flatten(-2).equal(prepare.linear(x))


def test_weights_are_kept_and_shown() -> None:
    query, key = (x.requires_grad_() for x in tensors((N, B, E), (M, B, E)))
    seen: list[Tensor] = []
    module = SequenceFirst(H, E, dropout=0.5, on_weights=seen.append).double()
    reference = MultiheadAttention(E, H, dtype=torch.float64)
    module.load_from(reference)
    assert module.last_weights is None
    module(query=query, key=key, value=key)
    (weights,) = seen
    assert module.last_weights is weights
    assert not weights.requires_grad
    _, expected = reference(query, key, key, average_attn_weights=False)
    torch.testing.assert_close(weights, expected.permute(2, 3, 0, 1).detach())
    assert "last_weights" not in module.state_dict()

    module.keep_weights = False
    module(query=query, key=key, value=key)
    assert module.last_weights is None
    assert len(seen) == 2


def test_masks_that_differ_from_query_to_query() -> None:
    """(n, m, b) with n and m that differ, and the same for all queries, or for all samples."""
    query, key = tensors((N, B, E), (M, B, E))
    module = SequenceFirst(H, E, dropout=0.0).double()
    reference = MultiheadAttention(E, H, dtype=torch.float64)
    module.load_from(reference)
    future, padding = block_future(N, M), block_padding(torch.tensor([3, 5]), M)
    for mask, options in (
        (~future[..., None], {"attn_mask": future}),
        (~padding.T[None], {"key_padding_mask": padding}),
        ((~padding.T[None]).int(), {"key_padding_mask": padding}),
    ):
        output = module(query=query, key=key, value=key, mask=mask)
        torch.testing.assert_close(output, reference(query, key, key, **options)[0])


def test_a_query_bias_is_optional_and_a_value_bias_is_not() -> None:
    module = SequenceFirst(H, E, bias=False)
    names = [name for name, _ in module.named_parameters() if name.endswith("bias")]
    assert names == ["value.linear.bias", "output.bias"]
    with pytest.raises(ValueError, match="reference must have bias=False"):
        module.load_from(MultiheadAttention(E, H))


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
    mine, theirs = (torch.autograd.grad(x.square().sum(), leaves) for x in (output, expected))
    torch.testing.assert_close(mine, theirs)
    with pytest.raises(ValueError, match=r"num_heads \* key_dim \(12\) must be embed_dim \(10\)"):
        module.load_from(MultiheadAttention(e, 5))
    with pytest.raises(ValueError, match=r"num_heads \* value_dim \(40\) must be embed_dim"):
        WeightedScores(20, 5, 10, 4).load_from(MultiheadAttention(20, 4))


@pytest.mark.parametrize("cls", [NoProjection, WeightedScores])
def test_factors_multiply_the_scores(cls: Any) -> None:
    query, key, value = tensors((B, N, E), (B, M, E), (B, M, E))
    module = (cls(E, H) if cls is NoProjection else cls(E, D, D, H)).double().eval()
    ones = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    plain = module(query, key, value)
    torch.testing.assert_close(module(query, key, value, None, ones), plain)
    even = module(query, key, value, None, ones * 0)  # equal scores, equal weights
    torch.testing.assert_close(even, even[:, :1].expand_as(even))
    for wrong, message in (
        (torch.ones(B, N, M), r"attention_weights \(2, 3, 5\) must have shape"),
        (torch.ones(B, H, N, M + 1), "must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            module(query, key, value, None, wrong.double())
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.bool"):
        module(query, key, value, None, ones.bool())
    with pytest.raises(TypeError, match=r"attention_mask must be boolean, True = blocked, got tor"):
        module(query, key, value, ones.int())


@pytest.mark.parametrize(
    "module",
    [
        SequenceFirst(H, E, dropout=0.5),
        WeightedScores(E, D, D, H, dropout=0.5),
        NoProjection(E, H, dropout=0.5),
        PackedProjection(E, H, dropout=0.5),
    ],
    ids=lambda module: type(module).__name__,
)
def test_dropout_in_training_alone(module: Any) -> None:
    x = torch.randn(N, B, E)
    given = dict.fromkeys(("query", "key", "value"), x)
    if isinstance(module, WeightedScores | NoProjection):
        given = {name + "s": x for name in ("querie", "key", "value")}

    def run() -> Tensor:
        output = module(**given)
        return output[0] if isinstance(output, tuple) else output

    assert not run().equal(run())
    module.eval()
    assert run().equal(run())


def test_dropout_goes_up_to_one_and_no_further() -> None:
    for build in (SequenceFirst, PackedProjection):
        with pytest.raises(ValueError, match=r"dropout \(1.5\)"):
            build(4, 24, dropout=1.5) if build is SequenceFirst else build(24, 4, dropout=1.5)
    with pytest.raises(ValueError, match=r"dropout \(1.5\)"):
        WeightedScores(E, D, D, H, dropout=1.5)
    with pytest.raises(ValueError, match=r"key_dim \(0\) must be at least 1"):
        WeightedScores(E, 0, D, H)


def test_packed_masks_are_merged() -> None:
    query, key = tensors((N, B, E), (M, B, E))
    module = PackedProjection(E, H).double()
    reference = MultiheadAttention(E, H, dtype=torch.float64)
    module.load_from(reference)
    padding = block_padding(torch.tensor([3, 4]), M)
    some = torch.rand(B * H, N, M, generator=torch.Generator().manual_seed(1)) < 0.3
    some[..., 0] = False
    for masks in (
        (None, None),
        (padding, None),
        (None, some),
        (padding, some),
        (padding, block_future(N, M)),
    ):
        output, weights = module(query, key, key, *masks)
        expected, expected_weights = reference(
            query,
            key,
            key,
            key_padding_mask=masks[0],
            attn_mask=masks[1],
            average_attn_weights=False,
        )
        torch.testing.assert_close((output, weights), (expected, expected_weights))
    with pytest.raises(TypeError, match="key_padding_mask must be boolean"):
        module(query, key, key, padding.double())
    with pytest.raises(ValueError, match="attn_mask"):
        module(query, key, key, None, some[0][None])


def test_packed_weights_are_those_before_dropout() -> None:
    x = torch.randn(N, B, E)
    _, weights = PackedProjection(E, H, dropout=0.5)(x, x, x)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, N))


def test_the_base_class_is_there_to_be_filled() -> None:
    with pytest.raises(TypeError, match="attention"):
        PackedBase(E, H)  # type: ignore[abstract]

    class Uniform(PackedBase):
        def attention(
            self, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None
        ) -> tuple[Tensor, Tensor]:
            weights = q.new_full((len(q), q.size(1), k.size(1)), 1 / k.size(1))
            return weights @ v, weights

    query, key = tensors((N, B, E), (M, B, E))
    module = Uniform(E, H).double()
    output, weights = module(query, key, key)
    value = key.mean(0) @ module.in_proj_weight[2 * E :].T  # (b, e), the average value
    torch.testing.assert_close(output, module.out_proj(value).expand(N, -1, -1))
    assert weights.shape == (B, H, N, M)


def test_packed_without_biases() -> None:
    module = PackedProjection(E, H, bias=False)
    assert sum(name.endswith("bias") for name, _ in module.named_parameters()) == 0
    with pytest.raises(ValueError, match="there is no place for its biases"):
        module.load_from(MultiheadAttention(E, H))


def test_shortest_equals_multihead_attention() -> None:
    query, key, value = (x.requires_grad_() for x in tensors((N, B, E), (M, B, E), (M, B, E)))
    module = Shortest(E, H).double()
    reference = MultiheadAttention(E, H, bias=False, dtype=torch.float64)
    module.load_from(reference)
    mine = module(query, key, value)
    theirs = reference(query, key, value, average_attn_weights=False)
    torch.testing.assert_close(mine, theirs)
    leaves, mixture = [query, key, value], tensors((N, B, E))[0]
    of_mine = torch.autograd.grad((mine[0] * mixture).sum(), [*leaves, *module.parameters()])
    packed = [reference.in_proj_weight, reference.out_proj.weight]
    *of_theirs, of_in, of_out = torch.autograd.grad((theirs[0] * mixture).sum(), [*leaves, *packed])
    expected = [*of_theirs, *(x.T for x in of_in.chunk(3)), of_out.T]
    torch.testing.assert_close(list(of_mine), expected)
    with pytest.raises(ValueError, match="reference must have bias=False"):
        module.load_from(MultiheadAttention(E, H))


def test_shortest_is_initialised() -> None:
    """Xavier's limit, sqrt(6 / 2e), and every number is drawn."""
    for matrix in Shortest(E, H).parameters():
        assert 0.9 < matrix.abs().max() / math.sqrt(6 / (2 * E)) <= 1
        assert matrix.unique().numel() > 0.9 * matrix.numel()


def test_shortest_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="must be divisible"):
        Shortest(10, 4)
    with pytest.raises(ValueError, match="three axes"):
        Shortest(E, H)(*[torch.randn(N, E)] * 3)

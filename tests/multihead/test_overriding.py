"""The score step and the attention step are each one method to override."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from annotated_attention import MultiheadAttention, block_future

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])


class Relative(MultiheadAttention):
    """The docstring's example, with a bias that is not zero."""

    def __init__(self, *args, reach=2, **options):
        super().__init__(*args, **options)
        self.reach = reach
        self.relative = nn.Parameter(torch.randn(self.num_heads, 2 * reach + 1))

    def distances(self, n, m):
        return (torch.arange(m) - torch.arange(n)[:, None]).clamp(-self.reach, self.reach)

    def score(self, q, k):
        distance = self.distances(q.size(-2), k.size(-2))
        return super().score(q, k) + self.relative[:, distance + self.reach]


def inputs(n=N, m=M):
    torch.manual_seed(1)
    key = torch.randn(B, m, E)
    return torch.randn(B, n, E), key, key


def relative(**options):
    torch.manual_seed(0)
    return Relative(E, H, batch_first=True, **options)


@NEED_WEIGHTS
def test_score_is_what_the_softmax_sees(need_weights):
    ours = relative()
    theirs = nn.MultiheadAttention(E, H, batch_first=True)
    theirs.load_state_dict(ours.state_dict(), strict=False)
    added = ours.relative[:, ours.distances(N, M) + ours.reach].repeat(B, 1, 1)
    found = ours(*inputs(), need_weights=need_weights)
    expected = theirs(*inputs(), attn_mask=added, need_weights=need_weights)
    torch.testing.assert_close(found, expected)


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "padding": {"key_padding_mask": torch.tensor([[False, False, False, True, True], [False] * 5])},
    "a fully masked row": {
        "attn_mask": torch.tensor([[False] * M, [True] * M, [False] * M]),
        "is_causal": True,
    },
    "float": {"attn_mask": torch.linspace(-1, 1, N * M).view(N, M)},
}


@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS.keys())
def test_with_and_without_weights_agree(masks, appended):
    results = []
    for need_weights in (True, False):
        ours = relative(dropout=0.3, add_bias_kv=appended, add_zero_attn=appended)
        torch.manual_seed(2)
        output, weights = ours(*inputs(), **masks, need_weights=need_weights)
        output.square().sum().backward()
        results.append([output, *(parameter.grad for parameter in ours.parameters())])
        assert (weights is None) != need_weights
        assert ours.relative.grad.isfinite().all()
        assert (ours.relative.grad != 0).any()
    torch.testing.assert_close(*results)


def test_score_sees_appended_keys_last():
    seen = []

    class Watching(MultiheadAttention):
        def score(self, q, k):
            seen.append((q, k))
            return super().score(q, k)

    ours = Watching(E, H, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    ours(*inputs(), need_weights=False)
    q, k = seen[0]
    assert q.shape == (B, H, N, D)
    assert k.shape == (B, H, M + 2, D)
    assert (k[..., -1, :] == 0).all()
    torch.testing.assert_close(k[..., -2, :], ours.bias_k.view(H, D).expand(B, H, D))
    ours(*(x[0] for x in inputs()))
    assert seen[1][0].shape == (1, H, N, D)  # four axes without a batch, too


@NEED_WEIGHTS
def test_score_set_on_an_instance_counts(need_weights):
    ours = MultiheadAttention(E, H, batch_first=True)
    ours.score = lambda q, k: torch.zeros(*q.shape[:-1], k.size(-2))
    query, key, value = inputs()
    output, _ = ours(query, key, value, need_weights=need_weights)
    mean = F.linear(value, *(x.chunk(3)[2] for x in (ours.in_proj_weight, ours.in_proj_bias)))
    expected = ours.out_proj(mean.mean(1, keepdim=True).expand(B, N, E))
    torch.testing.assert_close(output, expected)


def test_subclass_that_leaves_score_alone_takes_the_fused_kernel(monkeypatch):
    class Same(MultiheadAttention):
        pass

    calls = []
    fused = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k)
    )
    Same(E, H, batch_first=True)(*inputs(), need_weights=False)
    assert calls
    relative()(*inputs(), need_weights=False)
    assert len(calls) == 1


@NEED_WEIGHTS
def test_score_of_a_wrong_shape_is_named(need_weights):
    class Transposed(MultiheadAttention):
        def score(self, q, k):
            return super().score(k, q)

    with pytest.raises(ValueError, match=r"score must return .* \(..., 3, 5\), got \(2, 4, 5, 3\)"):
        Transposed(E, H, batch_first=True)(*inputs(), need_weights=need_weights)


@NEED_WEIGHTS
def test_attend_replaces_the_whole_step(need_weights):
    class Mean(MultiheadAttention):
        """Every query sees the mean of what it may see."""

        def attend(self, q, k, v, *, blocked, bias, is_causal, need_weights):
            assert bias is None
            assert not is_causal
            seen = torch.ones(q.shape[:-1] + k.shape[-2:-1]).masked_fill(blocked, 0)
            weights = seen / seen.sum(-1, keepdim=True)
            return weights @ v, weights  # handed on only if they are asked for

    torch.manual_seed(0)
    ours = Mean(E, H, add_zero_attn=True)
    query, key, value = (x.transpose(0, 1) for x in inputs())
    output, weights = ours(query, key, value, is_causal=True, need_weights=need_weights)
    assert output.shape == (N, B, E)
    if not need_weights:
        assert weights is None
        return
    seen = F.pad(~block_future(N, M), (0, 1), value=True).float()
    torch.testing.assert_close(weights, (seen / seen.sum(-1, keepdim=True)).expand(B, N, M + 1))


@NEED_WEIGHTS
def test_attend_can_change_its_arguments_and_go_on(need_weights):
    class Colder(MultiheadAttention):
        def attend(self, q, k, v, **options):
            return super().attend(3 * q, k, v, **options)

    torch.manual_seed(0)
    ours = Colder(E, H, batch_first=True)
    theirs = nn.MultiheadAttention(E, H, batch_first=True)
    state = ours.state_dict()
    state["in_proj_weight"][:E] *= 3
    theirs.load_state_dict(state)
    ours.in_proj_weight.data[:E] /= 3
    torch.testing.assert_close(
        ours(*inputs(), is_causal=True, need_weights=need_weights),
        theirs(*inputs(), attn_mask=block_future(N, M), need_weights=need_weights),
    )


def test_nothing_is_kept_on_the_module():
    ours = MultiheadAttention(E, H, batch_first=True, dropout=0.1)
    before = {name: list(vars(module)) for name, module in ours.named_modules()}
    ours(*inputs(), average_attn_weights=False)
    assert before == {name: list(vars(module)) for name, module in ours.named_modules()}
    assert not [x for x in vars(ours).values() if isinstance(x, torch.Tensor)]
    assert not list(ours.buffers())
    assert math.prod(ours.in_proj_weight.shape) == 3 * E * E

"""The score step and the attention step are each one method to override."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from annotated_attention import MultiheadAttention, block_future
from tests.settings import B, E, H, M, N, assert_same, results

NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])


class Relative(MultiheadAttention):
    """A learned number for each head and each distance, added to the score."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.relative = nn.Parameter(torch.randn(self.num_heads, N + M - 1))

    def added(self, n, m):
        return self.relative[:, torch.arange(m) - torch.arange(n)[:, None] + N - 1]

    def score(self, q, k):
        return super().score(q, k) + self.added(q.size(-2), k.size(-2))


def inputs():
    torch.manual_seed(1)
    key = torch.randn(B, M, E, dtype=torch.float64)
    return torch.randn(B, N, E, dtype=torch.float64), key, key


def make(kind=MultiheadAttention, **options):
    torch.manual_seed(0)
    return kind(E, H, batch_first=True, dtype=torch.float64, **options).double()


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "padding": {"key_padding_mask": torch.tensor([[False, False, False, True, True], [False] * 5])},
    "a fully masked row": {"attn_mask": block_future(N, M).index_fill(0, torch.tensor([1]), True)},
    "float": {"attn_mask": torch.linspace(-1, 1, N * M).view(N, M)},
}


@NEED_WEIGHTS
@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS.keys())
def test_score_is_what_the_softmax_sees(masks, need_weights):
    """A score with something added is the ordinary score with a float mask."""
    ours, plain = make(Relative, dropout=0.3), make(dropout=0.3)
    plain.load_state_dict(ours.state_dict(), strict=False)
    added = ours.added(N, M)
    hidden = masks.get("attn_mask", torch.zeros(N, M))
    if hidden.dtype == torch.bool:
        hidden = torch.zeros(N, M).masked_fill(hidden, -torch.inf)
    mask = (added + hidden).repeat(B, 1, 1)
    found = []
    for module, options in ((ours, masks), (plain, masks | {"attn_mask": mask})):
        torch.manual_seed(2)
        outputs = module(*inputs(), **options, need_weights=need_weights)
        assert (outputs[1] is None) != need_weights
        found.append(results(outputs[:1], {"relative": ours.relative}))
    assert_same(*found)


@NEED_WEIGHTS
def test_score_set_on_an_instance_counts(need_weights):
    ours = make()
    ours.score = lambda q, k: q.new_zeros(*q.shape[:-1], k.size(-2))
    output, _ = ours(*inputs(), need_weights=need_weights)
    weight, bias = (x.chunk(3)[2] for x in (ours.in_proj_weight, ours.in_proj_bias))
    mean = F.linear(inputs()[2], weight, bias).mean(1, keepdim=True)
    torch.testing.assert_close(output, ours.out_proj(mean.expand(B, N, E)))


@NEED_WEIGHTS
@pytest.mark.parametrize(
    ("returned", "error", "words"),
    [
        (lambda heads: heads, TypeError, "attend must return two things, the heads' outputs and"),
        (lambda heads: (heads,), TypeError, "the weights or None, got tuple"),
        (
            lambda heads: (heads.transpose(1, 2), None),
            ValueError,
            "(2, 4, 3), got (2, 3, 4, 6)",
        ),
        (
            lambda heads: (heads[0], None),
            ValueError,
            "attend must return (b, h, n, ...), with",
        ),
    ],
)
def test_what_attend_returns_is_looked_at(returned, error, words, need_weights):
    """At b = 2 an output without weights would be unpacked into two samples."""
    ours, attend = make(), MultiheadAttention.attend
    ours.attend = lambda *given, **options: returned(attend(ours, *given, **options)[0])
    with pytest.raises(error, match=re.escape(words)):
        ours(*inputs(), need_weights=need_weights)


@NEED_WEIGHTS
def test_attend_replaces_the_whole_step(need_weights):
    class Mean(MultiheadAttention):
        """Every query sees the mean of what it may see."""

        def attend(self, q, k, v, *, blocked, bias, is_causal, need_weights):
            assert bias is None
            assert not is_causal
            seen = torch.ones(q.shape[:-1] + k.shape[-2:-1]).masked_fill(blocked, 0).double()
            weights = seen / seen.sum(-1, keepdim=True)
            return weights @ v, weights  # handed on only if they are asked for

    output, weights = make(Mean, add_zero_attn=True)(
        *inputs(), is_causal=True, need_weights=need_weights
    )
    assert output.shape == (B, N, E)
    seen = F.pad(~block_future(N, M), (0, 1), value=True).double()
    expected = (seen / seen.sum(-1, keepdim=True)).expand(B, N, M + 1)
    assert (weights is None) != need_weights
    assert weights is None or torch.allclose(weights, expected)

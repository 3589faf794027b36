"""Designs that hide tokens, choose them or build themselves late are no mistakes; slips are."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attention_doctor import examine
from attention_doctor.adapters import adapt

E, H = 24, 4


class Attention(nn.Module):
    """Self-attention in steps; a subclass does one of them in another way."""

    causal = False

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.n_heads, self.qkv, self.out = H, nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        return self.out(self.heads(x).transpose(1, 2).flatten(2))

    def heads(self, x):
        q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        q, k, v = self.changed(q, k, v)
        scores = self.scored(q, k)
        n, m = scores.shape[-2:]
        future = torch.ones(n, m, dtype=torch.bool).triu(1) & self.causal
        scores = scores.masked_fill(future | self.hidden(n), -math.inf)
        return self.selected(scores).softmax(-1) @ v

    def changed(self, q, k, v):
        return q, k, v

    def scored(self, q, k):
        return q @ k.mT / math.sqrt(q.size(-1))

    def hidden(self, n):
        return torch.zeros(n, n, dtype=torch.bool)

    def selected(self, scores):
        return scores


def distance(n):
    return torch.arange(n)[:, None] - torch.arange(n)


class Blocks(Attention):
    def hidden(self, n):
        block = torch.arange(n) // 2
        return block[:, None] != block


class Shifted(Attention):
    """Windows of two tokens, moved by one; a last one that is not full is filled with zeros."""

    def forward(self, x):
        n = x.size(1)
        x = F.pad(x, (0, 0, 1, (n + 1) % 2))
        y = super().forward(x.unflatten(1, (-1, 2)).flatten(0, 1))
        return y.unflatten(0, (-1, x.size(1) // 2)).flatten(1, 2)[:, 1 : n + 1]


class Cut(Attention):
    """Windows of two tokens, which are cut out and know their places."""

    def forward(self, x):
        y = super().forward(x.unflatten(1, (-1, 2)).flatten(0, 1))
        return y.unflatten(0, (len(x), -1)).flatten(1, 2)

    def scored(self, q, k):
        return super().scored(q, k) + torch.arange(4.0).view(2, 2).to(q)


class Rolled(Attention):
    """Moves the tokens by one, and back."""

    def forward(self, x):
        return super().forward(x.roll(1, 1)).roll(-1, 1)

    def scored(self, q, k):
        return super().scored(q, k) + torch.arange(q.size(2)).to(q)


class Talking(Attention):
    """Mixes the weights of all heads."""

    def __init__(self):
        super().__init__()
        self.talk = nn.Linear(H, H)

    def heads(self, x):
        q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        weights = self.scored(q, k).softmax(-1)
        return self.talk(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) @ v


class Tied(nn.Module):
    """Queries and keys are made by one layer, on purpose: there is no other."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q_proj, self.v_proj, self.o_proj = (nn.Linear(E, E) for _ in range(3))

    def forward(self, x):
        q, v = (f(x).unflatten(-1, (H, -1)).transpose(1, 2) for f in (self.q_proj, self.v_proj))
        return self.o_proj(F.scaled_dot_product_attention(q, q, v).transpose(1, 2).flatten(2))


class Sinks(Attention):
    causal = True

    def hidden(self, n):
        return (distance(n) > 1) & (torch.arange(n) > 0)


class Dilated(Attention):
    def hidden(self, n):
        return distance(n) % 2 != 0


class TopK(Attention):
    def selected(self, scores):
        k = min(2, scores.size(-1))
        return scores.masked_fill(scores < scores.topk(k, -1).values[..., -1:], -math.inf)


class LowRank(Attention):
    """Keys and values are projected along the tokens' axis, which has one length."""

    def __init__(self):
        super().__init__()
        self.along = nn.Linear(16, 3, bias=False)

    def changed(self, q, k, v):
        weight = self.along.weight[:, : k.size(2)]
        return q, weight @ k, weight @ v

    def hidden(self, n):
        return torch.zeros(n, 3, dtype=torch.bool)


class Late(nn.Module):
    """Builds its layers at the first call, when it knows the width."""

    def __init__(self):
        super().__init__()
        self.inner = None

    def forward(self, x):
        if self.inner is None:
            self.inner, self.again = Attention(), nn.Linear(x.size(-1), x.size(-1))
            self.again.to(x)
            self.inner.to(x)
        return self.again(self.inner(x))


# The class, the kind, and what is said of it.
DESIGNS = [
    (Attention, "self", ()),
    (Blocks, "self", ("sliding-window", "order-matters")),
    (Shifted, "self", ("sliding-window",)),
    (Cut, "self", ("sliding-window", "order-matters")),
    (Rolled, "self", ("order-matters",)),
    (Sinks, "causal", ("sliding-window",)),
    (Dilated, "self", ("sliding-window", "order-matters")),
    (TopK, "self", ("keys-selected",)),
    (Tied, "self", ()),
    (Talking, "self", ("heads-mixed",)),
    (LowRank, "self", ("tokens-projected", "order-matters")),
    (Late, "self", ()),
]


@pytest.mark.parametrize(("version", "kind", "codes"), DESIGNS)
def test_a_design_is_no_mistake(version, kind, codes):
    attend = version() if kind == "causal" else adapt(version(), mask="none")
    longest = 4 if version is Cut else 16  # or a window is not full
    found = examine(attend, embed_dim=E, num_heads=H, kind=kind, max_length=longest)
    assert found.ok, str(found)
    assert {*found.codes} == {*codes}


class ValuesSplit(Attention):
    """Splits the values by a straight reshape, beside a bias that knows places."""

    def changed(self, q, k, v):
        return q, k, v.transpose(1, 2).reshape(v.shape)

    def scored(self, q, k):
        return super().scored(q, k) + torch.arange(q.size(2)).to(q)


class ScaledLate(Attention):
    def scored(self, q, k):
        return q @ k.mT

    def heads(self, x):
        q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return (self.scored(q, k).softmax(-1) / math.sqrt(q.size(-1))) @ v


class TimesRoot(Attention):
    def scored(self, q, k):
        return q @ k.mT * math.sqrt(E)


class Rectified(Attention):
    def changed(self, q, k, v):
        return q, k, v.relu()


class AllBent(Attention):
    """As in gated attention units, which bend what makes queries and keys, too."""

    def changed(self, q, k, v):
        return F.silu(q), F.silu(k), F.silu(v)


class Gated(Attention):
    def changed(self, q, k, v):
        return q, k, v * (0.1 * v).sigmoid()


class QueriesNormed(Attention):
    def changed(self, q, k, v):
        return F.normalize(q, dim=-1), k, v


class Exchanged(nn.Module):
    """Rotates keys and queries; the layers of keys and values are exchanged."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(E, E) for _ in range(4))

    def forward(self, x):
        layers = self.q_proj, self.v_proj, self.k_proj
        q, k, v = (f(x).unflatten(-1, (H, -1)).transpose(1, 2) for f in layers)
        angle = torch.arange(x.size(1))[:, None] * torch.tensor([1.0, 0.3, 0.1]).to(x)
        q, k = (self.turn(y, angle.cos(), angle.sin()) for y in (q, k))
        heads = F.scaled_dot_product_attention(q, k, v)
        return self.o_proj(heads.transpose(1, 2).flatten(2))

    def turn(self, x, cos, sin):
        left, right = x.chunk(2, -1)
        return torch.cat([left * cos - right * sin, left * sin + right * cos], -1)


class OtherWeights(Attention):
    """Returns weights that are not those that it used."""

    def forward(self, x):
        q, k, _ = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return super().forward(x), (2 * q @ k.mT).softmax(-1)


class Filled(Attention):
    """Fills up to a length with zeros, which it hides; adds a bias after the softmax."""

    def forward(self, x):
        self.n = x.size(1)
        return super().forward(torch.cat([x, x.new_zeros(len(x), 9 - self.n, E)], 1))[:, : self.n]

    def hidden(self, n):
        return (torch.arange(n) >= self.n).expand(n, n)

    def heads(self, x):
        v = self.qkv(x).chunk(3, -1)[2].unflatten(-1, (H, -1)).transpose(1, 2)
        return super().heads(x) + torch.linspace(-1, 1, 81).view(9, 9).to(v) @ v


SLIPS = [
    (TimesRoot, "scale-inverted"), (Rectified, "values-bent"),
    (QueriesNormed, "one-side-normed"), (Exchanged, "keys-and-values-swapped"),
    (OtherWeights, "other-weights-returned"), (Filled, "query-order-matters"),
    (ValuesSplit, "split-without-transpose"), (ScaledLate, "scaled-after-softmax"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "severities"),
    [(Rectified, ["wrong"]), (AllBent, ["convention"]), (Gated, [])],
)
def test_values_that_alone_are_bent_are_wrong(version, severities):
    found = examine(adapt(version(), mask="none"), embed_dim=E, num_heads=H, kind="self")
    assert [x.severity for x in found.findings if x.code == "values-bent"] == severities


@pytest.mark.parametrize(("version", "code"), SLIPS)
def test_a_slip_is_named(version, code):
    found = examine(adapt(version(), mask="none"), embed_dim=E, num_heads=H, kind="self")
    assert code in found.codes, str(found)

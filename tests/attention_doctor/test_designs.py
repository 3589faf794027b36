"""Designs that hide tokens, choose them or build themselves late are no mistakes; slips are."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attention_doctor import examine
from attention_doctor.adapters import adapt
from tests.attention_doctor.demanded import Attention, E, H, split


def distance(n):
    return torch.arange(n)[:, None] - torch.arange(n)


class Blocks(Attention):
    def hidden(self, n, m):
        block = torch.arange(n) // 2
        return block[:, None] != block


class Shifted(Attention):
    """Windows of two tokens, moved by one; a last one that is not full is filled with zeros."""

    def forward(self, x):
        n = x.size(1)
        x = F.pad(x, (0, 0, 1, (n + 1) % 2))
        y = super().forward(x.unflatten(1, (-1, 2)).flatten(0, 1))
        return y.unflatten(0, (-1, x.size(1) // 2)).flatten(1, 2)[:, 1 : n + 1]


class Placed(Attention):
    """Has a bias that knows places."""

    def changed(self, scores):
        n, m = scores.shape[-2:]
        return scores + torch.arange(n * m).view(n, m).to(scores)


class Cut(Placed):
    """Windows of two tokens, which are cut out and know their places."""

    def forward(self, x):
        y = super().forward(x.unflatten(1, (-1, 2)).flatten(0, 1))
        return y.unflatten(0, (len(x), -1)).flatten(1, 2)


class Rolled(Placed):
    """Moves the tokens by one, and back."""

    def forward(self, x):
        return super().forward(x.roll(1, 1)).roll(-1, 1)


class Talking(Attention):
    """Mixes the weights of all heads."""

    def __init__(self):
        super().__init__()
        self.talk = nn.Linear(H, H)

    def weigh(self, q, k):
        return self.talk(super().weigh(q, k).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Tied(Attention):
    """Queries and keys are made by one layer, on purpose: there is no other."""

    def __init__(self):
        super().__init__()
        del self.k

    def heads(self, query, key, value):
        return split(self.q(query)), split(self.q(key)), split(self.v(value))


class Sinks(Attention):
    def hidden(self, n, m):
        return super().hidden(n, m) | (distance(n) > 1) & (torch.arange(n) > 0)


class Dilated(Attention):
    def hidden(self, n, m):
        return distance(n) % 2 != 0


class TopK(Attention):
    def changed(self, scores):
        total = scores.sum(1, keepdim=True)  # one choice for all heads
        k = min(2, total.size(-1))
        return scores.masked_fill(total < total.topk(k, -1).values[..., -1:], -math.inf)


class LowRank(Attention):
    """Keys and values are projected along the tokens' axis, which has one length."""

    def __init__(self):
        super().__init__()
        self.along = nn.Linear(16, 2, bias=False)

    def mix(self, q, k, v):
        weight = self.along.weight[:, : k.size(2)]
        return super().mix(q, weight @ k, weight @ v)


class Appended(Attention):
    """Has one key and one value more than there are tokens."""

    def mix(self, q, k, v):
        return super().mix(q, *(F.pad(x, (0, 0, 1, 0), value=0.5) for x in (k, v)))


class Tabled(Attention):
    """Mixes a table of positions beside the values."""

    def mix(self, q, k, v):
        place, weights = torch.arange(q.size(2)).to(q), self.weigh(q, k)
        near = (place - place[:, None, None] + torch.arange(q.size(3))[:, None]).sin()
        far = torch.einsum("bhnm,ndm->bhnd", weights, near)
        return self.o((weights @ v + far).transpose(1, 2).flatten(2))


class PlacesAdded(Attention):
    """Adds a vector for each place to queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(16, E))

    def heads(self, query, key, value):
        return super().heads(*(x + self.places[: x.size(1)] for x in (query, key, value)))


class Convolved(Attention):
    """Convolves tokens with their neighbours first."""

    def __init__(self):
        super().__init__()
        self.along = nn.Conv1d(E, E, 3, padding=1)

    def heads(self, query, key, value):
        return super().heads(*(self.along(x.mT).mT for x in (query, key, value)))


class Alone(Attention):
    """Attends within windows of a single token, as a setting can make it."""

    def __init__(self):
        super().__init__()
        self.window_size = 1

    def forward(self, query):
        return super().forward(query.flatten(0, 1)[:, None]).view_as(query)


class AmongKeys(Attention):
    """The queries are among the keys, too."""

    def forward(self, query, context):
        both = torch.cat([query, context], 1)
        return super().forward(query, both, both)


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
    (Appended, "self", ("keys-appended",)),
    (Tabled, "self", ("table-mixed",)),
    (PlacesAdded, "self", ("positions-added",)),
    (Convolved, "self", ("tokens-convolved",)),
    (Alone, "self", ("window-of-one",)),
    (AmongKeys, "memory", ("queries-are-keys",)),
]


@pytest.mark.parametrize(("version", "kind", "codes"), DESIGNS)
def test_a_design_is_no_mistake(version, kind, codes):
    attend = adapt(version(True) if kind == "causal" else version(), mask="none")
    longest = 4 if version is Cut else 16  # or a window is not full
    found = examine(attend, embed_dim=E, num_heads=H, kind=kind, max_length=longest)
    assert found.ok, str(found)
    assert {*found.codes} == {*codes}
    if version is Tabled:
        assert found.findings[0].where.text.startswith("far = ")


class ValuesSplit(Placed):
    """Splits the values by a straight reshape."""

    def mix(self, q, k, v):
        return super().mix(q, k, v.transpose(1, 2).reshape(v.shape))


class ScaledLate(Attention):
    def weigh(self, q, k):
        return super().weigh(q * math.sqrt(q.size(-1)), k) / math.sqrt(q.size(-1))


class ByInnerWidth(Attention):
    """Is narrower inside, and scales by the width of all heads there."""

    def weigh(self, q, k):
        return super().weigh(q[..., :2] / math.sqrt(H), k[..., :2])


class RepeatedApart(Attention):
    """Repeats keys for neighbours, and values for others."""

    def mix(self, q, k, v):
        return super().mix(q, k[:, [0, 0, 1]], v[:, [0, 1, 0]])


class Rectified(Attention):
    def mix(self, q, k, v):
        return super().mix(q, k, v.relu())


class AllBent(Attention):
    """As in gated attention units, which bend what makes queries and keys, too."""

    def mix(self, q, k, v):
        return super().mix(F.silu(q), F.silu(k), F.silu(v))


class Gated(Attention):
    def mix(self, q, k, v):
        return super().mix(q, k, v * (0.1 * v).sigmoid())


class QueriesNormed(Attention):
    def mix(self, q, k, v):
        return super().mix(F.normalize(q, dim=-1), k, v)


class OtherWeights(Attention):
    """Returns weights that are not those that it used."""

    def forward(self, x):
        q, k, _ = self.heads(x, x, x)
        return super().forward(x), (2 * q @ k.mT).softmax(-1)


SLIPS = [
    (QueriesNormed, "one-side-normed"), (OtherWeights, "other-weights-returned"),
    (ByInnerWidth, "scale-by-model-width"), (ValuesSplit, "split-without-transpose"),
    (ScaledLate, "scaled-after-softmax"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "code", "severities"),
    [
        (Rectified, "values-bent", ["wrong"]),
        (AllBent, "values-bent", ["convention"]),
        (Gated, "values-bent", []),
        (RepeatedApart, "groups-tiled", ["wrong"]),
    ],
)
def test_what_is_done_to_values_alone_is_wrong(version, code, severities):
    found = examine(adapt(version(), mask="none"), embed_dim=E, num_heads=H, kind="self")
    assert [x.severity for x in found.findings if x.code == code] == severities


@pytest.mark.parametrize(("version", "code"), SLIPS)
def test_a_slip_is_named(version, code):
    found = examine(adapt(version(), mask="none"), embed_dim=E, num_heads=H, kind="self")
    assert code in found.codes, str(found)

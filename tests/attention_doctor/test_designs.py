"""Designs that hide tokens, choose them or build themselves late are no mistakes; slips are."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attention_doctor import examine
from attention_doctor.adapters import adapt
from tests.attention_doctor.demanded import Attention, E, H, split, varied
from tests.attention_doctor.right_code import turned


def distance(n):
    return torch.arange(n)[:, None] - torch.arange(n)


class Shifted(Attention):
    """Windows of two tokens, moved by one; a last one that is not full is filled with zeros."""

    def forward(self, x):
        n = x.size(1)
        x = F.pad(x, (0, 0, 1, (n + 1) % 2))
        y = super().forward(x.unflatten(1, (-1, 2)).flatten(0, 1))
        return y.unflatten(0, (-1, x.size(1) // 2)).flatten(1, 2)[:, 1 : n + 1]


def placed(self, scores):
    """Add a bias that knows places."""
    n, m = scores.shape[-2:]
    return scores + torch.arange(n * m).view(n, m).to(scores)


def cut(self, x):
    """Attend in windows of two tokens, which are cut out."""
    y = Attention.forward(self, x.unflatten(1, (-1, 2)).flatten(0, 1))
    return y.unflatten(0, (len(x), -1)).flatten(1, 2)


class Talking(Attention):
    """Mixes the weights of all heads."""

    def __init__(self):
        super().__init__()
        self.talk = nn.Linear(H, H)

    def weigh(self, q, k):
        return self.talk(super().weigh(q, k).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Tied(Attention):
    def __init__(self):
        super().__init__()
        del self.k

    def heads(self, query, key, value):
        return split(self.q(query)), split(self.q(key)), split(self.v(value))


def before(change):
    """Give attention that changes queries, keys and values before it mixes them."""
    return varied(mix=lambda self, q, k, v: Attention.mix(self, *change(q, k, v)))


def top_two(self, scores):
    """Choose two keys, the same ones for all heads."""
    total = scores.sum(1, keepdim=True)
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


def tabled(self, q, k, v):
    """Mix a table of positions beside the values."""
    n, m, d = (torch.arange(x).to(q) for x in (q.size(2), k.size(2), q.size(3)))
    near, weights = (m - n[:, None, None] + d[:, None]).sin(), self.weigh(q, k)
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


def among_keys(self, query, context):
    """Count the queries among the keys, too."""
    both = torch.cat([query, context], 1)
    return Attention.forward(self, query, both, both)


class Late(nn.Module):
    """Builds layers, and the weights of one that it has, at the first call."""

    def __init__(self):
        super().__init__()
        self.inner, self.again = None, nn.LazyLinear(E)

    def forward(self, x):
        if self.inner is None:
            self.inner = Attention()
        return self.again(self.inner(x))


WINDOW, PLACES = "sliding-window", "order-matters"
# The class, the kind, and what is said of it.
DESIGNS = {
    "blocks": (
        varied(hidden=lambda self, n, m: torch.arange(n)[:, None] // 2 != torch.arange(m) // 2),
        "self",
        {WINDOW, PLACES},
    ),
    "shifted": (Shifted, "self", {WINDOW}),
    "cut": (varied(changed=placed, forward=cut), "self", {WINDOW, PLACES}),
    # Moves the tokens by one, and back.
    "rolled": (
        varied(
            changed=placed,
            forward=lambda self, x: Attention.forward(self, x.roll(1, 1)).roll(-1, 1),
        ),
        "self",
        {PLACES},
    ),
    "sinks": (
        varied(
            hidden=lambda self, n, m: (
                Attention.hidden(self, n, m) | (distance(n) > 1) & (torch.arange(n) > 0)
            )
        ),
        "causal",
        {WINDOW},
    ),
    "dilated": (varied(hidden=lambda self, n, m: distance(n) % 2 != 0), "self", {WINDOW, PLACES}),
    "top two": (varied(changed=top_two), "self", {"keys-selected"}),
    # Queries and keys are made by one layer, on purpose: there is no other.
    "tied": (Tied, "self", set()),
    "talking": (Talking, "self", {"heads-mixed"}),
    "low rank": (LowRank, "self", {"tokens-projected", PLACES}),
    "late": (Late, "self", set()),
    # Has one key and one value more than there are tokens.
    "appended": (
        before(lambda q, *kv: (q, *(F.pad(x, (0, 0, 1, 0), value=0.5) for x in kv))),
        "self",
        {"keys-appended"},
    ),
    "gated": (before(lambda q, k, v: (q, k, v * (0.1 * v).sigmoid())), "self", set()),
    # As in gated attention units.
    "bent": (before(lambda *heads: map(F.silu, heads)), "self", set()),
    "tabled": (varied(mix=tabled), "self", {"table-mixed"}),
    "tabled across": (varied(mix=tabled), "cross", {"table-mixed"}),
    "places added": (PlacesAdded, "self", {"positions-added"}),
    "convolved": (Convolved, "self", {"tokens-convolved"}),
    "among keys": (varied(forward=among_keys), "memory", {"queries-are-keys"}),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_is_no_mistake(name):
    version, kind, codes = DESIGNS[name]
    attend = adapt(version(True) if kind == "causal" else version(), mask="none")
    longest = 4 if name == "cut" else 16  # or a window is not full
    found = examine(attend, embed_dim=E, num_heads=H, kind=kind, max_length=longest)
    assert found.ok, str(found)
    assert {*found.codes} == codes
    assert {x.dtype for x in attend.module.parameters()} == {torch.float32}
    if name == "tabled":
        assert found.findings[0].where.text.startswith("far = ")


# The class, and the severity and the code of what is said of it.
SLIPS = {
    # It is narrower inside, and scales by the width of all heads there.
    "by inner width": (
        before(lambda q, k, v: (q[..., :2] / math.sqrt(H), k[..., :2], v)),
        "wrong: scale-by-model-width",
    ),
    # The values are split by a straight reshape.
    "values split": (
        before(lambda q, k, v: (q, k, v.transpose(1, 2).reshape(v.shape))),
        "wrong: split-without-transpose",
    ),
    "values turned": (before(lambda *heads: map(turned, heads)), "wrong: values-rotated"),
    # What the product left is transposed before the softmax.
    "over queries": (
        varied(weigh=lambda self, q, k: placed(self, q @ k.mT).mT.softmax(-1).mT),
        "wrong: softmax-over-queries",
    ),
    # Keys are repeated for neighbours, and values for others.
    "repeated apart": (
        before(
            lambda q, k, v: (
                q,
                k[:, :2].repeat_interleave(2, 1)[:, :3],
                v[:, :2].repeat(1, 2, 1, 1)[:, :3],
            )
        ),
        "wrong: groups-tiled",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_named(name):
    version, said = SLIPS[name]
    found = examine(adapt(version(), mask="none"), embed_dim=E, num_heads=H, kind="self")
    assert said in [f"{x.severity}: {x.code}" for x in found.findings], str(found)
    if name == "repeated apart":
        assert found.findings[0].where.text.startswith("v[:, :2].repeat")

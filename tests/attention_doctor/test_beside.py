"""A design excuses what it predicts, and no fault beside it; the machine is not the patient."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attention_doctor import adapt, assert_attention, examine
from attention_doctor.command import read
from attention_doctor.run import examined
from tests.attention_doctor.demanded import Attention, E, H, split, varied


class HalfMasked(Attention):
    """Leaves half of the heads without their mask."""

    def weigh(self, q, k):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        hidden = torch.zeros_like(scores, dtype=torch.bool)
        if self.blocked is not None:
            hidden[:, : H // 2] = self.blocked[:, None]
        return scores.masked_fill(hidden, -math.inf).softmax(-1)

    def forward(self, x, blocked=None):
        return self.after(super().forward(x, x, x, blocked))

    def after(self, y):
        return y


class Smoothed(HalfMasked):
    """Smooths the features of each token besides, which moves no other token."""

    def __init__(self):
        super().__init__()
        self.smooth = nn.Conv1d(1, 1, 3, padding=1)

    def after(self, y):
        return self.smooth(y.flatten(0, 1)[:, None])[:, 0].view_as(y)


class Near(Attention):
    """Mixes each token with the one before it, without a module that does."""

    def heads(self, query, key, value):
        return super().heads(*(x + F.pad(x, (0, 0, 1, 0))[:, :-1] for x in (query, key, value)))


class NearMasked(Near):
    """Does so, and takes a mask."""

    def forward(self, x, blocked=None):
        return super().forward(x, x, x, blocked)


class NearAndLeaking(HalfMasked, Near):
    """Does so, and leaves half of the heads without their mask."""


class Folded(Attention):
    """Folds heads into the batch by a view, and adds what it was given."""

    def forward(self, x):
        b, n, e = x.shape
        q, k, v = (f(x).view(b * H, n, e // H) for f in (self.q, self.k, self.v))
        return self.o((Attention.weigh(self, q, k) @ v).view(b, n, e)) + x


class Linear(Attention):
    """Weighs without a softmax, and keeps denominators from zero."""

    def weigh(self, q, k):
        weights = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT).tril()
        return weights / self.sums(weights)

    def sums(self, weights):
        return weights.sum(-1, keepdim=True) + 1e-4


class LinearByTheLast(Linear):
    """Divides by the last key's weight alone, as often as there are keys."""

    def sums(self, weights):
        counts = torch.arange(1, len(weights[0, 0]) + 1).to(weights)
        return (weights.diagonal(dim1=-2, dim2=-1) * counts)[..., None]


class LinearNear(Linear, Near):
    """Mixes each token with the one before it, as a token shift does."""


class LinearNearByTheLast(LinearByTheLast, Near):
    """Does so, and divides by something else."""


class LinearNearFolded(LinearNear):
    """Does so, and splits heads by a view."""

    def mix(self, q, k, v):
        return super().mix(*(x.transpose(1, 2).reshape(x.shape) for x in (q, k, v)))

    def weigh(self, q, k):
        weights = (F.elu(q) + 1) @ (F.elu(k) + 1).mT
        return weights / weights.sum(-1, keepdim=True)


class LinearValues(Linear):
    """Convolves its values along the tokens."""

    def __init__(self):
        super().__init__()
        self.along = nn.Conv1d(E, E, 3, padding=2, groups=E)

    def heads(self, query, key, value):
        q, k, _ = super().heads(query, key, value)
        return q, k, split(self.along(self.v(value).mT)[..., :-2].mT)


class Retention(Linear):
    """Divides by no sum, but where it is large."""

    def sums(self, weights):
        return weights.detach().sum(-1, keepdim=True).abs().clamp(min=20)


class Delta(Attention):
    """Writes what is new of each value into a state, and reads it."""

    def mix(self, q, k, v):
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        state, read = v.new_zeros(*v.shape[:2], v.size(-1), v.size(-1)), []
        for x, y, z in zip(q.unbind(2), k.unbind(2), v.unbind(2), strict=True):
            new = z - torch.einsum("bhd,bhde->bhe", y, state)
            state = state + torch.einsum("bhd,bhe->bhde", y, new)
            read.append(torch.einsum("bhd,bhde->bhe", x, state))
        return self.o(torch.stack(read, 1).flatten(2))


class Unsummed(Linear):
    """Forgets the sum of its exponentials."""

    def weigh(self, q, k):
        return (q @ k.mT / math.sqrt(q.size(-1))).exp().tril()


class Gated(Linear):
    """Multiplies its results by numbers from each token."""

    def forward(self, x):
        return super().forward(x) * self.k(x).sigmoid()


class Unmasked(Attention):
    """Has a window, and no mask in a text that is not longer."""

    def hidden(self, n, m):
        distance = torch.arange(n)[:, None] - torch.arange(m)
        return (distance < 0) | (distance > 2) if n > 3 else None


class Alibi(Attention):
    """Adds a bias by distance, of the past or of the future."""

    def __init__(self, past=True):
        super().__init__(True)
        self.past = past

    def changed(self, scores):
        place = torch.arange(scores.size(-1))
        distance = (place[:, None] - place) * (1 if self.past else -1)
        return scores - distance.clamp(min=0)


class Sigmoid(Attention):
    """Weighs by a sigmoid."""

    scale = 1.0

    def weigh(self, q, k):
        scores = q @ k.mT / math.sqrt(q.size(-1)) * self.scale
        weights = (scores - math.log(k.size(-2))).sigmoid()
        return weights if self.blocked is None else weights.masked_fill(self.blocked[:, None], 0)

    def forward(self, x, blocked=None):
        return super().forward(x, x, x, blocked)


class SigmoidUnmasked(Sigmoid):
    """Hides nothing."""

    def forward(self, x, blocked=None):
        return super().forward(x, None)


class Halo(Attention):
    """Attends within blocks of two, and one neighbour on each side."""

    def hidden(self, n, m):
        first = torch.arange(n)[:, None] // 2 * 2
        return (torch.arange(m) < first - 1) | (torch.arange(m) > first + 2)


class Appended(Attention):
    """Has one key more than there are tokens, and changes weights behind the softmax."""

    def mix(self, q, k, v):
        k, v = (F.pad(x, (0, 0, 1, 0), value=0.5) for x in (k, v))
        weights = self.weigh(q, k) * (1 + torch.arange(q.size(2)).to(q))[:, None]
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class PlacesAdded(Attention):
    """Adds positions to its tokens, and the values of others to theirs."""

    def heads(self, query, key, value):
        place = torch.arange(query.size(1) * E).to(query).view(-1, E).sin()
        q, k, v = super().heads(*(x + place for x in (query, key, value)))
        return q, k, v + v.flip(2)


class Dropping(Attention):
    """Drops scores, and results, too."""

    def __init__(self, causal=False):
        super().__init__(causal)
        self.drop, self.late = nn.Dropout(0.1), nn.Dropout(0.1)

    def weigh(self, q, k):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if self.causal:
            scores = scores.masked_fill(self.hidden(*scores.shape[-2:]), -math.inf)
        return self.drop(scores).softmax(-1)

    def mix(self, q, k, v):
        return self.late(super().mix(q, k, v))


class TableDropped(Attention):
    """Drops what it adds to the scores by distance, and no scores."""

    def __init__(self):
        super().__init__()
        self.table, self.drop = nn.Parameter(torch.randn(31, H)), nn.Dropout(0.1)

    def changed(self, scores):
        place = torch.arange(scores.size(-1))
        return scores + self.drop(self.table)[place - place[:, None] + 15].permute(2, 0, 1)


class TwoOutputs(Attention):
    """Returns something besides that has parameters of its own."""

    def __init__(self):
        super().__init__()
        self.edges = nn.Linear(H, 3)

    def forward(self, x):
        return super().forward(x), self.edges((self.q(x) @ x.mT)[..., None].expand(-1, -1, -1, H))


class Packed(nn.Module):
    """Has one projection for all three; knows positions, so that no version agrees with it."""

    def __init__(self, key="k", value="v"):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.o, self.takes = nn.Linear(E, 3 * E), nn.Linear(E, E), (key, value)

    def forward(self, x):
        made = dict(zip("qkv", map(split, self.qkv(x).chunk(3, -1)), strict=True))
        k, v = (made[name] for name in self.takes)
        place = torch.arange(x.size(1)).to(x)
        weights = (made["q"] @ k.mT / math.sqrt(E // H) - (place - place[:, None]).abs()).softmax(
            -1
        )
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class KeysForValues(Attention):
    """Projects the keys once more, and mixes them."""

    def heads(self, query, key, value):
        return super().heads(query, key, self.k(key))


class Unable(Attention):
    """Cannot go backwards on this machine."""

    def forward(self, x):
        if torch.is_grad_enabled():
            raise NotImplementedError("no backward on this machine")
        return super().forward(x)


class Placed(Attention):
    """Changes queries and keys by their places."""

    def __init__(self, query, key, buffer="table"):
        super().__init__()
        self.changes = query, key
        self.register_buffer(buffer, torch.arange(16.0)[:, None].cos())

    def mix(self, q, k, v):
        places = torch.arange(q.size(2)).to(q)[:, None]
        return super().mix(*(f(x, places) for f, x in zip(self.changes, (q, k), strict=True)), v)


class Normed(Placed):
    """Turns, and norms each feature by a weight of its own, which is 1 still."""

    def __init__(self):
        super().__init__(neighbours, neighbours)
        self.norm = nn.RMSNorm(E // H)
        self.changes = (lambda x, places: self.norm(neighbours(x, places)),) * 2


def neighbours(x, angle):
    """Turn neighbouring features."""
    left, right = x[..., ::2], x[..., 1::2]
    turned = left * angle.cos() - right * angle.sin(), left * angle.sin() + right * angle.cos()
    return torch.stack(turned, -1).flatten(-2)


def halves(x, places):
    """Turn features half a head apart, by angles that are laid out for neighbours."""
    angle = (places * torch.tensor([1.0, 0.1]).to(x)).repeat_interleave(2, -1)
    left, right = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-right, left], -1) * angle.sin()


def in_an_image(x, places):
    """Turn by a row and a column."""
    return neighbours(x, torch.cat([places // 2, places % 2], -1))


def halved(x, places):
    return neighbours(x, places // 2)


def registers(x, places):
    """Turn no token of the first three."""
    return neighbours(x, (places - 2).clamp(min=0))


def backwards(x, places):
    return neighbours(x, -places)


def heated(x, places):
    return x * (1 + places)


def as_it_is(x, places):
    return x


class Late(Attention):
    """Hides weights behind the softmax, by minus infinity."""

    def weigh(self, q, k):
        weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
        if self.blocked is None:
            return weights
        return weights.masked_fill(self.blocked[:, None], -math.inf)

    def forward(self, x, blocked=None):
        return super().forward(x, x, x, blocked)


class Either(Attention):
    """Joins its own mask of the future to the other by `or`."""

    def forward(self, x, blocked=None):
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        both = future if blocked is None else future & blocked
        return super().forward(x, x, x, both.expand(len(x), -1, -1))


class InFloat32(Attention):
    """Makes its mask in float32, with a number of the scores' dtype."""

    def weigh(self, q, k):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if self.blocked is not None:
            low = self.blocked[:, None].float() * torch.finfo(scores.dtype).min
            scores = scores + low.to(scores.dtype)
        return scores.softmax(-1)

    def forward(self, x, blocked=None):
        return super().forward(x, x, x, blocked)


# The attention and what is said of it; whether it takes a mask, and hides the future.
SAID = {
    "a leak": (HalfMasked(), "blocked-has-influence nan-row", "masked"),
    "a leak beside a convolution": (Smoothed(), "blocked-has-influence nan-row", "masked"),
    "neighbours": (Near(True), "tokens-convolved", "causal"),
    "neighbours and a mask": (NearMasked(), "tokens-convolved nan-row", "masked"),
    "a leak beside neighbours": (
        NearAndLeaking(),
        "blocked-has-influence tokens-convolved nan-row",
        "masked",
    ),
    "a straight reshape beside a residual connection": (
        Folded(),
        "split-and-merge-without-transpose",
    ),
    "a sigmoid": (Sigmoid(), "sigmoid-attention", "masked"),
    "a sigmoid without its mask": (SigmoidUnmasked(), "sigmoid-attention mask-ignored", "masked"),
    "weights that grow beside a key": (Appended(), "weights-do-not-sum-to-one query-order-matters"),
    "other values beside places": (PlacesAdded(), "positions-added query-order-matters"),
    "a halo": (Halo(), "sliding-window order-matters"),
    "scores and results dropped": (Dropping(), "dropout-before-softmax"),
    "a table dropped": (TableDropped(), "order-matters"),
    "hidden scores dropped": (Dropping(True), "training-not-finite", "causal"),
    "a second output": (TwoOutputs(), ""),
    "keys from queries": (Packed(key="q"), "keys-from-queries"),
    "values from keys": (Packed(value="k"), "values-from-keys"),
    "packed as usual": (Packed(), "order-matters"),
    "angles of neighbours": (Placed(halves, halves), "positions-not-relative order-matters"),
    "opposite senses": (Placed(neighbours, backwards), "positions-not-relative order-matters"),
    "a turn for two places": (Placed(halved, halved), "positions-not-relative order-matters"),
    "tokens in front without a turn": (Placed(registers, registers), "order-matters"),
    "a norm behind the turn": (Normed(), "positions-not-relative order-matters"),
    "an epsilon": (Linear(), "", "causal"),
    "a gate": (Gated(), "", "causal"),
    "a shift": (LinearNear(), "tokens-convolved", "causal"),
    "another denominator beside a shift": (
        LinearNearByTheLast(),
        "weights-do-not-sum-to-one",
        "causal",
    ),
    "a reshape beside a shift": (
        LinearNearFolded(),
        "weights-do-not-sum-to-one query-order-matters",
    ),
    "values convolved": (LinearValues(), "tokens-convolved", "causal"),
    "a bounded sum": (Retention(), "weights-not-divided", "causal"),
    "the delta rule": (Delta(), "weights-not-divided", "causal"),
    "exponentials alone": (Unsummed(), "weights-do-not-sum-to-one", "causal"),
    "another denominator": (LinearByTheLast(), "weights-do-not-sum-to-one", "causal"),
    "a short text without its mask": (Unmasked(True), "future-leaks sliding-window", "causal"),
    "a bias of the past": (Alibi(), "", "causal"),
    "a bias of the future": (Alibi(False), "positions-ignored", "causal"),
    "angles that nobody uses": (Placed(as_it_is, as_it_is, "cos"), "positions-ignored"),
    "two angles": (Placed(in_an_image, in_an_image, "cos"), "order-matters"),
    "hotter by their places": (Placed(heated, as_it_is), "order-matters"),
    "no gradients here": (Unable(), ""),
    "too late": (Late(), "mask-after-softmax", "masked"),
    "one of two masks": (Either(), "masks-joined-by-or", "masked", "causal"),
    "a mask of float32": (InFloat32(), "", "masked"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said(name):
    module, codes, *more = SAID[name]
    adapted = adapt(module, mask="bnm blocked" if "masked" in more else "none")
    kind = "causal" if "causal" in more else "self"
    found = examine(adapted, embed_dim=E, num_heads=H, kind=kind)
    assert {*found.codes} == {*codes.split()}, str(found)


def test_values_that_are_not_used_are_made_from_keys():
    found = examine(adapt(KeysForValues(), mask="none"), embed_dim=E, num_heads=H)
    assert found.codes == ("values-from-keys",), str(found)
    assert found.findings[0].explains == ("weights-do-not-sum-to-one",)


FILE = """
import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, {argument}=None):
        q, k, v = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        {line}
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Configured(Attention):
    def __init__(self, cfg):
        super().__init__(cfg.lm_width, cfg.lm_heads)


class InAList(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = [OneHead(dim, dim // heads) for _ in range(heads)]
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        return self.out(torch.cat([head(x) for head in self.heads], -1))


class OneHead(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.qkv, self.drop = nn.Linear(dim, 3 * width), nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.drop((q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)) @ v
"""
ALWAYS = "scores = scores.masked_fill(mask[:, None], -1e9)"
WRONG_AXIS = (
    "scores = scores if valid is None else scores.masked_fill(~valid[:, None, :, None], -1e9)"
)
UNKNOWN = "scores = scores if mask is None else scores.masked_fill(~mask[:, None, None], -np.inf)"
# What is called how, and what is said of it.
CALLS = {
    "always": ("mask", ALWAYS, "Attention --mask", "bnm blocked always", {"finite-fill-in-half"}),
    "a mask of another name": ("valid", WRONG_AXIS, "Attention --mask", "valid bm allowed", None),
    "a name that is missing": ("mask", UNKNOWN, "Attention", "", {"mask-fails"}),
    "fields of a configuration": ("_", "", "Configured --init lm_width=e lm_heads=h", "", set()),
    "a plain list": ("_", "", "InAList", "", {"heads-in-a-plain-list"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_called_as_it_is_told(name, tmp_path):
    argument, line, words, mask, codes = CALLS[name]
    file = tmp_path / f"{name.replace(' ', '_')}.py"
    file.write_text(FILE.format(argument=argument, line=line))
    target, *options = words.split()
    sizes = ["--kind", "self", "--embed-dim", str(E), "--num-heads", str(H)]
    found = examined(read([f"{file}:{target}", *options, *([mask] if mask else []), *sizes]))
    assert found.asked, str(found)
    assert {*found.codes} == codes if codes is not None else not found.ok, str(found)


class Cached(Attention):
    """Attends with a cache in float32."""

    def step(self, x, cache):
        keys, values, start = cache
        q, k, v = self.heads(x, x, x)
        end = start + x.size(1)
        keys[:, :, start:end], values[:, :, start:end] = k, v
        hidden = torch.ones(x.size(1), end, dtype=torch.bool).triu(1 + start)
        scores = (q @ keys[:, :, :end].mT / math.sqrt(q.size(-1))).masked_fill(hidden, -math.inf)
        output = self.o((scores.softmax(-1) @ values[:, :, :end]).transpose(1, 2).flatten(2))
        return output, (keys, values, end)


def test_a_cache_that_is_made_for_float32_is_asked_in_it():
    module = Cached(causal=True)
    b = 2
    attend = adapt(
        lambda x: module(x),
        mask="none",
        module=module,
        start=lambda: (torch.zeros(b, H, 16, E // H), torch.zeros(b, H, 16, E // H), 0),
        step=module.step,
    )
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert found.ok, str(found)
    assert found.results["cache"] == "fine"


def test_a_class_without_faults_has_none():
    module = varied(forward=lambda self, x: Attention.forward(self, x))()
    assert assert_attention(module, embed_dim=E, num_heads=H, kind="self").codes == ()

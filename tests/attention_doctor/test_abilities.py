"""Layouts turn what lies in other axes; abilities let positions and caches be asked about."""

import pytest
import torch
from torch import nn

from attention_doctor import abilities, adapters, examine, layouts

E, H, D = 24, 3, 8


class Rotary(nn.Module):
    """Causal rotary attention, with a cache; a flaw is one line that is different."""

    def __init__(self, flaw=""):
        super().__init__()
        torch.manual_seed(0)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(E, E) for _ in range(4))
        self.flaw, self.kept = flaw, None

    def attend(self, x, cos, sin, past=None):
        split = lambda y: y.unflatten(-1, (H, D)).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        turn = lambda y: y * cos + torch.cat([-y[..., D // 2 :], y[..., : D // 2]], -1) * sin  # noqa: E731
        q, k = turn(q), k if self.flaw == "keys stay" else turn(k)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        n, m = q.size(2), k.size(2)
        diagonal = 1 if self.flaw == "corner" else m - n + 1
        blocked = torch.ones(n, m, dtype=torch.bool).triu(diagonal)
        scores = (q @ k.mT / D**0.5).masked_fill(blocked, float("-inf"))
        output = self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return output, (k, v)


def table(positions):
    angle = positions[:, None] * 100.0 ** -torch.arange(0, D, 2).div(D).double()
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


class Tables(Rotary):
    def forward(self, x, cos, sin):
        return self.attend(x, cos.to(x), sin.to(x))[0]


class Ids(Rotary):
    def forward(self, x, position_ids):
        return self.attend(x, *(y.to(x) for y in table(position_ids)))[0]


class Past(Rotary):
    """Takes the cache as an argument, and returns a new one."""

    def forward(self, x, layer_past=None, use_cache=False):
        before = 0 if layer_past is None or self.flaw == "restart" else layer_past[0].size(2)
        places = torch.arange(before, before + x.size(1))
        output, kept = self.attend(x, *(y.to(x) for y in table(places)), layer_past)
        return (output, kept) if use_cache else output


class Inside(Rotary):
    """Keeps its cache in itself, and never begins again."""

    def forward(self, x, start_pos=0):
        past = self.kept
        places = torch.arange(start_pos, start_pos + x.size(1))
        if self.flaw == "restart":
            places -= start_pos
        output, self.kept = self.attend(x, *(y.to(x) for y in table(places)), past)
        return output


ROTATED = {
    "cos, sin": lambda flaw: abilities.rotated(Tables(flaw), "cos", "sin", make=table),
    "position_ids": lambda flaw: abilities.rotated(Ids(flaw), "position_ids"),
}
CACHED = {
    "past": lambda flaw: abilities.cached(Past(flaw), past="layer_past", use_cache=True),
    "inside": lambda flaw: abilities.cached(Inside(flaw), start_pos="start_pos"),
}


def report(attend, kind="causal"):
    return examine(attend, embed_dim=E, num_heads=H, kind=kind)


@pytest.mark.parametrize("make", ROTATED.values(), ids=ROTATED.keys())
def test_rotation_is_asked_about(make):
    right = report(make(""))
    assert right.ok, str(right)
    assert right.results["rotation"] == "fine"
    assert "rotates-one-side" in report(make("keys stay")).codes


@pytest.mark.parametrize("make", CACHED.values(), ids=CACHED.keys())
def test_a_cache_is_asked_about(make):
    right = report(make(""))
    assert right.ok, str(right)
    assert right.results["cache"] == "fine"
    assert "positions-restart" in report(make("restart")).codes
    assert "causal-at-the-wrong-corner" in report(make("corner")).codes


def test_a_module_that_keeps_its_cache_is_left_without_it():
    module = Inside()
    report(abilities.cached(module, start_pos="start_pos"))
    assert module.kept is None


def test_a_cache_needs_a_name():
    with pytest.raises(ValueError, match="past or start_pos must name"):
        abilities.cached(Past())


def test_abilities_stay_when_an_adapter_is_put_around():
    made = ROTATED["position_ids"]("")
    assert adapters.without_mask(made).at_positions is made.at_positions
    assert not hasattr(adapters.without_mask(Ids()), "at_positions")


class Laid(nn.Module):
    """Attention on (b, n, e) inside, on something else outside."""

    def __init__(self, into, back):
        super().__init__()
        torch.manual_seed(0)
        self.into, self.back = into, back
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(E, E) for _ in range(4))

    def forward(self, query, key, value, added=None):
        split = lambda y: y.unflatten(-1, (H, D)).transpose(1, 2)  # noqa: E731
        query, key, value = (self.into(x) for x in (query, key, value))
        q, k, v = split(self.q_proj(query)), split(self.k_proj(key)), split(self.v_proj(value))
        scores = q @ k.mT / D**0.5
        if added is not None:
            scores = scores + (added if added.dim() == 2 else added[:, None])
        output = self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.back(output), scores.softmax(-1)


def join(x):
    return x.transpose(1, 2).flatten(2)


def parted(x):
    return x.unflatten(-1, (H, D)).transpose(1, 2)


LAYOUTS = {
    "channel first": (
        Laid(lambda x: x.mT, lambda x: x.mT),
        lambda x: layouts.laid_out(x, lambda y: y.mT, lambda y: y.mT),
    ),
    "images": (
        Laid(lambda x: x.unflatten(3, (1, 1)).flatten(2).mT, lambda x: x.mT.unsqueeze(-1)),
        lambda x: layouts.laid_out(x, lambda y: y.mT.unsqueeze(-1), lambda y: y.flatten(2).mT),
    ),
    "one by one": (Laid(lambda x: x[None], lambda x: x[0]), layouts.one_by_one),
    "heads apart": (Laid(join, parted), lambda x: layouts.laid_out(x, parted, join)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_with_a_mask_of_numbers(name):
    module, adapt = LAYOUTS[name]
    attend = adapters.additive(adapt(module))
    found = report(attend, "cross")
    assert found.ok, str(found)
    assert found.results["blocked"] == "fine"
    assert found.version == "right"


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_without_a_mask(name):
    module, adapt = LAYOUTS[name]
    found = report(adapters.without_mask(adapt(module)), "cross")
    assert found.ok, str(found)
    assert found.version == "right"


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_with_a_context_and_a_mask_of_numbers(name):
    module, adapt = LAYOUTS[name]

    def attend(x, context, added=None):
        return module(x, context, context, added)

    found = report(adapters.additive(adapt(adapters.Adapted(attend, module))), "memory")
    assert found.ok, str(found)
    assert found.results["blocked"] == "fine"


def test_values_that_are_as_wide_as_there_are_keys_are_no_mask():
    given = torch.randn(2, 5, 7), torch.randn(2, 7, 7), torch.randn(2, 7, 7)
    seen = []
    attend = layouts.laid_out(
        lambda *tensors: seen.append(tensors[-1]) or tensors[0], lambda x: x.mT, lambda x: x.mT
    )
    attend(*given)
    assert torch.equal(seen[0], given[-1].mT)

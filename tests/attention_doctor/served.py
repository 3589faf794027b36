"""Attention with rotation, a cache and a window; a flaw is one line of it."""

import torch
from torch import nn

from attention_doctor import adapters, examine

E, H, D = 24, 3, 8


class Served(nn.Module):
    """Rotary attention with a cache and a window; a flaw is one line that is different."""

    def __init__(self, flaw="", window=None, rotary=True):
        super().__init__()
        torch.manual_seed(0)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(E, E) for _ in range(4))
        self.flaw, self.width, self.rotary = flaw, window, rotary

    def project(self, x):
        split = lambda y: y.unflatten(-1, (H, D)).transpose(1, 2)  # noqa: E731
        return split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))

    def turn(self, x, positions):
        """Turn pairs of features, half a head apart."""
        if not self.rotary or self.flaw == "no rotation":
            return x
        angle = positions[:, None] * 100.0 ** -torch.arange(0, D, 2).to(x).div(D)
        if self.flaw == "angles of the other layout":
            cos, sin = (y.repeat_interleave(2, -1) for y in (angle.cos(), angle.sin()))
        else:
            cos, sin = (torch.cat([y, y], -1) for y in (angle.cos(), angle.sin()))
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def mix(self, q, k, v, blocked):
        scores = q @ k.mT / D**0.5
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))

    def hidden(self, queries, keys):
        """Block what comes later, and what a window leaves behind."""
        distance = queries[:, None] - keys
        return (distance < 0) | (distance >= (self.width or 10**6))

    def forward(self, x):
        return self.at_positions(x, torch.arange(x.size(1)))

    def at_positions(self, x, positions):
        q, k, v = self.project(x)
        place = torch.arange(x.size(1))
        ahead = -positions if self.flaw == "opposite senses" else positions
        if self.flaw != "keys alone":
            q = self.turn(q, ahead)
        if self.flaw != "queries alone":
            k = self.turn(k, positions)
        if self.flaw == "along the heads":  # the keys are those of one group
            q, k, _ = self.project(x)
            q = self.turn(q.transpose(1, 2), positions[:H]).transpose(1, 2)
            k = self.turn(k, positions[:1])
        if self.flaw == "values, too":
            v = self.turn(v, positions)
        return self.mix(q, k, v, self.hidden(place, place))

    def start(self):
        if self.flaw == "the same cache":
            self.kept = getattr(self, "kept", None) or {}
            return self.kept
        return {}

    def step(self, x, cache):
        q, k, v = self.project(x)
        old = cache["k"].size(2) if "k" in cache else 0
        begin = 0 if self.flaw == "position 0" else old
        places = torch.arange(begin, begin + x.size(1))
        q = self.turn(q, places)
        if self.flaw != "unrotated keys":
            k = self.turn(k, places)
        if old and self.flaw != "forgets":
            k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
        cache.update(k=k, v=v)
        m = k.size(2)
        blocked = self.hidden(torch.arange(m - x.size(1), m), torch.arange(m))
        if self.flaw == "wrong corner":
            blocked = torch.ones(x.size(1), m, dtype=torch.bool).triu(1)
        if self.flaw == "no mask":
            blocked = torch.zeros_like(blocked)
        if self.flaw == "zeros":
            k, v = (torch.cat([y, y.new_zeros(*y.shape[:2], 16 - m, D)], 2) for y in (k, v))
            blocked = torch.cat([blocked, torch.zeros(x.size(1), 16 - m).bool()], 1)
        if self.flaw == "loses the first" and m > 1:
            blocked = blocked | (torch.arange(m) == 0)
        if self.flaw == "another scale" and old:
            q = q * 2
        return self.mix(q, k, v, blocked)


def report(flaw="", says=("at_positions", "start", "step"), **options):
    """Examine what says that it has these."""
    module = Served(flaw, **options)
    attend = adapters.Adapted(module, module)
    for name in says:
        setattr(attend, name, getattr(module, name))
    return examine(attend, embed_dim=E, num_heads=H, kind="causal")


FLAWS = {
    "rotation": {
        "no rotation": "positions-ignored",
        "along the heads": "positions-ignored",
        "queries alone": "rotates-one-side",
        "keys alone": "rotates-one-side",
        "opposite senses": "positions-not-relative",
        "angles of the other layout": "positions-not-relative",
        "values, too": "values-rotated",
    },
    "cache": {
        "position 0": "positions-restart",
        "unrotated keys": "keys-cached-unrotated",
        "wrong corner": "causal-at-the-wrong-corner",
        "no mask": "future-leaks-in-a-chunk",
        "zeros": "cache-zeros-attended",
        "forgets": "cache-ignored",
        "loses the first": "cache-loses-tokens",
        "the same cache": "cache-not-empty",
        "another scale": "cache-differs",
    },
}
SAYS = {
    "rotation": ("at_positions",),
    "cache": ("at_positions", "start", "step"),
}

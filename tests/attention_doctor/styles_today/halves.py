"""A matrix for each projection, halves of a head that turn together, a cache that grows."""

import torch
from torch import nn

E, H, G, D = 24, 6, 2, 4  # the width, heads, heads of keys, and the width of each


def split(x, heads=H):
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


def hidden(scores, start):
    pairs = torch.ones(scores.shape[2:], dtype=torch.bool)
    return pairs.triu(1 + start)


def turn(x, places, longest=0):
    d = x.size(-1)
    base = 100.0 * max(longest / 8, 1) ** (d / max(d - 2, 1))
    angle = places[:, None] * base ** -torch.arange(0, d, 2).to(x).div(d)
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(E, E), nn.Linear(E, E)
        self.k_proj, self.v_proj = nn.Linear(E, G * D), nn.Linear(E, G * D)

    def heads(self, x):
        return split(self.q_proj(x)), split(self.k_proj(x), G), split(self.v_proj(x), G)

    def attend(self, q, k, v, start, bias=0):
        k, v = (y.repeat_interleave(H // G, dim=1) for y in (k, v))
        scores = q @ k.mT / D**0.5
        scores = scores + bias
        blocked = hidden(scores, start)
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))

    def begin(self):
        return {}

    def keep(self, cache, k, v):
        if cache:
            k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
        cache.update(k=k, v=v)
        return k, v


class Rotary(Base):
    def forward(self, x):
        q, k, v = self.heads(x)
        places = torch.arange(x.size(1))
        q, k = turn(q, places), turn(k, places)
        return self.attend(q, k, v, 0)

    def step(self, x, cache):
        q, k, v = self.heads(x)
        start = cache["k"].size(2) if cache else 0
        new = torch.arange(start, start + x.size(1))
        q = turn(q, new)
        k = turn(k, new)
        k, v = self.keep(cache, k, v)
        return self.attend(q, k, v, start)


class Stretched(Base):
    """The base grows with the length, so that keys are kept as they are, and turned anew."""

    def forward(self, x):
        return self.step(x, {})

    def step(self, x, cache):
        q, k, v = self.heads(x)
        start = cache["k"].size(2) if cache else 0
        end = start + x.size(1)
        q = turn(q, torch.arange(start, end), end)
        k, v = self.keep(cache, k, v)
        k = turn(k, torch.arange(end), end)
        return self.attend(q, k, v, start)


class Biased(Base):
    def bias(self, places, keys):
        slopes = torch.tensor([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
        return -slopes[:, None, None] * (places[:, None] - keys).abs()

    def forward(self, x):
        return self.step(x, {})

    def step(self, x, cache):
        q, k, v = self.heads(x)
        start = cache["k"].size(2) if cache else 0
        k, v = self.keep(cache, k, v)
        bias = self.bias(torch.arange(start, k.size(2)), torch.arange(k.size(2)))
        return self.attend(q, k, v, start, bias)

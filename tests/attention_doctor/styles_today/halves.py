"""A matrix for each projection, halves of a head that turn together, a cache that grows."""

import torch
from torch import nn


def split(x, h):
    return x.view(x.size(0), x.size(1), h, -1).transpose(1, 2)


def mix(scores, v, start):
    hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1 + start)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def turn(x, places, longest=0):
    d = x.size(-1)
    base = 100.0 * max(longest / 8, 1) ** (d / max(d - 2, 1))
    angle = places[:, None] * base ** -torch.arange(0, d, 2).to(x).div(d)
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Base(nn.Module):
    def __init__(self, e, h, g=2):
        super().__init__()
        self.h, self.g, self.d = h, g, e // h
        self.q_proj, self.o_proj = nn.Linear(e, e), nn.Linear(e, e)
        self.k_proj, self.v_proj = nn.Linear(e, e // h * g), nn.Linear(e, e // h * g)

    def heads(self, x):
        return split(self.q_proj(x), self.h), split(self.k_proj(x), self.g), self.values(x)

    def values(self, x):
        return split(self.v_proj(x), self.g)

    def attend(self, q, k, v, start, bias=None):
        k, v = (y.repeat_interleave(self.h // self.g, dim=1) for y in (k, v))
        scores = q @ k.transpose(2, 3) / self.d**0.5
        y = mix(scores if bias is None else scores + bias.to(q), v, start)
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def begin(self):
        return {}

    def keep(self, cache, k, v):
        if cache:
            k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
        cache.update(k=k, v=v)
        return k, v


class Rotary(Base):
    def forward(self, x):
        return self.anywhere(x, torch.arange(x.size(1)))

    def anywhere(self, x, places):
        q, k, v = self.heads(x)
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
        power = 2 ** (self.h.bit_length() - 1)
        slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
        slopes += [2 ** (-4 * i / power) for i in range(1, 2 * power, 2)]
        slopes = torch.tensor(slopes[: self.h])
        return -slopes[:, None, None] * (places[:, None] - keys).abs()

    def forward(self, x):
        places = torch.arange(x.size(1))
        return self.attend(*self.heads(x), 0, self.bias(places, places))

    def step(self, x, cache):
        q, k, v = self.heads(x)
        start = cache["k"].size(2) if cache else 0
        k, v = self.keep(cache, k, v)
        bias = self.bias(torch.arange(start, k.size(2)), torch.arange(k.size(2)))
        return self.attend(q, k, v, start, bias)


class Latent(nn.Module):
    def __init__(self, e, h, c=10, r=2):
        super().__init__()
        self.h, self.d, self.c, self.r = h, e // h, c, r
        self.q_up, self.down = nn.Linear(e, e + h * r, bias=False), nn.Linear(e, c + r, bias=False)
        self.k_up, self.v_up = nn.Linear(c, e, bias=False), nn.Linear(c, e, bias=False)
        self.out = nn.Linear(e, e)

    def parts(self, x, places):
        q, short = split(self.q_up(x), self.h).split([self.d, self.r], -1)
        latent, key = self.down(x)[:, None].split([self.c, self.r], -1)
        return q, turn(short, places), latent, turn(key, places)

    def attend(self, q, k, v, start):
        return mix(q @ k.transpose(2, 3) / (self.d + self.r) ** 0.5, v, start)

    def forward(self, x):
        places = torch.arange(x.size(1))
        q, short, latent, key = self.parts(x, places)
        k, v = split(self.k_up(latent[:, 0]), self.h), split(self.v_up(latent[:, 0]), self.h)
        q, k = torch.cat([q, short], -1), torch.cat([k, key.expand(-1, self.h, -1, -1)], -1)
        return self.out(self.attend(q, k, v, 0).transpose(1, 2).flatten(2))

    def begin(self):
        return {}

    def step(self, x, cache):
        start = cache["latent"].size(2) if cache else 0
        new = torch.arange(start, start + x.size(1))
        q, short, latent, key = self.parts(x, new)
        if cache:
            latent = torch.cat([cache["latent"], latent], 2)
            key = torch.cat([cache["key"], key], 2)
        cache.update(latent=latent, key=key)
        q = q @ self.k_up.weight.view(self.h, self.d, -1)
        q, k = torch.cat([q, short], -1), torch.cat([latent, key], -1)
        y = self.attend(q, k, latent, start) @ self.v_up.weight.view(self.h, self.d, -1).mT
        return self.out(y.transpose(1, 2).flatten(2))

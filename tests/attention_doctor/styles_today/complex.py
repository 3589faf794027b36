"""One matrix, tokens before heads, complex numbers that turn, a cache of fixed size; fused."""

import torch
import torch.nn.functional as F
from torch import nn

ROOM = 16


def frequencies(d, places, length):
    grown = 50.0 * max(1, length / 8) ** (d / (d - 2)) if d > 2 else 50.0
    speeds = 1 / grown ** (torch.arange(0, d, 2)[: d // 2].double() / d)
    return torch.polar(torch.ones(1).double(), torch.outer(places, speeds))


def rotate(x, places, length=0):
    """Turn x, (b, n, h, d), by neighbouring pairs."""
    freqs_cis = frequencies(x.size(-1), places, length)[None, :, None]
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * freqs_cis).flatten(3).type_as(x)


def sdpa(q, k, v, places, bias=None, scale=None):
    """Attend with q, k and v of (b, n, h, d), the queries at these places."""
    mask = torch.arange(k.size(1)) <= places[:, None]
    if bias is not None:
        mask = torch.where(mask, bias, float("-inf")).to(q)
    q, k, v = (y.transpose(1, 2) for y in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, mask, scale=scale).transpose(1, 2)


class Fixed:
    def __init__(self):
        self.length, self.parts = 0, None

    def write(self, *new):
        if self.parts is None:
            self.parts = [x.new_zeros(x.size(0), ROOM, *x.shape[2:]) for x in new]
        end = self.length + new[0].size(1)
        for part, x in zip(self.parts, new, strict=True):
            part[:, self.length : end] = x
        self.length = end
        return self.parts


class Base(nn.Module):
    begin = Fixed

    def __init__(self, e, h, g=2):
        super().__init__()
        self.sizes, self.d = (h, g, g), e // h
        self.qkv = nn.Linear(e, (h + 2 * g) * self.d, bias=False)
        self.wo = nn.Linear(e, e, bias=False)

    def heads(self, x):
        return self.qkv(x).unflatten(-1, (-1, self.d)).split(self.sizes, 2)

    def attend(self, q, k, v, places, bias=None):
        h, g, _ = self.sizes
        k, v = (y[:, :, :, None].expand(-1, -1, g, h // g, -1).flatten(2, 3) for y in (k, v))
        return self.wo(sdpa(q, k, v, places, bias).flatten(2))


class Rotary(Base):
    def forward(self, x):
        return self.anywhere(x, torch.arange(x.size(1)))

    def anywhere(self, x, places):
        xq, xk, xv = self.heads(x)
        xq, xk = rotate(xq, places), rotate(xk, places)
        return self.attend(xq, xk, xv, torch.arange(x.size(1)))

    def step(self, x, cache):
        xq, xk, xv = self.heads(x)
        now = torch.arange(x.size(1)) + cache.length
        xq = rotate(xq, now)
        xk = rotate(xk, now)
        keys, values = cache.write(xk, xv)
        return self.attend(xq, keys, values, now)


class Stretched(Base):
    def forward(self, x):
        return self.step(x, Fixed())

    def step(self, x, cache):
        xq, xk, xv = self.heads(x)
        now = torch.arange(x.size(1)) + cache.length
        length = now[-1].item() + 1
        xq = rotate(xq, now, length)
        keys, values = cache.write(xk, xv)
        keys = rotate(keys, torch.arange(ROOM), length)
        return self.attend(xq, keys, values, now)


class Biased(Base):
    def slopes(self):
        def of(n):
            start = 2.0 ** (-8.0 / n)
            return [start * start**i for i in range(n)]

        h = self.sizes[0]
        closest = 2 ** (h.bit_length() - 1)
        return torch.tensor(of(closest) + of(2 * closest)[0::2][: h - closest])

    def alibi(self, now, m):
        return self.slopes()[:, None, None] * (torch.arange(m) - now[:, None])

    def forward(self, x):
        now = torch.arange(x.size(1))
        return self.attend(*self.heads(x), now, self.alibi(now, len(now)))

    def step(self, x, cache):
        xq, xk, xv = self.heads(x)
        now = torch.arange(x.size(1)) + cache.length
        keys, values = cache.write(xk, xv)
        bias = -(now[:, None] - torch.arange(ROOM)).abs() * self.slopes()[:, None, None]
        return self.attend(xq, keys, values, now, bias)


class Latent(nn.Module):
    begin = Fixed

    def __init__(self, e, h, c=10, r=2):
        super().__init__()
        self.h, self.split, self.scale = h, (e // h, r), (e // h + r) ** -0.5
        self.c = c
        self.wq, self.wkv_a = nn.Linear(e, e + h * r), nn.Linear(e, c + r)
        self.wkv_b = nn.Parameter(torch.randn(2, h, e // h, c) / 4)
        self.wo = nn.Linear(e, e)

    def project(self, x, now):
        q_nope, q_pe = self.wq(x).unflatten(-1, (self.h, -1)).split(self.split, -1)
        kv, k_pe = self.wkv_a(x).unsqueeze(2).split([self.c, self.split[1]], -1)
        return q_nope, rotate(q_pe, now), kv, rotate(k_pe, now)

    def forward(self, x):
        now = torch.arange(x.size(1))
        q_nope, q_pe, kv, k_pe = self.project(x, now)
        k, v = torch.einsum("bmoc,thdc->tbmhd", kv, self.wkv_b)
        q = torch.cat((q_nope, q_pe), -1)
        k = torch.cat((k, k_pe.expand(-1, -1, self.h, -1)), -1)
        return self.wo(sdpa(q, k, v, now).flatten(2))

    def step(self, x, cache):
        now = torch.arange(x.size(1)) + cache.length
        q_nope, q_pe, kv, k_pe = self.project(x, now)
        kv, k_pe = cache.write(kv, k_pe)
        q_nope = torch.einsum("bnhd,hdc->bnhc", q_nope, self.wkv_b[0])
        q, k = torch.cat((q_nope, q_pe), -1), torch.cat((kv, k_pe), -1)
        k, kv = (y.expand(-1, -1, self.h, -1) for y in (k, kv))
        y = sdpa(q, k, kv, now, scale=self.scale)
        return self.wo(torch.einsum("bnhc,hdc->bnhd", y, self.wkv_b[1]).flatten(2))

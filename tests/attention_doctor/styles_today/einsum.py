"""Products as einsums, neighbours that turn by sines and cosines, a cache of three fields."""

import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Past:
    seen: int = 0
    first: torch.Tensor | None = None
    second: torch.Tensor | None = None

    def add(self, first, second):
        if self.seen:
            first = torch.cat((self.first, first), dim=-2)
            second = torch.cat((self.second, second), dim=-2)
        self.first, self.second, self.seen = first, second, first.size(-2)
        return first, second


def rope(t, pos, reach=1.0):
    dim = t.size(-1)
    theta = 30.0 * reach ** (dim / max(1, dim - 2))
    inv_freq = theta ** (-torch.arange(dim // 2, dtype=t.dtype) * 2 / dim)
    angles = torch.einsum("n,f->nf", pos.to(t.dtype), inv_freq).repeat_interleave(2, dim=-1)
    even, odd = t[..., ::2], t[..., 1::2]
    return t * angles.cos() + torch.stack((-odd, even), -1).flatten(-2) * angles.sin()


def soften(sim, values, pos):
    later = torch.arange(sim.size(-1)) > pos[:, None]
    attn = torch.exp(sim.masked_fill(later, -math.inf) - sim.amax(-1, keepdim=True))
    attn = attn / attn.sum(-1, keepdim=True)
    return torch.einsum("bhij,bhjd->bhid", attn, values)


class Base(nn.Module):
    begin = Past

    def __init__(self, dim, heads, kv_heads=2):
        super().__init__()
        self.heads, self.kv_heads, self.scale = heads, kv_heads, (dim // heads) ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * kv_heads * dim // heads, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def project(self, x):
        q = self.to_q(x).unflatten(-1, (self.heads, -1)).movedim(2, 1)
        k, v = self.to_kv(x).unflatten(-1, (2, self.kv_heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def finish(self, q, k, v, pos, bias=None):
        group = torch.arange(self.heads) // (self.heads // self.kv_heads)
        k, v = k[:, group], v[:, group]
        sim = torch.einsum("bhid,bhjd->bhij", q * self.scale, k)
        sim = sim if bias is None else sim + bias
        return self.to_out(soften(sim, v, pos).movedim(1, 2).flatten(2))


class Rotary(Base):
    def forward(self, x):
        return self.anywhere(x, torch.arange(x.shape[1]))

    def anywhere(self, x, pos):
        q, k, v = self.project(x)
        q, k = rope(q, pos), rope(k, pos)
        return self.finish(q, k, v, torch.arange(x.shape[1]))

    def step(self, x, past):
        q, k, v = self.project(x)
        pos = torch.arange(past.seen, past.seen + x.shape[1])
        q = rope(q, pos)
        k = rope(k, pos)
        k, v = past.add(k, v)
        return self.finish(q, k, v, pos)


class Stretched(Base):
    def forward(self, x):
        return self.step(x, Past())

    def step(self, x, past):
        q, k, v = self.project(x)
        pos = torch.arange(past.seen, past.seen + x.shape[1])
        reach = max(1.0, (past.seen + x.shape[1]) / 8)
        q = rope(q, pos, reach)
        k, v = past.add(k, v)
        k = rope(k, torch.arange(past.seen), reach)
        return self.finish(q, k, v, pos)


class Biased(Base):
    def slopes(self):
        power = 2 ** math.floor(math.log2(self.heads))
        exact = [2 ** (-8 / power * i) for i in range(1, power + 1)]
        between = [2 ** (-4 / power * i) for i in range(1, 2 * (self.heads - power), 2)]
        return torch.tensor(exact + between)

    def forward(self, x):
        pos = torch.arange(x.shape[1])
        bias = -torch.einsum("h,ij->hij", self.slopes(), (pos[:, None] - pos).clamp(min=0).float())
        return self.finish(*self.project(x), pos, bias.to(x))


class Bucketed(Base):
    """What is added is learned, a number for each bucket."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.table = nn.Embedding(6, heads)

    def learned(self, pos, keys):
        bucket = (pos[:, None] - keys).clamp(0, 5)
        return self.table(bucket).movedim(-1, 0)

    def forward(self, x):
        pos = torch.arange(x.shape[1])
        return self.finish(*self.project(x), pos, self.learned(pos, pos))

    def step(self, x, past):
        q, k, v = self.project(x)
        pos = torch.arange(past.seen, past.seen + x.shape[1])
        k, v = past.add(k, v)
        return self.finish(q, k, v, pos, self.learned(pos, torch.arange(past.seen)))


class Latent(nn.Module):
    begin = Past

    def __init__(self, dim, heads, narrow=10, turning=2):
        super().__init__()
        self.heads, self.width, self.scale = heads, dim // heads, (dim // heads + turning) ** -0.5
        self.to_q, self.to_short = nn.Linear(dim, dim), nn.Linear(dim, heads * turning)
        self.to_latent, self.to_key = nn.Linear(dim, narrow), nn.Linear(dim, turning)
        self.up_k = nn.Parameter(torch.randn(heads, dim // heads, narrow) / 4)
        self.up_v = nn.Parameter(torch.randn(heads, dim // heads, narrow) / 4)
        self.to_out = nn.Linear(dim, dim)

    def queries(self, x, pos):
        q, short = (y.unflatten(-1, (self.heads, -1)).movedim(2, 1)
                    for y in (self.to_q(x), self.to_short(x)))  # fmt: skip
        return q, rope(short, pos)

    def forward(self, x):
        pos = torch.arange(x.shape[1])
        q, short = self.queries(x, pos)
        latent, key = self.to_latent(x), rope(self.to_key(x), pos)
        k = torch.einsum("bjc,hdc->bhjd", latent, self.up_k)
        v = torch.einsum("bjc,hdc->bhjd", latent, self.up_v)
        sim = torch.einsum("bhid,bhjd->bhij", q, k)
        sim = sim + torch.einsum("bhir,bjr->bhij", short, key)
        return self.to_out(soften(sim * self.scale, v, pos).movedim(1, 2).flatten(2))

    def step(self, x, past):
        pos = torch.arange(past.seen, past.seen + x.shape[1])
        q, short = self.queries(x, pos)
        latent, key = past.add(self.to_latent(x), rope(self.to_key(x), pos))
        absorbed = torch.einsum("bhid,hdc->bhic", q, self.up_k)
        sim = torch.einsum("bhic,bjc->bhij", absorbed, latent)
        sim = sim + torch.einsum("bhir,bjr->bhij", short, key)
        mixed = soften(sim * self.scale, latent[:, None].expand(-1, self.heads, -1, -1), pos)
        mixed = torch.einsum("bhic,hdc->bhid", mixed, self.up_v)
        return self.to_out(mixed.movedim(1, 2).flatten(2))

"""Right attention as different people write it: layouts, masks, the parts of today."""

import math

import torch
from torch import nn

E, H = 12, 3


class Decoder(nn.Module):
    """The usual decoder-only attention, in many layouts: one class, the parts are settings."""

    def __init__(self, layout, e=E, h=H, rotary=False):
        super().__init__()
        self.layout, self.h, self.d, self.rotary = layout, h, e // h, rotary
        d, groups = e // h, 1
        if layout == "packed":
            self.c_attn = nn.Linear(e, 3 * e)
        elif layout == "packed by head":
            self.qkv = nn.Linear(e, 3 * e)
        elif layout == "packed matrix":
            self.in_proj = nn.Parameter(torch.randn(e, 3 * e) / e**0.5)
        elif layout == "lists":
            for name in ("queries", "keys", "values"):
                setattr(self, name, nn.ModuleList(nn.Linear(e, d) for _ in range(h)))
        elif layout == "einsum":
            for name in ("w_q", "w_k", "w_v"):
                setattr(self, name, nn.Parameter(torch.randn(h, e, d) / e**0.5))
        elif layout == "matrices":
            for name in ("W_Q", "W_K", "W_V"):
                setattr(self, name, nn.Parameter(torch.randn(e, e) / e**0.5))
        elif layout == "shared keys":
            self.q_proj, self.k_proj = nn.Linear(e, e), nn.Linear(e, groups * d)
            self.v_proj = nn.Linear(e, groups * d)
        elif layout == "keys and values":
            self.to_q, self.to_kv = nn.Linear(e, e, bias=False), nn.Linear(e, 2 * e, bias=False)
        self.proj = nn.Linear(e, e)
        if layout in ("einsum", "matrices", "packed matrix"):
            del self.proj
            self.w_o = nn.Parameter(torch.randn(e, e) / e**0.5)
        self.register_buffer("tril", torch.tril(torch.ones(16, 16)))
        self.drop = nn.Dropout(0.1)

    def project(self, x):
        split = lambda y: y.unflatten(-1, (-1, self.d)).transpose(1, 2)  # noqa: E731
        if self.layout == "packed":
            return map(split, self.c_attn(x).chunk(3, -1))
        if self.layout == "packed by head":
            return self.qkv(x).unflatten(-1, (self.h, 3, -1)).permute(3, 0, 2, 1, 4)
        if self.layout == "packed matrix":
            return map(split, (x @ self.in_proj).chunk(3, -1))
        if self.layout == "lists":
            lists = (self.queries, self.keys, self.values)
            return (torch.stack([head(x) for head in heads], 1) for heads in lists)
        if self.layout == "einsum":
            return (torch.einsum("bne,hed->bhnd", x, w) for w in (self.w_q, self.w_k, self.w_v))
        if self.layout == "matrices":
            return (split(x @ w) for w in (self.W_Q, self.W_K, self.W_V))
        if self.layout == "shared keys":
            k, v = split(self.k_proj(x)), split(self.v_proj(x))
            return split(self.q_proj(x)), k, v
        return (split(y) for y in (self.to_q(x), *self.to_kv(x).chunk(2, -1)))

    def turn(self, x):
        """Rotate pairs of features by an angle that grows with the position."""
        angle = torch.arange(x.size(-2), dtype=x.dtype)[:, None] * torch.ones(self.d // 2).to(x)
        even, odd = x[..., ::2], x[..., 1::2]
        turned = (even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos())
        return torch.stack(turned, -1).flatten(-2)

    def forward(self, x):
        q, k, v = self.project(x)
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        n = x.size(1)
        scores = q @ k.mT / math.sqrt(self.d)
        scores = scores.masked_fill(self.tril[:n, :n] == 0, float("-inf"))
        heads = self.drop(scores.softmax(-1)) @ v
        merged = heads.transpose(1, 2).flatten(-2)
        return merged @ self.w_o if hasattr(self, "w_o") else self.proj(merged)


LAYOUTS = [
    "packed", "packed by head", "packed matrix", "lists", "einsum", "matrices", "shared keys",
    "keys and values",
]  # fmt: skip


class Modern(nn.Module):
    """A causal attention of today: its parts are settings, and any of them may be there."""

    def __init__(self, *parts, e=24, h=4, groups=4):
        super().__init__()
        self.h, self.d, self.r, self.parts = h, e // h, h // groups, parts
        self.q_proj, self.o_proj = nn.Linear(e, e, bias=False), nn.Linear(e, e, bias=False)
        self.k_proj = nn.Linear(e, groups * self.d, bias=False)
        self.v_proj = nn.Linear(e, groups * self.d, bias=False)
        self.gate, self.norm = nn.Linear(e, e), nn.LayerNorm(e)
        self.q_norm, self.k_norm = nn.RMSNorm(self.d), nn.RMSNorm(self.d)
        self.sinks = nn.Parameter(torch.randn(h))
        unused = {"gate": "gate", "qk norm": "q_norm k_norm", "sinks": "sinks", "block": "norm"}
        for name in " ".join(x for part, x in unused.items() if part not in parts).split():
            delattr(self, name)
        if "identity" in parts:
            nn.init.eye_(self.o_proj.weight)

    def turn(self, x):
        """Turn pairs of features, half a head apart."""
        angle = torch.arange(x.size(2))[:, None] / 100 ** torch.arange(0, 1, 2 / self.d).to(x)
        left, right = x.chunk(2, -1)
        sin, cos = angle.sin(), angle.cos()
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def weigh(self, scores):
        n = scores.size(-1)
        distance = torch.arange(n)[:, None] - torch.arange(n)
        if "alibi" in self.parts:
            slopes = 2.0 ** -torch.arange(1, self.h + 1).to(scores)
            scores = scores - slopes[:, None, None] * distance.abs()
        hidden = (distance < 0) | (distance >= (3 if "window" in self.parts else n))
        scores = scores.masked_fill(hidden, -math.inf)
        if "sinks" not in self.parts:
            return scores.softmax(-1)
        sinks = self.sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]

    def forward(self, x):
        given, x = x, self.norm(x) if "block" in self.parts else x
        split = lambda y: y.unflatten(-1, (-1, self.d)).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        if "qk norm" in self.parts:
            q, k = self.q_norm(q), self.k_norm(k)
        if "rotary" in self.parts:
            q, k = self.turn(q), self.turn(k)
        k, v = (y.repeat_interleave(self.r, 1) for y in (k, v))
        y = (self.weigh(q @ k.mT / self.d**0.5) @ v).transpose(1, 2).flatten(2)
        y = y * self.gate(x).sigmoid() if "gate" in self.parts else y
        return self.o_proj(y) + (given if {"block", "residual"} & {*self.parts} else 0)


PARTS = [
    (), ("rotary",), ("alibi",), ("window",), ("sinks",), ("gate",), ("qk norm", "rotary"),
    ("identity",), ("residual",), ("block", "rotary"),
    ("rotary", "qk norm", "gate", "window", "sinks", "block"),
]  # fmt: skip


class Positioned(nn.Module):
    """Self-attention that takes a mask, with a bias by distance."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.near = nn.Parameter(torch.randn(H, 31))

    def forward(self, x, blocked=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        distance = torch.arange(x.size(1)) - torch.arange(x.size(1))[:, None]
        scores = q @ k.mT / math.sqrt(E // H) + self.near[:, distance + 15]
        if blocked is not None:
            low = torch.finfo(scores.dtype).min
            scores = scores.masked_fill(blocked[:, None], low)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


def turned(x, sign=1):
    """Rotate neighbouring features by their place, (..., n, d)."""
    pairs = x.unflatten(-1, (-1, 2))
    angle = sign * torch.arange(x.size(-2)).to(x)[:, None]
    cos, sin = angle.cos(), angle.sin()
    left, right = pairs.unbind(-1)
    return torch.stack([left * cos - right * sin, left * sin + right * cos], -1).flatten(-2)


class ValuesTurned(nn.Module):
    """Rotates queries, keys and values, and may rotate back what is mixed."""

    def __init__(self, causal, back):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(E, E) for _ in range(4))
        self.causal, self.back = causal, back

    def forward(self, query, key=None, value=None):
        key, value = (query, query) if key is None else (key, value)
        q, k, v = (
            turned(project(x).unflatten(-1, (2, -1)).transpose(1, 2))
            for project, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        scores = q @ k.mT / math.sqrt(E // 2)
        if self.causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1) == 1, -math.inf)
        mixed = scores.softmax(-1) @ v
        mixed = turned(mixed, -1) if self.back else mixed
        return self.out(mixed.transpose(1, 2).flatten(2))

"""Right attention as different people write it: layouts, masks, the parts of today."""

import math

import torch
from torch import nn

from tests.attention_doctor.demanded import Attention, E, H
from tests.attention_doctor.styles_today.halves import turn

D = E // H


def by_heads(x, d=D):
    return x.unflatten(-1, (-1, d)).transpose(1, 2)


def matrix(*shape):
    return nn.Parameter(torch.randn(shape) / E**0.5)


class Decoder(Attention):
    """The usual decoder-only attention, in many layouts: one class, the parts are settings."""

    def __init__(self, layout):
        super().__init__(causal=True)
        del self.q, self.k, self.v
        self.layout, self.h, self.d = layout, H, D
        layers = {
            "packed": {"c_attn": nn.Linear(E, 3 * E)},
            "packed by head": {"qkv": nn.Linear(E, 3 * E)},
            "packed matrix": {"in_proj": matrix(E, 3 * E)},
            "matrices": {name: matrix(E, E) for name in ("W_Q", "W_K", "W_V")},
            "shared keys": {
                "q_proj": nn.Linear(E, E),
                "k_proj": nn.Linear(E, D),
                "v_proj": nn.Linear(E, D),
            },
            "keys and values": {
                "to_q": nn.Linear(E, E, bias=False),
                "to_kv": nn.Linear(E, 2 * E, bias=False),
            },
        }
        for name, layer in layers[layout].items():
            setattr(self, name, layer)
        if layout in ("matrices", "packed matrix"):
            del self.o
            self.w_o = matrix(E, E)
            self.o = lambda x: x @ self.w_o

    def heads(self, x, *_):
        if self.layout == "packed":
            return map(by_heads, self.c_attn(x).chunk(3, -1))
        if self.layout == "packed by head":
            return self.qkv(x).unflatten(-1, (self.h, 3, -1)).permute(3, 0, 2, 1, 4)
        if self.layout == "packed matrix":
            return map(by_heads, (x @ self.in_proj).chunk(3, -1))
        if self.layout == "matrices":
            return (by_heads(x @ w) for w in (self.W_Q, self.W_K, self.W_V))
        if self.layout == "shared keys":
            return (by_heads(f(x)) for f in (self.q_proj, self.k_proj, self.v_proj))
        return map(by_heads, (self.to_q(x), *self.to_kv(x).chunk(2, -1)))


LAYOUTS = [
    "packed",
    "packed by head",
    "packed matrix",
    "matrices",
    "shared keys",
    "keys and values",
]


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
        q, k, v = (by_heads(f(x), self.d) for f in (self.q_proj, self.k_proj, self.v_proj))
        if "qk norm" in self.parts:
            q, k = self.q_norm(q), self.k_norm(k)
        if "rotary" in self.parts:
            q, k = (turn(y, torch.arange(x.size(1))) for y in (q, k))
        k, v = (y.repeat_interleave(self.r, 1) for y in (k, v))
        y = (self.weigh(q @ k.mT / self.d**0.5) @ v).transpose(1, 2).flatten(2)
        y = y * self.gate(x).sigmoid() if "gate" in self.parts else y
        return self.o_proj(y) + (given if {"block", "residual"} & {*self.parts} else 0)


PARTS = [
    (),
    ("rotary",),
    ("alibi",),
    ("window",),
    ("sinks",),
    ("gate",),
    ("qk norm", "rotary"),
    ("identity",),
    ("residual",),
    ("block", "rotary"),
    ("rotary", "qk norm", "gate", "window", "sinks", "block"),
]


def turned(x):
    """Rotate neighbouring features by their place, (..., n, d)."""
    pairs = x.unflatten(-1, (-1, 2))
    angle = torch.arange(x.size(-2)).to(x)[:, None]
    cos, sin = angle.cos(), angle.sin()
    left, right = pairs.unbind(-1)
    return torch.stack([left * cos - right * sin, left * sin + right * cos], -1).flatten(-2)

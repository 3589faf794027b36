"""Attention in many styles of code, mistakes that are planted in it, and what is said of them."""

import linecache
from pathlib import Path

import torch

from attention_doctor import Report, adapters, examine

E, H = 24, 4
HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn, Tensor
"""
FOUR = """
class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.d = h, e // h
        self.q, self.k, self.v, self.o = (nn.Linear(e, e) for _ in range(4))

    def split(self, x):
        b, n, e = x.shape
        return x.view(b, n, self.h, self.d).transpose(1, 2)

"""
# Attention that takes a mask, True = blocked, as people write it: two files any, all others
# self-attention.
STYLES = {
    **{
        file.stem.replace("_", " "): file.read_text()
        for file in sorted(Path(__file__).with_name("styles").glob("*.py"))
    },
    "einsum": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q, k, v = (f(x).view(b, n, self.h, self.d) for f in (self.q, self.k, self.v))
        energy = torch.einsum("bqhd,bkhd->bhqk", q, k)
        if blocked is not None:
            energy = energy.masked_fill(blocked[:, None], -1e4)
        attention = torch.softmax(energy / self.d ** 0.5, dim=3)
        out = torch.einsum("bhql,blhd->bqhd", attention, v)
        return self.o(out.reshape(b, n, e))
""",
    "bmm, folded": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q, k, v = (self.split(f(x)).flatten(0, 1) for f in (self.q, self.k, self.v))
        scores = torch.bmm(q * self.d**-0.5, k.transpose(1, 2))
        if blocked is not None:
            hidden = blocked.repeat_interleave(self.h, 0)
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        out = torch.bmm(F.softmax(scores, dim=-1), v)
        out = out.view(b, self.h, n, self.d)
        return self.o(out.permute(0, 2, 1, 3).contiguous().view(b, n, e))
""",
    "baddbmm": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q, k, v = (self.split(f(x)).flatten(0, 1) for f in (self.q, self.k, self.v))
        bias = x.new_zeros(b * self.h, n, n)
        if blocked is not None:
            bias = bias.masked_fill(blocked.repeat_interleave(self.h, 0), float("-inf"))
        scores = torch.baddbmm(bias, q, k.mT, beta=1, alpha=1 / math.sqrt(self.d))
        heads = scores.softmax(-1).bmm(v).view(b, self.h, n, self.d)
        return self.o(heads.transpose(1, 2).flatten(2))
""",
    "fused": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        allowed = None if blocked is None else ~blocked[:, None]
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.o(heads.transpose(1, 2).flatten(2))
""",
    "by hand": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(self.d)
        raised = (scores - scores.amax(-1, keepdim=True)).exp()
        if blocked is not None:
            raised = raised * ~blocked[:, None]
        heads = raised @ v / raised.sum(-1, keepdim=True)
        return self.o(heads.transpose(1, 2).flatten(2))
""",
    "in place": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        scores = torch.empty(x.size(0), self.h, x.size(1), x.size(1), dtype=x.dtype)
        for i in range(self.h):
            scores[:, i] = q[:, i] @ k[:, i].mT
        scores /= math.sqrt(self.d)
        if blocked is not None:
            scores[blocked[:, None].expand_as(scores)] = -math.inf
        weights = scores.log_softmax(-1).exp()
        return self.o((weights @ v).transpose(1, 2).flatten(2))
""",
    "through a view": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q = self.split(self.q(x) + 2.0 * F.linear(x, self.k.weight * 0.1))  # as low-rank updates
        k, v = self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.mT / math.sqrt(self.d)
        scores = 30 * torch.tanh(scores / 30)
        flat = scores.view(b * self.h, n, n)
        if blocked is not None:
            flat.masked_fill_(blocked.repeat_interleave(self.h, 0), -math.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
""",
    "norms": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        q, k = (F.rms_norm(y, (self.d,)) for y in (q, k))
        scores = (q * self.d**-0.25) @ (k * self.d**-0.25).mT
        if blocked is not None:
            scores.masked_fill_(blocked[:, None], -math.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
""",
}

# By style and code: what is written there, and what is written in its place.
PLANTED = {
    "packed": {
        "keys-reshaped": [("k.transpose(-2, -1)", "k.reshape(b, self.h, -1, n)")],
        "softmax-twice": [("softmax(dim=-1)", "softmax(dim=-1).softmax(dim=-1)")],
        "merge-without-transpose": [("heads.transpose(1, 2)", "heads.transpose(2, 3)")],
        "softmax-over-heads": [("softmax(dim=-1)", "softmax(dim=1)")],
        "no-scale": [("scores = scores / math.sqrt(q.size(-1))", "pass")],
        "chunks-in-the-wrong-order": [("q, k, v = qkv", "k, q, v = qkv")],
        "fill-does-not-block": [('unsqueeze(1), float("-inf")', "unsqueeze(1), 1e9")],
        "heads-in-a-plain-list": [
            (
                "self.qkv, self.out = nn.Linear(e, 3 * e), nn.Linear(e, e)",
                "self.layers = [nn.Linear(e, 3 * e), nn.Linear(e, e)]",
            ),
            ("self.qkv(x)", "self.layers[0](x)"),
            ("self.out(merged)", "self.layers[1](merged)"),
        ],
    },
    "parameters by head": {
        "keys-reshaped": [
            ('"bhnd,bhmd->bhnm", q, k)', '"bhnd,bhdm->bhnm", q, k.reshape(k.mT.shape))'),
        ],
        "softmax-twice": [("logits.softmax(dim=-1)", "logits.softmax(dim=-1).softmax(dim=-1)")],
        "input-changed-in-place": [
            ("q = torch", "query /= query.norm(dim=-1, keepdim=True)\n        q = torch"),
        ],
        "mask-after-softmax": [
            ("logits = torch.where(blocked.unsqueeze(1), -math.inf, logits)", "pass"),
            (
                "heads = torch",
                "if blocked is not None:\n            weights = torch.einsum("
                "'bhnm,bnm->bhnm', weights, 1 - blocked.to(weights))\n        heads = torch",
            ),
        ],
        "chunks-in-the-wrong-order": [
            ("query, self.w_q", "query, self.w_k"),
            ("key, self.w_k", "key, self.w_q"),
        ],
        "keys-and-values-swapped": [
            ('"bhnd,bhmd->bhnm", q, k)', '"bhnd,bhmd->bhnm", q, v)'),
            ("weights, v)", "weights, k)"),
        ],
        "keys-of-one-head": [
            ('"bhnd,bhmd->bhnm", q, k)', '"bhnd,bmd->bhnm", q, k[:, 0])'),
        ],
        "interleaved-per-head": [
            (
                "self.w_q = nn.Parameter(torch.randn(shape) * size)",
                "self.qkv = nn.Parameter(torch.randn(3 * e, e) * size)",
            ),
            ("self.w_k = nn.Parameter(torch.randn(shape) * size)", "self.h = h"),
            ("self.w_v = nn.Parameter(torch.randn(shape) * size)", ""),
            (
                'q = torch.einsum("bne,hed->bhnd", query, self.w_q)',
                "q, k, v = torch.einsum('bne,htde->tbhnd', query, self.qkv.unflatten(0, "
                "(self.h, 3, -1)))",
            ),
            ('k = torch.einsum("bme,hed->bhmd", key, self.w_k)', ""),
            ('v = torch.einsum("bme,hed->bhmd", value, self.w_v)', ""),
        ],
        "no-scale": [(" * q.shape[-1] ** -0.5", "")],
        "softmax-over-heads": [
            ("logits.softmax(dim=-1)", "logits.exp() / logits.exp().sum(1, keepdim=True)"),
        ],
        "weights-averaged-over-heads": [
            ('"bhnm,bhmd->bhnd", weights', '"bnm,bhmd->bhnd", weights.mean(1)'),
        ],
        "causal-hides-itself": [("place > place[:, None]", "place >= place[:, None]")],
        "dropout-in-evaluation": [("self.dropout, self.training)", "self.dropout)")],
    },
    "loop": {
        "padding-mask-on-queries": [("s[blocked] =", "s[blocked.unsqueeze(2).expand_as(s)] =")],
        "shared-heads": [
            (
                "zip(self.queries, self.keys, self.values, strict=True)",
                "[(self.queries[0], self.keys[0], self.values[0])] * len(self.keys)",
            ),
        ],
        "softmax-over-samples": [("torch.softmax(s, 2)", "torch.softmax(s, 0)")],
    },
    "einsum": {
        "softmax-over-queries": [("dim=3", "dim=2")],
        "mixed-over-queries": [("bhql,blhd->bqhd", "bhlq,blhd->bqhd")],
        "summed-apart": [("bqhd,bkhd->bhqk", "bqhd,bkhe->bhqk")],
        "fill-does-not-block": [("-1e4)", "1e-4)")],
    },
    "bmm, folded": {"scale-inverted": [("q * self.d**-0.5", "q * self.d**0.5")]},
    "baddbmm": {"scale-twice": [("alpha=1 / math.sqrt(self.d)", "alpha=1 / self.d")]},
    "fused": {
        "fill-does-not-block": [("~blocked[:, None]", "(~blocked[:, None]).to(x.dtype)")],
    },
    "by hand": {
        "mask-inverted": [("raised * ~blocked[:, None]", "raised * blocked[:, None]")],
        "fill-does-not-block": [("raised * ~blocked[:, None]", "raised / (1 + blocked[:, None])")],
    },
    "in place": {"scale-twice": [("scores /= math.sqrt(self.d)", "scores /= self.d")]},
    "through a view": {
        "scale-twice": [("/ math.sqrt(self.d)", "/ self.d")],
        "heads-of-other-samples": [
            (
                "@ v).transpose(1, 2)",
                "@ v).flatten(0, 1).unflatten(0, (self.h, -1)).permute(1, 2, 0, 3)",
            ),
        ],
    },
}
ON_SELF = ("interleaved-per-head", "padding-mask-on-queries")


def defined(text, edits=(), file="mine.py"):
    """Give the names of a file, whose lines can be read, after edits of it.

    Each edit is what is written there, and what is written in its place; a number says in which
    place, counted from 0, and without one it is the only one.
    """
    for old, new, *which in edits:
        parts = text.split(old)
        assert len(parts) == 2 or which, (len(parts) - 1, old)
        i = which[0] + 1 if which else 1
        text = old.join(parts[:i]) + new + old.join(parts[i:])
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), space := {"__name__": "theirs"})
    torch.manual_seed(0)
    return space


def report(style: str, code: str = "", kind: str = "") -> Report:
    """Examine a style, right or with a mistake."""
    text = HEAD + STYLES[style]
    module = defined(text, PLANTED[style][code] if code else ())["Attention"](E, H)
    three = "query, key, value" in text
    usual = "self" if code in ON_SELF or not three else "cross"
    kind = kind or ("causal" if code == "causal-hides-itself" else usual)
    attend = module
    if three and kind != "cross":
        attend = adapters.Adapted(lambda x, blocked=None: module(x, x, x, blocked), module)
    if code == "padding-mask-on-queries":
        inner = attend
        attend = adapters.Adapted(
            lambda x, y: inner(x, None if y is None else y[:, 0]), module, "padding"
        )
    if kind == "causal":
        module.causal = True
    return examine(attend, embed_dim=E, num_heads=H, kind=kind)

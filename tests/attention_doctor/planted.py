"""Self-attention that takes a mask in many styles, and mistakes that are planted in it."""

from pathlib import Path

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
# Self-attention that takes a mask, True = blocked, as people write it.
STYLES = {
    "packed": (Path(__file__).with_name("styles") / "packed.py").read_text(),
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
    "a list of heads": """
class Head(nn.Module):
    def __init__(self, e, d):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(e, d, bias=False) for _ in range(3))

    def forward(self, x, blocked=None):
        q, k, v = self.query(x), self.key(x), self.value(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1]**-0.5
        if blocked is not None:
            wei = wei.masked_fill(blocked, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        return wei @ v


class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.heads = nn.ModuleList(Head(e, e // h) for _ in range(h))
        self.proj = nn.Linear(e, e)

    def forward(self, x, blocked=None):
        return self.proj(torch.cat([head(x, blocked) for head in self.heads], dim=-1))
""",
    "grouped and rotated": """
def rotate(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.g, self.d = h, h // 2, e // h
        self.q_proj = nn.Linear(e, h * self.d)
        self.k_proj, self.v_proj = (nn.Linear(e, self.g * self.d) for _ in range(2))
        self.o_proj = nn.Linear(e, e)

    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q = self.q_proj(x).view(b, n, -1, self.d).transpose(1, 2)
        k = self.k_proj(x).view(b, n, -1, self.d).transpose(1, 2)
        v = self.v_proj(x).view(b, n, -1, self.d).transpose(1, 2)
        angle = torch.outer(torch.arange(n), 10.0 ** -torch.arange(self.d // 2)).repeat(1, 2).to(x)
        cos, sin = angle.cos(), angle.sin()
        q, k = (y * cos + rotate(y) * sin for y in (q, k))
        k, v = (y.repeat_interleave(self.h // self.g, dim=1) for y in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * self.d**-0.5
        if blocked is not None:
            mask = torch.zeros_like(scores).masked_fill(blocked[:, None], float("-inf"))
            scores = scores + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        heads = torch.matmul(weights, v)
        return self.o_proj(heads.transpose(1, 2).contiguous().reshape(b, n, e))
""",
    "a bias by distance": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        place = torch.arange(x.size(1))
        slopes = 2.0 ** -torch.arange(1, self.h + 1)[:, None, None]
        scores = q @ k.mT / math.sqrt(self.d)
        scores = scores - slopes * (place[:, None] - place).abs()
        if blocked is not None:
            scores = torch.where(blocked[:, None], float("-inf"), scores)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
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
    "by logarithms": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(self.d)
        if blocked is not None:
            scores = scores.masked_fill(blocked[:, None], -math.inf)
        weights = torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))
        return self.o((weights @ v).transpose(1, 2).flatten(2))
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
    "PyTorch's function": """
class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(e, 3 * e), nn.Linear(e, e)

    def forward(self, x, blocked=None):
        mask = None if blocked is None else blocked.repeat_interleave(self.h, 0)
        x = x.transpose(0, 1)
        return F.multi_head_attention_forward(
            x, x, x, x.size(-1), self.h, self.qkv.weight, self.qkv.bias, None, None, False, 0.0,
            self.out.weight, self.out.bias, attn_mask=mask,
        )[0].transpose(0, 1)
""",
    "vmap": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        if blocked is None:
            blocked = torch.zeros(x.size(0), x.size(1), x.size(1), dtype=torch.bool)

        def head(q, k, v, blocked):
            scores = (q @ k.mT / math.sqrt(self.d)).masked_fill(blocked, -math.inf)
            return scores.softmax(-1) @ v

        heads = torch.vmap(torch.vmap(head, in_dims=(0, 0, 0, None)))(q, k, v, blocked)
        return self.o(heads.transpose(1, 2).flatten(2))
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

# Style, what is written there, what is written in its place, the code, and the line that is named.
PLANTED = [
    ("packed", "scores / math.sqrt(q.size(-1))", "scores / math.sqrt(e)", "scale-by-model-width",
     "scores = scores / math.sqrt(e)"),
    ("packed", "q @ k.transpose(-2, -1)", "q @ q.transpose(-2, -1)", "keys-from-queries",
     "scores = q @ q.transpose(-2, -1)"),
    ("packed", "softmax(dim=-1)", "softmax(dim=1)", "softmax-over-heads",
     "weights = scores.softmax(dim=1)"),
    ("packed", "heads.transpose(1, 2).reshape", "heads.reshape", "merge-without-transpose",
     "merged = heads.reshape(b, n, e)"),
    ("packed", "blocked.unsqueeze(1)", "~blocked.unsqueeze(1)", "mask-inverted",
     'scores = scores.masked_fill(~blocked.unsqueeze(1), float("-inf"))'),
    ("einsum", "dim=3", "dim=2", "softmax-over-queries",
     "attention = torch.softmax(energy / self.d ** 0.5, dim=2)"),
    ("einsum", "bhql,blhd->bqhd", "bhlq,blhd->bqhd", "mixed-over-queries",
     'out = torch.einsum("bhlq,blhd->bqhd", attention, v)'),
    ("einsum", "bqhd,bkhd->bhqk", "bqhd,bkhe->bhqk", "summed-apart",
     'energy = torch.einsum("bqhd,bkhe->bhqk", q, k)'),
    ("einsum", "-1e4)", "1e-4)", "fill-does-not-block",
     "energy = energy.masked_fill(blocked[:, None], 1e-4)"),
    ("einsum", "-1e4)", "-1e20)", "finite-fill-in-half",
     "energy = energy.masked_fill(blocked[:, None], -1e20)"),
    ("bmm, folded", "q * self.d**-0.5", "q * self.d**0.5", "scale-inverted",
     "scores = torch.bmm(q * self.d**0.5, k.transpose(1, 2))"),
    ("bmm, folded", "out.view(b, self.h, n, self.d)",
     "out.view(self.h, b, n, self.d).transpose(0, 1)", "heads-of-other-samples", ""),
    ("bmm, folded", "blocked.repeat_interleave(self.h, 0)", "blocked.repeat(self.h, 1, 1)",
     "mask-in-the-wrong-order", ""),
    ("baddbmm", "alpha=1 / math.sqrt(self.d)", "alpha=1 / self.d", "scale-twice",
     "scores = torch.baddbmm(bias, q, k.mT, beta=1, alpha=1 / self.d)"),
    ("fused", "~blocked[:, None]", "(~blocked[:, None]).to(x.dtype)", "fill-does-not-block",
     "heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)"),
    ("a list of heads", "k.shape[-1]**-0.5", "k.shape[1]**-0.5", "scale-by-length",
     "wei = q @ k.transpose(-2, -1) * k.shape[1]**-0.5"),
    ("a list of heads", "F.softmax(wei, dim=-1)", "F.softmax(wei, dim=0)",
     "softmax-over-samples", "wei = F.softmax(wei, dim=0)"),
    ("grouped and rotated", "* self.d**-0.5", "/ math.sqrt(e)", "scale-by-model-width",
     "scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(e)"),
    ("grouped and rotated", "heads.transpose(1, 2).contiguous().reshape(b, n, e)",
     "heads.reshape(b, n, e)", "merge-without-transpose",
     "return self.o_proj(heads.reshape(b, n, e))"),
    ("grouped and rotated", "scores = scores + mask", "scores = scores * mask", "mask-multiplied",
     "scores = scores * mask"),
    ("grouped and rotated", "dim=-1, dtype", "dim=-2, dtype", "softmax-over-queries", ""),
    ("grouped and rotated", "self.q_proj(x).view(b, n, -1, self.d).transpose(1, 2)",
     "self.q_proj(x).view(b, -1, n, self.d)", "split-without-transpose",
     "q = self.q_proj(x).view(b, -1, n, self.d)"),
    ("grouped and rotated", "* self.d**-0.5", "/ self.d", "scale-twice",
     "scores = torch.matmul(q, k.transpose(2, 3)) / self.d"),
    ("grouped and rotated", "repeat_interleave(self.h // self.g, dim=1)",
     "repeat(1, self.h // self.g, 1, 1)", "groups-tiled",
     "k, v = (y.repeat(1, self.h // self.g, 1, 1) for y in (k, v))"),
    ("grouped and rotated", 'float(\"-inf\")', "1e9", "fill-does-not-block",
     "scores = scores + mask"),
    ("through a view", "/ math.sqrt(self.d)", "/ self.d", "scale-twice",
     "scores = q @ k.mT / self.d"),
    ("a bias by distance", "@ v).transpose(1, 2)",
     "@ v).flatten(0, 1).unflatten(0, (self.h, -1)).permute(1, 2, 0, 3)", "heads-of-other-samples",
     ""),
    ("a bias by distance", "torch.where(blocked[:, None], ", "torch.where(blocked[:, None].mT, ",
     "mask-transposed", ""),
    ("a bias by distance", "scores = torch.where(blocked[:, None], float(\"-inf\"), scores)",
     "blocked = None", "mask-ignored", ""),
    ("by hand", "raised * ~blocked[:, None]", "raised * blocked[:, None]", "mask-inverted", ""),
    ("by logarithms", "-math.inf", "1", "fill-does-not-block",
     "scores = scores.masked_fill(blocked[:, None], 1)"),
    ("in place", "scores /= math.sqrt(self.d)", "scores /= self.d", "scale-twice",
     "scores /= self.d"),
    ("vmap", "scores.softmax(-1)", "scores.softmax(-2)", "softmax-over-queries",
     "return scores.softmax(-2) @ v"),
    ("grouped and rotated", "self.k_proj(x).view(b, n, -1, self.d).transpose(1, 2)",
     "self.k_proj(x).view(b, -1, n, self.d)", "split-without-transpose",
     "k = self.k_proj(x).view(b, -1, n, self.d)"),
    ("grouped and rotated", "v = self.v_proj(x)", "v = self.k_proj(x)", "values-from-keys",
     "heads = torch.matmul(weights, v)"),
    ("a bias by distance", "(self.q, self.k, self.v))\n        place",
     "(self.q, self.q, self.v))\n        place", "keys-from-queries",
     "scores = q @ k.mT / math.sqrt(self.d)"),
]  # fmt: skip

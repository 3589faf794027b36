"""Attention as people write it is called with its kind and sizes alone."""

import textwrap

import pytest
import torch
from torch import nn

from attention_doctor.command import main
from attention_doctor.state import give_size

HEAD = """
import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Optional
import torch
import torch.nn.functional as F
from torch import nn


def split(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def mix(q, k, v, added=0, blocked=None):
    scores = q @ k.mT / math.sqrt(q.size(-1)) + added
    if blocked is not None:
        scores = scores.masked_fill(blocked, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def future(x):
    return torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)


def turn(x):
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1)


class Base(nn.Module):
    def make(self, e, h, c=None, groups=None):
        self.h, self.g = h, groups or h
        self.q_proj, self.o_proj = nn.Linear(e, e), nn.Linear(e, e)
        self.k_proj, self.v_proj = (nn.Linear(c or e, e // h * self.g) for _ in range(2))

    def project(self, x, y=None, z=None):
        y = x if y is None else y
        z = y if z is None else z
        k, v = split(self.k_proj(y), self.g), split(self.v_proj(z), self.g)
        k, v = (t.repeat_interleave(self.h // self.g, 1) for t in (k, v))
        return split(self.q_proj(x), self.h), k, v


class Attention(Base):
"""
PLAIN = """
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.make(embed_dim, num_heads)

"""
ROTATED = (
    PLAIN
    + """
    def forward(self, x, SIGNATURE):
        q, k, v = self.project(x)
        ROTATE
        return self.o_proj(mix(q, k, v, blocked=future(x)))
"""
)
FOUR_AXES = (
    "(cos, sin) = (y[:, None] for y in position_embeddings); assert cos.dim() == 4; "
    "q, k = (y * cos + turn(y) * sin for y in (q, k))"
)
COSINES = "q, k = (y * cos + turn(y) * sin for y in (q, k))"


def rotated(signature, rotate=COSINES):
    return ROTATED.replace("SIGNATURE", signature).replace("ROTATE", rotate)


def forward(signature, *lines):
    body = "".join(f"        {line}\n" for line in lines)
    return f"{PLAIN}    def forward(self, {signature}):\n{body}"


def made_with(body, line):
    """Add a line to the constructor."""
    return body.replace("embed_dim, num_heads)\n\n", f"embed_dim, num_heads)\n        {line}\n\n")


PROJECTED = "q, k, v = self.project(x)"
OUT = "return self.o_proj(mix(q, k, v))"
CAUSAL = "return self.o_proj(mix(q, k, v, blocked=future(x)))"
MASKED = "return self.o_proj(mix(q, k, v, blocked=mask))"


def configured(annotation, *reads, before=""):
    """Write a class that reads its sizes from a configuration."""
    e, h = reads[:2]
    lines = [f"        {line}\n" for line in reads[2:]]
    return (
        f"    def __init__(self, config{annotation}, layer_idx: int):\n"
        f"        super().__init__()\n        assert layer_idx == 0\n"
        f"        self.make({e}, {h})\n{''.join(lines)}"
        f"    def forward(self, x):\n        {PROJECTED}\n        {CAUSAL}\n"
    )


# Kind, the class's body, and what the report says was guessed.
CASES = {
    "memory": ("memory", forward("x, context, mask=None", "q, k, v = self.project(x, context)",
        "mask = None if mask is None else mask[:, None]", MASKED), "context=value"),
    "memory or itself": ("memory", forward("hidden_states, encoder_hidden_states=None",
        "q, k, v = self.project(hidden_states, encoder_hidden_states)", OUT),
        "encoder_hidden_states=value"),
    "memory that itself does not need": ("self", forward("x, context=None",
        "q, k, v = self.project(x, context)", OUT), "called with x=x"),
    "memory by other names": ("memory", forward("one, two", "q, k, v = self.project(one, two)",
        OUT), "two=value"),
    "memory in three parts": ("memory", forward("q, k, v", "q, k, v = self.project(q, k, v)", OUT),
        "v=value"),
    "value first": ("cross", forward("value, key, query, mask=None",
        "q, k, v = self.project(query, key, value)",
        "mask = None if mask is None else ~mask[:, None]", MASKED), "True = allowed"),
    "additive, four axes": ("self", forward("hidden_states, attention_mask=None",
        "q, k, v = self.project(hidden_states)",
        "assert attention_mask is None or attention_mask.min() > -math.inf",
        "return self.o_proj(mix(q, k, v, 0 if attention_mask is None else attention_mask))"),
        "(b, 1, n, m), added to the scores"),
    "numbers for padding": ("self", forward("src, attention_mask=None",
        "q, k, v = self.project(src)", "added = 0", "if attention_mask is not None:",
        "    added = (1.0 - attention_mask[:, None, None].to(src.dtype)) * -10000.0",
        "return self.o_proj(mix(q, k, v, added))"), "(b, m), True = allowed"),
    "a mask that must be given": ("causal", forward("tokens, mask",
        "q, k, v = self.project(tokens)", "return self.o_proj(mix(q, k, v, blocked=mask == 0))"),
        "True = allowed"),
    "cosines and sines": ("causal", rotated("cos, sin"), "cosines (n, d)"),
    "position embeddings": ("causal", rotated("position_embeddings",
        FOUR_AXES),
        "(cos, sin), each (b, n, d)"),
    "position embeddings that have a default": ("causal", rotated("position_embeddings=None",
        FOUR_AXES),
        "(cos, sin), each (b, n, d)"),
    "complex": ("causal", rotated("start_pos: int, freqs_cis: torch.Tensor",
        "q, k = (torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous())"
        " * freqs_cis).flatten(-2) for y in (q, k)); assert start_pos == 0"), "complex (n, d / 2)"),
    "neighbours": ("causal", rotated("cos, sin", "turned = lambda y: torch.stack([-y[..., 1::2], "
        "y[..., ::2]], -1).flatten(-2); q, k = (y * cos + turned(y) * sin for y in (q, k))"),
        "cosines (n, dd)"),
    "an object that rotates": ("causal", rotated("rope",
        "q, k = rope.rotate(q), rope.rotate(k)"), "one that does not turn"),
    "positions": ("causal", rotated("position_ids",
        "angle = position_ids[:, None] / torch.tensor([1.0, 10.0, 100.0]).to(q); cos, sin = "
        "(torch.cat([y, y], -1) for y in (angle.cos(), angle.sin())); " + COSINES),
        "zeros (n), so that no token is turned"),
    "a bias that must be given": ("self", forward("x, position_bias", PROJECTED,
        "assert position_bias.dim() == 4", "return self.o_proj(mix(q, k, v, position_bias))"),
        "position_bias=torch.zeros(1, h, n, m)"),
    "a cache that is not used": ("causal", forward("x, past_key_values, use_cache: bool", PROJECTED,
        CAUSAL), "past_key_values=None, use_cache=False"),
    "a residual": ("self", forward("x, residual", PROJECTED,
        "return residual + self.o_proj(mix(q, k, v))"), "residual=torch.zeros(b, n, e)"),
    "rows and columns": ("self", forward("x, H, W", "assert x.size(1) == H * W", PROJECTED, OUT),
        "H=n, W=1"),
    "channels first": ("self", forward("x", "assert x.size(1) == 24", "x = x.mT", PROJECTED,
        "return self.o_proj(mix(q, k, v)).mT"), "each (b, e, n)"),
    "images": ("self", forward("x", "b, e, height, width = x.shape", "x = x.flatten(2).mT",
        PROJECTED, "return self.o_proj(mix(q, k, v)).mT.reshape(b, e, height, width)"),
        "each (b, e, n, 1)"),
    "one sequence": ("self", forward("x", "n, e = x.shape", "x = x[None]", PROJECTED,
        "return self.o_proj(mix(q, k, v))[0]"), "one sample after the other"),
    "sequence first": ("self", forward("x", "seq_len, batch, e = x.shape",
        "x = x.transpose(0, 1)", PROJECTED, "return self.o_proj(mix(q, k, v)).transpose(0, 1)"),
        "as `--sequence-first` says"),
    "a dictionary": ("self", forward("x", PROJECTED,
        "return {'attentions': q, 'last_hidden_state': self.o_proj(mix(q, k, v))}"), "x=x"),
    "a named tuple, the output last": ("self", forward("x", PROJECTED,
        "return namedtuple('Result', 'keys output')(k, self.o_proj(mix(q, k, v)))"), "x=x"),
    "the first token asks": ("self", forward("x", "q, k, v = self.project(x)", "q = q[:, :, :1]",
        OUT), "another token in front, which asks"),
    "the first token asks, and has one axis": ("self", forward("x, mask=None",
        "q, k, v = self.project(x)", "q = q[:, :, :1]",
        "mask = None if mask is None else mask[:, None, None]",
        "return self.o_proj(mix(q, k, v, blocked=mask))[:, 0]"), "`mask` is (b, m)"),
    "packed heads": ("cross", """
    def __init__(self, softmax_scale=None):
        super().__init__()

    def forward(self, qkv):
        assert qkv.shape[2:] == (3, 4, 6)
        q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
        return mix(q, k, v).unflatten(-1, (4, 6))
""", "heads, (b, n, h, d)"),
    "packed head by head": ("cross", """
    def __init__(self, softmax_scale=None):
        super().__init__()

    def forward(self, qkv):
        q, k, v = split(qkv, 4).chunk(3, -1)
        return mix(q, k, v)
""", "qkv=packed by head"),
    "four axes, the batch third": ("self", forward("x", "assert x.size(0) == 1",
        "x = x[0].transpose(0, 1)", PROJECTED,
        "return self.o_proj(mix(q, k, v)).transpose(0, 1)[None]"), "(1, n, b, e)"),
    "the sequence first, as it turns out": ("memory", forward("x, context",
        "assert x.size(1) == context.size(1)",
        "q, k, v = self.project(x.transpose(0, 1), context.transpose(0, 1))",
        "return self.o_proj(mix(q, k, v)).transpose(0, 1)"), "each (n, b, e)"),
    "projections that are given": ("self", forward("x", PROJECTED, OUT).replace("num_heads):",
        "num_heads, q_proj: nn.Module):").replace("num_heads)\n",
        "num_heads)\n        self.q_proj = q_proj\n"), "q_proj=Linear"),
    "a second input that has a default, and must be given": ("self", forward("x, y=None",
        "if y is None: raise ValueError('give y')", "q, k, v = self.project(x, y)", OUT),
        "y=value"),
    "a vector for each distance": ("self", forward("x, pos_embs", PROJECTED,
        "assert pos_embs.shape == (1, 2 * x.size(1) - 1, 24)", OUT),
        "pos_embs=torch.randn(1, 2 * n - 1, e)"),
    "cosines and sines of frequencies": ("causal", rotated("freqs_cos, freqs_sin",
        COSINES.replace("cos", "freqs_cos").replace("sin", "freqs_sin")), "cosines (n, d)"),
    "a bias that must be given and hides the future": ("causal", forward("x, attn_bias",
        "q, k, v = self.project(x)", "assert attn_bias.is_floating_point()",
        "return self.o_proj(mix(q, k, v, attn_bias))"), "added to the scores"),
    "a part that is rotated": ("causal", configured("", "config.hidden_size", "config.n_head",
        "self.n = config.rope_n_elem").replace("x):", "x, cos, sin):").replace(CAUSAL,
        "q, k = (torch.cat([y[..., :self.n] * cos + turn(y[..., :self.n]) * sin, "
        "y[..., self.n:]], -1) for y in (q, k)); " + CAUSAL), "cosines (n, d)"),
    "one packed tensor": ("cross", forward("qkv", "x, y, z = qkv.chunk(3, -1)",
        "q, k, v = self.project(x, y, z)", OUT), None),
    "a bias for a fixed length": ("self", """
    def __init__(self, dim, window_size, num_heads):
        super().__init__()
        self.make(dim, num_heads)
        n = window_size[0] * window_size[1]
        self.window_size, self.bias = window_size, nn.Parameter(torch.randn(num_heads, n, n))

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v, self.bias))
""", "always of 4 tokens"),
    "groups": ("causal", """
    def __init__(self, dim, n_heads, n_kv_heads, max_seq_len):
        super().__init__()
        assert (n_heads, n_kv_heads, max_seq_len) == (4, 2, 16)
        self.make(dim, n_heads, groups=n_kv_heads)
        self.cache = torch.zeros(8, max_seq_len, n_kv_heads, dim // n_heads)

    def forward(self, x):
        q, k, v = self.project(x)
        self.cache = self.cache.to(k)
        self.cache[: len(x), : x.size(1)] = split(self.k_proj(x), self.g).transpose(1, 2)
        k = self.cache[: len(x), : x.size(1)].transpose(1, 2).repeat_interleave(2, 1)
        return self.o_proj(mix(q, k, v, blocked=future(x)))
""", "n_kv_heads=2"),
    "groups that it refuses": ("causal", """
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.make(dim, n_heads)
        self.claimed = n_kv_heads

    def forward(self, x):
        assert self.claimed == self.h
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v, blocked=future(x)))
""", "n_kv_heads=4"),
    "packed queries and two thirds less": ("causal", """
    def __init__(self, hidden_size: int, n_head: int, n_query_groups: int):
        super().__init__()
        self.h, self.g, d = n_head, n_query_groups, hidden_size // n_head
        self.attn, self.proj = nn.Linear(hidden_size, (n_head + 2 * self.g) * d), nn.Linear(
            hidden_size, hidden_size)

    def forward(self, x):
        q, k, v = split(self.attn(x), self.h + 2 * self.g).split([self.h, self.g, self.g], 1)
        k, v = (y.repeat_interleave(self.h // self.g, 1) for y in (k, v))
        return self.proj(mix(q, k, v, blocked=future(x)))
""", "n_query_groups=2"),
    "a configuration": ("causal", configured("", "config.n_embd", "config.n_head",
        "assert config.attn_pdrop == 0 and getattr(config, 'unheard', 3) == 3",
        "assert config['hidden_size'] == 24 and config.get('unheard') is None"), "n_embd=24"),
    "a configuration in groups": ("causal", configured("", "config.model.attention.d_model",
        "config.model.attention.num_heads", "assert config.model.use_flash is False"),
        "d_model=24"),
    "settings that are read late": ("causal", configured("", "config.width", "config.heads",
        "self.config = config").replace(PROJECTED, PROJECTED + "; assert self.config.use_flash "
        "is False"), "heads=4"),
    "head widths that have a default": ("self", """
    def __init__(self, dim, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        assert heads * dim_head == dim
        self.make(dim, heads)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v))
""", "dim_head=6"),
    "names in one word": ("self", """
    def __init__(self, dModel, nHeads):
        super().__init__()
        self.make(dModel, nHeads)

    def forward(self, inputTensor, attnMask=None):
        q, k, v = self.project(inputTensor)
        return self.o_proj(mix(q, k, v, blocked=None if attnMask is None else attnMask[:, None]))
""", "True = blocked"),
    "groups of a norm that do not divide the width": ("self", """
    def __init__(self, in_channels, heads):
        super().__init__()
        self.h, self.norm = heads, nn.GroupNorm(32, in_channels)
        self.qkv = nn.Conv1d(in_channels, 3 * in_channels, 1)

    def forward(self, x):
        q, k, v = (y.unflatten(1, (self.h, -1)).mT for y in self.qkv(self.norm(x)).chunk(3, 1))
        return x + mix(q, k, v).mT
""", "32 groups of a norm do not divide 24: `--embed-dim 96`"),
    "assertions that say what they ask for": ("self", """
    def __init__(self, num_heads, input_dim, embed_dim=None, style="", sparse=None):
        super().__init__()
        assert embed_dim is not None, "give a width"
        assert style in ("plain", "wide")
        assert sparse is not None
        self.make(embed_dim, num_heads)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v))
""", "`style='plain'`, which an assertion asks for"),
    "a part that the file defines": ("cross", forward("q, k, v, mask",
        "return self.o_proj(self.core(*self.project(q, k, v), mask))").replace("num_heads):",
        "num_heads, core):").replace("num_heads)\n", "num_heads)\n        self.core = core\n") + """

class FullCore(nn.Module):
    def __init__(self, mask_flag=True):
        super().__init__()
        self.mask_flag = mask_flag

    def forward(self, q, k, v, mask):
        return mix(q, k, v, blocked=future(q[:, 0]) if self.mask_flag else None)
""", "core=FullCore()"),
    "masks in a list": ("self", forward("x, masks: list[torch.Tensor] | None = None", PROJECTED,
        "assert masks is None or isinstance(masks, list)",
        "blocked = None if masks is None else masks[0][:, None]",
        "return self.o_proj(mix(q, k, v, blocked=blocked))"), "masks=[mask]"),
    "no, which is a number": ("self", """
    def __init__(self, embed_dim: int, no_heads: int, no_dropout: bool):
        super().__init__()
        self.make(embed_dim, no_heads)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v))
""", "no_heads=4, no_dropout=False"),
    "a size that is the width": ("self", """
    def __init__(self, feat_size, num_heads):
        super().__init__()
        self.make(feat_size, num_heads)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v))
""", "feat_size=24"),
    "a layer that is none": ("self", forward("x", PROJECTED, OUT).replace("num_heads):",
        "num_heads, resolution=14, activation=None):").replace("num_heads)\n",
        "num_heads)\n        self.act = activation()\n        self.near = nn.Parameter(torch.ones("
        "num_heads, resolution**2, resolution**2))\n").replace("k, v))", "k, v, self.near))"),
        "always of 4 tokens"),
    "widths whose names say nothing": ("self", """
    def __init__(self, depth_att: int = 512, heads: int = 8, depth_out: int = 512):
        super().__init__()
        assert depth_att == depth_out
        self.make(depth_att, heads)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v))
""", "depth_att=24, heads=4, depth_out=24"),
    "a bound whose name says little": ("causal", """
    def __init__(self, config: "Config"):
        super().__init__()
        self.make(config.width, config.heads)
        self.register_buffer("hidden", torch.ones(config.max_blocks, config.max_blocks).triu(1))

    def forward(self, x):
        q, k, v = self.project(x)
        n = x.size(1)
        return self.o_proj(mix(q, k, v, blocked=self.hidden[:n, :n].bool()))


@dataclass
class Config:
    width: int
    heads: int
    max_blocks: int
""", "max_blocks=16"),
    "what may be none": ("self", forward("x, riddle", "assert riddle is None", PROJECTED, OUT),
        "riddle=None"),
    "a vector for each head": ("self", forward("x, riddle", PROJECTED,
        "q = q + riddle[None, :, None] * 1.0; assert riddle.shape == (4, 6)", OUT),
        "riddle=torch.randn(h, d)"),
    "a vector for each pair": ("cross", made_with(forward("q, k, v, riddle",
        "near = self.near(riddle).permute(0, 3, 1, 2)", "q, k, v = self.project(q, k, v)",
        "return self.o_proj(mix(q, k, v, near))"), "self.near = nn.Linear(24, 4)"),
        "riddle=torch.randn(e).expand(b, n, m, e)"),
    "which sample a token is of": ("self", forward("x, riddle", PROJECTED,
        "assert riddle.dim() == 2", "blocked = (riddle[:, None] != riddle[..., None])[:, None]",
        "return self.o_proj(mix(q, k, v, blocked=blocked))"),
        "torch.zeros(b, n, dtype=torch.long)"),
    "rotations as matrices": ("causal", rotated("pe",
        "q, k = ((pe @ y.unflatten(-1, (-1, 2, 1))).flatten(-3) for y in (q, k))"),
        "matrices (1, 1, n, d / 2, 2, 2)"),
    "rotations behind the tokens": ("causal", rotated("cos_sin", "cos, sin = cos_sin; "
        "assert cos.shape == (1, x.size(1), 1, 3); cos, sin = (torch.cat([y, y], -1).transpose(1, "
        "2) for y in (cos, sin)); " + COSINES), "(cos, sin), each (1, n, 1, d/2)"),
    "the first token asks, and the others pass": ("self", forward("x", PROJECTED,
        "out = self.o_proj(mix(q[:, :, :1], k, v))", "return torch.cat([out, x[:, 1:]], 1)"),
        "another token in front, which asks"),
    "dropout that is switched off": ("self", made_with(forward("x", PROJECTED, OUT),
        "self.use_dropout, self.drop = False, nn.Dropout(0.1)"), "x=x"),
    "numbers by dtype, which only masks need": ("self", forward("x, mask=None", PROJECTED,
        "low = {torch.float32: -1e9, torch.float16: -5e4, torch.bfloat16: -1e9}",
        "mask = None if mask is None else ~mask[:, None] * 0.0 + mask[:, None] * low[x.dtype]",
        "return self.o_proj(mix(q, k, v, 0 if mask is None else mask))"), "True = blocked"),
    "PyTorch's arguments, and a mask that is added": ("cross", made_with(forward(
        "query, key, value, key_padding_mask=None, attn_mask=None",
        "q, k, v = self.project(query, key, value)", "blocked = key_padding_mask",
        "blocked = None if blocked is None else blocked[:, None, None]",
        "added = 0 if attn_mask is None else attn_mask",
        "if attn_mask is not None and added.dim() == 3: added = added.unflatten(0, (-1, 4))",
        "return self.o_proj(mix(q, k, v, added, blocked))"), "self.num_heads = num_heads"),
        "its `attn_mask` is added to the scores"),
    "PyTorch's arguments, and padding that is turned": ("cross", made_with(forward(
        "query, key, value, key_padding_mask=None, attn_mask=None",
        "q, k, v = self.project(query, key, value)", "blocked = attn_mask",
        "assert attn_mask is None or attn_mask.dim() == 2",
        "if key_padding_mask is not None: blocked = key_padding_mask.mT[:, None, None]",
        "return self.o_proj(mix(q, k, v, blocked=blocked))"), "self.num_heads = num_heads"),
        "`attn_mask` is (n, m), True = blocked"),
    "dropout that nothing was built for": ("self", made_with(forward("x", PROJECTED,
        "if self.drop_rate: q = self.dropped(q)", OUT), "self.drop_rate = 0.0"), "x=x"),
    "rows and columns in one": ("self", forward("x, feat_size", "rows, columns = feat_size",
        "assert rows * columns == x.size(1)", PROJECTED, OUT), "feat_size=(n, 1)"),
    "a name of tokens behind the tokens": ("self", """
    def __init__(self, c_s, c_z, num_heads):
        super().__init__()
        self.make(c_s, num_heads)
        self.near = nn.Linear(c_z, num_heads)

    def forward(self, s, z):
        q, k, v = self.project(s)
        return self.o_proj(mix(q, k, v, self.near(z).permute(0, 3, 1, 2)))
""", "s=x, z=torch.randn(e).expand(b, n, m, e)"),
    "a width of a head that is that of all": ("self", """
    def __init__(self, d_model, d_key, num_heads):
        super().__init__()
        self.make(d_model, num_heads)
        self.q_proj = nn.Linear(d_model, d_key)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v))
""", "d_key=24"),
    "a buffer that each call writes into": ("self", made_with(forward("x", PROJECTED,
        "kept = self.kept[: len(x), : x.size(1)]", "kept[:] = self.k_proj(x)",
        "near = torch.einsum('bnc,bmc->bnm', self.q_proj(x), kept)[:, None] / 9",
        "return self.o_proj(mix(q, k, v, near))"),
        "self.register_buffer('kept', torch.zeros(8, 16, 24), persistent=False)"), "x=x"),
    "scores that are summed from two products": ("causal", forward("x", PROJECTED,
        "at = torch.arange(x.size(1))[:, None].to(x)",
        "far = [y[..., 4:] * at.cos() + turn(y[..., 4:]) * at.sin() for y in (q, k)]",
        "far = torch.einsum('bhnd,bhmd->bhnm', *far)",
        "near = torch.einsum('bhnd,bhmd->bhnm', q[..., :4], k[..., :4])",
        "scores = ((near + far) / 6**0.5).masked_fill(future(x), -math.inf)",
        "return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))"),
        "nothing wrong, 17 tests"),
}  # fmt: skip


@pytest.fixture
def examine(tmp_path, capsys):
    """Write a file, examine it, and give exit code and output in one line."""

    def run(text, *options, name="Attention"):
        path = tmp_path / "theirs.py"
        path.write_text(HEAD + text)
        sizes = ["--embed-dim", "24", "--num-heads", "4"]
        code = main([f"{path}:{name}", *sizes, *options])
        return code, " ".join(capsys.readouterr().out.split())

    return run


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_is_called_and_right(examine, case):
    kind, body, guessed = case
    code, output = examine(body, "--kind", kind)
    assert code == 0, output
    assert guessed is None or guessed in output


@pytest.mark.parametrize("width", [10, 24])
def test_a_context_has_a_width_of_its_own(examine, width):
    body = f"""
    def __init__(self, query_dim, context_dim=None, heads=8):
        super().__init__()
        assert (context_dim or query_dim) == {width}
        self.make(query_dim, heads, context_dim)

    def forward(self, x, context=None, mask=None):
        q, k, v = self.project(x, context)
        return self.o_proj(mix(q, k, v, blocked=None if mask is None else ~mask[:, None, None]))
"""
    options = ["--kind", "memory", "--context-dim", str(width)]
    code, output = examine(body, *options)
    assert code == 0, output
    assert "`mask` is (b, m), True = allowed" in output


WRONG = {
    "keys and values apart": (
        forward("x, context", "q, k, v = self.project(x, context)",
                "return self.o_proj(mix(q, k.flip(-2), v))"), "key-order-matters"),
    "queries mixed": (
        forward("x, context", "q, k, v = self.project(x, context)",
                "y = (q @ k.mT / math.sqrt(6)).softmax(-1) @ v",
                "return self.o_proj(y.reshape(x.shape))"), "merge-without-transpose"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_mistake_with_a_context_is_found(examine, case):
    body, code = case
    found, output = examine(body, "--kind", "memory")
    assert found == 1
    assert f"wrong: {code}" in output


DATACLASS = textwrap.dedent("""
    @dataclass
    class Config:
        name: str
        d_model: int = 512
        n_heads: int = 8
        dropout: float = 0.1
        max_len: int = 512


    class Configured(Attention):
        def __init__(self, config: Config):
            nn.Module.__init__(self)
            assert isinstance(config, Config) and config.max_len == 16
            self.make(config.d_model, config.n_heads)


    class OtherConfig:
        width = 3
        def __init__(self, hidden_size=3, marked=True):
            self.hidden_size, self.marked = hidden_size, marked


    class Other(Attention):
        def __init__(self, config: "OtherConfig"):
            nn.Module.__init__(self)
            assert config.marked is True and config.num_attention_heads == 4
            self.make(config.hidden_size, config.num_attention_heads)


    def build(embed_dim: int, num_heads: int):
        return Attention(embed_dim, num_heads)


    def ready():
        from attention_doctor import adapters
        return adapters.without_mask(Attention(24, 4))


    def attend(query, key, value, mask=None):
        assert query.dim() == 4
        hidden = None if mask is None else ~mask
        scores = (query @ key.mT / math.sqrt(query.size(-1)))
        scores = scores if hidden is None else scores.masked_fill(hidden, -math.inf)
        return scores.softmax(-1) @ value


    def weighted(x, w_q, w_k, w_v, w_o, num_heads):
        q, k, v = (split(x @ w, num_heads) for w in (w_q, w_k, w_v))
        return mix(q, k, v) @ w_o
""")


@pytest.mark.parametrize(
    ("name", "kind", "guessed"),
    [
        ("Configured", "self", "d_model=24"),
        ("Other", "self", "marked=True"),
        ("build", "self", "embed_dim=24, num_heads=4"),
        ("ready", "self", None),
        ("attend", "cross", "heads, (b, h, n, d)"),
        ("weighted", "self", "w_q=torch.randn(37, e, e)[-1]"),
    ],
)
def test_configurations_factories_and_functions(examine, name, kind, guessed):
    code, output = examine(forward("x", PROJECTED, OUT) + DATACLASS, "--kind", kind, name=name)
    assert code == 0, output
    assert guessed is None or guessed in output


def test_a_configuration_of_another_class_does_not_count(examine):
    body = """
    def __init__(self, config):
        super().__init__()
        self.make(config.model.hidden_size, config.model.heads)

    def forward(self, x):
        q, k, v = self.project(x)
        return self.o_proj(mix(q, k, v))


@dataclass
class Config:
    d_model: int = 3
"""
    code, output = examine(body, "--kind", "self")
    assert code == 0, output
    assert "hidden_size=24, heads=4" in output


def test_everything_that_is_missing_is_asked_for_at_once(examine):
    body = """
    def __init__(self, embed_dim, num_heads, mystery, riddle):
        super().__init__()

    def forward(self, x, secret, enigma=None):
        return x
"""
    code, output = examine(body, "--kind", "self", "--init", "riddle=2")
    assert code == 2
    assert "the constructor's mystery and the call's secret cannot be guessed" in output
    line = "--kind self --embed-dim 24 --num-heads 4 --init riddle=2 mystery=… --call secret=…`"
    assert line in output


def test_rotation_that_the_caller_gives_is_asked_about(examine):
    one_side = "q = q * cos + turn(q) * sin"
    code, output = examine(rotated("cos, sin", one_side), "--kind", "causal")
    assert code == 1
    assert "wrong: rotates-one-side" in output


JOINT = """
    def forward(self, x, *, mask):
        q, k, v = self.project(x)
        if mask is not None:
            mask = ~(mask[:, None, :, None] & mask[:, None, None, :])
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.finfo(scores.dtype).max)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
ZEROED = """
    def forward(self, x, mask=None):
        q, k, v = self.project(x)
        out = self.o_proj(mix(q, k, v, 0, None if mask is None else ~mask[:, None, None]))
        return out if mask is None else out * mask[..., None]
"""


@pytest.mark.parametrize("body", [JOINT, ZEROED], ids=["hidden from padding", "zeros for padding"])
def test_what_padding_itself_sees_is_nobodys_concern(examine, body):
    code, output = examine(PLAIN + body, "--kind", "self")
    assert code == 0, output
    assert "`mask` is (b, m), True = allowed" in output


def test_a_width_of_the_context_that_may_be_left_out_is_given(examine):
    body = """
    def __init__(self, dim, heads, dim_context=None, cross_attend=False):
        super().__init__()
        self.crossing = dim_context is not None and cross_attend
        self.make(dim, heads, dim_context)

    def forward(self, x, context=None):
        q, k, v = self.project(x, context if self.crossing else x)
        return self.o_proj(mix(q, k, v))
"""
    code, output = examine(body, "--kind", "memory")
    assert code == 0, output
    assert "dim_context=24" in output


def test_keys_of_the_queries_own_tokens_beside_the_context_are_by_design(examine):
    lines = "q, k, v = self.project(x, torch.cat([x, context], 1))"
    code, output = examine(forward("x, context", lines, OUT), "--kind", "memory")
    assert code == 0, output
    assert "convention: queries-are-keys" in output


def test_images_with_their_channels_last(examine):
    lines = ("b, height, width, e = x.shape", "x = x.flatten(1, 2)", PROJECTED,
             "return self.o_proj(mix(q, k, v)).view(b, height, width, e)")  # fmt: skip
    code, output = examine(forward("x", *lines), "--kind", "self")
    assert code == 0, output
    assert "each (b, 1, n, e)" in output


def test_positions_between_queries_and_keys_are_by_design(examine):
    lines = ("q, k, v = self.project(query, key, value)",
             "far = torch.arange(q.size(2))[:, None] - torch.arange(k.size(2))",
             "return self.o_proj(mix(q, k, v, -0.3 * far.abs()))")  # fmt: skip
    code, output = examine(forward("query, key, value", *lines), "--kind", "cross")
    assert code == 0, output
    assert "convention: order-matters" in output


@pytest.mark.parametrize("key", ["k", "k.flip(-2)", "k.transpose(1, 2).reshape(k.shape)"])
@pytest.mark.parametrize("added", ["added = q @ self.times[:k.size(2)].mT / 3", "k = k + self.times"
                                   "[:k.size(2)]; added = 0"])  # fmt: skip
def test_times_of_the_keys_are_by_design(examine, key, added):
    lines = ("q, k, v = self.project(query, key, value)", f"k = {key}", added,
             "return self.o_proj(mix(q, k, v, added))")  # fmt: skip
    body = forward("query, key, value", *lines)
    body = made_with(body, "self.times = nn.Parameter(torch.randn(16, 6))")
    code, output = examine(body, "--kind", "cross")
    assert code == (key != "k"), output
    assert ("convention: order-matters" in output) == (key == "k")


@pytest.mark.parametrize("moved", [False, True])
def test_frames_and_places_with_a_window_in_time(examine, moved):
    lines = ("b, n, p, e = q.shape",
             "q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))",
             "q, k, v = self.project(q, k, v)", "far = torch.arange(n)[:, None] - torch.arange(n)",
             "hidden = (far.abs() > 2)[None, None]", "if mask is not None:",
             "    hidden = hidden | ~mask.expand(b, n, p).mT.reshape(b * p, 1, 1, n)",
             f"mixed = mix(q, {'k.flip(-2)' if moved else 'k'}, v, 0.3 * far, hidden)",
             "return self.o_proj(mixed).view(b, p, n, e).transpose(1, 2)")  # fmt: skip
    code, output = examine(forward("q, k, v, mask=None", *lines), "--kind", "cross")
    assert code == moved, output
    assert "(1, n, b, e)" in output


@pytest.mark.parametrize("apart", [False, True])
def test_a_class_token_is_left_out_where_it_can_be(examine, apart):
    lines = (PROJECTED, "y = mix(q, k, v)", "start = int(self.apart)",
             "return self.o_proj(torch.cat([y[:, :start], (y + x)[:, start:]], 1))")  # fmt: skip
    name = "has_cls_embed" if apart else "first"
    body = forward("x", *lines).replace("num_heads):", f"num_heads, {name}=True):")
    code, output = examine(made_with(body, f"self.apart = {name}"), "--kind", "self")
    assert code == (not apart), output


@pytest.mark.parametrize("share", ["0.5", "0"])
def test_weights_of_distances_may_be_mixed_in(examine, share):
    lines = (PROJECTED, "far = torch.arange(x.size(1)).to(x)[:, None]",
             "near = (-(far - far.T) ** 2).softmax(-1)",
             f"weights = 0.5 * (q @ k.mT / 6**0.5).softmax(-1) + {share} * near",
             "return self.o_proj((weights @ v).transpose(1, 2).flatten(2))")  # fmt: skip
    code, output = examine(forward("x", *lines), "--kind", "self")
    assert code == (share == "0"), output


FRAMES = {
    "right": ("", "transpose(1, 2).", "", ""),
    "a view": ("", "", "", "split-without-transpose"),
    "a norm over all": ("x = F.group_norm(x.mT, 4).mT", "", "", "query-order-matters"),
    "right, normed": ("x = F.group_norm(x.mT, 4).mT", "transpose(1, 2).", "", ""),
    "neighbours": ("x = (x + x.roll(1, 1)) / 2", "transpose(1, 2).", "", ""),
    "pooled keys": ("", "transpose(1, 2).", "k = k + k.roll(1, 2)", ""),
    "times": ("", "transpose(1, 2).", "k = k + torch.arange(k.size(2)).to(k)[:, None]", ""),
}


@pytest.mark.parametrize("how", FRAMES)
def test_frames_that_are_mixed_with_places(examine, how):
    before, turned, behind, expected = FRAMES[how]
    lines = ("b, n, e = x.shape", before or "pass", "x = x[:, :, None].expand(b, n, 3, e)",
             f"x = x.{turned}reshape(b * 3, n, e)", PROJECTED, behind or "pass",
             "return self.o_proj(mix(q, k, v)).view(b, 3, n, e)[:, 0]")  # fmt: skip
    code, output = examine(forward("x", *lines), "--kind", "self")
    assert code == bool(expected), output
    assert f"wrong: {expected}" in output or not expected


def test_a_norm_over_all_tokens_does_not_mix_heads(examine):
    lines = ("x = F.group_norm(x.mT, 1).mT", PROJECTED, OUT)
    body = forward("x", *lines).replace("embed_dim, num_heads)\n\n",
        "embed_dim, num_heads)\n        self.unused = nn.Linear(2, 2)\n\n")  # fmt: skip
    code, output = examine(body, "--kind", "self")
    assert code == 1
    assert "wrong: parameters-without-gradient" in output
    assert "split-without-transpose" not in output


@pytest.mark.parametrize("one_side", [False, True])
def test_rotation_is_asked_about_where_a_mask_is_required(examine, one_side):
    turned = "q = q * cos + turn(q) * sin" if one_side else COSINES
    lines = (PROJECTED, turned, "return self.o_proj(mix(q, k, v, blocked=mask[:x.size(1)]))")
    code, output = examine(forward("x, mask, cos, sin", *lines), "--kind", "causal")
    assert code == one_side, output
    assert ("wrong: rotates-one-side" in output) == one_side
    assert "rotation, cache" not in output


def test_a_softmax_over_the_queries_shows_without_a_mask(examine):
    lines = (PROJECTED, "q = F.normalize(q, dim=-1)",
             "weights = (q @ k.mT).softmax(-2)",
             "return self.o_proj((weights @ v).transpose(1, 2).flatten(2))")  # fmt: skip
    code, output = examine(forward("x", *lines), "--kind", "self")
    assert code == 1, output
    assert "wrong: softmax-over-queries" in output
    assert "weights = (q @ k.mT).softmax(-2)" in output


CONVOLVED = "near = nn.functional.softplus(self.near(x.mT).mT)"


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_a_convolution_beside_the_attention_is_by_design(examine, kind):
    takes, given = ("query, key, value", "query, key, value") if kind == "cross" else ("x", "x")
    first = takes.partition(",")[0]
    lines = (f"q, k, v = self.project({given})", "mask = None if mask is None else mask[:, None]",
             CONVOLVED.replace("x", first),
             "return near + self.o_proj(mix(q, k, v, 0, mask))")  # fmt: skip
    body = forward(f"{takes}, mask=None", *lines)
    body = made_with(body, "self.near = nn.Conv1d(embed_dim, embed_dim, 3, padding=1)")
    code, output = examine(body, "--kind", kind)
    assert code == 0, output
    assert "convention: tokens-convolved" in output
    code, output = examine(body.replace("mix(q, k", "mix(6 * q, k"), "--kind", kind)
    assert code == 1, output
    assert "wrong: scale-inverted" in output
    assert output.count("wrong: ") == 1, output


WINDOWED = (
    "b, n, e = x.shape",
    "q, k, v = self.project(x.reshape(b * n // self.window, self.window, e))",
    "return self.o_proj(mix(q, k, v)).view(b, n, e)",
)


def test_a_window_of_one_token_is_said_to_be_one(examine):
    body = forward("x", *WINDOWED).replace("num_heads):", "num_heads, window=1):")
    body = made_with(body, "self.window = window")
    code, output = examine(body, "--kind", "self")
    assert code == 0, output
    assert "convention: window-of-one" in output
    assert "--init window=…" in output
    code, output = examine(body.replace("self.window", "self.size"), "--kind", "self")
    assert code == 1, output
    assert "wrong: no-attention" in output


def test_positions_that_count_from_the_last_key_are_no_padding_that_matters(examine):
    lines = ("q, k, v = self.project(query, key, value)",
             "far = torch.arange(q.size(2))[:, None] - torch.arange(k.size(2)) + k.size(2)",
             "blocked = None if blocked is None else blocked[:, None]",
             "return self.o_proj(mix(q, k, v, (0.3 * far).sin(), blocked))")  # fmt: skip
    code, output = examine(forward("query, key, value, blocked=None", *lines), "--kind", "cross")
    assert code == 0, output
    assert "convention: order-matters" in output


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_weights_that_were_never_filled_are_not_judged(examine, frozen):
    body = made_with(
        forward("x", PROJECTED, CAUSAL),
        "for x in (self.q_proj, self.v_proj):\n            x.weight.data = torch.full((24, 24), "
        f"1e-41)\n            x.weight.data[3:6] = 4e5\n            x.requires_grad_({not frozen})",
    )
    code, output = examine(body, "--kind", "causal")
    assert code == (not frozen), output
    assert ("half-differs" in output) == (not frozen)


MEANT = {  # the name, what is done with it, and what is said
    "mask": ("mask", "`--mask blocked` asks for the other"),
    "mask turned": ("~mask", "`--mask allowed` asks for the other"),
    "valid_mask": ("mask", "True = allowed, as its name says"),
}


@pytest.mark.parametrize("case", MEANT)
def test_a_meaning_that_was_chosen_is_said_with_its_reason(examine, case):
    name, (done, said) = case.split()[0], MEANT[case]
    lines = (PROJECTED, f"mask = None if {name} is None else {name}[:, None].bool()",
             f"return self.o_proj(mix(q, k, v, 0, None if mask is None else ~{done}))")  # fmt: skip
    code, output = examine(forward(f"x, {name}=None", *lines), "--kind", "self")
    assert code == 0, output
    assert said in " ".join(output.split())


def test_a_length_that_is_said_may_be_the_only_one(examine):
    lines = ("assert x.size(1) == 4", PROJECTED, OUT)
    code, output = examine(forward("x", *lines), "--kind", "self", "--max-length", "4")
    assert code == 0, output
    assert "always of 4 tokens" in output


def test_what_is_made_of_parameters_for_evaluation_alone_has_a_gradient(examine):
    lines = ("made = self.near * 1 if self.training else (self.near * 1).detach()",
             "q, k, v = self.project(x)", "return self.o_proj(mix(q, k, v, made))")  # fmt: skip
    body = made_with(forward("x", *lines), "self.near = nn.Parameter(torch.ones(4, 1, 1) * 0)")
    code, output = examine(body.replace("ones(4, 1, 1)", "ones(4, 5, 5)"), "--kind", "self",
                           "--max-length", "5")  # fmt: skip
    assert code == 0, output
    assert "parameters-without-gradient" not in output


def test_a_mask_that_only_says_causal_is_named(examine):
    lines = (PROJECTED, "hidden = None if mask is None else future(x)",
             "return self.o_proj(mix(q, k, v, blocked=hidden))")  # fmt: skip
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self")
    assert code == 1, output
    assert "wrong: mask-taken-for-causal" in output
    assert output.count("wrong: ") == 1


def test_masks_in_the_wrong_order_are_named_in_either_meaning(examine):
    lines = (PROJECTED, "if mask is not None:",
             "    mask = ~mask.repeat(self.h, 1).unflatten(0, (-1, self.h))[:, :, None]",
             MASKED)  # fmt: skip
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self")
    assert code == 1, output
    assert "wrong: mask-in-the-wrong-order" in output


def test_heads_that_fit_another_layout_by_chance(examine):
    body = """
    def __init__(self, hide=True):
        super().__init__()
        self.hide = hide

    def forward(self, queries, keys, values, attn_mask):
        scores = torch.einsum("blhe,bshe->bhls", queries, keys) / queries.size(-1) ** 0.5
        if self.hide:
            n = queries.size(1)
            hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        return torch.einsum("bhls,bshe->blhe", scores.softmax(-1), values)
"""
    code, output = examine(body, "--init", "hide=False", "--mask", "none")
    assert code == 0, output
    assert "heads, (b, n, h, d)" in output
    assert "causal-unasked" in examine(body)[1]


@pytest.mark.parametrize("how", ["split", "merge"])
def test_another_mistake_does_not_invert_a_mask(examine, how):
    lines = [PROJECTED, "mask = None if mask is None else ~mask[:, None]", MASKED]
    if how == "split":
        lines[0] += "; q, k, v = (y.transpose(1, 2).reshape(y.shape) for y in (q, k, v))"
    else:
        straight = ".unflatten(-1, (self.h, -1)).transpose(1, 2).reshape(x.shape))"
        lines[2] = MASKED.removesuffix(")") + straight
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self")
    assert code == 1, output
    assert f"{how}-without-transpose" in output
    assert "mask-inverted" not in output


def test_masks_of_one_sample_behind_queries_and_keys(examine):
    lines = (PROJECTED, "assert mask is None or mask.shape[2:] == (1,)",
             "mask = None if mask is None else mask[..., 0]", MASKED)  # fmt: skip
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self")
    assert code == 0, output
    assert "(n, m, 1), True = blocked" in output


@pytest.mark.parametrize("name", ["feat_size", "fmap_dims", "grid_size"])
def test_grids_of_a_fixed_size(examine, name):
    lines = ("b, e, height, width = x.shape", f"assert (height, width) == self.{name}",
             "x = x.flatten(2).mT", PROJECTED,
             "return self.o_proj(mix(q, k, v)).mT.view(b, e, height, width)")  # fmt: skip
    body = forward("x", *lines).replace("num_heads):", f"num_heads, {name}):")
    code, output = examine(made_with(body, f"self.{name} = {name}"), "--kind", "self")
    assert code == 0, output
    assert "each (b, e, 2, n / 2), always of 4 tokens" in output


@pytest.mark.parametrize("straight", [False, True])
def test_projections_that_are_convolved_are_split_right(examine, straight):
    merge = ".unflatten(-1, (self.h, -1)).transpose(1, 2).reshape(x.shape)" if straight else ""
    lines = (PROJECTED, "q, k, v = (self.near(y.flatten(0, 1).mT).mT.view(y.shape) "
             "for y in (q, k, v))", f"return self.o_proj(mix(q, k, v){merge})")  # fmt: skip
    body = made_with(forward("x", *lines), "self.near = nn.Conv1d(6, 6, 3, padding=1, groups=6)")
    body = body.replace("class Attention(Base):", "class Attention(Base):\n    kernel_size = 3\n")
    code, output = examine(body, "--kind", "self")
    assert code == straight, output
    assert ("wrong: merge-without-transpose" in output) == straight
    assert "split-" not in output


SWITCH = (
    PROJECTED, "hidden = None", "if focus_present_mask is not None:",
    "    assert focus_present_mask.dim() == AXES",
    "    alone = focus_present_mask.flatten(1).all(1)[:, None, None, None]",
    "    hidden = alone & ~torch.eye(x.size(1), dtype=torch.bool)",
    "return self.o_proj(mix(q, k, v, blocked=hidden))",
)  # fmt: skip


@pytest.mark.parametrize("axes", ["1", "3", "5"])
def test_an_argument_with_mask_in_its_name_that_hides_no_keys_is_no_mask(examine, axes):
    lines = [line.replace("AXES", axes) for line in SWITCH]
    code, output = examine(forward("x, focus_present_mask=None", *lines), "--kind", "self")
    assert code == 0, output
    assert "`focus_present_mask` was not understood as a mask over keys" in output
    assert "focus_present_mask=mask" not in output


def test_what_is_said_to_be_a_mask_is_judged_as_one(examine):
    body = forward("x, blocked_focus_mask=None", PROJECTED, OUT)  # the name says what True means
    assert examine(body, "--kind", "self")[0] == 0
    code, output = examine(body, "--kind", "self", "--mask-name", "blocked_focus_mask")
    assert code == 1, output
    assert "wrong: mask-ignored" in output


def test_a_switch_is_no_mask(examine):
    lines = (PROJECTED, "assert isinstance(mask, bool)", OUT)
    code, output = examine(forward("x, mask: bool = False", *lines), "--kind", "self")
    assert code == 0, output
    assert "it takes no mask" in output


def test_a_mask_that_is_given_and_not_understood_is_given_always(examine):
    lines = (PROJECTED, "assert valid_frame_mask.dtype == torch.bool", OUT)
    code, output = examine(forward("x, valid_frame_mask", *lines), "--kind", "self")
    assert code == 0, output
    assert "`valid_frame_mask` was not understood" in output


def test_a_form_without_effect_is_not_the_one_that_it_takes(examine):
    lines = (PROJECTED, "hidden = None", "if mask is not None and mask.dim() == 2:",
             "    hidden = mask[:, None, None]",
             "return self.o_proj(mix(q, k, v, blocked=hidden))")  # fmt: skip
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self")
    assert code == 0, output
    assert "`mask` is (b, m), True = blocked" in output


def test_a_mask_that_has_a_default_and_must_be_given(examine):
    lines = (PROJECTED, "hidden = mask.repeat(self.h, 1, 1)",
             "hidden = hidden.unflatten(0, (self.h, -1)).transpose(0, 1)",
             "return self.o_proj(mix(q, k, v, blocked=hidden))")  # fmt: skip
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self")
    assert code == 0, output
    assert "`mask` is (b, n, m), True = blocked" in output


ALONG_THE_FIRST_AXIS = (
    "q, k, v = self.project(x.transpose(0, 1))",
    "return self.o_proj(mix(q, k, v, blocked=HIDDEN)).transpose(0, 1)",
)


@pytest.mark.parametrize("kind", ["self", "causal"])
def test_tokens_that_see_other_samples_alone_are_read_sequence_first(examine, kind):
    hidden = "future(x.transpose(0, 1))" if kind == "causal" else "None"
    lines = [line.replace("HIDDEN", hidden) for line in ALONG_THE_FIRST_AXIS]
    body = forward("x", *lines)
    code, output = examine(body, "--kind", kind)
    assert code == 0, output
    assert "it takes (n, b, e), as `--sequence-first` says" in output
    code, output = examine(body, "--kind", kind, "--batch-first")
    assert code == 1, output
    assert "wrong: no-attention" in output


def test_torchs_arguments_sequence_first_without_saying_so(examine):
    lines = ("q, k, v = self.project(*(x.transpose(0, 1) for x in (query, key, value)))",
             "hidden = None if key_padding_mask is None else key_padding_mask[:, None, None]",
             "if attn_mask is not None:",
             "    shape = (-1, self.h) if attn_mask.dim() > 2 else (1,)",
             "    hidden = attn_mask.reshape(*shape, *attn_mask.shape[-2:])",
             "return self.o_proj(mix(q, k, v, blocked=hidden)).transpose(0, 1)")  # fmt: skip
    body = forward("query, key, value, key_padding_mask=None, attn_mask=None", *lines)
    body = made_with(body, "self.num_heads = num_heads")
    code, output = examine(body, "--kind", "self")
    assert code == 0, output
    assert "it takes (n, b, e), as `--sequence-first` says" in output


@pytest.mark.parametrize(
    ("share", "says"),
    [(0, "wide"), (1, "it would be 1 of them"), (2, "wide"), (3, "it would be 3 of them")],
)
def test_parts_of_any_width_are_rotated(examine, share, says):
    lines = (PROJECTED, "cos, sin = (y[:, None] for y in position_embeddings)",
             "r = self.rotary_ndims",
             "q, k = (torch.cat([y[..., :r] * cos + turn(y[..., :r]) * sin, y[..., r:]], -1) "
             "for y in (q, k))", CAUSAL)  # fmt: skip
    body = made_with(forward("x, position_embeddings", *lines), f"self.rotary_ndims = {share}")
    code, output = examine(body, "--kind", "causal")
    assert "wrong: " not in output
    assert (code, says in output) == ((2, True) if share % 2 else (0, False)), output


POOLS = {
    "a mean that asks": ("x = torch.cat([x.mean(1, keepdim=True), x], 1)",
                         "x = x + self.places[: x.size(1)]", PROJECTED, "q = q[:, :, :1]",
                         "return self.o_proj(mix(q, k, v))[:, 0]"),
    "learned queries": ("y = self.places[:3].expand(x.size(0), -1, -1)",
                        "q, k, v = self.project(y, x)", OUT),
}  # fmt: skip


@pytest.mark.parametrize("lines", POOLS.values(), ids=POOLS)
def test_a_pool_is_asked_for_and_not_judged(examine, lines):
    body = made_with(forward("x", *lines), "self.places = nn.Parameter(torch.randn(40, embed_dim))")
    code, output = examine(body, "--kind", "self")
    assert code == 2, output
    assert "It pools: it gives fewer results than there are tokens." in output


def test_parameters_that_are_never_filled_are_filled_once(examine):
    unfilled = "self.q_proj.weight = nn.Parameter(torch.empty(24, 24)); self.kept = torch.empty(3)"
    body = made_with(forward("x", PROJECTED, OUT), unfilled)
    outputs = {examine(body, "--kind", "self") for _ in range(2)}
    assert len(outputs) == 1
    ((code, output),) = outputs
    assert code == 0, output
    assert "the constructor leaves q_proj.weight as memory was" in output
    assert "inside scores times 0.408" in output


def test_a_letter_is_no_size_in_a_call(examine):
    lines = ("q, k, v = self.project(x, c)", OUT)
    code, output = examine(forward("x, c", *lines), "--kind", "memory")
    assert code == 0, output
    assert "called with x=x, c=value" in output


def test_the_context_may_come_first_beside_an_unknown_name(examine):
    lines = ("q, k, v = self.project(decoder_input, memory)", OUT)
    code, output = examine(forward("memory, decoder_input", *lines), "--kind", "memory")
    assert code == 0, output
    assert "decoder_input=x, memory=value" in output


def test_a_length_that_its_tables_have(examine):
    lines = (PROJECTED, "return self.o_proj(mix(q, k, v, self.near))")
    body = made_with(forward("x", *lines), "self.near = nn.Parameter(torch.randn(4, 9, 9))")
    code, output = examine(body, "--kind", "self")
    assert code == 0, output
    assert "always of 9 tokens" in output


@pytest.mark.parametrize(("kind", "takes"), [("self", "x"), ("memory", "x, context")])
def test_a_constructor_is_told_what_attends_to_what(examine, kind, takes):
    body = forward(takes, f"q, k, v = self.project({takes})", OUT).replace(
        "num_heads):", "num_heads, self_attention=False, encoder_decoder_attention=False):"
    )
    said = "self_attention, encoder_decoder_attention"
    body = made_with(body, f"assert ({said}) == {(kind == 'self', kind == 'memory')}")
    code, output = examine(body, "--kind", kind)
    assert code == 0, output


@pytest.mark.parametrize("kind", ["self", "cross", "memory"])
def test_torchs_arguments_without_a_mask_for_each_sample(examine, kind):
    lines = ("q, k, v = self.project(query, key, value)", "hidden = None",
             "if key_padding_mask is not None:", "    hidden = key_padding_mask[:, None, None]",
             "if attn_mask is not None:", "    hidden = attn_mask.view(1, 1, q.size(2), k.size(2))",
             "return self.o_proj(mix(q, k, v, blocked=hidden))")  # fmt: skip
    body = forward("query, key, value, key_padding_mask=None, attn_mask=None", *lines)
    body = made_with(body, "self.num_heads = num_heads")
    code, output = examine(body, "--kind", kind)
    assert code == 0, output
    assert "its `attn_mask` is (n, m), the same for all samples" in output
    body = body.replace("[:, None, None]", "[:, None, None] & (key_padding_mask.sum() < 0)")
    assert examine(body, "--kind", kind)[0] == 1


def test_the_search_for_a_call_ends_soon_where_no_answer_is_an_attentions(tmp_path, capsys):
    path = tmp_path / "theirs.py"
    path.write_text(HEAD + forward("x, mystery", "print('called')", "return x"))
    assert main([f"{path}:Attention", "--embed-dim", "24", "--num-heads", "4", "--kind=self"]) == 2
    assert 100 < capsys.readouterr().err.count("called") < 2000


def test_of_several_parts_the_user_chooses(examine):
    body = CASES["a part that the file defines"][1] + "\n\nclass SparseCore(FullCore):\n    pass\n"
    code, output = examine(body)
    assert code == 2, output
    assert "the constructor's core (FullCore or SparseCore) cannot be guessed" in output
    assert "--init 'core=FullCore()'" in " ".join(output.split())
    code, output = examine(body, "--init", "core=SparseCore(False)", "--mask", "none")
    assert code == 0, output


@pytest.mark.parametrize("kernel", [1, (1, 1)])
def test_weights_of_convolutions_are_as_large_as_usual(kernel):
    layer = (nn.Conv1d if kernel == 1 else nn.Conv2d)(96, 96, kernel)
    before = layer.weight.clone()
    give_size(layer)
    assert torch.equal(layer.weight, before)


TABLE = "torch.outer(1.0 * torch.arange(n), torch.tensor([1, 0.3, 0.1] * 2))"


@pytest.mark.parametrize("one_side", [False, True])
@pytest.mark.parametrize("given", ["two", "one"])
def test_a_rotation_that_is_given_is_asked_about(examine, one_side, given):
    call = [f"near={TABLE}.cos()", f"far={TABLE}.sin()"]
    takes, lines = "x, near, far", [PROJECTED, "cos, sin = near, far"]
    if given == "one":
        call = [f"where=({TABLE}.cos(), {TABLE}.sin())"]
        takes, lines = "x, where", [PROJECTED, "cos, sin = where"]
    lines += ["q = q * cos + turn(q) * sin" if one_side else COSINES, CAUSAL]
    code, output = examine(forward(takes, *lines), "--kind", "causal", "--call", *call)
    assert code == one_side, output
    assert ("wrong: rotates-one-side" in output) == one_side
    assert "rotation, cache" not in output


@pytest.mark.parametrize("table", ["torch.randn(1, n, e)", "torch.ones(n, 6)"])
def test_a_table_that_is_given_and_turns_nothing_is_no_rotation(examine, table):
    lines = (PROJECTED, "assert pos.size(-2) == x.size(1)",
             "q = q + pos.sum(-1).view(-1)[:, None]", CAUSAL)  # fmt: skip
    code, output = examine(forward("x, pos", *lines), "--kind", "causal", "--call", f"pos={table}")
    assert code == 0, output
    assert "rotation, cache" in output


TURNS = {
    "both": (COSINES, ""),
    "queries": ("q = q * cos + turn(q) * sin", "rotates-one-side"),
    "keys": ("k = k * cos + turn(k) * sin", "rotates-one-side"),
    "against each other": ("q, k = q * cos + turn(q) * sin, k * cos - turn(k) * sin",
                           "positions-not-relative"),
    "a shift": ("q, k = q + cos, k + cos", ""),
    "by their heads": ("h = torch.arange(self.h)[:, None, None] * 0.7 + torch.ones(6); "
                       "q, k = (y * h.cos().to(x) + turn(y) * h.sin().to(x) for y in (q, k))",
                       "positions-ignored"),
    "complex, by their heads": (
        "h = torch.polar(torch.ones(3), torch.arange(3.0)).to(torch.complex128); "
        "q, k = (torch.view_as_real(torch.view_as_complex(y.double().unflatten(-1, (3, 2))) * h)"
        ".flatten(-2).to(x) for y in (q, k))", "positions-ignored"),
}  # fmt: skip
MIXES = {
    "by hand": CAUSAL,
    "by the kernel": "return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    ".transpose(1, 2).flatten(2))",
}


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("mixes", MIXES)
def test_a_rotation_inside_turns_queries_and_keys_alike(examine, turns, mixes):
    how, code = TURNS[turns]
    made = ("n = x.size(1)", f"cos, sin = {TABLE}.cos(), {TABLE}.sin()",
            "cos, sin = cos.to(x), sin.to(x)")  # fmt: skip
    body = forward("x", PROJECTED, *made, how, MIXES[mixes])
    found, output = examine(body, "--kind", "causal")
    assert found == bool(code), output
    assert not code or f"wrong: {code}" in output
    assert (f"the {'keys' if turns == 'queries' else 'queries'} are not rotated" in output) == (
        code == "rotates-one-side"
    )


@pytest.mark.parametrize(
    ("how", "first"), [("multiplied", False), ("multiplied", True), ("unused", False)]
)
def test_of_two_masks_the_broken_one_is_examined(examine, how, first):
    names = ("attn_mask", "key_padding_mask") if first else ("key_padding_mask", "attn_mask")
    lines = [PROJECTED, "hidden = None", "if key_padding_mask is not None:",
             "    hidden = key_padding_mask[:, None, None]"]  # fmt: skip
    if how == "multiplied":
        lines += ["if attn_mask is not None:", "    q = q * attn_mask.any()"]
    body = forward(f"x, {names[0]}=None, {names[1]}=None",
                   *lines, "return self.o_proj(mix(q, k, v, blocked=hidden))")  # fmt: skip
    code, output = examine(body, "--kind", "self")
    assert code == 1, output
    assert "attn_mask=mask" in output
    assert examine(body, "--kind", "self", "--mask-name", "key_padding_mask")[0] == 0


def test_a_mask_of_fractions_is_one_of_those_that_are_tried(examine):
    lines = (PROJECTED, "added = 0", "if mask is not None:",
             "    added = mask.masked_fill(mask == 0, -math.inf)",
             "    added = added.masked_fill(added == 1, 0)[:, None, None]",
             "return self.o_proj(mix(q, k, v, added))")  # fmt: skip
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self")
    assert code == 0, output
    assert "`mask` is (b, m), True = allowed" in output


@pytest.mark.parametrize("equal", [False, True])
def test_projections_that_are_copies_are_not_one_projection(examine, equal):
    lines = ("q = q.tanh()", "k = k.tanh()", OUT if equal else "return self.o_proj(mix(q, q, v))")
    body = forward("x", PROJECTED, *lines)  # which cannot be compared by its weights
    body = made_with(body, "self.unused = nn.Linear(3, 3)")
    body = made_with(body, "self.k_proj.load_state_dict(self.q_proj.state_dict())")
    body = made_with(body, "self.v_proj.load_state_dict(self.q_proj.state_dict())")
    code, output = examine(body, "--kind", "self")
    assert code == 1
    assert ("keys-from-queries" not in output) == equal, output
    assert "values-from-keys" not in output


@pytest.mark.parametrize("relative", [False, True])
def test_positions_added_inside_are_by_design(examine, relative):
    places = "torch.arange(x.size(1)).to(x)[:, None]"
    added = f"torch.sin({places} * torch.arange(x.size(2)).to(x) / 7)"
    lines = (f"x = F.layer_norm(x, x.shape[-1:]) + {added}", PROJECTED, OUT)
    if relative:  # what a token's value gains depends on the token
        lines = (f"x = x * (1 + {added})", PROJECTED, OUT)
    code, output = examine(forward("x", *lines), "--kind", "self")
    assert code == relative, output
    assert ("convention: positions-added" in output) != relative


def test_sizes_of_tables_of_positions_are_lengths(examine):
    body = forward("x", PROJECTED, OUT)
    takes = "num_heads, max_pos_encoding, max_rel_dist, context_window):"
    body = body.replace("num_heads):", takes).replace("embed_dim,", "feats,", 1)
    body = body.replace("make(embed_dim", "make(feats")
    code, output = examine(body, "--kind", "self")
    assert code == 0, output
    assert "max_pos_encoding=16, max_rel_dist=16, context_window=16" in output


@pytest.mark.parametrize(("kind", "hides"), [("causal", True), ("self", False)])
def test_a_switch_for_the_causal_mask_is_set_by_the_kind(examine, kind, hides):
    lines = (PROJECTED, "return self.o_proj(mix(q, k, v, blocked=future(x) if self.on else None))")
    body = forward("x", *lines).replace("num_heads):", "num_heads, mask=False):")
    code, output = examine(made_with(body, "self.on = mask"), "--kind", kind)
    assert code == 0, output
    assert f"mask={hides}" in output


@pytest.mark.parametrize(("shape", "placed"), [
    ("b1m", "mask[:, None]"), ("bm1", "mask.mT[:, None]"), ("bhnm", "mask"),
])  # fmt: skip
@pytest.mark.parametrize("said", [False, True])
def test_further_shapes_of_masks(examine, shape, placed, said):
    sizes = {"b1m": "(b, 1, n)", "bm1": "(b, n, 1)", "bhnm": "(b, self.h, n, n)"}[shape]
    lines = ("b, n, e = x.shape", f"assert mask is None or mask.shape == {sizes}", PROJECTED,
             f"mask = None if mask is None else {placed}", MASKED)  # fmt: skip
    options = ["--mask-shape", shape] if said else []
    code, output = examine(forward("x, mask=None", *lines), "--kind", "self", *options)
    assert code == 0, output
    assert "True = blocked" in output


def test_a_mask_that_is_said_and_not_taken_is_no_verdict(examine):
    lines = (PROJECTED, "assert mask is None or mask.dim() == 2",
             "mask = None if mask is None else mask[:, None, None]", MASKED)  # fmt: skip
    body = forward("x, mask=None", *lines)
    assert examine(body, "--kind", "self", "--mask-shape", "bm")[0] == 0
    code, output = examine(body, "--kind", "self", "--mask-shape", "b1nm")
    assert code == 2, output
    assert "`mask` takes no mask of the form that is asked for" in output


def test_a_scale_behind_the_softmax_is_named(examine):
    lines = (PROJECTED, "weights = (q @ k.mT).softmax(-1)", "weights = weights / 6**0.5",
             "return self.o_proj((weights @ v).transpose(1, 2).flatten(2))")  # fmt: skip
    code, output = examine(forward("x", *lines), "--kind", "self")
    assert code == 1
    assert "wrong: scaled-after-softmax" in output
    assert "a row of weights sums to 0.408" in output
    assert "`weights = weights / 6**0.5`" in output


@pytest.mark.parametrize("split", [False, True])
def test_heads_that_are_never_split_are_said(examine, split):
    body = forward("x", PROJECTED, OUT)
    body = body if split else body.replace("self.make", "num_heads, self.told = 1, num_heads\n"
                                           "        self.make")  # fmt: skip
    code, output = examine(body, "--kind", "self")
    assert ("convention: heads-not-split" in output) != split, output
    assert code == 0


def test_options_may_be_repeated(examine):
    body = forward("x, one, two", PROJECTED, "assert (one, two) == (1, 2)", OUT)
    code, output = examine(body, "--kind", "self", "--call", "one=1", "--call", "two=2")
    assert code == 0, output


CACHED = """
    def start(self):
        return None

    def step(self, x, cache):
        q, k, v = self.project(x)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        n, m = x.size(1), k.size(2)
        hidden = torch.ones(n, m, dtype=torch.bool).triu(1 + CORNER)
        return self.o_proj(mix(q, k, v, blocked=hidden)), (k, v)
"""


@pytest.mark.parametrize(("corner", "code"), [("m - n", ""), ("0", "causal-at-the-wrong-corner")])
def test_a_cache_may_be_returned_anew(examine, corner, code):
    body = forward("x", PROJECTED, CAUSAL) + CACHED.replace("CORNER", corner)
    found, output = examine(body, "--kind", "causal")
    assert found == bool(code), output
    assert code in output
    assert "cache, window" not in output


def test_a_scale_by_the_number_of_queries_is_one_by_length(examine):
    lines = ("q, k, v = self.project(query, key, value)",
             "weights = (q @ k.mT / q.size(2)**0.5).softmax(-1)",
             "return self.o_proj((weights @ v).transpose(1, 2).flatten(2))")  # fmt: skip
    code, output = examine(forward("query, key, value", *lines), "--kind", "cross")
    assert code == 1, output
    assert "wrong: scale-by-length" in output


def test_positions_added_to_a_longer_text_are_by_design(examine):
    lines = ("n = x.size(1)", "x = F.pad(x, (0, 0, 0, 16 - n)) + torch.linspace(0, 1, 16)[:, None]",
             PROJECTED, "return self.o_proj(mix(q, k, v, blocked=future(x)))[:, :n]")  # fmt: skip
    code, output = examine(forward("x", *lines), "--kind", "causal")
    assert code == 0, output
    assert "convention: positions-added" in output

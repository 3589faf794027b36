"""One matrix makes queries, keys and values; the mask is a buffer."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, e, h, causal=False):
        super().__init__()
        self.h, self.causal = h, causal
        self.qkv, self.proj = nn.Linear(e, 3 * e), nn.Linear(e, e)
        self.attn_drop = nn.Dropout(0.1)
        self.register_buffer("later", torch.ones(16, 16).triu(1).bool())

    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if self.causal:
            att = att.masked_fill(self.later[:n, :n], -math.inf)
        if blocked is not None:
            att = att.masked_fill(blocked[:, None], -math.inf)
        att = self.attn_drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).reshape(b, n, e)
        return self.proj(y)

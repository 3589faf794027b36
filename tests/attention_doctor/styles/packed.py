"""One matrix makes queries, keys and values; the mask is a buffer."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, e, h, causal=False):
        super().__init__()
        self.h, self.causal = h, causal
        self.qkv, self.out = nn.Linear(e, 3 * e), nn.Linear(e, e)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("later", torch.ones(16, 16).triu(1).bool())

    def forward(self, x, blocked=None):
        b, n, e = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.h, e // self.h)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(q.size(-1))
        if self.causal:
            scores = scores.masked_fill(self.later[:n, :n], float("-inf"))
        if blocked is not None:
            scores = scores.masked_fill(blocked.unsqueeze(1), float("-inf"))
        weights = scores.softmax(dim=-1)
        weights = self.drop(weights)
        heads = weights @ v
        merged = heads.transpose(1, 2).reshape(b, n, e)
        return self.out(merged)

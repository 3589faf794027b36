"""Heads and samples are folded into one axis, heads first, for products of batches."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, e, h, causal=False):
        super().__init__()
        self.num_heads, self.causal, self.dropout = h, causal, nn.Dropout(0.1)
        self.linear_q, self.linear_k, self.linear_v = (nn.Linear(e, e) for _ in range(3))
        self.linear_out = nn.Linear(e, e)

    def fold(self, x):
        return torch.cat(x.chunk(self.num_heads, -1), 0)  # (h * b, n, d)

    def forward(self, query, key, value, blocked=None):
        h = self.num_heads
        q = self.fold(self.linear_q(query))
        k = self.fold(self.linear_k(key))
        v = self.fold(self.linear_v(value))
        w = torch.bmm(q, k.mT).div(math.sqrt(q.shape[2]))
        if self.causal:
            w.masked_fill_(torch.ones_like(w[0]).tril() == 0, -math.inf)
        if blocked is not None:
            w = w.masked_fill(blocked.repeat(h, 1, 1), -math.inf)
        w = self.dropout(w.softmax(-1))
        heads = torch.bmm(w, v)
        return self.linear_out(torch.cat(heads.chunk(h, 0), -1))

"""One head after the other, each with projections of its own."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, e, h, causal=False):
        super().__init__()
        self.causal, self.d, self.drop = causal, e // h, nn.Dropout(0.1)
        self.queries = nn.ModuleList([nn.Linear(e, self.d) for _ in range(h)])
        self.keys = nn.ModuleList([nn.Linear(e, self.d) for _ in range(h)])
        self.values = nn.ModuleList([nn.Linear(e, self.d) for _ in range(h)])
        self.out = nn.Linear(e, e)

    def forward(self, query, key, value, blocked=None):
        results = []
        for to_q, to_k, to_v in zip(self.queries, self.keys, self.values, strict=True):
            q, k, v = to_q(query), to_k(key), to_v(value)
            s = torch.bmm(q, k.transpose(1, 2)) / self.d**0.5
            if self.causal:
                s = s + torch.full_like(s, -math.inf).triu(1)
            if blocked is not None:
                s[blocked] = -math.inf
            a = self.drop(torch.softmax(s, 2))
            results.append(torch.bmm(a, v))
        return self.out(torch.cat(results, -1))

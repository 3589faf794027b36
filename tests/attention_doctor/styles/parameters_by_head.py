"""Parameters for each head, and every product is an einsum."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, e, h, causal=False):
        super().__init__()
        self.causal, self.dropout = causal, 0.1
        shape, size = (h, e, e // h), e**-0.5
        self.w_q = nn.Parameter(torch.randn(shape) * size)
        self.w_k = nn.Parameter(torch.randn(shape) * size)
        self.w_v = nn.Parameter(torch.randn(shape) * size)
        self.w_o = nn.Parameter(torch.randn(h, e // h, e) * size)

    def forward(self, query, key, value, blocked=None):
        q = torch.einsum("bne,hed->bhnd", query, self.w_q)
        k = torch.einsum("bme,hed->bhmd", key, self.w_k)
        v = torch.einsum("bme,hed->bhmd", value, self.w_v)
        logits = torch.einsum("bhnd,bhmd->bhnm", q, k) * q.shape[-1] ** -0.5
        if self.causal:
            place = torch.arange(q.shape[2])
            logits = torch.where(place > place[:, None], -math.inf, logits)
        if blocked is not None:
            logits = torch.where(blocked.unsqueeze(1), -math.inf, logits)
        weights = F.dropout(logits.softmax(dim=-1), self.dropout, self.training)
        heads = torch.einsum("bhnm,bhmd->bhnd", weights, v)
        return torch.einsum("bhnd,hde->bne", heads, self.w_o)

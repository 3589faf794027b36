"""Attention in steps, and what does one of them in another way, so that it is none."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from attention_doctor import adapters, examine

E, H = 12, 3


def split(x):
    return x.unflatten(-1, (H, -1)).transpose(1, 2)


class Attention(nn.Module):
    """Attention in steps; a subclass does one of them in another way."""

    def __init__(self, causal=False):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(E, E) for _ in range(4))
        self.causal, self.blocked = causal, None

    def heads(self, query, key, value):
        return split(self.q(query)), split(self.k(key)), split(self.v(value))

    def changed(self, scores):
        return scores

    def hidden(self, n, m):
        if self.blocked is not None:
            return self.blocked[:, None]
        return torch.ones(n, m, dtype=torch.bool).triu(1) if self.causal else None

    def weigh(self, q, k):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        scores = self.changed(scores)
        hidden = self.hidden(*scores.shape[-2:])
        return (scores if hidden is None else scores.masked_fill(hidden, -math.inf)).softmax(-1)

    def mix(self, q, k, v):
        return self.o((self.weigh(q, k) @ v).transpose(1, 2).flatten(2))

    def forward(self, query, key=None, value=None, blocked=None):
        self.blocked = blocked
        key, value = (query, query) if key is None else (key, value)
        return self.mix(*self.heads(query, key, value))


class ByPlace(Attention):
    """The weights are learned numbers, one for each pair of places."""

    def weigh(self, q, k):
        scores = torch.arange(q.size(-2))[:, None] * torch.arange(k.size(-2)).to(q)
        return super().weigh(q * 0, k) * scores.sin().exp()


class HeadsForTokens(Attention):
    """The heads stay behind the tokens."""

    def forward(self, query, key=None, value=None):
        q, k, v = (f(query).unflatten(-1, (H, -1)) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).flatten(2))


class KeysAlone(Attention):
    def weigh(self, q, k):
        return super().weigh(torch.ones_like(q), k)


class QueriesAveraged(Attention):
    def weigh(self, q, k):
        weights = super().weigh(q, k)
        return weights.mean(2, keepdim=True).expand_as(weights)


class SamplesAveraged(Attention):
    def weigh(self, q, k):
        weights = super().weigh(q, k)
        return weights.mean(0, keepdim=True).expand_as(weights)


class QueriesAlone(Attention):
    """The weights are made from each query, as many as there are keys."""

    def weigh(self, q, k):
        places = torch.arange(k.size(-2) * k.size(-1)).to(q).sin()
        return super().weigh(q, places.view(k.shape[-2:]).expand_as(k))


class KeysMixed(Attention):
    def mix(self, q, k, v):
        return super().mix(q, k, k)


class KeyForQuery(Attention):
    def mix(self, q, k, v):
        return super().mix(q, q, v)


class Inverted(Attention):
    def weigh(self, q, k):
        return super().weigh(q * q.size(-1), k)


class NoMaskInTraining(Attention):
    def hidden(self, n, m):
        return None if self.training else super().hidden(n, m)


class Blind(Attention):
    """Whatever is asked, one key is never seen."""

    def hidden(self, n, m):
        hidden = super().hidden(n, m)
        hidden = torch.zeros(n, m, dtype=torch.bool) if hidden is None else hidden
        return hidden | ((torch.arange(m) == 1) & (torch.arange(n) != 1)[:, None])


def report(version, kind, looked_into=True):
    module = version(kind == "causal")

    def attend(*inputs):
        tokens = inputs if kind == "causal" else inputs[:-1]
        return module(*tokens, tokens[-1]) if kind == "memory" else module(*tokens)

    adapted = adapters.Adapted(attend, module if looked_into else attend, "none")
    return examine(adapted, embed_dim=E, num_heads=H, kind=kind)


VERSIONS = (
    ByPlace, HeadsForTokens, KeysAlone, QueriesAveraged, SamplesAveraged, QueriesAlone, KeysMixed,
    KeyForQuery, Inverted, Blind,
)  # fmt: skip

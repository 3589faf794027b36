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


def heads_for_tokens(self, query, key=None, value=None):
    """Leave the heads behind the tokens."""
    q, k, v = (f(query).unflatten(-1, (H, -1)) for f in (self.q, self.k, self.v))
    return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).flatten(2))


# By name, the steps that are another in it.
VERSIONS = {
    # The weights are learned numbers, one for each pair of places.
    "ByPlace": {"weigh": lambda self, q, k: Attention.weigh(self, q * 0, k) * by_place(q, k)},
    "HeadsForTokens": {"forward": heads_for_tokens},
    "KeysAlone": {"mix": lambda self, q, k, v: Attention.mix(self, torch.ones_like(q), k, v)},
    "QueriesAveraged": {"weigh": lambda self, q, k: averaged(Attention.weigh(self, q, k), 2)},
    "SamplesAveraged": {"weigh": lambda self, q, k: averaged(Attention.weigh(self, q, k), 0)},
    # The weights are made from each query, as many as there are keys.
    "QueriesAlone": {
        "mix": lambda self, q, k, v: Attention.mix(
            self, q, torch.arange(k[0, 0].numel()).to(k).sin().view_as(k[0, 0]).expand_as(k), v
        ),
    },
    "KeysMixed": {"mix": lambda self, q, k, v: Attention.mix(self, q, k, k)},
    "KeyForQuery": {"mix": lambda self, q, k, v: Attention.mix(self, q, q, v)},
    "Inverted": {"mix": lambda self, q, k, v: Attention.mix(self, q * q.size(-1), k, v)},
    # Whatever is asked, one key is never seen.
    "Blind": {"changed": lambda self, scores: scores.masked_fill(second(scores), -math.inf)},
}


def second(scores):
    n, m = scores.shape[-2:]
    return (torch.arange(m) == 1) & (torch.arange(n) != 1)[:, None]


def by_place(q, k):
    return torch.outer(torch.arange(q.size(-2)), torch.arange(k.size(-2))).to(q).sin().exp()


def averaged(weights, axis):
    return weights.mean(axis, keepdim=True).expand_as(weights)


def varied(**steps):
    """Give attention that does some of its steps in another way."""
    return type("Varied", (Attention,), steps)


def report(version, kind, looked_into=True):
    module = version(kind == "causal")

    def attend(*inputs):
        tokens = inputs if kind == "causal" else inputs[:-1]
        return module(*tokens, tokens[-1]) if kind == "memory" else module(*tokens)

    adapted = adapters.Adapted(attend, module if looked_into else attend, "none")
    return examine(adapted, embed_dim=E, num_heads=H, kind=kind)

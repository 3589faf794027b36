"""Answers to the exercises of “Testing attention”."""

from typing import Any

import torch

from annotated_book import chapters


def scaled(scale, heads=lambda e, h: h):
    """Make the class of the first exercise with another scale, or with other heads."""

    class Scaled(chapters.load("17_testing_attention").Near):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, heads(embed_dim, num_heads))
            self.scale = scale(embed_dim, num_heads)

    return Scaled


def x():
    return torch.randn(3, 5, 24)


def by_gradient(attend):
    leaf = x().requires_grad_()
    for i in range(3):
        (reaction,) = torch.autograd.grad(attend(leaf)[i].cos().sum(), leaf)
        reaction[i] = 0
        if reaction.abs().max() > 1e-6:
            return torch.tensor(True)
    return False


def first_alone(attend, close):
    given = x()
    return not close(attend(given)[:1], attend(given[:1]))


def roughly(a, b):
    return torch.allclose(a, b, atol=1e-4)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_scaled": [
        (scaled(lambda e, h: (e // h) ** -0.5), "✓ "),
        (scaled(lambda e, h: 6**-0.5), "scale-by-convention"),  # right at one width alone
        (scaled(lambda e, h: (e // h) ** -0.5, max), "the doctor sees no factor 1/√d"),
    ],
    "check_samples_touch": [
        (by_gradient, "✓ "),
        (lambda attend: True, "given the right version, it says True"),
        (lambda attend: first_alone(attend, roughly), "only the last sample sees"),
        (lambda attend: first_alone(attend, torch.equal), "do not touch"),
        (lambda attend: 0.5, "an object of type float; True or False is asked"),
    ],
}

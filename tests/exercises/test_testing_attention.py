"""The checks of “Testing attention” accept what is right and name what is wrong."""

from typing import Any

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention
from annotated_attention.exercises.testing_attention import (
    check_repaired,
    check_samples_touch,
    check_scaled,
)

CHAPTER = "16_testing_attention"


def test_scaled_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_scaled")
    assert before.startswith("✗ Scaled: the doctor finds 1 thing. scale-by-model-width")
    assert "scores = q @ k.mT * self.scale - distance" in before
    assert after == "✓ Scaled: the doctor is content, at two widths. "


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        (lambda e, h: e**-0.5, "scale-by-model-width"),
        (lambda e, h: 6**-0.5, "scale-by-convention"),  # right at one width alone
        (lambda e, h: 0.1, "scale-by-convention"),
        (lambda e, h: (e // h) ** 0.5, "scale-inverted"),
    ],
)
def test_scaled_names_another_scale(verdict: Any, scale: Any, reason: str) -> None:
    from annotated_attention import chapters

    class Scaled(chapters.load(CHAPTER).Near):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            self.scale = scale(embed_dim, num_heads)

    assert f"1 thing. {reason}" in verdict(check_scaled, Scaled)


def test_scaled_wants_to_see_the_scale(verdict: Any) -> None:
    import torch.nn.functional as F

    class Normed(repaired()):  # behind a norm, nothing can be said about a scale
        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
            blocked = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
            scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
            weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).flatten(2))

    assert "the doctor sees no factor 1/√d" in verdict(check_scaled, Normed)


def test_repaired_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_repaired")
    assert before.startswith("✗ Repaired: the doctor finds 3 things. ")
    assert after.startswith("✓ Repaired: the doctor is content")


def repaired(diagonal=1, axis=-1, merge=(1, 2), scale=True, out=True):
    """Make a class with some of the mistakes left in, or with others."""

    class Repaired(nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()
            self.h = num_heads
            self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
            self.out = nn.Linear(embed_dim, embed_dim)

        def forward(self, x):
            b, n, e = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.mT / (q.size(axis) ** 0.5 if scale else 1)
            blocked = torch.ones(n, n, dtype=torch.bool).triu(diagonal)
            weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
            heads = weights @ v
            heads = heads.transpose(*merge) if merge else heads
            merged = heads.reshape(b, n, e)
            return self.out(merged) if out else merged

    return Repaired


WRONG_REPAIRS = [
    (repaired(diagonal=2), "finds 1 thing. causal-off-by-one"),
    (repaired(axis=-2), "finds 1 thing. scale-by-length: "),
    (repaired(axis=-2), "Write `scores = q @ k / math.sqrt(q.size(-1))`"),
    (repaired(merge=None), "finds 1 thing. merge-without-transpose"),
    (repaired(diagonal=2, merge=None), "things. "),
    (repaired(diagonal=0), "causal-hides-itself"),
    (repaired(scale=False), "finds 1 thing. no-scale"),
    (repaired(out=False), "output-projection-missing"),
    (lambda e, h: nn.Identity(), "no-attention"),
    (lambda e, h: None, "it makes an object of type NoneType; a module is asked for"),
    (lambda e: nn.Identity(), "making one raises TypeError"),
    (repaired()(24, 4), "give the class itself"),
    (None, "not yet, it is None"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_REPAIRS)
def test_repaired_names_what_is_left(verdict: Any, answer: Any, reason: str) -> None:
    text = verdict(check_repaired, answer)
    assert text.startswith("✗ Repaired: ")
    assert reason in text


def test_repaired_accepts_other_ways(verdict: Any) -> None:
    class Ours(nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()
            self.inner = MultiheadAttention(embed_dim, num_heads, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x, is_causal=True, need_weights=False)[0]

    assert verdict(check_repaired, repaired()).startswith("✓ Repaired: ")
    assert verdict(check_repaired, Ours).startswith("✓ Repaired: ")


def test_repaired_refuses_more_than_attention(verdict: Any) -> None:
    class Residual(repaired()):
        def forward(self, x):
            return x + super().forward(x)

    text = verdict(check_repaired, Residual)
    assert "nothing is wrong with it, but it is not what it should be" in text


def test_samples_touch_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_samples_touch")
    assert before == "✗ samples_touch: not yet, it returns None. "
    assert after.startswith("✓ samples_touch: right about all of them")


def x(b=3):
    return torch.randn(b, 5, 24)


def by_gradient(attend):
    leaf = x().requires_grad_()
    for i in range(3):
        (reaction,) = torch.autograd.grad(attend(leaf)[i].cos().sum(), leaf)
        reaction[i] = 0
        if reaction.abs().max() > 1e-6:
            return True
    return False


def by_order(attend):
    given, order = x(), torch.tensor([2, 0, 1])
    return not torch.allclose(attend(given[order]), attend(given)[order], atol=1e-4)


def first_alone(attend):
    given = x()
    return not torch.allclose(attend(given)[:1], attend(given[:1]), atol=1e-4)


def exactly(attend):
    given = x()
    return not torch.equal(attend(given)[:1], attend(given[:1]))


def same_samples(attend):
    given = x(1).expand(3, -1, -1)
    return not torch.allclose(attend(given)[:1], attend(given[:1]), atol=1e-4)


def one_sample(attend):
    return not torch.allclose(attend(x(1)), attend(x(1)))


def test_samples_touch_accepts_the_gradient(verdict: Any) -> None:
    assert verdict(check_samples_touch, by_gradient).startswith("✓ samples_touch")


WRONG_PROBES = [
    (lambda attend: False, "given tensors reshaped in the wrong layout, it says False"),
    (lambda attend: True, "given the right version, it says True"),
    (lambda attend: attend(x()).shape != (3, 5, 24), "it says False, but there the samples touch"),
    (first_alone, "given one in which only the last sample sees another, it says False"),
    (exactly, "it says True, but there the samples do not touch"),
    (same_samples, "it says False, but there the samples touch"),
    (one_sample, "given the right version, it says True"),
    (lambda attend: 0.5, "an object of type float; True or False is asked for"),
    (lambda attend: attend(x()), "an object of type Tensor"),
    (lambda attend: attend(x()[..., :3]), "your probe raises"),
    (lambda: True, "your probe raises TypeError"),
    (3, "an object of type int"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_PROBES)
def test_samples_touch_names_what_it_gets_wrong(verdict: Any, answer: Any, reason: str) -> None:
    text = verdict(check_samples_touch, answer)
    assert text.startswith("✗ samples_touch: ")
    assert reason in text


def test_samples_touch_accepts_a_tensor(verdict: Any) -> None:
    text = verdict(check_samples_touch, lambda attend: torch.tensor(by_gradient(attend)))
    assert text.startswith("✓ samples_touch")

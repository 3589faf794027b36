"""What attention must do: what does not is called no attention, or is told what it leaves out."""

import math

import pytest
import torch
from torch import nn

from attention_doctor import examine
from tests.attention_doctor.demanded import Attention, E, H, report, varied


def wrong(found):
    return {finding.code for finding in found.findings if finding.severity == "wrong"}


def test_a_mask_that_training_leaves_out_is_found():
    found = report(
        varied(hidden=lambda self, *n: None if self.training else Attention.hidden(self, *n)),
        "causal",
    )
    assert wrong(found) == {"mask-missing-in-training"}
    assert "10 of 10" not in found.findings[0].evidence  # of each sample
    assert found.version == "right"


def test_a_mask_argument_that_training_leaves_out_is_found():
    def forward(self, query, key, value, blocked=None):
        return Attention.forward(self, query, key, value, None if self.training else blocked)

    found = examine(varied(forward=forward)(), embed_dim=E, num_heads=H)
    assert wrong(found) == {"mask-missing-in-training"}


def test_a_mask_of_training_alone_is_one_finding():
    found = report(
        varied(hidden=lambda self, *n: Attention.hidden(self, *n) if self.training else None),
        "causal",
    )
    assert wrong(found) == {"mask-missing-in-evaluation"}
    assert "future-leaks" in found.findings[0].explains


@pytest.mark.parametrize("looked_into", [True, False])
def test_a_future_for_a_past_is_a_mask_transposed(looked_into):
    turned = varied(hidden=lambda self, n, m: Attention.hidden(self, n, m).T)
    assert wrong(report(turned, "causal", looked_into)) == {"mask-transposed"}


def test_other_differences_of_training_are_not_judged():
    class Normed(Attention):
        def __init__(self, causal):
            super().__init__(causal)
            self.norm = nn.BatchNorm1d(E)

        def mix(self, q, k, v):
            return self.norm(super().mix(q, k, v).mT).mT

    module = Normed(True)
    found = examine(module, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == set()
    assert any(reason.startswith("training: ") for reason in found.not_examined)
    assert module.norm.num_batches_tracked == 0


def test_training_that_stays_random_is_not_asked():
    noisy = varied(
        mix=lambda self, *heads: (
            Attention.mix(self, *heads) * (torch.rand(()) if self.training else 1)
        )
    )
    found = report(noisy, "causal")
    assert "training" not in found.results
    assert any("still random" in reason for reason in found.not_examined)


@pytest.mark.parametrize(("kind", "width"), [("self", 1), ("causal", 2), ("causal", 3)])
def test_a_window_is_a_convention_and_its_width_is_told(width, kind):
    def hidden(self, n, m):
        distance = torch.arange(n)[:, None] - torch.arange(m)
        behind = distance > width
        return behind | (distance < 0 if self.causal else -distance > width)

    found = report(varied(hidden=hidden), kind)
    assert wrong(found) == set()
    (finding,) = (x for x in found.findings if x.code == "sliding-window")
    assert f"a window of {width + 1 + width * (kind == 'self')}," in finding.symptom


def test_a_token_that_does_not_see_itself_is_no_window():
    def weigh(self, q, k):
        n = q.size(-2)
        scores = (q @ k.mT).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(), -math.inf)
        return scores.softmax(-1).nan_to_num()

    found = report(varied(weigh=weigh), "causal", looked_into=False)
    assert "sliding-window" not in found.codes
    assert "causal-hides-itself" in wrong(found)

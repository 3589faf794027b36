"""What a finding says of its cause: which line, what follows from it, and how to ask for more."""

import math

import pytest
import torch
import torch.nn.functional as F

from attention_doctor import adapters, examine
from attention_doctor.call.places import theirs
from tests.attention_doctor.demanded import Attention, E, H, varied


def asked(version, kind, masks=""):
    attend = adapters.adapt(version, mask="none") if masks == "none" else version
    return examine(attend, embed_dim=E, num_heads=H, kind=kind)


def wrong(report):
    return [x.code for x in report.findings if x.severity == "wrong"]


def masks_of_others(self, n, m):
    b = None if self.blocked is None else len(self.blocked)
    return None if b is None else self.blocked.repeat(H, 1, 1).view(b, H, n, m)


def cooled(self, *given):
    q, k, v = Attention.heads(self, *given)
    return 0.7 * q, k, v


def test_a_habit_beside_a_cause_hides_nothing_that_follows_from_it():
    report = asked(varied(hidden=masks_of_others, heads=cooled)(), "cross")
    assert wrong(report) == ["mask-in-the-wrong-order"], str(report)
    assert "samples-mixed" in report.findings[0].explains
    assert "scale-by-convention" in report.codes


def as_a_switch(self, n, m):
    return None if self.blocked is None else torch.ones(n, m, dtype=torch.bool).triu(1)


def test_a_mask_that_is_only_a_switch_is_told_between_two_texts():
    report = asked(varied(hidden=as_a_switch)(), "cross")
    assert wrong(report) == ["mask-taken-for-causal"], str(report)


def normed_over_tokens(self, *given):
    q, k, v = Attention.heads(self, *given)
    return F.normalize(q, dim=-2), F.normalize(k, dim=-2), v


def another_column(self, q, k):
    n = q.size(-2)
    scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(self.hidden(n, n), -math.inf)
    return F.pad(scores, (0, 1)).softmax(-1)[..., 1:]


@pytest.mark.parametrize("steps", [{"heads": normed_over_tokens}, {"weigh": another_column}])
def test_a_causal_mask_that_is_right_is_not_blamed(steps):
    report = asked(varied(**steps)(causal=True), "causal")
    finding = report.findings[0]
    assert (finding.code, finding.where) == ("future-leaks", None), str(report)
    assert finding.cause.startswith("the causal mask is right")


def test_an_output_as_long_as_the_context_is_said_to_be_swapped():
    report = asked(
        varied(forward=lambda self, x, y, _: Attention.forward(self, y, x, x))(), "memory"
    )
    assert "are both inputs swapped" in report.findings[0].evidence


def test_a_cache_that_nobody_explains_is_asked_for():
    version = varied(forward=lambda self, x, kv_cache=None: Attention.forward(self, x))
    said = " ".join(asked(version(causal=True), "causal").not_examined)
    assert "its `kv_cache` is used; say it with an adapter" in said


def test_a_line_that_only_passes_on_is_no_place():
    assert not theirs("/anywhere/einops/einops.py")
    assert theirs("/anywhere/mine.py")

"""A trusted implementation is given the same parameters: what differs, where, and by how much."""

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention
from attention_doctor import adapters, examine
from tests.attention_doctor.demanded import Attention, E, H
from tests.attention_doctor.right_code import turned


def compare(ours, reference, kind="causal"):
    def adapted(module):
        torchs = isinstance(module, MultiheadAttention | nn.MultiheadAttention)
        return adapters.torch_like(module, kind) if torchs else module

    return examine(adapted(ours), embed_dim=E, num_heads=H, kind=kind, reference=adapted(reference))


def found_by_it(report):
    return [finding for finding in report.findings if finding.test == "given reference"]


class Causal(Attention):
    """A causal self-attention with one thing in it that may be different."""

    def __init__(self, scale=1.0, turned=False, detached=False, bias=True):
        super().__init__(causal=True)
        self.scale, self.turned, self.detached = scale, turned, detached
        for layer in self.children() if not bias else ():
            layer.bias = None

    def mix(self, q, k, v):
        q, k = (turned(q), turned(k)) if self.turned else (q, k)
        return super().mix(q * self.scale, k.detach() if self.detached else k, v)


@pytest.mark.parametrize(
    ("kind", "reference"), [("self", nn.MultiheadAttention), ("causal", MultiheadAttention)]
)
def test_the_same_agrees(kind, reference):
    torch.manual_seed(0)
    report = compare(MultiheadAttention(E, H), reference(E, H), kind)
    assert report.ok
    assert report.results["given reference"] == "fine"
    assert not found_by_it(report)


def test_what_no_property_shows_is_found_and_measured():
    """Rotation keeps the comparison with our own versions away; the scale is doubled."""
    right = compare(Causal(turned=True), Causal(turned=True))
    assert right.results["given reference"] == "fine"
    report = compare(Causal(2.0, turned=True), Causal(turned=True))
    (finding,) = found_by_it(report)
    assert (finding.code, finding.severity) == ("differs-from-reference", "wrong")
    assert finding.evidence.startswith("first with no mask: the output differs by ")
    assert finding.evidence.endswith("% of its size; 2 of 2 situations differ")
    assert not report.ok


def test_a_detached_path_is_found_without_a_comparison_of_gradients():
    report = compare(Causal(detached=True), Causal())
    assert not found_by_it(report)
    assert report.codes == ("no-gradient",)


def test_projections_are_brought_into_the_form_of_pytorch():
    report = compare(Causal(), nn.MultiheadAttention(E, H))
    assert report.results["given reference"] == "fine"
    assert "differs-from-reference" in compare(Causal(3.0), nn.MultiheadAttention(E, H)).codes


def test_parameters_that_do_not_fit_are_named():
    (finding,) = found_by_it(compare(Causal(), Causal(bias=False)))
    assert finding.code == "parameters-differ"
    assert finding.evidence == "only here: q.bias (12,), k.bias (12,), v.bias (12,), o.bias (12,)"


def test_a_reference_that_fails_is_said():
    def fails(*inputs):
        raise RuntimeError("no")

    report = compare(Causal(), nn.Identity())
    assert [x.code for x in found_by_it(report)] == ["parameters-differ"]
    report = compare(lambda x: x.cumsum(1), fails)
    assert any(
        reason.startswith("given reference: there is no situation")
        for reason in report.not_examined
    )


def test_the_reference_is_left_as_it_was():
    torch.manual_seed(0)
    reference = nn.MultiheadAttention(E, H)
    before = {name: x.clone() for name, x in reference.state_dict().items()}
    address = reference.in_proj_weight.data_ptr()
    compare(MultiheadAttention(E, H), reference, "cross")
    assert reference.in_proj_weight.data_ptr() == address
    assert reference.in_proj_weight.grad is None
    assert all(torch.equal(x, before[name]) for name, x in reference.state_dict().items())

"""What the doctor sees inside: right code in many styles, and planted mistakes by their lines."""

import numpy as np
import pytest
import torch

from attention_doctor import adapters, examine
from attention_doctor.call.patient import Patient
from attention_doctor.call.roles import Sizes
from attention_doctor.evidence import situations
from attention_doctor.evidence.looks import look
from tests.attention_doctor.planted import HEAD, STYLES, E, H, defined


def made(style, *edits):
    return defined(HEAD + STYLES[style], edits)["Attention"](E, H)


def report(module, kind="self", **options):
    return examine(module, embed_dim=E, num_heads=H, kind=kind, **options)


@pytest.mark.parametrize("style", ["einsum", "in place"])
def test_right_code_is_seen_as_it_is(style):
    patient = Patient(made(style), Sizes(E, H, E), "self")
    with patient.admitted():
        case = next(situations.masked(patient))
        (seen,) = look(patient, case).found
    assert seen.scale == pytest.approx((E // H) ** -0.5, rel=1e-5)
    assert seen.axis == -1
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones_like(seen.weights[..., 0]))
    assert int(seen.mask.sum()) == H * int(case.blocked.sum())


def test_compiled_code_is_seen_line_by_line():
    module = made("packed")
    found = report(torch.compile(module, backend="eager", fullgraph=True))
    assert "mine.py" in found.inside


def test_a_detour_through_numpy_is_examined_from_outside():
    def attend(x, blocked=None):
        q = x.detach().unflatten(-1, (H, -1)).transpose(1, 2).numpy()
        e = np.exp(q @ q.swapaxes(-1, -2))
        return torch.from_numpy(e / e.sum(-1, keepdims=True) @ q).transpose(1, 2).flatten(2)

    found = report(adapters.adapt(attend, mask="none"))
    assert found.inside == ""
    assert "inside: no softmax over a product of queries and keys could be seen" in (
        found.not_examined
    )
    assert found.results["order"] == "fine"


def test_an_error_of_the_sight_is_no_error_of_the_doctor(monkeypatch):
    def stumble(*_):
        raise KeyError("lost")

    module = made("packed", ("heads.transpose(1, 2)", "heads"))
    monkeypatch.setattr("attention_doctor.call.trace._copied", stumble)
    found = report(module)
    assert found.codes[0] == "merge-without-transpose"
    (reason,) = (x for x in found.not_examined if "the sight fails, with KeyError" in x)
    assert reason.startswith("precision, inside: ")


def test_no_scale_beside_a_reference_that_has_one_is_another_output():
    right = made("packed")
    module = made("packed", ("scores = scores / math.sqrt(q.size(-1))", "pass"))
    for reference, codes in ((right, ["differs-from-reference"]), (module, [])):
        found = report(module, reference=reference)
        assert [x.code for x in found.findings if x.severity == "wrong"] == codes
        assert "no-scale" in found.codes


def test_without_projections_no_scale_is_a_convention():
    found = report(adapters.adapt(lambda x: (x @ x.mT).softmax(-1) @ x, mask="none"))
    assert found.codes == ("no-scale",)
    assert found.ok


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_is_near_nothing(number):
    patient = Patient(lambda x: x, Sizes(24, 4, 24), "causal")
    one, odd = torch.ones(3), torch.tensor([1.0, number, 1.0])
    assert patient.gap(odd, one) == patient.gap(one, odd) == patient.gap(odd, odd) == torch.inf

"""What the doctor sees inside: right code in many styles, and planted mistakes by their lines."""

import numpy as np
import pytest
import torch
from torch import nn

from attention_doctor import adapters, examine, situations
from attention_doctor.look_attention import look
from attention_doctor.patient import Patient
from attention_doctor.roles import Sizes
from tests.attention_doctor.planted import HEAD, STYLES, E, H

D = E // H
UNSEEN = (
    "vmap",
    "through a view",
    "by logarithms",
    "by hand",
    "PyTorch's function",
)  # or not in all that they do
SEEN = [style for style in STYLES if style not in UNSEEN]


def made(text, folder, name="mine"):
    """Write the file, and make its class."""
    file = folder / f"{name}.py"
    file.write_text(HEAD + text)
    space = {"__name__": name}
    exec(compile(file.read_text(), file, "exec"), space)
    torch.manual_seed(0)
    return space["Attention"](E, H)


def report(module, kind="self"):
    return examine(module, embed_dim=E, num_heads=H, kind=kind)


def looks(attend, kind="self", e=E, h=H):
    """Watch a call without a mask, and one with."""
    patient = Patient(attend, Sizes(e, h, e), kind)
    with patient.admitted():
        cases = [situations.free(patient), next(situations.masked(patient), None)]
        return [look(patient, case) for case in cases if case is not None]


@pytest.mark.parametrize("style", SEEN)
def test_right_code_is_seen_as_it_is(style, tmp_path):
    module = made(STYLES[style], tmp_path)
    for seen in looks(module):
        heads = H if style in ("a list of heads",) else 1
        assert len(seen.found) == heads
        for one in seen.found:
            assert one.scale == pytest.approx(D**-0.5, rel=1e-5)
            assert one.width == D
            assert one.axis == -1
            torch.testing.assert_close(one.weights.sum(-1), torch.ones_like(one.weights[..., 0]))
        hidden = sum(int(one.mask.sum()) for one in seen.found)
        blocked = seen.case.blocked
        assert hidden == (0 if blocked is None else H * int(blocked.sum()))


def test_compiled_code_is_seen_line_by_line(tmp_path):
    module = made(STYLES["packed"], tmp_path)
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


def test_an_error_of_the_sight_is_no_error_of_the_doctor(tmp_path, monkeypatch):
    def stumble(*_):
        raise KeyError("lost")

    module = made(STYLES["packed"].replace("heads.transpose(1, 2)", "heads"), tmp_path)
    monkeypatch.setattr("attention_doctor.look_trace._copied", stumble)
    found = report(module)
    assert found.codes[0] == "merge-without-transpose"
    (reason,) = (x for x in found.not_examined if x.startswith("inside"))
    assert "the sight fails, with KeyError" in reason


UNSCALED = {
    "packed": ("scores = scores / math.sqrt(q.size(-1))", "pass"),
    "grouped and rotated": (" * self.d**-0.5", ""),
}


@pytest.mark.parametrize("style", UNSCALED)
def test_no_scale_is_wrong_by_a_reference_that_has_one(style, tmp_path):
    old, new = UNSCALED[style]
    right, module = (made(x, tmp_path) for x in (STYLES[style], STYLES[style].replace(old, new)))
    for reference, severity in ((right, "wrong"), (module, "convention")):
        found = examine(module, embed_dim=E, num_heads=H, kind="self", reference=reference)
        (finding,) = (x for x in found.findings if x.code == "no-scale")
        assert finding.severity == severity
        assert found.ok == (severity == "convention")


def test_without_projections_no_scale_is_a_convention(tmp_path):
    found = report(adapters.adapt(lambda x: (x @ x.mT).softmax(-1) @ x, mask="none"))
    assert found.codes == ("no-scale",)
    assert found.ok


def test_appended_keys_and_tables_of_positions_are_by_design(tmp_path):
    by_hand = "torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))"
    text = STYLES["by logarithms"].replace(by_hand, "scores.softmax(-1)")
    null = text.replace(
        "        scores = q",
        "        k, v = (F.pad(y, (0, 0, 1, 0), value=0.5) for y in (k, v))\n        scores = q",
    ).replace("blocked[:, None]", "F.pad(blocked, (1, 0))[:, None]")
    found = report(made(null, tmp_path))
    assert found.ok, str(found)
    assert "keys-appended" in found.codes
    table = text.replace(
        "return self.o((weights @ v)",
        "place = torch.arange(x.size(1)).to(x)\n"
        "        near = (place - place[:, None, None] + torch.arange(self.d)[:, None]).sin()\n"
        "        far = torch.einsum('bhnm,ndm->bhnd', weights, near)\n"
        "        return self.o((weights @ v + far)",
    )
    found = report(made(table, tmp_path))
    assert found.ok, str(found)
    (finding,) = (x for x in found.findings if x.code == "table-mixed")
    assert finding.where.text == "far = torch.einsum('bhnm,ndm->bhnd', weights, near)"


def test_what_answers_otherwise_while_it_is_watched_is_not_judged_by_what_was_seen():
    class Shy(nn.Module):
        def forward(self, x):
            far = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
            weights = (x @ x.mT / x.size(-1) ** 0.5).masked_fill(far, -torch.inf).softmax(-1)
            return weights @ x * (2 if torch._C._len_torch_function_stack() else 1)

    report = examine(Shy(), embed_dim=24, num_heads=1, kind="causal")
    assert "inside: the result is another one when it is watched" in report.not_examined


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_is_near_nothing(number):
    patient = Patient(lambda x: x, Sizes(24, 4, 24), "causal")
    one, odd = torch.ones(3), torch.tensor([1.0, number, 1.0])
    assert patient.gap(odd, one) == patient.gap(one, odd) == patient.gap(odd, odd) == torch.inf

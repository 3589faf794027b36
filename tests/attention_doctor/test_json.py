"""What a machine reads: JSON of one form, chosen codes, exit codes; and imports are late."""

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import torch

from annotated_attention import __version__, mistakes
from attention_doctor import Finding, Report, examine_model
from attention_doctor import __file__ as doctor
from attention_doctor.codes import CODES, chosen
from attention_doctor.command import main

ROOT = Path(__file__).parents[2]
SIZES = ["--embed-dim", "12", "--num-heads", "3"]
CLASS = ["--attention", "Attention"]
SCALE = "math.sqrt(e // self.h)"
PACKED = """
    import math, torch
    from torch import nn
    class Attention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.h, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        def forward(self, x):
            b, n, e = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.mT / math.sqrt(e // self.h)
            scores = scores.masked_fill(torch.ones(n, n).triu(DIAGONAL).bool(), -math.inf)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, e))
    def model():
        return nn.Sequential(Attention(12, 3), Attention(12, 3)), INPUTS
    """


@pytest.fixture
def run(tmp_path, capsys):
    """Write a file, run the command on it, and give its exit code and what it prints."""

    def call(*options, diagonal=1, inputs="torch.randn(2, 5, 12)", target=True, scale=SCALE):
        path = tmp_path / "theirs.py"
        text = PACKED.replace("DIAGONAL", str(diagonal)).replace("INPUTS", inputs)
        text = text.replace(SCALE, scale)
        path.write_text(textwrap.dedent(text))
        first = [f"{path}:Attention", "--kind", "causal", *SIZES] if target else []
        code = main([*first, *(x.replace("FILE", str(path)) for x in options)])
        return code, capsys.readouterr().out

    return call


# The form of version 1: a key that goes, or another type, makes it version 2.
REPORT = {
    "name": str, "verdict": str, "ok": bool, "asked": bool, "exit_code": int, "findings": list,
    "not_examined": list, "results": dict, "agreement": str, "inferred": str, "adapter": str,
}  # fmt: skip
FINDING = {
    "code": str, "severity": str, "symptom": str, "evidence": str, "cause": str, "remedy": str,
    "test": str, "where": dict | None, "explains": list,
}  # fmt: skip
WHERE = {"file": str, "line": int, "text": str}
TOP = {"version": int, "versions": dict}


def has_form(data, form):
    assert data.keys() == form.keys()
    assert all(isinstance(data[key], kind) for key, kind in form.items())


def has_form_of_a_report(data):
    has_form(data, REPORT)
    for finding in data["findings"]:
        has_form(finding, FINDING)
        assert finding["where"] is None or has_form(finding["where"], WHERE) is None
        assert finding["severity"] in ("wrong", "convention", "unasked")
    assert all(isinstance(reason, str) for reason in data["not_examined"])
    assert {*data["results"].values()} <= {"fine", "fails", "wrong", "convention", "unasked"}


@pytest.mark.parametrize(("diagonal", "expected"), [(1, 0), (2, 1)])
def test_a_report_as_json(run, diagonal, expected):
    code, output = run("--json", diagonal=diagonal)
    data = json.loads(output)
    assert data.pop("version") == 1
    assert data.pop("versions") == {
        "annotated_attention": __version__, "torch": torch.__version__,
    }  # fmt: skip
    has_form_of_a_report(data)
    assert code == data["exit_code"] == expected
    assert data["ok"] == (expected == 0)
    assert [x["code"] for x in data["findings"]] == ["causal-off-by-one"] * expected


def test_what_could_not_be_asked_as_json(run):
    code, output = run("--json", "--init", "mystery=3")
    data = json.loads(output)
    has_form(data, REPORT | TOP)
    assert code == data["exit_code"] == 2
    assert not data["asked"]
    assert data["findings"][0]["code"] == "construction-fails"


@pytest.mark.parametrize("inputs", ["torch.randn(2, 5, 12)", "(torch.randn(2, 5, 12),)",
                                    '{"input": torch.randn(2, 5, 12)}'])  # fmt: skip
def test_a_model_as_json(run, inputs):
    code, output = run("--model", "FILE:model", *CLASS, "--json", inputs=inputs, target=False)
    data = json.loads(output)
    inner = data.pop("reports")
    form = {key: kind for key, kind in (REPORT | TOP).items()
            if key not in ("findings", "results", "agreement", "inferred", "adapter")}  # fmt: skip
    has_form(data, form)
    assert [*inner] == ["0", "1"]
    for report in inner.values():
        has_form_of_a_report(report)
    assert code == 0
    assert inner["0"]["name"] == "Attention at 0 × 2"


def test_a_model_as_text(run):
    code, output = run("--model", "FILE:model", *CLASS, diagonal=2, target=False)
    assert code == 1
    assert output.startswith("✗ Sequential: 2 attentions, 1 kind, 1 wrong\n\n✗ Attention at 0 × 2")
    code, output = run(
        "--model", "FILE:model", *CLASS, "--ignore", "causal-off-by-one", diagonal=2, target=False
    )
    assert code == 0
    assert output.startswith("✓ Sequential: 2 attentions, 1 kind, nothing wrong")


def test_a_factory_that_returns_something_else(run):
    code, output = run("--model", "FILE:Attention", *CLASS, target=False)
    assert code == 2
    code, output = run("--model", "FILE:model", *CLASS, inputs="1, 2", target=False)
    assert code == 2
    assert "Return two things: the model, and its inputs" in " ".join(output.split())


def test_a_model_that_raises(run):
    code, output = run("--model", "FILE:model", *CLASS, inputs="torch.randn(2, 5, 7)", target=False)
    assert code == 2
    assert "unasked: call-fails" in output


def test_codes_that_do_not_count(run):
    assert run(diagonal=2)[0] == 1
    code, output = run("--ignore", "causal-off-by-one,nan-row", diagonal=2)
    assert code == 0
    assert output.startswith("✓ Attention: nothing wrong")
    assert "left out as asked for: causal-off-by-one" in output
    assert run("--select", "no-scale,nan-row", diagonal=2)[0] == 0
    assert run("--select", "no-scale", "--select", "causal-off-by-one", diagonal=2)[0] == 1
    assert run("--ignore", "nan-row", diagonal=2)[0] == 1


def test_conventions_that_are_to_be_wrong(run):
    assert run(scale="1")[0] == 0
    code, output = run("--wrong", "no-scale,nan-row", scale="1")
    assert (code, "wrong: no-scale" in output) == (1, True)
    assert run("--wrong", "no-scale,nan-row")[0] == 0


def test_what_could_not_be_asked_is_never_left_out():
    report = Report("mine", (Finding("fails", "unasked", "it raises"),))
    assert chosen(report, ignore=["fails"]) == report
    assert chosen(report, select=["nan-row"]) == report


def test_reports_of_a_model_stay_shared():
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(12, 3, 16, batch_first=True), 2,
        enable_nested_tensor=False,
    )  # fmt: skip
    found = chosen(
        examine_model(model, torch.randn(2, 5, 12), attention="MultiheadAttention"),
        ignore=["nan-row"],
    )
    assert len(found.examined) == 1
    assert "nan-row" not in found.examined[0].codes


def test_every_code_of_the_source_is_listed_and_none_besides():
    """Words with hyphens in the doctor's source are codes, but for a few."""
    others = {"attention-doctor", "site-packages", "dist-packages", "padding-mask"}
    found = {
        word
        for path in Path(doctor).parent.glob("*.py")
        if path.name != "codes.py"
        for word in re.findall(r'"([a-z]+(?:-[a-z0-9]+)+)"', path.read_text(encoding="utf-8"))
    }
    unasked = {
        "fails",
        "softmax-over-samples",
    }  # one word; those of the command line are made of a step
    assert {*CODES} - unasked == (found - others) | {*mistakes.MISTAKES}


def test_nothing_appears_beside_the_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    run()
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.py"]


def test_the_script_of_the_package_is_the_command():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, name = settings["project"]["scripts"]["attention-doctor"].partition(":")
    assert getattr(import_module(module), name) is main


def test_help_and_a_wrong_option_do_not_import_pytorch():
    code = textwrap.dedent("""
        import sys
        from attention_doctor.command import main
        for line in (["--help"], ["a.py:A", "--embed-dim", "12", "--num-heads", "5"]):
            try:
                main(line)
            except SystemExit:
                pass
        print("torch" in sys.modules)
        """)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.startswith("usage: attention-doctor")
    assert run.stdout.endswith("False\n")

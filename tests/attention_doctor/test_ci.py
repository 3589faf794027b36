"""What a machine reads, and the page *In your CI*: JSON of one form, chosen codes, exit codes."""

import json
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import torch
from mkdocs.utils.yaml import yaml_load

import attention_doctor.testing  # not anew in each run of pytest
from annotated_attention import __version__
from attention_doctor import Finding, Report, mistakes
from attention_doctor.codes import CODES, chosen
from attention_doctor.command import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "package" / "doctor-in-ci.md").read_text(encoding="utf-8")
SIZES = ["--kind", "causal", "--embed-dim", "24", "--num-heads", "4"]
CLASS = ["--attention", "CausalSelfAttention"]
INPUTS = '{"input": torch.randn(2, 5, 24)}'
SCALE = "math.sqrt(e // self.h)"
MODEL = """
    import math
    import torch
    from torch import nn

    class CausalSelfAttention(nn.Module):
        def __init__(self, width, num_heads):
            super().__init__()
            self.h, self.qkv = num_heads, nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            b, n, e = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.mT / SCALE
            hidden = torch.ones(n, n).triu(DIAGONAL).bool()
            weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(b, n, e))

    def build():
        return nn.Sequential(*(CausalSelfAttention(24, 4) for _ in range(2))), INPUTS
    """


def model(diagonal=1, inputs=INPUTS, scale=SCALE):
    """Write the model that the page speaks of."""
    text = MODEL.replace("DIAGONAL", str(diagonal)).replace("INPUTS", inputs)
    return textwrap.dedent(text.replace("SCALE", scale))


def block(language):
    """Give the page's only block of code in a language."""
    _, text = PAGE.split(f"```{language}\n")
    return text.partition("```")[0]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Write the model, run the command on it, and give its exit code and what it prints."""
    monkeypatch.chdir(tmp_path)

    def call(*options, **parts):
        Path("my_model.py").write_text(model(**parts))
        named = "my_model.py" in "".join(options)
        code = main([*([] if named else ["my_model.py:CausalSelfAttention", *SIZES]), *options])
        return code, capsys.readouterr().out

    return call


@pytest.mark.parametrize(("diagonal", "passed"), [(1, 2), (2, 0)])
def test_the_test_of_the_page(pytester, monkeypatch, diagonal, passed):
    pytester.makepyfile(my_model=model(diagonal), test_attention=block("python"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loaded anew, each takes its time
    run = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    assert run.ret == (0 if passed else 1)
    run.assert_outcomes(passed=passed, failed=2 - passed)
    text = run.stdout.str()
    assert ("wrong: causal-off-by-one" in text) == (not passed)
    assert ("triu(diagonal=1)" in text) == (not passed)


@pytest.mark.parametrize(("diagonal", "code"), [(1, 0), (2, 1)])
def test_the_step_of_the_page(run, diagonal, code):
    (step,) = yaml_load(block("yaml"))
    commands = [shlex.split(line) for line in step["run"].splitlines()]
    assert len(commands) == 2
    for name, *arguments in commands:
        assert name == "attention-doctor"
        found, output = run(*arguments, diagonal=diagonal)
        assert found == code
    assert f'"exit_code": {code}' in output


# The form of version 1: a key that goes, or another type, makes it version 2.
REPORT = {
    "name": str,
    "verdict": str,
    "ok": bool,
    "asked": bool,
    "exit_code": int,
    "findings": list,
    "not_examined": list,
    "results": dict,
    "agreement": str,
    "inferred": str,
    "adapter": str,
}
FINDING = {
    "code": str,
    "severity": str,
    "symptom": str,
    "evidence": str,
    "cause": str,
    "remedy": str,
    "test": str,
    "where": dict,
    "explains": list,  # where may be null
}
WHERE = {"file": str, "line": int, "text": str, "function": str, "step": str}
TOP = {"version": int, "versions": dict}


def test_the_table_of_the_page_has_these_keys():
    _, table = PAGE.split("| key |")
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    first = {name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)}
    assert first == {*REPORT, *TOP, "reports", "where", "explains"}
    (findings,) = (text for cell, text in rows if "findings" in cell)
    assert {*FINDING} <= {*re.findall(r"`(\w+)`", findings)}


def has_form(data, form):
    assert {key: type(value) for key, value in data.items()} == form


def has_form_of_a_report(data):
    has_form(data, REPORT)
    for finding in data["findings"]:
        if where := finding["where"]:
            has_form(where, WHERE)
        has_form(finding | {"where": {}}, FINDING)
        assert finding["severity"] in ("wrong", "convention", "unasked")
    assert all(isinstance(reason, str) for reason in data["not_examined"])
    assert {*data["results"].values()} <= {"fine", "fails", "wrong", "convention", "unasked"}


@pytest.mark.parametrize(
    ("options", "diagonal", "expected", "codes"),
    [
        ((), 1, 0, []),
        ((), 2, 1, ["causal-off-by-one"]),
        (("--init", "mystery=3"), 1, 2, ["construction-fails"]),
    ],
)
def test_a_report_as_json(run, options, diagonal, expected, codes):
    code, output = run("--json", *options, diagonal=diagonal)
    data = json.loads(output)
    assert data.pop("version") == 1
    assert data.pop("versions") == {
        "annotated_attention": __version__,
        "torch": torch.__version__,
    }
    has_form_of_a_report(data)
    assert code == data["exit_code"] == expected
    assert (data["ok"], data["asked"]) == (expected == 0, expected < 2)
    assert [x["code"] for x in data["findings"]] == codes


@pytest.mark.parametrize("inputs", ["torch.randn(2, 5, 24)", "(torch.randn(2, 5, 24),)", INPUTS])
def test_a_model_as_json(run, inputs):
    code, output = run("--model", "my_model.py:build", *CLASS, "--json", inputs=inputs)
    data = json.loads(output)
    inner = data.pop("reports")
    form = {
        key: kind
        for key, kind in (REPORT | TOP).items()
        if key not in ("findings", "results", "agreement", "inferred", "adapter")
    }
    has_form(data, form)
    assert [*inner] == ["0", "1"]
    for report in inner.values():
        has_form_of_a_report(report)
    assert code == 0
    assert inner["0"]["name"] == "CausalSelfAttention at 0 × 2"


def test_a_model_as_text(run):
    options = ["--model", "my_model.py:build", *CLASS]
    code, output = run(*options, diagonal=2)
    assert code == 1
    assert output.startswith("✗ Sequential: 2 attentions, 1 kind, 1 wrong\n\n✗ CausalSelfAttention")
    code, output = run(*options, "--ignore", "causal-off-by-one", diagonal=2)
    assert code == 0
    assert output.startswith("✓ Sequential: 2 attentions, 1 kind, nothing wrong")


@pytest.mark.parametrize(
    ("factory", "inputs", "said"),
    [
        ("CausalSelfAttention", INPUTS, "unasked: call-fails"),
        ("build", "1, 2", "Return two things: the model, and its inputs"),
        ("build", "torch.randn(2, 5, 7)", "unasked: call-fails"),
    ],
)
def test_a_model_that_cannot_be_asked(run, factory, inputs, said):
    code, output = run("--model", f"my_model.py:{factory}", *CLASS, inputs=inputs)
    assert code == 2
    assert said in " ".join(output.split())


def test_codes_that_do_not_count_and_nothing_beside_the_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    code, output = run("--ignore", "causal-off-by-one,nan-row", diagonal=2)
    assert [path.name for path in tmp_path.iterdir()] == ["my_model.py"]
    assert code == 0
    assert output.startswith("✓ CausalSelfAttention: nothing wrong")
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
    failing = Report("mine", (Finding("fails", "unasked", "it raises"),))
    assert chosen(failing, ignore=["fails"]) == chosen(failing, select=["nan-row"]) == failing


def test_every_code_of_the_source_has_a_rule():
    """Words with hyphens in the doctor's source are codes, but for a few."""
    others = {"attention-doctor", "site-packages", "dist-packages", "padding-mask"}
    found = {
        word
        for path in Path(attention_doctor.__file__).parent.rglob("*.py")
        if path.parent.name != "mistakes"
        for word in re.findall(r'"([a-z]+(?:-[a-z0-9]+)+)"', path.read_text(encoding="utf-8"))
    }
    assert found - others <= {*CODES}
    assert {*mistakes.MISTAKES} <= {*CODES}


def test_no_arrow_runs_back_from_a_room_of_the_doctor():
    rooms, before = ("mistakes", "call", "evidence", "rules"), set()
    top = {"adapters"}  # which is called, and calls nothing
    for room in rooms:
        before.add(room)
        for path in (Path(attention_doctor.__file__).parent / room).glob("*.py"):
            text = path.read_text(encoding="utf-8")
            named = {*re.findall(r"^(?:from|import) attention_doctor\.(\w+)", text, re.MULTILINE)}
            assert named <= before | top, path


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

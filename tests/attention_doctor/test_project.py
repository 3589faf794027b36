"""A project's settings, comments that ignore, formats for machines, the hook and the action."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from attention_doctor import Finding, ModelReport, Report, Where, assert_attention
from attention_doctor.codes import CODES, ignored
from attention_doctor.command import main
from attention_doctor.formats import Run, as_github, as_json, as_sarif
from attention_doctor.options import read
from tests.attention_doctor.test_ci import PAGE, SIZES, block, model

ROOT = Path(__file__).parents[2]
SCHEMA = Path(__file__).with_name("sarif") / "sarif-schema-2.1.0.json"
TARGET = (
    "target = 'my_model.py:CausalSelfAttention', kind = 'causal', embed-dim = 24, num-heads = 4"
)
IGNORE = "# attention-doctor: ignore[{}]".format


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    """Write settings and the model, run the command, and give its exit code and what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)

    def call(settings, *options, text=""):
        Path("pyproject.toml").write_text(f"[tool.attention-doctor]\n{settings}\n")
        Path("my_model.py").write_text(text or model())
        code = main(options)
        return code, capsys.readouterr().out

    return call


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("taget = 3", "taget = 3: it takes targets, select, ignore, wrong"),
        (
            f"ignore = ['no-code']\ntargets = [{{{TARGET}}}]",
            "attention-doctor]: there is no code no-",
        ),
        ("targets = 3", "targets = 3 must be a list of tables"),
        ("targets = ['a.py:A']", 'targets = ["a.py:A"] must be a list of tables'),
        (
            "targets = [{target = 'a.py:A'}]",
            "target 1 of 1: the following arguments are required: --embed-dim",
        ),
        ("targets = [{}]", "required: target, --embed-dim, --num-heads"),
        (f"targets = [{{{TARGET}, wind = 4}}]", "--wind=4; it takes target, kind, embed-dim, "),
        (f"targets = [{{{TARGET}, python = 'p'}}]", "unrecognized arguments: --python=p; it takes"),
        (
            f"targets = [{{{TARGET}}}, {{target = 3}}]",
            "target 2 of 2: argument target: 3 must be pa",
        ),
        ("targets = [{embed-dim = 'x'}]", "argument --embed-dim: invalid int value: 'x'"),
        ("targets = [{embed-dim = true}]", "argument --embed-dim: invalid int value: 'True'"),
        ("targets = [{kind = 'both'}]", "argument --kind: invalid choice: 'both' (choose from"),
        ("targets = [{init = 1}]", "argument --init: 1 must be NAME=VALUE"),
        (
            f"targets = [{{{TARGET}, wrong = ['no-code']}}]",
            "target 1 of 1: there is no code no-code",
        ),
        (
            "targets = [{embed-dim = 24, num-heads = 5, target = 'a:A'}]",
            "--num-heads 5 must divide",
        ),
        ("]", "pyproject.toml cannot be read: "),
    ],
)
def test_settings_that_do_not_fit_exit_with_2(project, capsys, settings, said):
    with pytest.raises(SystemExit) as stop:
        project(settings)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("attention-doctor: error: ")
    assert "pyproject.toml" in error
    assert said in error


def test_settings_that_are_no_table_or_no_text(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for text, said in (("tool.attention-doctor = 3", b"3 must be a table"), (b"\xff", b"read")):
        Path("pyproject.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(SystemExit):
            main([])
        assert said.decode() in capsys.readouterr().err
    Path("pyproject.toml").write_text("tool = 3")
    with pytest.raises(SystemExit):
        main([])
    assert "or name targets in pyproject.toml" in capsys.readouterr().err


def test_a_target_in_a_file_is_read_as_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = f"{TARGET}, init = {{a = 0.5, b = 'e'}}, window = 3, ignore = ['nan-row', 'no-scale']"
    line = "my_model.py:CausalSelfAttention --kind causal --embed-dim 24 --num-heads 4 --window 3"
    line += " --init a=0.5 b=e --ignore nan-row,no-scale"
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.attention-doctor]\nwrong = ['no-scale']\ntargets = [{{{table}}}]\n"
    )
    below = tmp_path / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    options = read(["--select", "nan-row"])
    (first,) = options.jobs
    assert options.folder == tmp_path
    assert (first.wrong, first.select) == (["no-scale"], ["nan-row"])
    alone = read(line.split())  # what holds for all holds for this one, too
    assert alone.jobs == [alone]
    assert (alone.wrong, alone.select, alone.folder) == (["no-scale"], [], None)
    assert {vars(first)[x] == vars(alone)[x] for x in vars(first) if x != "select"} == {True}


ENDS = "\n\ndef ends():\n    import os\n    os._exit(7)\n"


def test_a_project_is_examined_whole_whatever_one_target_does(project, tmp_path):
    other = tmp_path / "other"  # a file of the same name, with a module of the same name beside it
    other.mkdir()
    for folder, scale in ((tmp_path, "1"), (other, "math.sqrt(e // self.h)")):
        (folder / "parts.py").write_text(f"import math\ndef scale(e, self): return {scale}\n")
    text = "from parts import scale\n" + model(scale="scale(e, self)") + ENDS
    (other / "my_model.py").write_text(text)
    ends = TARGET.replace("CausalSelfAttention", "ends")
    beside = TARGET.replace("my_model", "other/my_model")
    settings = f"wrong = ['no-scale']\ntargets = [{{{ends}}}, {{{TARGET}}}, {{{beside}}}]"
    code, output = project(settings, "--json", text=text)
    data = json.loads(output)
    assert (code, data["exit_code"], data["ok"], data["asked"], data["version"]) == (
        1,
        1,
        False,
        False,
        1,
    )
    assert data["verdict"].endswith(": 3 targets, 1 wrong, 1 could not be asked")
    codes = {x: [y["code"] for y in report["findings"]] for x, report in data["reports"].items()}
    assert codes == {
        "my_model.py:ends": ["call-fails"],
        "my_model.py:CausalSelfAttention": ["no-scale"],
        "other/my_model.py:CausalSelfAttention": [],
    }


def test_a_project_as_text(project, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [x for x in sys.path if x not in ("", str(tmp_path))])
    (tmp_path / "at_the_top").mkdir()
    (tmp_path / "at_the_top" / "empty.py").touch()
    text = "import at_the_top.empty\n" + model()
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "my_model.py").write_text(text)
    code, output = project(f"targets = [{{{TARGET.replace('my_', 'layers/my_')}}}]")
    assert code == 0
    first, second, *_, last = output.splitlines()
    assert first == "layers/my_model.py:CausalSelfAttention"
    assert second.startswith("✓ CausalSelfAttention: nothing wrong")
    assert last.endswith(": 1 target, nothing wrong")


def test_a_comment_ignores_what_its_line_is_found_for_and_says_so_where_it_ignores_nothing(project):
    lines = model(diagonal=2).splitlines()
    (row,) = (i for i, line in enumerate(lines) if "masked_fill" in line)
    lines[row] += f"  # noqa  {IGNORE('no-scale, causal-off-by-one')}"
    lines[0] += "  # attention-doctor: ignore"
    text = "\n".join(lines)
    code, output = project("", *NAMED, text=text)
    assert code == 0
    assert "left out as asked for: causal-off-by-one" in output
    assert output.splitlines()[-2:] == [
        f"my_model.py, line {i}: ignore[{x}] ignores nothing that was found"
        for i, x in ((1, ""), (row + 1, "no-scale"))
    ]
    code, output = project("", *NAMED, "--format", "github", text=text)
    assert f"::notice file=my_model.py,line={row + 1},title=attention-doctor%3A unused" in output
    assert "::error" not in output
    code, output = project("", *NAMED, text=text.replace("causal-off-by-one", "nan-row"))
    assert (code, "wrong: causal-off-by-one" in output) == (1, True)
    assert code == 1


def test_a_comment_ignores_in_an_assertion_of_a_test(tmp_path, monkeypatch):
    text = model(diagonal=2)
    for name, line in (("bare", ""), ("commented", IGNORE("causal-off-by-one"))):
        path = tmp_path / f"{name}.py"
        path.write_text(re.sub(r"(scores.masked_fill.*)", rf"\1  {line}", text))
    monkeypatch.syspath_prepend(tmp_path)
    import bare
    import commented

    sizes = {"kind": "causal", "embed_dim": 24, "num_heads": 4}
    assert assert_attention(commented.CausalSelfAttention(24, 4), **sizes).codes == ()
    with pytest.raises(AssertionError, match="causal-off-by-one"):
        assert_attention(bare.CausalSelfAttention(24, 4), **sizes)


NAMED = ["my_model.py:CausalSelfAttention", *SIZES]


def run_of(*findings, target="a/b.py:A", **more):
    run = Run()
    options = read([target, *SIZES])
    run.add(options, Report("A", findings, **more))
    return run


def test_annotations_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a: b, 100%.py"
    path.touch()
    finding = Finding("no-scale", "wrong", "100%:\nof, it\r", where=Where(str(path), 3))
    failing = Finding("call-fails", "unasked", "no", where=Where("<string>", 3))
    meant = Finding("nan-row", "convention", "rows")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    lines = as_github(run_of(finding, meant, failing, adapter="# Save\nit")).splitlines()
    title = "title=attention-doctor%3A"
    folder = tmp_path.name
    assert lines == [
        "a/b.py:A: ✗ A: it could not be asked",
        f"::error file={folder}/a%3A b%2C 100%25.py,line=3,{title} no-scale::100%25:%0Aof, it%0D",
        f"::notice file={folder}/a/b.py,{title} nan-row::rows",
        f"::error file={folder}/a/b.py,{title} call-fails::no%0A# Save%0Ait",
    ]


def valid(text):
    """Check SARIF by its published schema, and give its only run."""
    log, schema = json.loads(text), json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert log["$schema"] == schema["id"]
    jsonschema.Draft4Validator(schema).validate(log)
    (run,) = log["runs"]
    return run


def test_sarif_is_what_its_schema_asks_for(project, tmp_path):
    text = model(diagonal=2).replace("import math\n", f"import math  {IGNORE('nan-row')}\n", 1)
    code, output = project("", *NAMED, "--format", "sarif", text=text)
    run = valid(output)
    (result,) = run["results"]
    (rule,) = run["tool"]["driver"]["rules"]
    assert (code, result["ruleId"], result["level"]) == (1, "causal-off-by-one", "error")
    assert (rule["id"], rule["shortDescription"]["text"]) == (result["ruleId"], CODES[rule["id"]])
    (place,) = (x["physicalLocation"] for x in result["locations"])
    assert place["artifactLocation"] == {"uri": "my_model.py", "uriBaseId": "%SRCROOT%"}
    assert "masked_fill" in text.splitlines()[place["region"]["startLine"] - 1]
    (invocation,) = run["invocations"]
    assert (invocation["exitCode"], invocation["executionSuccessful"]) == (1, True)
    (note,) = invocation["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("ignore[nan-row]")


def test_sarif_holds_what_has_no_line_no_rule_and_a_strange_path():
    outside = f"{ROOT.parent}/no such.py:A"
    failing = Finding("import-fails", "unasked", "it fails")
    run = valid(as_sarif(run_of(failing, target="a b.py:A")))
    (result,) = run["results"]
    (place,) = (x["physicalLocation"] for x in result["locations"])
    assert (place, result["level"]) == (
        {"artifactLocation": {"uri": "a%20b.py", "uriBaseId": "%SRCROOT%"}},
        "error",
    )
    assert run["invocations"][0]["executionSuccessful"] is False
    every = [Finding(code, "convention", "x") for code in CODES]
    run = valid(as_sarif(run_of(*every, target=outside)))
    assert {x["level"] for x in run["results"]} == {"note"}
    assert [x["ruleIndex"] for x in run["results"]] == [*range(len(CODES))]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.startswith("file:///")
    assert uri.endswith("/no%20such.py")


def test_formats_agree_about_targets_with_one_name():
    run = Run("ours")
    options = read(["a.py:A", *SIZES])
    found = Report("A", (Finding("nan-row", "wrong", "s"),))
    for report in (found, ModelReport("M", {"x": Report("A"), "y": found})):
        run.add(options, report)
    assert [*json.loads(as_json(run))["reports"]] == ["a.py:A", "a.py:A'"]
    assert run.exit_code == 1
    assert len(valid(as_sarif(run))["results"]) == 1


def test_what_is_listed_and_where_the_skill_is(capsys):
    assert main(["--list"]) == 0
    output = capsys.readouterr().out
    assert {*re.findall(r"^  ([\w-]+)", output, re.MULTILINE)} == {*CODES}
    assert "  no-scale: " in output
    assert "  nan-row (convention): " in output
    assert main(["--skill"]) == 0
    assert Path(capsys.readouterr().out.strip()).name == "SKILL.md"


def test_the_hook_and_the_action_name_what_is_there(project, tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert (hook["language"], hook["pass_filenames"]) == ("script", False)
    assert os.access(ROOT / hook["entry"], os.X_OK)
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    (step,) = action["runs"]["steps"]
    assert step["shell"] == "bash"
    inputs = {name: f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    assert {step["working-directory"], *step["env"].values()} == {*inputs.values()}
    project(f"targets = [{{{TARGET}}}]", "--list", text=model(diagonal=2))
    given = {
        "PYTHON": sys.executable,
        "ARGUMENTS": "--ignore nan-row",
        "GITHUB_ACTION_PATH": str(ROOT),
    }
    run = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        env={**os.environ, **given, "GITHUB_WORKSPACE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1, run.stderr
    assert "::error file=my_model.py,line=" in run.stdout
    assert f"examined by {sys.executable}, with PyTorch" in run.stderr


def test_what_the_page_shows_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings, comment = block("toml"), block("py")
    (tmp_path / "pyproject.toml").write_text(settings, "utf-8")
    first, second = read([]).jobs
    assert (first.embed_dim, second.attention) == (24, "CausalSelfAttention")
    assert second.ignore == ["parameters-without-gradient"]
    where = Where("a.py", 1, comment.strip())
    assert ignored(Finding("no-scale", "wrong", "", where=where))
    hook, step = (yaml.safe_load(x.partition("```")[0]) for x in PAGE.split("```yml\n")[1:])
    (shown,) = hook["repos"][0]["hooks"]
    (ours,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert shown["id"] == ours["id"]
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    assert {*step[0]["with"]} <= {*action["inputs"]}

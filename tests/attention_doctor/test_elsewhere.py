"""The doctor under another Python, in which it is not installed."""

import ast
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import torch

from attention_doctor import elsewhere
from attention_doctor.command import main
from tests.attention_doctor.test_ci import SIZES, model
from tests.attention_doctor.test_project import TARGET

ROOT = Path(__file__).parents[2]
NAMED = ["my_model.py:CausalSelfAttention", *SIZES]
INSTALLED = [sys.executable, "-m", "attention_doctor"]
LOOSE = [sys.executable, elsewhere.__file__]


def environment(folder, with_torch=True):
    """Make an environment without the doctor, and with PyTorch if asked for."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    if with_torch:
        (packages / "seen.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return folder / "bin" / "python"


def run(folder, *command):
    """Run a command in a folder, and give its exit code, output and errors."""
    (folder / "my_model.py").write_text(model())
    kept = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_environment_of_the_project_examines(tmp_path):
    python = environment(tmp_path / ".venv")
    below = tmp_path / "src"
    below.mkdir()
    code, output, errors = run(below, *INSTALLED, *NAMED)
    assert (code, errors) == (0, "")
    assert output.startswith("✓ CausalSelfAttention: nothing wrong")
    assert output.splitlines()[-1] == f"examined by {python}, with PyTorch {torch.__version__}"


def test_several_targets_under_a_python_without_the_doctor(tmp_path):
    python = environment(tmp_path / "theirs")
    table = f"{TARGET}, ignore = ['nan-row']"
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.attention-doctor]\ntargets = [{{{TARGET}}}, {{{table}}}]"
    )
    code, output, errors = run(tmp_path, *LOOSE, "--python", "theirs", "--json")
    assert code == 0, errors
    assert output.count('"ok": true') == 3
    assert errors.endswith(
        f": 2 targets, nothing wrong\nexamined by {python}, with PyTorch {torch.__version__}\n"
    )


def test_an_environment_without_pytorch(tmp_path):
    python = environment(tmp_path / ".venv", with_torch=False)
    lacks = (
        f"attention-doctor: {python} cannot import PyTorch (No module named 'torch'); the doctor"
    )
    code, output, errors = run(tmp_path, *INSTALLED, *NAMED, "--python", str(python))
    assert (code, output) == (2, "")
    assert errors == f"{lacks} needs PyTorch 2.6 or later\n"
    code, output, errors = run(tmp_path, *INSTALLED, *NAMED)  # found, not named
    assert code == 0
    assert output.startswith("✓ CausalSelfAttention")
    assert errors.startswith(lacks)
    assert errors.endswith(f"so {sys.executable} does it\n")


def test_what_is_named_and_is_no_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*NAMED, "--python", "no/such"]) == 2
    assert "--python no/such: there is no such Python" in capsys.readouterr().err
    for name, text, said in (
        ("broken", "\0", "broken cannot be run: "),
        ("killed", "#!/bin/sh\nkill -9 $$\n", "killed was ended by signal 9"),
        ("other", "#!/bin/sh\nexit 77\n", ""),
    ):
        Path(name).write_text(text)
        Path(name).chmod(0o755)
        assert main([*NAMED, "--python", f"./{name}"]) == 2
        assert said in capsys.readouterr().err


def test_a_python_or_a_pytorch_that_is_too_old_says_so(monkeypatch, capsys):
    monkeypatch.setattr(elsewhere, "PYTHON", (99, 1, 2))
    assert elsewhere._examine([]) == elsewhere.UNFIT
    assert "; the doctor needs Python 99.1.2 or later" in capsys.readouterr().err
    monkeypatch.setattr(elsewhere, "TORCH", (99, 0))
    assert main(NAMED) == 2
    assert f"has PyTorch {torch.__version__}; the doctor needs" in capsys.readouterr().err


def test_its_bounds_are_those_of_the_package_and_an_old_python_reads_it():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    python, bound = (".".join(map(str, x)) for x in (elsewhere.PYTHON, elsewhere.TORCH))
    assert settings["requires-python"] == f">={python}"
    assert settings["dependencies"] == [f"torch>={bound}"]
    ast.parse(Path(elsewhere.__file__).read_text("utf-8"), feature_version=(3, 6))

"""Setting up: what stops it is said."""

import subprocess
import sys

import pytest

from book.setup import environment


def test_a_failing_pip_stops_it_and_is_heard(capfd):
    with pytest.raises(SystemExit, match=r"pip failed.* \.venv is not complete"):
        environment.pip("install", "--no-index", "--isolated", "no-such-package-anywhere==1")
    assert "no-such-package-anywhere==1" in capfd.readouterr().err


def test_a_venv_that_cannot_be_made_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "VENV", tmp_path / "venv")
    monkeypatch.setattr(environment.sys, "executable", "/bin/false")
    with pytest.raises(SystemExit, match="could not make a virtual environment"):
        environment.make_venv()
    assert not (tmp_path / "venv").exists()


def test_an_old_python_is_refused():
    code = "import sys, runpy; sys.version_info = (3, 9, 2); runpy.run_path({!r})"
    command = [sys.executable, "-c", code.format(environment.__file__)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1
    assert "needs Python 3.11.5 or later" in run.stderr
    assert "make PYTHON=" in run.stderr

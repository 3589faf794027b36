"""Setting up: what stops it is said, and what is there in the end is what the lock names."""

import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from press.setup import environment


def test_a_failing_pip_stops_it_and_is_heard(capfd):
    with pytest.raises(SystemExit, match=r"pip failed.* \.venv is not complete"):
        environment.pip("--no-index", "--isolated", "no-such-package-anywhere==1")
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
    assert re.search(r"needs Python 3\.11\.5 or later(.|\n)*make PYTHON=", run.stderr)


def test_what_is_installed_is_what_is_locked():
    lines = environment.LOCK.read_text().splitlines()
    locked = dict(line.split("==") for line in lines if line[0] != "#")
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", number) for number in locked.values())
    installed = {name: version(name).split("+")[0] for name in locked}
    assert installed == locked, "`make` brings .venv up to date"

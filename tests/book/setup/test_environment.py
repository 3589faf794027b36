"""Setting up: a failing pip is quoted, and what it downloads is told."""

import pytest

from book.setup import environment


def test_failing_pip_is_quoted():
    with pytest.raises(SystemExit) as stopped:
        environment.pip("install", "--no-index", "--isolated", "no-such-package-anywhere==1")
    assert "pip failed:" in str(stopped.value)
    assert "no-such-package-anywhere==1" in str(stopped.value)
    assert ".venv is not complete" in str(stopped.value)


def test_progress_is_told(capsys):
    locked = environment.LOCK.read_text().splitlines()
    some = [line for line in locked if line.startswith(("n", "p"))][:25]
    environment.pip("install", "--no-deps", *some, total=len(some))
    assert f"setting up: 20 of {len(some)} packages found" in capsys.readouterr().out


def test_a_venv_that_cannot_be_made_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "VENV", tmp_path / "venv")
    monkeypatch.setattr(environment.sys, "executable", "/bin/false")
    with pytest.raises(SystemExit, match="could not make a virtual environment"):
        environment.make_venv()
    assert not (tmp_path / "venv").exists()

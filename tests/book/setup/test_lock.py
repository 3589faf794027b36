"""The lock names public versions of all that the book imports, and nothing local."""

import re
from importlib.metadata import version

import pytest

from book.run import scripts
from book.setup.lock import lock_line

LOCK = (scripts.ROOT / "requirements.lock").read_text().splitlines()


def test_what_is_installed_is_what_is_locked():
    locked = dict(line.split("==") for line in LOCK if line[0] != "#")
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", number) for number in locked.values())
    installed = {name: version(name).split("+")[0] for name in locked}
    assert installed == locked, "`make` brings .venv up to date"


@pytest.mark.parametrize(
    "frozen",
    [
        "torch==2.13.0+cpu",
        "torch @ file:///x/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl",
        "torch @ file:///x/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl#sha256=ab",
    ],
)
def test_local_labels_are_dropped(frozen):
    assert lock_line(frozen) == "torch==2.13.0"


def test_a_line_without_a_version_stops():
    with pytest.raises(SystemExit, match="no version can be read off"):
        lock_line("thing @ file:///x/thing")

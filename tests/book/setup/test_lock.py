"""The lock names public versions of all that the book imports, and nothing local."""

import re
import tomllib
from importlib.metadata import version

import pytest

from book.run import scripts
from book.setup.lock import lock_line

LINES = [
    line
    for line in (scripts.ROOT / "requirements.lock").read_text().splitlines()
    if not line.startswith("#")
]


def test_every_line_is_one_public_version():
    for line in LINES:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line), line


def test_everything_that_the_project_asks_for_is_locked():
    project = tomllib.loads((scripts.ROOT / "pyproject.toml").read_text())
    asked = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["book"],
        *project["dependency-groups"]["dev"],
    ]
    locked = {line.split("==")[0].lower().replace("_", "-") for line in LINES}
    for requirement in asked:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()
        assert name in locked, name


def test_what_is_installed_is_what_is_locked():
    locked = dict(line.split("==") for line in LINES)
    installed = {name: version(name).split("+")[0] for name in locked}
    assert installed == locked, "`make` brings .venv up to date"


@pytest.mark.parametrize(
    ("frozen", "line"),
    [
        ("numpy==2.4.6", "numpy==2.4.6"),
        ("torch==2.13.0+cpu", "torch==2.13.0"),
        ("torch @ file:///x/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl", "torch==2.13.0"),
        (
            "torch @ file:///x/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl#sha256=ab",
            "torch==2.13.0",
        ),
    ],
)
def test_local_labels_are_dropped(frozen, line):
    assert lock_line(frozen) == line


def test_a_line_without_a_version_stops():
    with pytest.raises(SystemExit, match="no version can be read off"):
        lock_line("thing @ file:///x/thing")

"""The lock names public versions of all that the book imports, and nothing local."""

import re
from importlib.metadata import version

from book.run import scripts

LOCK = (scripts.ROOT / "requirements.lock").read_text().splitlines()


def test_what_is_installed_is_what_is_locked():
    locked = dict(line.split("==") for line in LOCK if line[0] != "#")
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", number) for number in locked.values())
    installed = {name: version(name).split("+")[0] for name in locked}
    assert installed == locked, "`make` brings .venv up to date"

"""The way of a chapter is a line: ``run`` knows nothing of ``site``, and only hooks know MkDocs."""

import re

import pytest

from book.run import scripts

ROOM = scripts.ROOT / "src" / "book"
SOURCES = [path.relative_to(ROOM).as_posix() for path in sorted(ROOM.rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES)
def test_imports(path):
    text = (ROOM / path).read_text(encoding="utf-8")
    names = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE))
    unwanted = "" if path == "site/hooks.py" else r"mkdocs|book\.site\.hooks"
    room = path.partition("/")[0]
    if room in {"run", "shapes", "setup"}:
        unwanted += r"|book\.site" + (r"|book\.run" if room != "run" else "")
    assert not unwanted or not [name for name in names if re.match(unwanted, name)]

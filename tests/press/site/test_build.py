"""What stops the build of the site, beside what ``test_make.py`` asks of a whole one."""

import nbformat
import pytest

from press.run import scripts
from press.site import build

# It stands in for MkDocs: whatever it drops, it says that all went well.
WRITES = """
import sys
from pathlib import Path

for page, html in {pages!r}.items():
    path = Path(sys.argv[-1], page, "index.html")
    path.parent.mkdir(parents=True)
    path.write_text(html)
"""


def test_chapters_and_cells_that_are_dropped_are_missed(tmp_path, monkeypatch):
    for name, path in (("CHAPTERS", "notebooks"), ("EXECUTED", "build"), ("ROOT", "")):
        monkeypatch.setattr(scripts, name, tmp_path / path)
    for name, path in (("SITE", "site"), ("BUILD", "build")):
        monkeypatch.setattr(build, name, tmp_path / path)
    for folder in ("notebooks", "build", "site"):
        (tmp_path / folder).mkdir()
    (tmp_path / "site" / "last").touch()
    cells = [nbformat.v4.new_code_cell(source) for source in ("a", "", "b")]
    for name in ("01_whole", "02_in_part", "03_none"):
        (tmp_path / "notebooks" / f"{name}.py").touch()
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "build" / f"{name}.ipynb")
    shown = '<div data-cell="1">'
    pages = {"chapters/whole": shown * 2, "chapters/in-part": shown}
    (tmp_path / "mkdocs.py").write_text(WRITES.format(pages=pages))
    with pytest.raises(SystemExit) as end:
        build.build()
    assert str(end.value).splitlines()[1:] == [
        "02_in_part: its page shows 1 of 2 cells",
        "03_none: its page shows 0 of 2 cells",
    ]
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["last"]

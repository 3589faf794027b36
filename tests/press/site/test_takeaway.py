"""What readers take along works where it is put: the archive by itself, the notebook anywhere."""

import io
import json
import os
import subprocess
import sys
import zipfile

import nbformat
import pytest
from bs4 import BeautifulSoup

from press.run import scripts
from press.site import takeaway

SCRIPT = scripts.CHAPTERS / "05_batches.py"
ADDRESS = "https://github.com/owner/name"
# The checkout is not seen: with -ES nobody reads the line that leads from the libraries to it.
LOADS = """
import sys
sys.path[:0] = [{source!r}, {libraries!r}]
from annotated_book import chapters
print(chapters.__file__, *chapters.names(), chapters.load("17_testing_attention").examine.__name__)
"""


def test_the_archive_holds_what_chapters_import(tmp_path):
    with zipfile.ZipFile(io.BytesIO(takeaway.archive())) as packed:
        packed.extractall(tmp_path)
    unpacked = tmp_path / takeaway.FOLDER
    assert takeaway.INSTALL in (unpacked / "READ-ME-FIRST.txt").read_text("utf-8")
    source, libraries = unpacked / "src", os.path.dirname(os.path.dirname(nbformat.__file__))
    code = LOADS.format(source=str(source), libraries=libraries)
    run = subprocess.run([sys.executable, "-ES", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first, *names, imported = run.stdout.split()
    assert first == str(source / "annotated_book" / "chapters.py")
    assert {path.stem for path in scripts.CHAPTERS.glob("[0-9]*.py")} <= {*names}
    assert imported == "examine"
    assert (unpacked / "pyproject.toml").exists(), "which it is installed by"


def test_what_tools_leave_behind_is_not_in_the_archive(tmp_path, monkeypatch):
    for left in (".ruff_cache/tag", "__pycache__/one.pyc", ".ipynb_checkpoints/one.ipynb"):
        path = tmp_path / "notebooks" / left
        path.parent.mkdir(parents=True)
        path.write_text("left")
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    with zipfile.ZipFile(io.BytesIO(takeaway.archive.__wrapped__())) as packed:
        assert packed.namelist() == [f"{takeaway.FOLDER}/READ-ME-FIRST.txt"]


def test_the_archive_is_the_same_at_any_time():
    first = takeaway.archive()
    os.utime(SCRIPT)
    takeaway.archive.cache_clear()
    assert takeaway.archive() == first


@pytest.mark.parametrize("there", [True, False])
def test_the_first_cell_brings_the_book_to_where_it_is_not(there, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: ran.append(command))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    if not there:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told, brought = (
        json.loads(takeaway.files(SCRIPT, x)["downloads/batches.ipynb"])["cells"][0]["source"]
        for x in ("", ADDRESS)
    )
    assert takeaway.INSTALL in "".join(told)
    exec("".join(brought), {})
    assert (str(tmp_path / "book" / "src") in sys.path) == (not there) == bool(ran)
    if ran:
        clone, install = ran
        assert clone == ["git", "clone", "--quiet", "--depth=1", ADDRESS, "book"]
        assert install[-2:] == ["-e", "book[book,trained]"]


def test_only_a_repository_on_github_can_be_opened_from_there():
    service = "https://colab.research.google.com/github/owner/name/blob"
    for repository, opens in (("https://code.example/book", False), (f"{ADDRESS}/", True)):
        links = BeautifulSoup(takeaway.links("05_batches", "../../", repository), "html.parser")
        hosted = [x["href"] for x in links.select("a") if "colab.research.google.com" in x["href"]]
        assert hosted == [f"{service}/hosted/batches.ipynb"] * opens

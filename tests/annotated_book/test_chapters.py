"""Chapters are imported by their definitions only, and say clearly when these do not hold up."""

import inspect
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from annotated_book import chapters

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a chapter that is not in the book, alone or with others; forget an earlier one."""
    monkeypatch.setattr(chapters, "NOTEBOOKS", tmp_path)

    def write(*cells: str, name: str = "01_head") -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text("\n\n".join(f"# %% {cell}" for cell in cells) + "\n", encoding="utf-8")
        sys.modules.pop(f"chapter_{name}", None)
        return path

    return write


def test_keeps_definitions_and_leaves_out_demonstrations(write: Write) -> None:
    """Nothing that prints, asserts, loops or assigns a lower-case name is run."""
    write(
        "[markdown]\n# A title, and `code`",
        "\nimport math\nfrom pathlib import Path as Place",
        "\nWORDS = ['it']\nA, (B, *_C) = 1, (2, 3)\nSIZE: int = 4",
        "\nclass Head:\n    size = SIZE\n\ndef scale(d): return math.sqrt(d)",
        "\nTEXT = scale(4)",
        "\nx = 1 / 0\nx.y = 2\nx, BOTH = 3, 4\nSIZE.y = 2\nassert False\nprint(1 / 0)",
        "\nfor I in [1]: raise SystemExit\nif True:\n    IF = 1\nwith open('no'): pass",
    )
    kept = {"math", "Place", "WORDS", "A", "B", "_C", "SIZE", "Head", "scale", "TEXT"}
    module = chapters.load("01_head")
    assert {name for name in vars(module) if not name.startswith("__")} == kept
    assert module.TEXT == 2


@pytest.mark.parametrize("options", ['tags=["exercise"]', 'a title tags=["wide", "solution"]'])
def test_leaves_out_exercises_and_solutions(write: Write, options: str) -> None:
    """A stub may share its name with the real class; only whole tags count."""
    other = 'tags=["exercises", "hide-input"]\n'
    write(f"{other}class Head: stub = False", f"{options}\nclass Head: stub = True\n")
    assert chapters.load("01_head").Head.stub is False


def test_source_and_errors_point_at_the_page(write: Write) -> None:
    """File and line numbers are those of the script."""
    exercise = 'tags=["exercise"]\n...\n'
    path = write(exercise, "\nclass Head:\n    def call(self):\n        return 1 / 0\n")
    head = chapters.load("01_head").Head
    assert inspect.getsource(head) == "class Head:\n    def call(self):\n        return 1 / 0\n"
    with pytest.raises(ZeroDivisionError) as caught:
        head().call()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno, frame.line) == (str(path), 8, "return 1 / 0")
    write(exercise, "\nis this code?\n")
    with pytest.raises(SyntaxError) as refused:
        chapters.load("01_head")
    assert (refused.value.filename, refused.value.lineno) == (str(path), 6)


def test_classes_pickle_here_and_in_another_process(write: Write) -> None:
    """Another process only has to import the module that finds chapters."""
    path = write("\nclass Head:\n    size = 6\n\ndef scale(): return 3")
    module = chapters.load("01_head")
    assert chapters.load("01_head") is module is sys.modules["chapter_01_head"]
    assert not list(path.parent.glob("__pycache__/*"))
    assert type(pickle.loads(pickle.dumps(module.Head()))) is module.Head
    program = f"""
import pathlib, pickle
from annotated_book import chapters
chapters.NOTEBOOKS = pathlib.Path({str(path.parent)!r})
print(pickle.loads({pickle.dumps(module.Head())!r}).size)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "6\n"


def test_a_chapter_may_load_another(write: Write) -> None:
    """Assigning what another chapter defines is an import; every other `load` is not."""
    write("\nclass Head: ...")
    write(
        "\nfrom annotated_book import chapters",
        "\nHead = chapters.load('01_head').Head\none = chapters.load('01_head')",
        "\nclass Heads(Head): ...\ndata = torch.load('x.pt')\nother = load('x')",
        name="02_heads",
    )
    module = chapters.load("02_heads")
    assert module.Heads.__mro__[1] is chapters.load("01_head").Head is module.one.Head
    assert not {"data", "other"} & {*vars(module)}


def test_unknown_chapter_lists_the_known(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing mistake is easy to mend, and a path is not a name."""
    write("\nA = 1")
    write("\nA = 1", name="02_heads")
    assert chapters.names() == ["01_head", "02_heads"]
    for name in ("01_heads", "../01_head"):
        with pytest.raises(chapters.ChapterError, match=f"'{name}'; there are: 01_head, 02_heads"):
            chapters.load(name)
    monkeypatch.setattr(chapters, "NOTEBOOKS", chapters.NOTEBOOKS / "of no checkout")
    with pytest.raises(chapters.ChapterError, match="clone the repository"):
        chapters.load("01_head")

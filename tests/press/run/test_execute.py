"""What a chapter shows; why it cannot be built, and that the last result then stays."""

import os
import subprocess
import sys

import nbformat
import pytest

from press.run import scripts

PROGRAM = """\
import sys
from pathlib import Path
from press.run import execute, scripts
scripts.ROOT, execute.SECONDS_A_CELL = Path.cwd(), int(sys.argv.pop(1))
scripts.EXECUTED = scripts.ROOT / "build"
execute.main()
"""
CHAPTER = """\
# %% [markdown]
# # One
#
# ## First part

# %%
LIMIT = 3


def double(x):
    return 2 * x


print(double(LIMIT))
"""
CASES = {
    "syntax": (
        ("return 2 * x", "return 2 * x)"),
        ["notebooks/01_one_head.py:11: chapter 01_one_head", "return 2 * x)", "SyntaxError"],
    ),
    "deep inside": (
        ("return 2 * x", "return 2 * x + undefined"),
        ["notebooks/01_one_head.py:14: chapter 01_one_head", "NameError: name 'undefined'"],
    ),
    "stderr": (
        ("print(double(LIMIT))", "import warnings; warnings.warn('old')"),
        ["notebooks/01_one_head.py:7: chapter 01_one_head", "writes to stderr", "old"],
    ),
    "stderr of another program": (
        ("print(double(LIMIT))", "import os; os.system('echo old >&2')"),
        ["notebooks/01_one_head.py:7: chapter 01_one_head", "writes to stderr", "old"],
    ),
    "too long": (
        ("print(double(LIMIT))", "while True: pass"),
        ["notebooks/01_one_head.py:7: chapter 01_one_head", "ended by SIGALRM after 2 s"],
    ),
    "killed": (
        ("print(double(LIMIT))", "import os; os.kill(os.getpid(), 9)"),
        ["notebooks/01_one_head.py:7: chapter 01_one_head", "ended by SIGKILL"],
    ),
    "shape comment": (
        ("print(double(LIMIT))", 'x = memoryview(b"sixsix").cast("B", (2, 3))  # (3, 2)'),
        ["notebooks/01_one_head.py:14", "the comment says (3, 2)", "(2, 3)"],
    ),
    "misplaced shape comment": (
        ("LIMIT = 3", "LIMIT = 3  # (n, d)"),
        ["notebooks/01_one_head.py:7: ", "LIMIT = 3"],
    ),
    "unreached shape comment": (
        ("return 2 * x", "if x > 9:\n        x = x.mT  # (3, 2)\n    return 2 * x"),
        ["notebooks/01_one_head.py:12", "no run reaches"],
    ),
}


def execute(root, *chapters, at_once=1, seconds=120):
    """Run chapters, given as names and texts, of a checkout of their own."""
    (root / "notebooks").mkdir()
    paths = [root / "notebooks" / f"{name}.py" for name, _ in chapters]
    for path, (_, text) in zip(paths, chapters, strict=True):
        path.write_text(text)
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seconds), *map(str, paths)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(scripts.ROOT / "src"), "MAKEFLAGS": f"-j{at_once}"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("case", CASES)
def test_failing_cell_is_named(tmp_path, case):
    replacement, words = CASES[case]
    result = tmp_path / "build" / "01_one_head.ipynb"
    result.parent.mkdir()
    result.write_text("the last one")
    chapter = ("01_one_head", CHAPTER.replace(*replacement))
    run = execute(tmp_path, chapter, seconds=2 if case == "too long" else 120)
    assert run.returncode == 1
    for word in words:
        assert word in run.stderr
    assert result.read_text() == "the last one"


def test_after_a_failure_none_begins_and_what_runs_is_finished(tmp_path):
    slow = CHAPTER + "__import__('time').sleep(2)\n"
    chapters = [("01_fails", CHAPTER + "1 / 0\n"), ("02_slow", slow), ("03_waits", CHAPTER)]
    run = execute(tmp_path, *chapters, at_once=2)
    assert run.returncode == 1
    assert "ZeroDivisionError" in run.stderr
    begun, (ended, _, _) = run.stdout.splitlines()[:2], run.stdout.splitlines()[2].partition(" ")
    assert begun == ["01_fails: executing", "02_slow: executing"]
    assert ended == "02_slow:"
    assert [path.name for path in (tmp_path / "build").glob("*.ipynb")] == ["02_slow.ipynb"]


SHOWS = """\
# %%
import os

from IPython.display import HTML, display

print("first")
display(HTML("<b>second</b>"))
os.system("echo third")
print("fourth")
HTML("<i>fifth</i>")

# %%
quiet = get_ipython().execution_count

# %%
quiet
"""


def test_what_a_chapter_prints_displays_and_gives_is_kept_in_order(tmp_path):
    run = execute(tmp_path, ("01_one_head", SHOWS))
    assert run.returncode == 0, run.stderr
    notebook = nbformat.read(tmp_path / "build" / "01_one_head.ipynb", as_version=4)
    nbformat.validate(notebook)
    printed, displayed, given = notebook.cells[0].outputs
    assert (printed.name, printed.text) == ("stdout", "first\nthird\nfourth\n"), "one a cell"
    assert displayed.data["text/html"] == "<b>second</b>"
    assert (given.data["text/html"], given.execution_count) == ("<i>fifth</i>", 1)
    assert not notebook.cells[1].outputs
    assert notebook.cells[2].outputs[0].execution_count == 3

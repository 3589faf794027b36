"""A chapter is checked as the kernel runs its cells."""

import sys

import pytest

from press.run.shapes import install_in_kernel
from shape_comments.comments import ShapeCommentError
from shape_comments.rewrite import CHECK


@pytest.fixture
def shell(monkeypatch):
    """Start an IPython shell that leaves nothing behind."""
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setattr(HistoryManager, "enabled", False)
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)
    shell = InteractiveShell()
    shell.displays = []
    monkeypatch.setattr(
        type(shell.displayhook), "__call__", lambda self, x: shell.displays.append(x)
    )
    return shell


CHAPTER = [
    ("import torch\nx = torch.ones(3, 6)  # (n, d)", 1, False),
    ("%precision 3\n\nx = x + 0  # (n, d)\nx.shape", 1, False),
    ("y = torch.zeros(1)  # (n, n, n)", 1, True),
    ("x = torch.ones(5, 7)  # (n, d)\nx = x + 1  # (n, d)", 2, False),
    ("def f(x):\n    return x + 0  # (n, d)\n\nf(x)[:2]  # (2, d)", 2, False),
    ("def never(x):\n    return x  # (n, d)", 2, False),
    ("f(torch.ones(4, 4));", 2, False),
]


def chapter(cells):
    """Number the lines as a file would in which each cell has a marker line above."""
    line, made = 1, []
    for source, section, exempt in cells:
        tags = ["exercise"] if exempt else []
        made.append({"source": source, "line": line + 1, "section": section, "tags": tags})
        line += source.count("\n") + 2
    return made


def run(shell, cells, root, before=()):
    """Run cells the way an executor does, with hidden code between them."""
    made = chapter([*before, *cells])
    checker = install_in_kernel(shell, made, "notebooks/01_one_head.py", root)
    results = []
    for source, *_ in cells:
        shell.run_cell("hidden = 1  # (n, d)", store_history=False, silent=True)
        results.append(shell.run_cell(source, store_history=True))
        shell.run_cell("hidden = 2  # (n, d)", store_history=False, silent=True)
        assert shell.user_ns["hidden"] == 2
        shell.run_cell("hidden = 3  # (n, d)", store_history=False)
    return checker, results


def test_chapter_is_checked_and_unreached_comments_are_reported(shell, tmp_path):
    checker, results = run(shell, CHAPTER, tmp_path)
    for result in results:
        result.raise_error()
    assert checker.unreached() == [
        "notebooks/01_one_head.py:21: no run reaches this shape comment: return x  # (n, d)"
    ]
    assert CHECK not in shell.run_line_magic("who_ls", "")
    # Only what each cell evaluates is shown; the checks add nothing.
    assert [tuple(x.shape) for x in shell.displays if hasattr(x, "shape")] == [(2, 7), (4, 4)]


# The cells of a chapter, of which the last is wrong, and what is said of it.
WRONG = {
    "bound anew in the next": (
        [*CHAPTER[:4], ("z = x * 2  # (d, n)", 2, False)],
        "18: the comment says (d, n) with d = 7, n = 5, but the shape is (5, 7)\n"
        "    z = x * 2  # (d, n)\n    d is bound in line 15",
    ),
    "a variable, below a blank line": (
        [("\nimport torch\nn = 4\nx = torch.ones(3, 6)  # (n, d)\n", 1, False)],
        "8: the comment says (n, d) with n = 4, but the shape is (3, 6)\n"
        "    x = torch.ones(3, 6)  # (n, d)\n    n is a variable",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mismatch_surfaces_in_its_cell(shell, tmp_path, capsys, name):
    cells, message = WRONG[name]
    _, (*right, last) = run(shell, cells, tmp_path, before=[(" \n", 1, False)])
    for result in right:
        result.raise_error()
    with pytest.raises(ShapeCommentError) as caught:
        last.raise_error()
    assert str(caught.value).startswith(f"notebooks/01_one_head.py:{message}")
    assert "ShapeCommentError" in capsys.readouterr().out


def test_chapter_cells_that_run_out_of_order_stay_unreached(shell, tmp_path):
    checker, (ran,) = run(shell, CHAPTER[:1], tmp_path, before=[("x = 1", 1, False)])
    ran.raise_error()
    assert len(checker.unreached()) == 1


def test_malformed_comment_in_a_chapter_is_refused_before_it_runs(shell, tmp_path):
    cells = [("x = 1", 1, False), ("\ny = 2\n# (n, d)", 1, False)]
    with pytest.raises(ShapeCommentError, match=r"^notebooks/01_one_head\.py:6: this shape"):
        run(shell, cells, tmp_path)


@pytest.mark.parametrize("source", ["y = x + (  # (n, d)", "%precision 3\ny = = x  # (n, d)"])
def test_cell_with_a_syntax_error_is_left_to_ipython(shell, tmp_path, capsys, source):
    cells = [CHAPTER[0], (source, 1, False), ("x + 0  # (d, n)", 1, False)]
    checker, (right, broken, wrong) = run(shell, cells, tmp_path)
    right.raise_error()
    assert isinstance(broken.error_before_exec, SyntaxError)
    assert source.splitlines()[-1] in capsys.readouterr().out
    with pytest.raises(ShapeCommentError, match=r"the comment says \(d, n\) with d = 6, n = 3"):
        wrong.raise_error()
    assert checker.unreached() == []

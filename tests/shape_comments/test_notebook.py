"""``%load_ext shape_comments`` checks the cells of a notebook."""

import sys

import pytest


@pytest.fixture
def shell(monkeypatch):
    """Start an IPython shell that leaves nothing behind."""
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setattr(HistoryManager, "enabled", False)
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)
    return InteractiveShell()


def test_what_is_false_is_said_below_its_cell_once(shell, capsys):
    def said(source):
        shell.run_cell(source, store_history=True).raise_error()
        return capsys.readouterr().err

    assert said("%load_ext shape_comments") == ""
    assert said("import numpy as np\nx = np.ones((2, 3))  # (b, n)") == ""
    assert said("\ny = x.T  # (b, n)") == "", "letters are those of one cell"
    wrong = "def f(x):\n    return x.T  # (b, 7)\n\nf(x);"
    assert said(wrong) == (
        "✗ false: cell 4:2: the comment says (b, 7) with b = 3, but the shape is (3, 2)\n"
        "    return x.T  # (b, 7)\n    b is bound in line 2\n"
    )
    assert said("f(x);") == "", "it has been said"
    wrong = "%precision 3\nb = x  # (k, n)\nx.T  # (k, n)"
    assert said(wrong).startswith("✗ one letter for two sizes: cell 6:3")
    with pytest.raises(ZeroDivisionError):
        said("1 / 0  # (b, n)")

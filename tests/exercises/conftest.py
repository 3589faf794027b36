"""What the tests of the exercises share: the verdict as one line, and the cells of a chapter."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from nbformat import NotebookNode

Verdict = Callable[[Callable[[Any], None], Any], str]
Groups = Callable[[str], list[list[NotebookNode]]]


@pytest.fixture
def verdict(capsys: pytest.CaptureFixture[str]) -> Verdict:
    """Call a check, and return what it printed without the line of code that raised.

    That line stands in a test beside the words that are looked for. Runs of spaces become one.
    """

    def verdict(check: Callable[[Any], None], answer: Any) -> str:
        capsys.readouterr()
        assert check(answer) is None
        said = re.sub(r"(in line \d+:)\n    .*", r"\1", capsys.readouterr().out)
        return re.sub(r"\s+", " ", said)

    return verdict


@pytest.fixture
def groups() -> Groups:
    """List, for each exercise of a chapter, five cells: task, stub, check, hints, solution."""
    from book.run import scripts

    def groups(chapter: str) -> list[list[NotebookNode]]:
        cells = scripts.notebook(scripts.CHAPTERS / f"{chapter}.py").cells
        starts = [i for i, cell in enumerate(cells) if "exercise" in cell.metadata.get("tags", [])]
        return [cells[start - 1 : start + 4] for start in starts]

    return groups

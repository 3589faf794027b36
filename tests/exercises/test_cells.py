"""Each exercise stands in its chapter as the book promises, and what belongs to it is there."""

import re
from typing import Any

import pytest

from annotated_attention import chapters, exercises


@pytest.mark.parametrize("chapter", chapters.names())
def test_each_task_has_a_stub(groups: Any, chapter: str) -> None:
    from book.run import scripts

    text = "\n".join(c.source for c in scripts.notebook(scripts.CHAPTERS / f"{chapter}.py").cells)
    tasks = re.findall(r"^\*(?:Easy|Medium|Hard), ", text, re.MULTILINE)
    assert len(groups(chapter)) == len(tasks), "a stub is tagged `exercise`, a task has a stub"


@pytest.mark.parametrize("chapter", chapters.names())
def test_order_of_the_cells(groups: Any, chapter: str) -> None:
    """The answer is judged before the solution could overwrite it."""
    for above, stub, judge, hints, solution in groups(chapter):
        assert re.search(r"\*(Easy|Medium|Hard), \d+ minutes\.\*", above.source)
        call = judge.source.strip().splitlines()[-1]
        assert re.fullmatch(r"exercises\.\w+\.check_\w+\(\w+\)", call)
        answer = call.split("(")[1].rstrip(")")
        assert 1 <= hints.source.count("<details><summary>Hint") <= 3
        assert hints.source.count("</details>") == hints.source.count("<details>")
        assert solution.metadata["tags"] == ["solution"]
        assert solution.metadata["jupyter"] == {"source_hidden": True}
        assert call.replace("(", ".folded(") in solution.source.splitlines()
        for cell in (stub, solution):
            assert re.search(rf"^((def|class) {answer}\b|{answer} = )", cell.source, re.MULTILINE)


@pytest.mark.parametrize("chapter", chapters.names())
def test_names_are_not_the_chapters(groups: Any, chapter: str) -> None:
    defined = set(vars(chapters.load(chapter)))
    for _, stub, *_ in groups(chapter):
        names = re.findall(r"^(?:def |class )?(\w+)\b(?= = |\(|:)", stub.source, re.MULTILINE)
        assert names
        assert not defined & set(names)


@pytest.mark.parametrize("chapter", chapters.names())
def test_each_check_is_used(groups: Any, chapter: str) -> None:
    """A chapter's checks stand in the module named as its script, without the number."""
    name = re.sub(r"^\d\d_", "", chapter)
    cells = "\n".join(judge.source for _, _, judge, *_ in groups(chapter))
    module = getattr(exercises, name)
    assert set(re.findall(r"exercises\.(\w+\.check_\w+)\(", cells)) == {
        f"{name}.{check}" for check in vars(module) if check.startswith("check_")
    }


def test_no_check_is_without_a_chapter() -> None:
    names = {re.sub(r"^\d\d_", "", chapter) for chapter in chapters.names()}
    assert set(exercises.__all__) <= names

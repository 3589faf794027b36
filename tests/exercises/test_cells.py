"""Each exercise stands in its chapter as the book promises, and what belongs to it is there."""

import re
from pathlib import Path
from typing import Any

import pytest

from annotated_attention import chapters, exercises


@pytest.mark.parametrize("chapter", chapters.names())
def test_every_chapter_has_exercises(groups: Any, chapter: str) -> None:
    """A chapter ends with at least two, each a task under a heading of its own."""
    from book.run import scripts

    text = "\n".join(c.source for c in scripts.notebook(scripts.CHAPTERS / f"{chapter}.py").cells)
    tasks = re.findall(r"^\*(?:Easy|Medium|Hard), ", text, re.MULTILINE)
    assert len(groups(chapter)) == len(tasks) >= 2, "a stub is tagged `exercise`, a task has a stub"


@pytest.mark.parametrize("chapter", chapters.names())
def test_order_of_the_cells(groups: Any, chapter: str) -> None:
    """The answer is judged before the solution could overwrite it."""
    for above, stub, judge, hints, solution in groups(chapter):
        assert re.search(r"\*(Easy|Medium|Hard), \d+ minutes\.\*", above.source)
        call = judge.source.strip().splitlines()[-1]
        assert re.fullmatch(r"exercises\.\w+\.check_\w+\(\w+\)", call)
        answer = call.split("(")[1].rstrip(")")
        assert 2 <= hints.source.count("<details><summary>Hint ") <= 3
        assert hints.source.count("</details>") == hints.source.count("<details>")
        assert solution.metadata["tags"] == ["solution"]
        assert solution.metadata["jupyter"] == {"source_hidden": True}
        assert solution.source.strip().splitlines()[-1] == call
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
def test_each_check_is_used_and_tested(groups: Any, chapter: str) -> None:
    """A chapter's checks stand in the module named as it is; each has wrong answers of its own."""
    name, cells = chapter[3:], "\n".join(judge.source for _, _, judge, *_ in groups(chapter))
    asked = set(re.findall(r"exercises\.(\w+\.check_\w+)\(", cells))
    assert name in exercises.__all__, f"there is no src/annotated_attention/exercises/{name}.py"
    module = getattr(exercises, name)
    own = {f"{name}.{check}" for check in vars(module) if check.startswith("check_")}
    assert asked == own, "an exercise of the chapter calls each check of its module, and no other"
    tests = Path(__file__).with_name(f"test_{name}.py")
    assert tests.exists(), f"{tests.name} is missing: at least three wrong answers to each check"
    written = tests.read_text(encoding="utf-8")
    assert not {check for check in own if check.partition(".")[2] not in written}, (
        "no test has them"
    )


def test_no_check_is_without_a_chapter() -> None:
    assert set(exercises.__all__) == {chapter[3:] for chapter in chapters.names()}, (
        "a module of exercises is named as its chapter's script"
    )

"""Each exercise stands in its chapter as the book promises, and what belongs to it is there."""

import re

import pytest

from annotated_book import chapters, exercises


@pytest.mark.parametrize("chapter", chapters.names())
def test_the_cells_of_a_chapter(chapter: str) -> None:
    """Tasks, and five cells for each; the answer is judged before the solution overwrites it."""
    from press.run import scripts

    cells = scripts.notebook(scripts.CHAPTERS / f"{chapter}.py").cells
    text = "\n".join(cell.source for cell in cells)
    tasks = re.findall(r"^\*(?:Easy|Medium|Hard), ", text, re.MULTILINE)
    starts = [i for i, cell in enumerate(cells) if "exercise" in cell.metadata.get("tags", [])]
    assert len(starts) == len(tasks), "a stub is tagged `exercise`, a task has a stub"
    used, defined = set(), set(vars(chapters.load(chapter)))
    for start in starts:
        above, stub, judge, hints, solution = cells[start - 1 : start + 4]
        assert re.search(r"\*(Easy|Medium|Hard), \d+ minutes\.\*", above.source)
        names = re.findall(r"^(?:def |class )?(\w+)\b(?= = |\(|:)", stub.source, re.MULTILINE)
        assert names
        assert not defined & set(names), "they are not the chapter's"
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
        used |= {*re.findall(r"exercises\.(\w+\.check_\w+)\(", judge.source)}
    # A chapter's checks stand in the module named as its script, without the number.
    name = re.sub(r"^\d\d_", "", chapter)
    checks = (x for x in vars(getattr(exercises, name)) if x.startswith("check_"))
    assert used == {f"{name}.{check}" for check in checks}


def test_no_check_is_without_a_chapter() -> None:
    names = {re.sub(r"^\d\d_", "", chapter) for chapter in chapters.names()}
    assert set(exercises.__all__) <= names

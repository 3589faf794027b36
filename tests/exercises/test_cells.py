"""Each exercise stands in its chapter as the book promises."""

import re
from typing import Any

import pytest

from annotated_attention import chapters

WITH_EXERCISES = dict.fromkeys(
    [
        "01_one_head",
        "02_two_heads",
        "03_split_and_stack",
        "04_reshape_trick",
        "05_batches",
        "06_masks",
        "07_multihead_attention",
        "08_transformer_layers",
        "09_transformer",
        "10_training",
        "11_trained_weights",
        "12_counting",
        "13_speed",
        "14_masks_in_the_wild",
        "15_published_code",
        "16_testing_attention",
        "17_from_memory",
    ],
    2,
)


@pytest.mark.parametrize("chapter", WITH_EXERCISES)
def test_number_of_exercises(groups: Any, chapter: str) -> None:
    assert len(groups(chapter)) == WITH_EXERCISES[chapter]


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

"""Every exercise says of answers written apart from its table what ``answers/`` expects."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from annotated_book import exercises


def answers() -> list[Any]:
    """List the answers to each exercise, each with words of its verdict; "✓" is a right one."""
    return [
        pytest.param(
            getattr(getattr(exercises, path.stem), check),
            answer,
            words,
            id=f"{path.stem}-{check}-{words}",
        )
        for path in sorted((Path(__file__).parent / "answers").glob("*.py"))
        for check, pairs in runpy.run_path(str(path))["ANSWERS"].items()
        for answer, words in pairs
    ]


@pytest.mark.parametrize(("exercise", "answer", "words"), answers())
def test_verdict(verdict: Any, exercise: Any, answer: Any, words: str) -> None:
    assert words in verdict(exercise, answer)

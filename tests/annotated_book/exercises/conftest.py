"""What the tests of the exercises share: the verdict as one line."""

import re
from collections.abc import Callable
from typing import Any

import pytest

Verdict = Callable[[Callable[[Any], None], Any], str]


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

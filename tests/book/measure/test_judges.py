"""The table of judges on the doctor's page is what they do."""

import json

import pytest

from book.measure import judges
from book.run import scripts

KEPT = json.loads(judges.DATA.read_text("utf-8"))["accepted"]
SLOW = {"parity, as in this book", "the doctor"}  # these are asked about a few


@pytest.mark.parametrize("judge", judges.JUDGES)
def test_a_judge_accepts_what_is_right_and_what_the_data_say(judge):
    assert judges.accepted(judge)
    few = judges.PLANTED[:: 15 if judge in SLOW else 1]
    found = [code for code in few if judges.accepted(judge, code)]
    assert found == [code for code in KEPT[judge] if code in few], "run book.measure.judges"


def test_the_page_shows_the_data_and_counts_them():
    page = (scripts.ROOT / "docs" / "package" / "doctor.md").read_text("utf-8")
    assert judges.table(KEPT) in page
    assert f"how many of the {len(judges.PLANTED)}\n[mistakes]" in page
    assert {code for codes in KEPT.values() for code in codes} <= {*judges.PLANTED}

"""The page of the final class names what the committed benchmark holds."""

import re
from pathlib import Path

from annotated_attention import measured

PAGE = Path(__file__).parents[2] / "docs/package/line-by-line.md"


def test_page_names_every_case_that_misses_the_goal():
    listed = re.findall(r"^- (n = .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rows = measured.find("final class") + measured.find("boolean, every head")
    missed = [measured.describe(row) for row in rows if measured.misses_goal(row)]
    assert listed == missed

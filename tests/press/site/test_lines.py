"""The page *The final class, line by line* shows every line of code that there is."""

import inspect
import re

from bs4 import BeautifulSoup

import annotated_attention as core
from press.run import scripts
from press.site import lines

PAGE = scripts.ROOT / "docs/package/line-by-line.md"


def test_every_line_of_code_of_the_class_and_its_modules_is_shown():
    page = BeautifulSoup(lines.fill(PAGE.read_text(encoding="utf-8")), "html.parser")
    shown = [tag.text.strip() for tag in page.select(".aa-line")]
    assert not lines.PLACE.search(page.decode())
    counted = len(page.select_one("[aria-label]").select(".aa-line"))
    assert f"has\n{counted} lines, and it computes the same" in page.text
    for source in map(inspect.getsource, (core.MultiheadAttention, core.attention, core.masks)):
        code = re.sub(r'"""(?:.|\n)*?"""', "", source)
        for line in map(str.strip, code.split("\n")):
            assert not line or line.startswith("#") or line in shown

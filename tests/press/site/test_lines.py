"""The page *The final class, line by line* shows every line of code that there is."""

import inspect
import re

from bs4 import BeautifulSoup

import annotated_attention as core
from press.run import scripts
from press.site import lines
from tests.annotated_attention.multihead import test_parity as parity

PAGE = scripts.ROOT / "docs/package/line-by-line.md"


def test_every_line_of_code_of_the_class_and_its_modules_is_shown():
    page = BeautifulSoup(lines.fill(PAGE.read_text(encoding="utf-8")), "html.parser")
    shown = [tag.text.strip() for tag in page.select(".aa-line")]
    assert not lines.PLACE.search(page.decode())
    counted = len(page.select_one("[aria-label]").select(".aa-line"))
    assert f"has\n{counted} lines, and it computes the same" in page.text
    modules = core.heads, core.attention, core.quick, core.masks
    for source in map(inspect.getsource, (core.MultiheadAttention, *modules)):
        code = re.sub(r'"""(?:.|\n)*?"""', "", source)
        for line in map(str.strip, code.split("\n")):
            assert not line or line.startswith("#") or line in shown


def test_the_two_classes_agree_until_a_query_sees_nothing(capsys):
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    exec(block, {})
    assert capsys.readouterr().out == "False False\nTrue True\n"


def test_the_tests_draw_as_many_settings_as_the_page_says():
    tests = [
        getattr(parity, name)._hypothesis_internal_use_settings.max_examples
        for name in ("test_is_pytorchs", "test_is_pytorchs_in_other_precisions")
    ]
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"draw {tests[0]} settings" in text
    assert f"; {tests[1]} more" in text

"""What ``make insurance`` compares; that both generators make the same site, it says itself."""

import re

import pytest

from book.run import scripts
from book.site.insurance import PINNED, differences


@pytest.fixture
def sites(tmp_path):
    for site, generator in (("one", "mkdocs-1"), ("other", "ProperDocs 1")):
        (tmp_path / site).mkdir()
        text = f'<meta name="generator" content="{generator}"><p>text</p>'
        (tmp_path / site / "index.html").write_text(text)
    return tmp_path / "one", tmp_path / "other"


def test_only_the_name_of_the_generator_may_differ(sites):
    assert differences(*sites) == []
    (sites[0] / "here.html").touch()
    (sites[1] / "there.html").touch()
    page = sites[1] / "index.html"
    page.write_text(page.read_text().replace("text<", "test<"))
    only = "only in one of them"
    assert differences(*sites) == [
        f"here.html: {only}",
        f"there.html: {only}",
        "index.html: differs",
    ]


def test_it_is_no_part_of_what_makes_the_book():
    (name,) = re.findall(r"^(\w+)==", PINNED.read_text("utf-8"), re.MULTILINE)
    assert name not in (scripts.ROOT / "requirements.lock").read_text("utf-8")

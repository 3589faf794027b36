"""Every code of the doctor stands under something that people see, and every row has a code."""

import re
import shlex

import pytest
from mkdocs.utils.yaml import yaml_load

from annotated_attention.doctor import options
from annotated_attention.doctor.codes import CODES
from annotated_attention.mistakes import MISTAKES
from book.run import scripts
from book.site import contents, signs


@pytest.fixture(scope="module")
def page():
    """Give the page of the symptoms."""
    with open(scripts.ROOT / "mkdocs.yml", encoding="utf-8") as config:
        return signs.write(contents.read(yaml_load(config)["extra"]["parts"]))


def test_every_row_has_a_code_that_exists():
    assert {code for sign in signs.SIGNS for code in sign.codes} <= {*CODES}


def test_every_code_is_in_a_row():
    missing = {*CODES} - {code for sign in signs.SIGNS for code in sign.codes}
    assert not missing


@pytest.mark.parametrize("sign", signs.SIGNS, ids=lambda sign: sign.seen)
def test_a_code_stands_once_under_what_is_seen(sign):
    assert len(sign.codes) == len({*sign.codes})


def test_every_section_is_used():
    assert {section for sign in signs.SIGNS for section in sign.causes} == {*signs.SECTIONS}


@pytest.mark.parametrize("sign", signs.SIGNS, ids=lambda sign: sign.seen)
def test_the_doctor_takes_its_options(sign):
    given = options.read(shlex.split(f"{signs.COMMAND} {sign.options}")[1:])
    assert (given.embed_dim, given.num_heads) == (24, 4)


def test_a_row_says_cause_code_and_chapter(page):
    assert (
        "| Blocked scores are filled with a number that float16 cannot hold | "
        "`finite-fill-in-half` | [Masks in the wild]"
        "(../notebooks/14_masks_in_the_wild.ipynb#fills-in-half-precision) |"
    ) in page
    assert len(re.findall(r"^## ", page, re.MULTILINE)) == len(signs.SIGNS)


@pytest.mark.parametrize("code", MISTAKES)
def test_mistakes_are_called_as_in_their_list(code, page):
    assert f"| {MISTAKES[code].title} | `{code}` |" in page

"""The figure of the README, taken out of a chapter."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from book.site import figures


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", text)]


def test_readme_shows_what_the_chapter_draws():
    drawn = figures.standalone(figures.from_chapter("01_one_head", "it-looks"))
    kept = figures.README_FIGURE.read_text(encoding="utf-8")
    stale = f"{figures.README_FIGURE.name} is out of date: `make notebooks` draws it again"
    assert re.sub(r"-?\d+\.?\d*", "0", kept) == re.sub(r"-?\d+\.?\d*", "0", drawn), stale
    assert numbers(kept) == pytest.approx(numbers(drawn), abs=0.02), stale


def test_readme_figure_follows_the_readers_scheme():
    text = figures.README_FIGURE.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    light, dark = re.search(r"<style>svg\{(.*?)\}@media .*?\{svg\{(.*?)\}\}</style>", text).groups()
    assert "--aa-h: #b34700" in light
    assert "--aa-h: #ff9a57" in dark


@pytest.mark.parametrize("chapter", ["01_one_head", "99_none"])
def test_a_figure_that_nobody_draws_is_an_error(chapter):
    with pytest.raises(LookupError, match=f"{chapter} draws no figure called nowhere"):
        figures.from_chapter(chapter, "nowhere")

"""The figure of the README, taken out of a chapter."""

import re

import pytest

from book.site import figures

NUMBER = r"-?\d+\.?\d*"


def test_readme_shows_what_the_chapter_draws_in_the_readers_scheme():
    drawn = figures.standalone(figures.from_chapter("01_one_head", "it-looks"))
    kept = figures.README_FIGURE.read_text(encoding="utf-8")
    stale = f"{figures.README_FIGURE.name} is out of date: `make notebooks` draws it again"
    assert re.sub(NUMBER, "0", kept) == re.sub(NUMBER, "0", drawn), stale
    there, here = ([float(x) for x in re.findall(NUMBER, text)] for text in (kept, drawn))
    assert there == pytest.approx(here, abs=0.02), stale
    light, dark = re.search(r"<style>svg\{(.*?)\}@media .*?\{svg\{(.*?)\}\}</style>", kept).groups()
    assert "--aa-h: #b34700" in light
    assert "--aa-h: #ff9a57" in dark


@pytest.mark.parametrize("chapter", ["01_one_head", "99_none"])
def test_a_figure_that_nobody_draws_is_an_error(chapter):
    with pytest.raises(LookupError, match=f"{chapter} draws no figure called nowhere"):
        figures.from_chapter(chapter, "nowhere")

"""The figure of the README is that of the first page."""

import re

import pytest

from book.site import figures, start

NUMBER = r"-?\d+\.?\d*"


def test_readme_shows_what_the_first_page_draws_in_the_readers_scheme():
    drawn = figures.standalone(start.sentence().html)
    kept = figures.README_FIGURE.read_text(encoding="utf-8")
    stale = f"{figures.README_FIGURE.name} is out of date: `make notebooks` draws it again"
    assert re.sub(NUMBER, "0", kept) == re.sub(NUMBER, "0", drawn), stale
    there, here = ([float(x) for x in re.findall(NUMBER, text)] for text in (kept, drawn))
    assert there == pytest.approx(here, abs=0.02), stale
    light, dark = re.search(r"<style>svg\{(.*?)\}@media .*?\{svg\{(.*?)\}\}</style>", kept).groups()
    assert "--aa-h: #b34700" in light
    assert "--aa-h: #ff9a57" in dark

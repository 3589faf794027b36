"""The picture for those who share a link."""

import io

import pytest
from PIL import Image

from book import card, figures

FIGURE = figures.README_FIGURE.read_text(encoding="utf-8")


def test_reads_the_whole_figure():
    assert len(card.LINE.findall(FIGURE)) == 8 * 8
    assert len(card.WORD.findall(FIGURE)) == 3 * 8  # words below and above, and the weights
    assert {word[-1] for word in card.WORD.findall(FIGURE)} >= {"it", "cat", "0.39"}


def test_is_small_and_always_the_same():
    png = card.draw(FIGURE)
    assert png == card.draw(FIGURE)
    assert len(png) <= 60_000
    image = Image.open(io.BytesIO(png))
    assert (image.format, image.size) == ("PNG", (1200, 630))
    colours = {colour for _, colour in image.convert("RGB").getcolors()}
    assert (255, 255, 255) in colours
    assert any(red > 150 and blue < 60 for red, _, blue in colours)  # the word that looks


def test_refuses_a_figure_that_it_cannot_read():
    with pytest.raises(ValueError, match="no lines or no words"):
        card.draw('<svg viewBox="0 0 10 10"></svg>')

"""The picture for those who share a link."""

import io

from PIL import Image

from book.site import card


def test_is_small_always_the_same_and_not_cut_off():
    png = card.draw()
    assert png == card.draw()
    assert len(png) <= 60_000
    image = Image.open(io.BytesIO(png))
    assert (image.format, image.size) == ("PNG", (1200, 630))
    left, top, right, bottom = image.convert("L").point(lambda grey: 255 * (grey < 200)).getbbox()
    assert 40 < left < right < 1160
    assert 40 < top < bottom < 590

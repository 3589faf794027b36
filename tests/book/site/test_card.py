"""The picture for those who share a link."""

import io

from PIL import Image

from book.site import card


def test_is_small_and_always_the_same():
    png = card.draw()
    assert png == card.draw()
    assert len(png) <= 60_000
    image = Image.open(io.BytesIO(png))
    assert (image.format, image.size) == ("PNG", (1200, 630))
    inked = image.convert("L").point(lambda grey: 255 * (grey < 200)).getbbox()
    left, top, right, bottom = inked
    assert left > 40, "cut off"
    assert top > 40, "cut off"
    assert right < 1160, "cut off"
    assert 450 < bottom < 590, "the formula stands below the name"

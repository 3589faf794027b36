"""What ``display`` offers is there, whichever of it is imported first."""

import importlib

import pytest

from annotated_book import display


def test_every_name_is_found_and_no_other():
    for name in display.__all__:
        module = importlib.import_module(f"annotated_book.display.{display._HOMES[name]}")
        assert getattr(display, name) is getattr(module, name)
    assert {*display.__all__} <= {*dir(display)}
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = display.nothing

"""Stories that models tell: what is marked, and what is written into the page."""

from annotated_book import display

WHOLE = display.Told(["cat"], ["the", "cat", "ran", "."])


def test_words_that_differ_at_their_place_are_marked():
    cut = display.Told(["<cat>"], ["the", "dog", "ran", ".", "and"], "y = x.T", "y = x")
    shown = display.stories({"whole": WHOLE, "cut": cut}, ["asked"], name="tales")
    assert "whole: the cat ran ." in shown.text
    assert "cut: the [dog] ran . [and]" in shown.text
    assert "the <mark>dog</mark> ran . <mark>and</mark></td>" in shown.html
    assert "<del>y = x.T</del> <ins>y = x</ins>" in shown.html
    assert "&lt;cat&gt;" in shown.html


def test_a_story_that_ends_early_marks_no_word_that_is_not_there():
    short = display.Told(["cat"], ["the"])
    shown = display.stories({"whole": WHOLE, "short": short}, ["asked"], name="tales")
    assert shown.text.endswith("short: the")
    assert "<code>" not in shown.html

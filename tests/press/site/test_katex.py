"""Formulas take the colours of the page's letters."""

from annotated_book.display import COLOURS
from press.site import katex


def test_the_colour_of_a_letter_changes_with_the_page():
    tex = rf"\textcolor{{{COLOURS['h']}}}{{c}} + \textcolor{{#123456}}{{w}}"
    made = katex.typeset(katex.mark(tex, display=False), lambda complaint: None)
    assert f"color:var(--aa-h, {COLOURS['h']})" in made
    assert "color:#123456" in made

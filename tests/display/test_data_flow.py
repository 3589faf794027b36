"""What flows where, drawn from recorded shapes."""

import re

import pytest

from annotated_attention.display import flow

PLACES = {"query": (0.0, 0.0), "key": (1.0, 0.0), "scores": (0.5, 1.0)}
ARROWS = [("query", "scores", "score"), ("key", "scores", "")]
SHAPES = {"query": (3, 6), "key": (5, 6), "scores": (3, 5), "not drawn": (9,)}
LETTERS = {3: "n", 5: "m", 6: "d"}


def test_every_box_and_arrow_is_in_the_figure_and_in_its_description() -> None:
    html = flow(PLACES, ARROWS, SHAPES, LETTERS, name="flow").html
    for shown in (">query<", ">(n, d)<", ">key<", ">(m, d)<", ">scores<", ">(n, m)<", ">score<"):
        assert shown in html
    assert "query (n, d); key (m, d); scores (n, m). " in html
    assert "query to scores: score; key to scores." in html
    assert "not drawn" not in html


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="shapes must have an entry for 'query'"):
        flow(PLACES, ARROWS, {}, LETTERS, name="flow")
    with pytest.raises(ValueError, match="letters must name the size 6 of 'query'"):
        flow(PLACES, ARROWS, SHAPES, {3: "n", 5: "m"}, name="flow")


def test_colours_say_which_side_a_tensor_is_on() -> None:
    """Blue has a row for each query, green for each key, grey both or none."""
    shapes = {**SHAPES, "no side": (6,)}
    for box, colour in (("query", "n"), ("key", "m"), ("scores", ""), ("no side", "")):
        html = flow({box: (0.0, 0.0)}, [], shapes, LETTERS, name="one").html
        assert [side for side in "nm" if f"--aa-{side}" in html] == list(colour)


@pytest.mark.parametrize(("start", "end"), [("query", "scores"), ("scores", "query")])
def test_an_arrow_leads_from_its_start_to_its_end(start: str, end: str) -> None:
    places = {"query": (0.0, 0.0), "scores": (0.0, 1.0)}
    html = flow(places, [(start, end, "")], SHAPES, LETTERS, name="one").html
    (line,) = re.findall(r'"M (\S+) (\S+) \nQ [^L]*? (\S+) (\S+) \n" ', html)
    (head,) = re.findall(r'"M \S+ \S+ \nL (\S+) (\S+) \nL \S+ \S+ \n" ', html)
    assert head == line[2:]
    assert (float(line[3]) > float(line[1])) == (end == "scores")

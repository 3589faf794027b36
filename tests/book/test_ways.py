"""How chapters lead to each other: as the book says, as chapters do, as the map draws it."""

import re
from itertools import pairwise

import pytest
from mkdocs.utils.yaml import yaml_load

from book import scripts, ways

with (scripts.ROOT / "mkdocs.yml").open(encoding="utf-8") as config:
    CHAPTERS = yaml_load(config)["extra"]["chapters"]
BEFORE = ways.everything_before(CHAPTERS)
both = pytest.mark.parametrize("tall", [False, True], ids=["wide", "tall"])


def chapter(name, *prerequisites):
    return {"file": name, "prerequisites": list(prerequisites)}


def test_what_a_chapter_loads_is_among_its_prerequisites():
    loads = 0
    for name, before in BEFORE.items():
        source = (scripts.CHAPTERS / f"{name}.py").read_text(encoding="utf-8")
        loaded = set(re.findall(r'chapters\.load\("(\w+)"\)', source))
        assert loaded <= before, f"{name} loads {loaded - before}, and does not say so"
        loads += len(loaded)
    assert loads > 10


def test_prerequisites_name_only_what_does_not_follow():
    for entry in CHAPTERS:
        implied = set().union(*(BEFORE[name] for name in entry["prerequisites"]))
        assert not implied & set(entry["prerequisites"]), entry["file"]


def test_everything_before():
    book = [chapter("a"), chapter("b", "a"), chapter("c", "a"), chapter("d", "b", "c")]
    assert ways.everything_before(book)["d"] == {"a", "b", "c"}
    with pytest.raises(ValueError, match="a builds on b, which is no chapter before it"):
        ways.everything_before([chapter("a", "b"), chapter("b", "a")])
    with pytest.raises(ValueError, match="b builds on x"):
        ways.everything_before([chapter("a"), chapter("b", "x")])


def test_a_small_map():
    book = [chapter("a"), chapter("b", "a"), chapter("c", "a"), chapter("d", "c")]
    wide = ways.places(book, tall=False)
    assert {name: (p.step, p.lane) for name, p in wide.items()} == {
        "a": (0, 0),
        "b": (1, 0),
        "c": (1, 1),
        "d": (2, 1),
    }
    assert [p.step for p in ways.places(book, tall=True).values()] == [0, 1, 2, 3]
    line, across, on = re.findall("M[^M]+", ways.rails(book, tall=False))
    assert (line, on) == ("M0 0L1 0", "M1 1L2 1")
    assert across == "M0 0L0.2 0Q0.5 0 0.5 0.3L0.5 0.7Q0.5 1 0.8 1L1 1"
    assert ways.rails(book, tall=True).startswith("M0 0L0 1M0 0L0 0.2Q0 0.5 0.3 0.5")


@both
def test_lines_that_do_not_touch_share_a_lane(tall):
    book = [
        chapter("a"),
        chapter("b", "a"),
        chapter("c", "a"),
        chapter("d", "b"),
        chapter("e", "d"),
    ]
    book += [chapter("f", "d")]
    where = ways.places(book, tall=tall)
    assert where["c"].lane == where["f"].lane == 1


@both
def test_every_chapter_has_its_own_place_after_what_it_builds_on(tall):
    where = ways.places(CHAPTERS, tall=tall)
    assert len(set(where.values())) == len(CHAPTERS) == len(where)
    for entry in CHAPTERS:
        assert all(where[n].step < where[entry["file"]].step for n in entry["prerequisites"])


@both
def test_no_line_passes_through_a_chapter(tall):
    where = ways.places(CHAPTERS, tall=tall)
    stops = {(p.lane, p.step) if tall else (p.step, p.lane) for p in where.values()}
    lines = re.findall("M[^M]+", ways.rails(CHAPTERS, tall=tall))
    assert len(lines) == sum(len(entry["prerequisites"]) for entry in CHAPTERS)
    for line in lines:
        numbers = [float(number) for number in re.findall(r"[\d.]+", line)]
        corners = list(zip(numbers[::2], numbers[1::2], strict=True))
        assert {corners[0], corners[-1]} <= stops
        for (x, y), (to_x, to_y) in pairwise(corners):
            for at_x, at_y in stops - {corners[0], corners[-1]}:
                between_x = min(x, to_x) <= at_x <= max(x, to_x)
                between_y = min(y, to_y) <= at_y <= max(y, to_y)
                assert not (between_x and between_y), f"{line} runs through {at_x, at_y}"

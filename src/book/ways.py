"""How chapters lead to each other: what each builds on, and a map that shows it.

A chapter is what ``mkdocs.yml`` lists under ``extra.chapters``. The map has steps and lanes. A line
stays in its lane where one chapter leads on to another; where one leads to several, it parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Chapters = Sequence[Mapping[str, Any]]
BEND = 0.3  # how round a corner is, in steps


@dataclass(frozen=True)
class Place:
    """Where a chapter stands on the map, both counted from 0."""

    step: int
    lane: int


def everything_before(chapters: Chapters) -> dict[str, set[str]]:
    """Give for each chapter all that it builds on, directly or through others.

    Raises:
        ValueError: a prerequisite is not a chapter, or does not stand before what builds on it.
    """
    before: dict[str, set[str]] = {}
    for chapter in chapters:
        name = chapter["file"]
        for needed in chapter["prerequisites"]:
            if needed not in before:
                raise ValueError(f"{name} builds on {needed}, which is no chapter before it")
        direct = set(chapter["prerequisites"])
        before[name] = direct.union(*(before[needed] for needed in direct))
    return before


def places(chapters: Chapters, *, tall: bool) -> dict[str, Place]:
    """Give every chapter its place on the map.

    Args:
        chapters: in the order of the book.
        tall: whether each has a step of its own; else those that build on as many share one.
    """
    steps: dict[str, int] = {}
    leads_to: dict[str, list[str]] = {}
    for row, chapter in enumerate(chapters):
        name, needed = chapter["file"], chapter["prerequisites"]
        first = max((steps[other] + 1 for other in needed), default=0)
        steps[name], leads_to[name] = row if tall else first, []
        for other in needed:
            leads_to[other].append(name)
    lanes: dict[str, int] = {}
    taken: list[list[tuple[float, float]]] = []  # of each lane, from where to where
    for chapter in chapters:
        name, needed = chapter["file"], chapter["prerequisites"]
        if name in lanes:
            continue
        since = min((steps[other] for other in needed), default=-0.5) + 0.5
        line = [name]
        while leads_to[line[-1]] and leads_to[line[-1]][0] not in lanes:
            line.append(leads_to[line[-1]][0])
        until = steps[line[-1]] + (0.5 if leads_to[line[-1]] else 0)
        free = (i for i, lane in enumerate(taken) if all(since > b or until < a for a, b in lane))
        lane = next(free, len(taken))
        taken += [[]] if lane == len(taken) else []
        taken[lane].append((since, until))
        lanes |= dict.fromkeys(line, lane)
    return {name: Place(step, lanes[name]) for name, step in steps.items()}


def rails(chapters: Chapters, *, tall: bool) -> str:
    """Give the lines of the map as the path of an SVG, one unit per step and per lane.

    Args:
        chapters: in the order of the book.
        tall: whether the steps go down, as ``places`` counts them then; else to the right.
    """
    where = places(chapters, tall=tall)
    path = ""
    for chapter in chapters:
        for name in chapter["prerequisites"]:
            points = _route(where[name], where[chapter["file"]])
            if tall:
                points = [(lane, step) for step, lane in points]
            # Two points are a line; eight are lines with two round corners between them.
            letters = "ML" if len(points) == 2 else "MLQ LQ L"
            path += "".join(f"{c}{x:g} {y:g}" for c, (x, y) in zip(letters, points, strict=True))
    return path


def _route(start: Place, end: Place) -> list[tuple[float, float]]:
    """Half a step on, across to the other lane, and along it."""
    if start.lane == end.lane:
        return [(start.step, start.lane), (end.step, end.lane)]
    turn, side = start.step + 0.5, BEND if end.lane > start.lane else -BEND
    return [
        (start.step, start.lane),
        (turn - BEND, start.lane),
        (turn, start.lane),
        (turn, start.lane + side),
        (turn, end.lane - side),
        (turn, end.lane),
        (turn + BEND, end.lane),
        (end.step, end.lane),
    ]

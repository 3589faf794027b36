"""The list of chapters: their parts and order, what each builds on, how long it takes, its address.

It stands once, in ``mkdocs.yml`` under ``extra.parts``.
"""

import html
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from book.run import scripts

WORDS_A_MINUTE, CELLS_A_MINUTE, STEP = 200, 2, 5
STATED = re.compile(r"^\*\w+, (\d+) minutes\.\*", re.MULTILINE)  # as exercises begin
FOLDED = re.compile(r"<details>\s*<summary>Going deeper.*?</details>", re.DOTALL)
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]+\$", re.DOTALL)  # read like a word
NOT_READ = re.compile(r"\]\([^)]*\)|<[^>]+>", re.DOTALL)  # addresses, tags


@dataclass(frozen=True)
class Chapter:
    """What ``mkdocs.yml`` says of a chapter."""

    name: str  # of its script
    title: str
    part: str
    builds_on: tuple[str, ...]  # what these build on is left out
    after: str
    minutes: int

    @property
    def number(self) -> int:
        """Its place in the book, which the name of its file begins with."""
        return int(self.name[:2])

    @property
    def label(self) -> str:
        """Number and title."""
        return f"{self.number} · {self.title}"


def address(name: str) -> str:
    """Give the address of a script's page, which does not change when chapters move."""
    idea = re.sub(r"^\d\d_", "", name).replace("_", "-")
    return f"{'chapters/' if name[0].isdigit() else ''}{idea}/"


def read(parts: Iterable[Mapping[str, Any]]) -> dict[str, Chapter]:
    """Give the chapters by name, in the order of the book.

    Args:
        parts: what ``mkdocs.yml`` lists under ``extra.parts``.

    Raises:
        ValueError: what is listed is not what is written, a chapter builds on what does not come
            before it, has no title, or an exercise states no minutes.
    """
    written = {path.stem: path for path in scripts.CHAPTERS.glob("[0-9][0-9]_*.py")}
    chapters: dict[str, Chapter] = {}
    for part in parts:
        for entry in part["chapters"]:
            name, builds_on = entry["file"], tuple(entry["prerequisites"])
            for needed in builds_on:
                if needed not in chapters:
                    raise ValueError(f"{name} builds on {needed}, which is no chapter before it")
            if name not in written:
                raise ValueError(f"{name} is listed in mkdocs.yml, and there is no such script")
            script = written.pop(name)
            chapters[name] = Chapter(
                name, title(script), part["title"], builds_on, entry["after"], minutes(script)
            )
    for name in written:
        raise ValueError(f"{name} is not listed in mkdocs.yml")
    return chapters


def title(script: Path) -> str:
    """Give the heading of level 1 that a chapter begins with.

    Raises:
        ValueError: it begins with something else.
    """
    cells = scripts.notebook(script).cells
    heading = re.match(r"# (.+)", cells[0].source) if cells else None
    if heading is None:
        raise ValueError(f"{script.stem}: a chapter begins with a heading of level 1")
    return heading[1]


def minutes(script: Path) -> int:
    """Give how long a first reading takes, exercises included and what is folded away left out.

    It is computed from the words of the prose, the cells of code, and the minutes that the text of
    each exercise states.

    Raises:
        ValueError: an exercise states none.
    """
    words = cells = stated = waiting = 0
    heading, deeper = "", False
    for cell in scripts.notebook(script).cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            deeper = "<!-- /deeper -->" not in cell.source and (
                deeper or cell.source.startswith("<!-- deeper: ")
            )
            prose = "" if deeper else FOLDED.sub("", cell.source)
            *_, heading = [heading, *re.findall(r"^### (.*)$", prose, re.MULTILINE)]
            waiting += sum(map(int, STATED.findall(prose)))
            words += len(re.findall(r"\w[\w'’-]*", NOT_READ.sub(" ", FORMULA.sub(" x ", prose))))
        elif "exercise" in tags:
            if not waiting:
                raise ValueError(f"{script.stem}: the exercise {heading!r} states no minutes")
            stated, waiting = stated + waiting, 0
        elif "solution" not in tags and not deeper:
            cells += 1
    total = words / WORDS_A_MINUTE + cells / CELLS_A_MINUTE + stated + waiting
    return STEP * math.ceil(total / STEP)


def as_list(chapters: Mapping[str, Chapter]) -> str:
    """Write the chapters under their parts, for the first page: time, address, what each needs."""
    written = ""
    for part, members in itertools.groupby(chapters.values(), lambda chapter: chapter.part):
        written += f'<h3>{html.escape(part)}</h3><ol class="aa-chapters">'
        for chapter in members:
            needs = " and ".join(str(chapters[name].number) for name in chapter.builds_on)
            facts = f"{chapter.minutes} minutes"
            facts += f" · builds on {needs}" if needs else ""
            written += (
                f'<li><b>{chapter.number}</b><div><h4><a href="{address(chapter.name)}">'
                f'{html.escape(chapter.title)}<i class="aa-tick"></i></a></h4>'
                f"<p>{chapter.after}</p><small>{facts}</small></div></li>"
            )
        written += "</ol>"
    return written

"""The list of chapters: their parts and order, what each builds on, how long it takes, its address.

The list stands in ``mkdocs.yml`` under ``extra.parts``; what a chapter takes and gives it says
itself, above its first section, where a reader of the notebook finds it, too. The short path comes
first: a page like a chapter, without a number and in no part.
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

SHORT_PATH = "short_path"
WORDS_A_MINUTE, LINES_A_MINUTE, SHORTEST = 200, 32, 0.5  # a listing takes half a minute at least
EXERCISES, MORE = "Exercises", "More exercises"  # sections: what stands there is no reading
ABOUT = re.compile(
    r"^\*(?P<reading>\d+) minutes(?: and (?P<exercises>\d+) of exercises)?\. "
    r"Afterwards you (?P<after>.+?)\*$",
    re.MULTILINE | re.DOTALL,
)
STATED = re.compile(r"^\*\w+, (\d+) minutes\.\*", re.MULTILINE)  # as exercises begin
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]+\$", re.DOTALL)  # read like a word
NOT_READ = re.compile(r"\]\([^)]*\)|<[^>]+>", re.DOTALL)  # addresses, tags
LISTING = re.compile(r"<pre><code>(.*?)</code></pre>", re.DOTALL)  # source that a cell shows


@dataclass(frozen=True)
class Minutes:
    """How long a first reading takes, without what is folded away, and its exercises."""

    reading: int
    exercises: int

    def __str__(self) -> str:
        """Say both, such as ``20 min + 12 of exercises``."""
        return f"{self.reading} min" + (f" + {self.exercises} of exercises" * bool(self.exercises))


@dataclass(frozen=True)
class Chapter:
    """What ``mkdocs.yml`` and its own opening say of a chapter."""

    name: str  # of its script
    title: str
    part: str
    builds_on: tuple[str, ...]  # what these build on is left out
    after: str
    minutes: Minutes
    sought: tuple[str, ...]  # words that people type into the search to get there

    @property
    def number(self) -> int | None:
        """Its place in the book, which its file's name begins with; the short path has none."""
        return int(self.name[:2]) if self.name[0].isdigit() else None

    @property
    def label(self) -> str:
        """Number and title."""
        return f"{self.number} · {self.title}" if self.number else self.title


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
            before it, has no title, or does not say what it takes and gives.
    """
    written = {path.stem: path for path in scripts.CHAPTERS.glob("[0-9][0-9]_*.py")}
    short_path = scripts.CHAPTERS / f"{SHORT_PATH}.py"
    written |= {SHORT_PATH: short_path} if short_path.exists() else {}
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
            opening, sought = title(script), tuple(entry.get("sought", ()))
            after, taken = about(script)
            chapters[name] = Chapter(name, opening, part["title"], builds_on, after, taken, sought)
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


def about(script: Path) -> tuple[str, Minutes]:
    """Give what a chapter says that its reader can do afterwards, and that it takes.

    Raises:
        ValueError: it does not say so.
    """
    said = ABOUT.search(scripts.notebook(script).cells[0].source)
    if said is None:
        raise ValueError(
            f"{script.stem}: below its question a chapter says how long it takes and what it "
            "gives, such as “*20 minutes and 7 of exercises. Afterwards you can write a head.*”"
        )
    after = " ".join(said["after"].split())
    return f"You {after}", Minutes(int(said["reading"]), int(said["exercises"] or 0))


def minutes(script: Path) -> Minutes:
    """Compute how long a page takes, with which a test compares what it says.

    Reading is computed from the words of the prose and from the listings in sight, those included
    that cells show as their output when they have been run; what the exercises take is stated in
    their text. Those under "More exercises" are not counted.

    Raises:
        ValueError: an exercise states none.
    """
    words = stated = waiting = 0
    code, heading, section, deeper = 0.0, "", "", False
    shown = _shown(script)
    for cell in scripts.notebook(script).cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            deeper = "<!-- /deeper -->" not in cell.source and (
                deeper or cell.source.startswith("<!-- deeper: ")
            )
            prose = "" if deeper else cell.source
            *_, heading = [heading, *re.findall(r"^### (.*)$", prose, re.MULTILINE)]
            for place, part in enumerate(re.split(r"^## ", prose, flags=re.MULTILINE)):
                section = part.partition("\n")[0].strip() if place else section
                waiting += sum(map(int, STATED.findall(part)))
                if section not in (EXERCISES, MORE):
                    said = NOT_READ.sub(" ", FORMULA.sub(" x ", part))
                    words += len(re.findall(r"\w[\w'’-]*", said))
        elif "exercise" in tags:
            if not waiting:
                raise ValueError(f"{script.stem}: the exercise {heading!r} states no minutes")
            stated, waiting = stated + waiting * (section != MORE), 0
        elif "solution" not in tags and not deeper and section not in (EXERCISES, MORE):
            code += sum(map(_listing, shown.get(cell.id, [])))
            if "hide-input" not in tags and not cell.metadata.get("jupyter"):
                code += _listing(cell.source)
    return Minutes(math.ceil(words / WORDS_A_MINUTE + code), stated + waiting)


def _listing(source: str) -> float:
    """Give the minutes that it takes to read code."""
    return max(SHORTEST, len(source.strip().splitlines()) / LINES_A_MINUTE)


def _shown(script: Path) -> dict[str, list[str]]:
    """Give the listings that each cell showed when it was run, by the cell's id."""
    if not (scripts.EXECUTED / f"{script.stem}.ipynb").exists():
        return {}
    shown: dict[str, list[str]] = {}
    for cell in scripts.executed(script.stem).cells:
        outputs = [x.get("data", {}).get("text/html", "") for x in cell.get("outputs", [])]
        shown[cell.id] = LISTING.findall("".join(outputs))
    return shown


def as_list(chapters: Mapping[str, Chapter]) -> str:
    """Write the chapters under their parts, for the first page: time, address, what each needs."""
    written = ""
    numbered = [chapter for chapter in chapters.values() if chapter.number]
    for part, members in itertools.groupby(numbered, lambda chapter: chapter.part):
        written += f'<h3>{html.escape(part)}</h3><ol class="aa-chapters">'
        for chapter in members:
            needs = " and ".join(
                str(chapters[name].number or chapters[name].title) for name in chapter.builds_on
            )
            facts = f"{chapter.minutes}" + (f" · builds on\u00a0{needs}" if needs else "")
            written += (
                f'<li><b>{chapter.number}</b><div><h4><a href="{address(chapter.name)}">'
                f'{html.escape(chapter.title)}<i class="aa-tick"></i></a></h4>'
                f"<p>{chapter.after}</p><small>{facts}</small></div></li>"
            )
        written += "</ol>"
    return written

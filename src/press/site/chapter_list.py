"""The list of chapters: their parts and order, what each builds on, how long it takes, its address.

The list stands in ``mkdocs.yml`` under ``extra.parts``; what a chapter takes and gives it says
itself, above its first section, where a reader of the notebook finds it, too. The short path comes
first: a page like a chapter, without a number and in no part.
"""

import html
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from press.run import scripts

SHORT_PATH = "short_path"
ABOUT = re.compile(
    r"^\*(?P<reading>\d+) minutes(?: and (?P<exercises>\d+) of exercises)?\. "
    r"Afterwards you (?P<after>.+?)\*$",
    re.MULTILINE | re.DOTALL,
)
QUESTION = re.compile(r"^\*(.+?)\*$", re.MULTILINE)


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
    part: str
    builds_on: tuple[str, ...]  # what these build on is left out
    sought: tuple[str, ...]  # words that people type into the search to get there
    title: str
    question: str
    after: str  # what its reader can do then
    minutes: Minutes

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
            said, sought = opening(written.pop(name)), tuple(entry.get("sought", ()))
            chapters[name] = Chapter(name, part["title"], builds_on, sought, **said)
    for name in written:
        raise ValueError(f"{name} is not listed in mkdocs.yml")
    return chapters


def opening(script: Path) -> dict[str, Any]:
    """Give what the first cell of a chapter says of it, by the names that ``Chapter`` has.

    Raises:
        ValueError: it has no heading of level 1, or does not say what it takes and gives.
    """
    text = scripts.notebook(script).cells[0].source
    heading, question = re.match(r"# (.+)", text), QUESTION.search(text)
    said = ABOUT.search(text)
    if heading is None:
        raise ValueError(f"{script.stem}: a chapter begins with a heading of level 1")
    if said is None or question is None:
        raise ValueError(
            f"{script.stem}: below its question a chapter says how long it takes and what it "
            "gives, such as “*20 minutes and 7 of exercises. Afterwards you can write a head.*”"
        )
    return {
        "title": heading[1],
        "question": question[1],
        "after": f"You {' '.join(said['after'].split())}",
        "minutes": Minutes(int(said["reading"]), int(said["exercises"] or 0)),
    }


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

"""Exercises that a page can judge: those that ask for numbers are fields with their own table.

The fields stand for the two cells that a notebook needs, the answer and its check. What is right,
what is wrong with which sentence, and how near is near enough come from the exercise that the
notebook calls; ``docs/assets/answers.js`` compares.
"""

import json
import re
from html import escape
from typing import TYPE_CHECKING, Any

from bs4 import BeautifulSoup, Tag

from annotated_book import exercises

if TYPE_CHECKING:
    from annotated_book.exercises._exercise import Exercise

CHECK = re.compile(r"^exercises\.(?P<chapter>\w+)\.(?P<name>check_\w+)\(\w+\)$", re.MULTILINE)
FIELD = re.compile(r"\bNone\b")


def ask(soup: BeautifulSoup, source: dict[str, str]) -> None:
    """Put fields in the place of each stub of a chapter that asks for numbers, and of its check.

    Args:
        soup: the content of the chapter's page.
        source: the code of each cell, by its id.
    """
    for stub in soup.select(".aa-tag-exercise"):
        check = stub.find_next_sibling(class_="aa-cell")
        assert check is not None, "an exercise is followed by its check"
        call = CHECK.search(source[str(check["data-cell"])])
        if call is None:
            continue
        table = export(getattr(getattr(exercises, call["chapter"]), call["name"]))
        rows = fields(source[str(stub["data-cell"])])
        if table is not None and sum(map(len, rows)) == len(table["right"]):
            form = _form(rows, table)
            form["data-cell"] = str(stub["data-cell"])
            form.select("div")[-1]["data-cell"] = str(check["data-cell"])
            stub.insert_before(form)
            form.insert_before(_without_scripts(soup, source[str(stub["data-cell"])]))
            stub.decompose()
            check.decompose()


def _without_scripts(soup: BeautifulSoup, stub: str) -> Tag:
    """Give what stands in the form's place where no script can judge: the stub of the notebook."""
    shown, code = (soup.new_tag(name) for name in ("noscript", "pre"))
    shown["data-search-exclude"] = ""
    code.string = stub
    shown.append(code)
    return shown


def export(exercise: "Exercise") -> dict[str, Any] | None:
    """Give an exercise's table for the browser; None if it asks for anything but numbers."""
    from annotated_book.exercises._exercise import Either  # with torch, so not for every page

    right = _flat(exercise.right)
    if exercise.sizes or right is None:
        return None
    wrong: list[tuple[str, list[list[float]]]] = []
    for sentence, row in exercise.wrong.items():
        answers = map(_flat, row if isinstance(row, Either) else [row])
        fitting = [answer for answer in answers if answer and len(answer) == len(right)]
        wrong += [(sentence, fitting)] if fitting else []
    praise = exercise.praise
    return {
        "right": right,
        "close": exercise.close,
        "praise": praise if isinstance(praise, str) else praise(exercise.right),
        "wrong": wrong,
    }


def _flat(answer: object) -> list[float] | None:
    """Give the numbers of an answer in one row; None if there is anything else in it."""
    if isinstance(answer, bool) or not isinstance(answer, int | float | list | tuple):
        return None
    if isinstance(answer, int | float):
        return [answer]
    parts = [_flat(part) for part in answer]
    return None if None in parts else [number for part in parts if part for number in part]


def fields(stub: str) -> list[list[str]]:
    """Give what each field of a stub is called, line by line: its comment says."""
    rows = []
    for line in stub.splitlines():
        code, _, comment = line.partition("# ")
        count = len(FIELD.findall(code))
        names = comment.split(", ")
        if len(names) != count:
            numbered = [f"{comment}, {i + 1}".removeprefix(", ") for i in range(count)]
            names = [comment] if count == 1 and comment else numbered
        rows += [names] if count else []
    return rows


def _form(rows: list[list[str]], table: dict[str, Any]) -> Tag:
    said = "<p>Answer here, or in the notebook.</p>"
    for names in rows:
        inputs = "".join(
            f"<label><span>{escape(name)}</span>"
            '<input inputmode="text" autocomplete="off" size="6"></label>'
            for name in names
        )
        said += f'<div style="--fields: {len(names)}">{inputs}</div>'
    state = escape(json.dumps(table, ensure_ascii=False), quote=True)
    form = (
        f'<form class="aa-answer" data-search-exclude data-table="{state}">{said}'
        '<div><button type="submit">Check</button> <output role="status"></output></div></form>'
    )
    made = BeautifulSoup(form, "html.parser").form
    assert made is not None
    return made

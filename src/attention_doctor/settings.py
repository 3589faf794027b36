"""What ``[tool.attention-doctor]`` in pyproject.toml says, as words of a command line."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

CODES = ("select", "ignore", "wrong")
PLACE = "pyproject.toml, [tool.attention-doctor]"
_TARGETS = 'a list of tables, such as {target = "layer.py:Attention", embed-dim = 24}'


class Project(NamedTuple):
    """The settings of a project.

    Attributes:
        folder: where its file stands, and where the paths in it begin.
        words: what holds for all targets, as words of a command line.
        targets: the words for each, with its place in the file.
    """

    folder: Path = Path()
    words: tuple[str, ...] = ()
    targets: tuple[tuple[str, list[str]], ...] = ()


def find(folder: Path) -> Project:
    """Read the settings of a folder, or of the nearest one above it that has some.

    Raises:
        ValueError: the file cannot be read, or its table is not one of targets and codes.
    """
    for file in (x / "pyproject.toml" for x in (folder, *folder.parents)):
        try:
            tools = tomllib.loads(file.read_bytes().decode()).get("tool", {})
        except OSError:
            continue
        except ValueError as error:
            raise ValueError(f"{file} cannot be read: {error}") from None
        if isinstance(tools, dict) and "attention-doctor" in tools:
            return _project(file.parent, tools["attention-doctor"])
    return Project()


def _project(folder: Path, table: Any) -> Project:
    if not isinstance(table, dict):
        raise ValueError(f"{PLACE}: {_shown(table)} must be a table")
    targets = table.pop("targets", [])
    if not isinstance(targets, list) or not all(isinstance(x, dict) for x in targets):
        raise ValueError(f"{PLACE}: targets = {_shown(targets)} must be {_TARGETS}")
    for name in {*table} - {*CODES}:
        known = ", ".join(["targets", *CODES])
        raise ValueError(f"{PLACE}: {name} = {_shown(table[name])}: it takes {known}")
    words = [
        (f"{PLACE}, target {i} of {len(targets)}", [*_words(x)]) for i, x in enumerate(targets, 1)
    ]
    return Project(folder, tuple(_words(table)), tuple(words))


def _words(table: Mapping[str, Any]) -> Iterator[str]:
    """Write each key and its value as on a command line, which says whether they fit."""
    for name, value in table.items():
        values = [",".join(map(str, value))] if isinstance(value, list) else [value]
        if isinstance(value, dict):
            values = [f"{key}={x}" for key, x in value.items()]
        yield from (str(x) if name == "target" else f"--{name}={x}" for x in values)


def _shown(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)

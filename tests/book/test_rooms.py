"""The way of a chapter is a line: ``run`` knows nothing of ``site``, and only hooks know MkDocs."""

import ast

import pytest

import book
from book.run import scripts

SOURCES = sorted((scripts.ROOT / "src" / "book").rglob("*.py"))


def imported(source):
    """List what a module imports, in full."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_imports(path):
    names = set(imported(path.read_text(encoding="utf-8")))
    place = path.relative_to(SOURCES[0].parent).parts
    if place != ("site", "hooks.py"):
        of_mkdocs = {name for name in names if name.startswith(("mkdocs", "book.site.hooks"))}
        assert not of_mkdocs, "only the hooks know MkDocs, and nothing knows them"
    if place[0] in {"run", "shapes", "setup"}:
        assert not {name for name in names if name.startswith("book.site")}
    if place[0] in {"shapes", "setup"}:
        assert not {name for name in names if name.startswith("book.run")}


def test_there_is_what_is_tested():
    assert SOURCES[0].parent.samefile(book.__path__[0])
    assert {path.parent.name for path in SOURCES} == {"book", "run", "shapes", "site", "setup"}
    assert {"mkdocs.config.defaults.MkDocsConfig"} <= set(
        imported((SOURCES[0].parent / "site" / "hooks.py").read_text(encoding="utf-8"))
    )

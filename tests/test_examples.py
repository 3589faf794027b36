"""Every example in a docstring runs, as it stands there: it imports what it uses."""

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Protocol

import pytest
from mkdocs.utils.yaml import yaml_load

import annotated_attention

# The examples of ``pretrained`` read a checkpoint: see tests/pretrained.
MODULES = [
    module.name
    for module in pkgutil.walk_packages(annotated_attention.__path__, "annotated_attention.")
    if not module.name.endswith("__main__") and ".pretrained" not in module.name
]
PAGES = Path(__file__).parents[1] / "docs" / "package"


@pytest.mark.parametrize("name", ["annotated_attention", *MODULES])
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, globs={}, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def shown(wrong: set[Any]) -> Iterator[tuple[str, Any]]:
    """Yield what the pages of the package show, by its path there.

    What is ``wrong`` has no example: the doctor cites those docstrings whole; the example of
    ``Mistake`` runs any of them.
    """
    for page in PAGES.glob("*.md"):
        for path, text in re.findall(r"^::: (\S+)\n((?: +.*\n)*)", page.read_text("utf-8"), re.M):
            value, options = pkgutil.resolve_name(path), (yaml_load(text) or {}).get("options", {})
            yield from below(path, value, options.get("members", vars(value)), wrong)


def below(path: str, value: Any, names: Any, wrong: set[Any]) -> Iterator[tuple[str, Any]]:
    """Yield an object, and below it what a module defines or what none of a class's bases has."""
    yield path, value
    if value in wrong or Protocol in getattr(value, "__bases__", ()):
        return  # the members of a protocol do nothing
    for name in names or ():
        member = vars(value).get(name)
        if name.startswith("_"):
            continue
        if inspect.ismodule(value) and getattr(member, "__module__", None) == value.__name__:
            yield from below(f"{path}.{name}", member, vars(member), wrong)
        elif inspect.isclass(value) and not any(hasattr(base, name) for base in value.__bases__):
            yield f"{path}.{name}", member


def test_what_is_shown_has_an_example() -> None:
    """A class, function or method has one with a result; a property stands in that of its class."""
    from annotated_attention.mistakes import MISTAKES

    wrong = {entry.version for entry in MISTAKES.values()}
    found = {path: value for path, value in shown(wrong) if value not in wrong}
    examples = {
        path: doctest.DocTestParser().get_examples(value.__doc__ or "")
        for path, value in found.items()
    }
    code = [x for x in found if isinstance(found[x], type | FunctionType | staticmethod)]
    assert [x for x in code if not any(y.want or "assert" in y.source for y in examples[x])] == []

    properties = [x.rpartition(".") for x in found if isinstance(found[x], property)]
    assert len(properties) >= 2
    assert [
        f"{of}.{name}"
        for of, _, name in properties
        if not any(re.search(rf"\.{name}\b", example.source) for example in examples[of])
    ] == []

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
from annotated_attention.mistakes import MISTAKES

# The examples of ``pretrained`` read a checkpoint: see tests/pretrained.
MODULES = [
    module.name
    for module in pkgutil.walk_packages(annotated_attention.__path__, "annotated_attention.")
    if not module.name.endswith("__main__") and ".pretrained" not in module.name
]
PAGES = Path(__file__).parents[1] / "docs" / "package"
# The doctor cites their docstrings whole; the example of ``Mistake`` runs any of them.
WRONG = {entry.version for entry in MISTAKES.values()}


@pytest.mark.parametrize("name", ["annotated_attention", *MODULES])
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, globs={}, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def shown() -> Iterator[tuple[str, Any]]:
    """Yield what the pages of the package show, by its path there."""
    for page in PAGES.glob("*.md"):
        for path, text in re.findall(r"^::: (\S+)\n((?: +.*\n)*)", page.read_text("utf-8"), re.M):
            value, options = pkgutil.resolve_name(path), (yaml_load(text) or {}).get("options", {})
            yield from below(path, value, options.get("members", vars(value)))


def below(path: str, value: Any, names: Any) -> Iterator[tuple[str, Any]]:
    """Yield an object, and below it what a module defines or what none of a class's bases has."""
    yield path, value
    if value in WRONG or Protocol in getattr(value, "__bases__", ()):
        return  # the members of a protocol do nothing
    for name in names or ():
        member = vars(value).get(name)
        if name.startswith("_"):
            continue
        if inspect.ismodule(value) and getattr(member, "__module__", None) == value.__name__:
            yield from below(f"{path}.{name}", member, vars(member))
        elif inspect.isclass(value) and not any(hasattr(base, name) for base in value.__bases__):
            yield f"{path}.{name}", member


SHOWN = {path: value for path, value in shown() if value not in WRONG}
CODE = [x for x in SHOWN if isinstance(SHOWN[x], type | FunctionType | staticmethod)]
PROPERTIES = [x for x in SHOWN if isinstance(SHOWN[x], property)]


def examples(path: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(SHOWN[path].__doc__ or "")


@pytest.mark.parametrize("path", CODE)
def test_each_class_function_and_method_has_an_example_with_a_result(path: str) -> None:
    assert any(example.want or "assert" in example.source for example in examples(path))


@pytest.mark.parametrize("path", PROPERTIES)
def test_each_property_is_in_the_example_of_its_class(path: str) -> None:
    of, _, name = path.rpartition(".")
    assert any(re.search(rf"\.{name}\b", example.source) for example in examples(of))


def test_all_pages_are_looked_at() -> None:
    """Or the tests above would find nothing to complain of."""
    assert len(list(PAGES.glob("*.md"))) == 13
    assert len(CODE) >= 200

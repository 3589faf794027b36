"""Every example in a docstring runs, as it stands there: it imports what it uses."""

import doctest
import importlib
import pkgutil

import pytest

import annotated_attention
import annotated_book
import attention_doctor

# The examples of ``pretrained`` read a checkpoint: see tests/annotated_attention/pretrained.
MODULES = [
    module.name
    for package in (annotated_attention, attention_doctor, annotated_book)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__") and ".pretrained" not in module.name
]


@pytest.mark.parametrize("name", ["annotated_attention", "attention_doctor", *MODULES])
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, globs={}, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0

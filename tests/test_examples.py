"""Every example in a docstring runs, as it stands there: it imports what it uses."""

import doctest
import importlib
import pkgutil

import pytest

import annotated_attention

# The examples of ``pretrained`` read a checkpoint: see tests/pretrained.
MODULES = [
    module.name
    for module in pkgutil.walk_packages(annotated_attention.__path__, "annotated_attention.")
    if not module.name.endswith("__main__") and ".pretrained" not in module.name
]


@pytest.mark.parametrize("name", ["annotated_attention", *MODULES])
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, globs={}, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0

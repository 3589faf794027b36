"""The examples in docstrings, on small checkpoints: ``folder`` is what they leave to the reader."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    ("module", "family"),
    [("bert", "bert"), ("gpt2", "gpt2"), ("find", "bert"), ("collect", "bert")],
)
def test_examples_run(module, family, request):
    _, folder = request.getfixturevalue(family)
    found = importlib.import_module(f"annotated_attention.pretrained.{module}")
    results = doctest.testmod(found, globs={"folder": folder})
    assert results.attempted > 0
    assert results.failed == 0

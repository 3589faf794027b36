"""The record of `contract.py` holds: mistakes in many forms, and right code."""

import json

import pytest

from tests.attention_doctor import contract

CASES = contract.cases()
KNOWN = json.loads(contract.RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", KNOWN)
def test_the_doctor_says_what_is_recorded(name):
    assert contract.said(CASES[name]()) == KNOWN[name]


def test_right_code_is_called_right():
    right = {name: x for name, x in KNOWN.items() if "right" in name}
    assert [name for name, x in right.items() if any(y.startswith("wrong") for y in x)] == []

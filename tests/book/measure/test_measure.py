"""The benchmark: that it compares equals and keeps what it finds. Times are never asserted."""

import contextlib
import json
import os

import pytest
import torch

from annotated_attention import measured
from book.measure import __main__ as command
from book.measure import contenders, memory, plan, timing
from book.measure.process import new_process
from book.measure.timing import ROUNDS

TINY = (3, 5, 16, 2)


@pytest.fixture
def output(monkeypatch, tmp_path):
    """Make the whole plan small enough to be run in a test; give where the results go."""
    monkeypatch.setattr(command, "DATA", tmp_path / "found.json")
    monkeypatch.setattr(command, "SECONDS", 0)
    monkeypatch.setattr(plan, "SIZES", (TINY,) * 3)
    monkeypatch.setattr(plan, "KEPT", ((1, 4), (3, 18)))
    monkeypatch.setattr(timing, "ROUNDS", 2)
    monkeypatch.setattr(timing, "BLOCK", 0)
    monkeypatch.setattr(timing, "WATCHED", 1)
    monkeypatch.setattr(command, "new_process", here)
    monkeypatch.setattr(
        command, "memory", lambda name: {"name": name, "lengths": [4], "bytes": [8]}
    )
    return command.DATA


def each_once():
    """List the cases of a small plan, in which three sizes are one, each of them once."""
    return {str(case): case for case in plan.plan()}.values()


@contextlib.contextmanager
def here(environment):
    """Take this process for a new one."""
    yield lambda function, *given: function(*given)


def check(found, cases, rounds):
    """Assert that results are whole, whatever the times: a row for each case that can be read."""
    rows = {case_of(row): row for row in found["times"]}
    for case in cases:
        row = rows[case.section, case.size, case.mode, *case.options.values()]
        names = row["milliseconds"].keys()
        assert row["rounds"] >= rounds
        assert row["ratios"].keys() == set(case.baselines)
        for base, ratios in row["ratios"].items():
            assert ratios.keys() == names - {base}
            assert all(0 < low <= middle <= up for low, middle, up in ratios.values())
        assert row.get("pages", {}).keys() == (names if case.environment else set())
        assert row.get("profile", {}).keys() == (names if case.profiled else set())
        for operations in row.get("profile", {}).values():
            assert 0 < sum(share for _, share in operations) <= 1.01
    assert [row["name"] for row in found["memory"]] == list(memory.ways())


def case_of(row):
    """Name the case of a row, as the plan has it."""
    options = [row[key] for key in ("mask", "weights", "kept", "memory") if key in row]
    return (row["section"], tuple(row["size"]), row["mode"], *options)


def test_measures_prints_and_keeps(output, monkeypatch, capsys):
    monkeypatch.setattr(plan, "MASKS", ("none",))  # below, each of them is compared
    monkeypatch.setattr(command, "plan", each_once)
    command.main([])
    found = json.loads(output.read_text())
    check(found, each_once(), rounds=2)
    assert {"torch", "python", "cpu", "threads", "load", "date"} < found["provenance"].keys()
    assert found["provenance"]["command"] == "python -m book.measure"
    printed = capsys.readouterr().out
    rows = len(found["times"]) + len(found["memory"])
    assert len([x for x in printed.splitlines() if x.strip()]) == rows
    assert "x bare minimum: " in printed
    assert output.read_text().count("\n") > rows  # one line each


def test_a_section_is_renewed_and_says_so(output):
    output.write_text('{"provenance": {}, "times": [], "memory": []}')
    for only in ("masks", "fast path", "memory", "masks"):
        command.main(["--only", only])
    found = json.loads(output.read_text())
    sections = [row["section"] for row in found["times"]]
    assert sorted(sections) == ["fast path"] * 3 + ["masks"] * 4
    assert len(found["memory"]) == len(memory.ways())
    assert found["provenance"]["renewed"].keys() == {"masks", "fast path", "memory"}
    assert "--only memory" in found["provenance"]["renewed"]["memory"]["command"]


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("mask", [*plan.MASKS, plan.EVERY_HEAD])
def test_the_mask_is_there(mask, weights):
    made = contenders.final_class(TINY, "forward", mask, weights)
    x = torch.randn(3, 5, 16)
    changed = torch.cat([x[:, :4], x[:, 4:] + 1], 1)
    for contender in made.values():
        moved = (contender(changed) != contender(x))[:, 0].any()
        assert moved == (mask == "none")  # the last key is hidden from the first query


WRONG = {
    "output": lambda x: x * 1.001,
    "gradient": lambda x: x + (x - x.detach()) * 0.01,
    "in evaluation": lambda x: x if torch.is_grad_enabled() else x * 1.001,
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_contenders_that_differ_are_not_timed(wrong):
    x = torch.randn(3, 5, 16, requires_grad=True)
    contenders.assert_same({"right": lambda x: x * 1, "same": lambda x: x * 1}, x, "right")
    with pytest.raises(AssertionError, match="wrong differs from right"):
        contenders.assert_same({"right": lambda x: x * 1, "wrong": wrong}, x, "right")


def test_memory_is_measured_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(memory, "LENGTHS", (2048,))
    found = memory.memory("final class, causal")
    assert found["lengths"] == [2048]
    scores = 8 * 2048 * 2048 * 4
    assert 2048 * 512 * 4 < found["bytes"][0] < scores / 2


def test_memory_stops_before_the_machine_does(monkeypatch):
    monkeypatch.setattr(memory, "peak", lambda name, n: n)
    monkeypatch.setattr(memory, "free_memory", lambda: 10_000)
    found = memory.memory("final class")
    assert found["bytes"] == [512, 1024, 2048, None, None, None]


def test_a_new_process_alone_has_the_variables_and_hands_on_what_it_raises(monkeypatch):
    monkeypatch.setenv("KEPT", "as it was")
    monkeypatch.delenv("GIVEN", raising=False)
    with new_process({"KEPT": "changed", "GIVEN": "new"}) as call:
        for _ in range(2):
            assert (call(os.getenv, "KEPT"), call(os.getenv, "GIVEN")) == ("changed", "new")
            assert (os.getenv("KEPT"), os.getenv("GIVEN")) == ("as it was", None)
        assert call(os.getpid) == call(os.getpid) != os.getpid()
        with pytest.raises(ZeroDivisionError):
            call(divmod, 1, 0)


def test_the_committed_results_have_every_case():
    found = measured.load()
    check(found, plan.plan(), ROUNDS)
    cases = [case_of(row) for row in found["times"]]
    assert len(cases) == len(set(cases))

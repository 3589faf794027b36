"""Contenders are equals, results are kept, judges do what their table says. Times are not asked."""

import contextlib
import json
import os
import platform

import pytest
import torch

from annotated_book import measured
from press.measure import __main__ as command
from press.measure import contenders, judges, memory, plan, timing
from press.measure.machine import new_process
from press.run import scripts

TINY = (3, 5, 16, 2)
OPTIONS = ("mask", "weights", "kept", "precision", "memory")


def check(found, rounds):
    """Assert that results are whole, whatever the times: a row for each case that can be read."""
    rows = {case_of(row): row for row in found["times"]}
    for case in plan.plan():
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
        assert row.get("parts", {}).keys() == (names if case.parts else set())
        for parts in row.get("parts", {}).values():
            assert parts.keys() == {*timing.PARTS, "rest"}
            assert 0.99 < sum(parts.values()) < 1.01
    assert [row["name"] for row in found["memory"]] == list(memory.WAYS)


def case_of(row):
    """Name the case of a row, as the plan has it."""
    options = [row[key] for key in OPTIONS if key in row]
    return (row["section"], tuple(row["size"]), row["mode"], *options)


def test_all_is_measured_and_kept_and_a_section_is_renewed(monkeypatch, tmp_path, capsys):
    away = []

    @contextlib.contextmanager
    def here(environment):
        """Take this process for a new one."""
        yield lambda function, *given: away.append(environment) or function(*given)

    output = tmp_path / "found.json"
    for place, name, less in (
        (command, "DATA", output),
        (command, "SECONDS", 0),
        (command, "new_process", here),
        (command, "memory", lambda name: {"name": name, "lengths": [4], "bytes": [8]}),
        (plan, "SIZES", (TINY,) * 3),
        (plan, "KEPT", ((1, 4), (3, 18))),
        (plan, "MASKS", ("none",)),  # below, each of them is compared
        (plan, "TURNS", 2),
        (plan, "ALONG", (5, 9)),
        (plan, "SERVED", TINY),
        (plan, "NEW", (5, 7)),
        (plan, "BEHIND", (4,)),
        (plan, "DECODER", (24, 3)),
        (contenders, "VOCABULARY", 11),
        (contenders, "READ", 2**12),
        (contenders, "SQUARE", 8),
        (platform, "libc_ver", lambda: ("glibc", "2")),
        (timing, "ROUNDS", 2),
        (timing, "BLOCK", 0),
        (timing, "WATCHED", 1),
    ):
        monkeypatch.setattr(place, name, less)
    once = {str(case): case for case in plan.plan()}  # three sizes are one
    monkeypatch.setattr(command, "plan", once.values)
    command.main([])
    found = json.loads(output.read_text())
    check(found, rounds=2)
    assert away == [case.environment for case in once.values() if case.environment]
    assert {"torch", "python", "cpu", "threads", "load", "date"} < found["provenance"].keys()
    for only in ("fast path", "memory", "fast path"):
        command.main(["--only", only])
    renewed = json.loads(output.read_text())
    check(renewed, rounds=2)
    assert len(renewed["times"]) == len(found["times"]) == len(once)
    assert renewed["times"] != found["times"]
    commands = [x["command"] for x in renewed["provenance"].pop("renewed").values()]
    assert commands == [f"python -m press.measure --only {x}" for x in ("'fast path'", "memory")]
    assert renewed["provenance"] == found["provenance"]
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    with pytest.raises(SystemExit):
        command.main([])
    assert "what glibc does" in capsys.readouterr().err


def test_a_copy_is_of_the_mask_where_it_is_as_large():
    taken = [
        ("mm", [5, 16], 3.0),
        ("copy_", [2, 5, 5], 4.0),  # a mask
        ("copy_", [5, 2], 1.0),  # heads
        ("fill_", [1, 1, 5, 5], 1.0),  # where a mean goes
        ("_softmax", [2, 5, 5], 1.0),
    ]
    found = timing.parts(taken, scores=25)
    assert found.pop("projections") == 0.3
    assert found.pop("mask") == 0.4
    assert found.pop("rest") == 0.2
    assert found == {"products": 0, "softmax": 0.1, "fused": 0}
    assert timing.profiled(taken)[0] == ["copy_", 0.5]


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("mask", plan.MASKS)
def test_the_mask_is_there(mask, weights):
    made = contenders.final_class(TINY, "forward", mask, weights)
    x = torch.randn(3, 5, 16)
    changed = torch.cat([x[:, :4], x[:, 4:] + 1], 1)
    for contender, right in made.values():
        torch.testing.assert_close(contender(x), right(x))
        moved = (contender(changed) != contender(x))[:, 0].any()
        assert moved == (mask == "none")  # the last key is hidden from the first query


@pytest.mark.parametrize(
    ("wrong", "mode"),
    [
        (lambda x: x * 1.001, "forward"),
        (lambda x: x + (x - x.detach()) * 0.01, "forward + backward"),
        (lambda x: x if torch.is_grad_enabled() else x * 1.001, "inference"),
    ],
)
def test_contenders_that_differ_are_not_timed(wrong, mode):
    x = torch.randn(3, 5, 16, requires_grad=True)
    timing.assert_same("same", lambda x: x * 1, lambda x: x, x, mode)
    with pytest.raises(AssertionError, match="wrong has another"):
        timing.assert_same("wrong", wrong, lambda x: x * 1, x, mode)


def test_memory_is_measured_at_each_length_in_a_process_of_its_own(monkeypatch):
    scores = 8 * 2048 * 2048 * 4
    assert 2048 * 512 * 4 < memory.peak("final class, causal", 2048) < scores / 2
    monkeypatch.setattr(memory, "peak", lambda name, n: (name, n))
    found = memory.memory("final class")
    assert found["bytes"] == [("final class", n) for n in found["lengths"]]


def test_a_new_process_alone_has_the_variables_and_hands_on_what_it_raises(monkeypatch):
    monkeypatch.delenv("GIVEN", raising=False)
    with new_process({"GIVEN": "new"}) as call:
        assert (call(os.getenv, "GIVEN"), os.getenv("GIVEN")) == ("new", None)
        assert call(os.getpid) == call(os.getpid) != os.getpid()
        with pytest.raises(ZeroDivisionError):
            call(divmod, 1, 0)


def test_the_committed_results_have_every_case():
    found = measured.load()
    check(found, timing.ROUNDS)
    cases = [case_of(row) for row in found["times"]]
    assert len(cases) == len(set(cases))
    assert all(row["lengths"] == [*memory.LENGTHS] for row in found["memory"])


ACCEPTED = json.loads(judges.DATA.read_text("utf-8"))["accepted"]
SLOW = {"parity, as in this book", "the doctor"}  # these are asked about a few


@pytest.mark.parametrize("judge", judges.JUDGES)
def test_a_judge_accepts_what_is_right_and_what_the_data_say(judge):
    assert judges.accepted(judge)
    few = judges.PLANTED[:: 15 if judge in SLOW else 1]
    found = [code for code in few if judges.accepted(judge, code)]
    assert found == [x for x in ACCEPTED[judge] if x in few], "run press.measure.judges"


def test_the_page_shows_the_data_and_counts_them():
    page = (scripts.ROOT / "docs" / "package" / "doctor.md").read_text("utf-8")
    assert judges.table(ACCEPTED) in page
    assert f"how many of the {len(judges.PLANTED)}\n[mistakes]" in page
    assert {code for codes in ACCEPTED.values() for code in codes} <= {*judges.PLANTED}

"""The benchmark: that it compares equals and keeps what it finds. Times are never asserted."""

import json

import pytest
import torch

from annotated_attention import measure

ROW = {"size", "mask", "weights", "mode", "rounds", "milliseconds"}
PROVENANCE = {"torch", "cpu", "threads", "load", "date", "commit", "command"}


@pytest.fixture(autouse=True)
def one_thread():
    """Keep tiny tensors on one thread: on a busy machine, waiting for a second one takes longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rivals(row):
    found = ["torch"]
    found += ["torch without the hint"] if row["mask"] == "causal" else []
    return found + ([] if row["weights"] else ["bare"])


def check(found):
    assert found["provenance"].keys() == PROVENANCE
    assert all(str(value) for value in found["provenance"].values())
    for row in found["times"]:
        names = rivals(row)
        assert row.keys() == ROW | {f"ours / {name}" for name in names}
        assert row["milliseconds"].keys() == {"ours", *names}
        assert row["rounds"] >= measure.ROUNDS
        for name in names:
            low, middle, high = row[f"ours / {name}"]
            assert 0 < low <= middle <= high
    assert [row["mask"] for row in found["memory"]] == list(measure.MASKS)


def test_measures_prints_and_keeps(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "SIZES", ((2, 4, 16, 2),))
    monkeypatch.setattr(
        measure, "memory", lambda mask: {"mask": mask, "lengths": [4], "bytes": [8]}
    )
    output = tmp_path / "new" / "found.json"
    measure.main(["--seconds", "0", "--output", str(output)])
    found = json.loads(output.read_text())
    check(found)
    printed = capsys.readouterr().out
    assert len(found["times"]) == len(measure.MASKS) * len(measure.MODES) * 2
    assert len(printed.splitlines()) == len(found["times"]) + len(measure.MASKS)
    assert "ours / bare" in printed
    assert "--seconds 0" in found["provenance"]["command"]
    assert found["provenance"]["torch"] == torch.__version__


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mask", measure.MASKS)
def test_contenders_compute_the_same(mask, need_weights):
    made = measure.contenders((3, 5, 16, 2), mask, need_weights, training=True)
    assert list(made) == ["ours", *rivals({"mask": mask, "weights": need_weights})]
    x = torch.randn(3, 5, 16, requires_grad=True)
    outputs = {name: attend(x) for name, attend in made.items()}
    for output, weights in outputs.values():
        torch.testing.assert_close(output, outputs["ours"][0])
        assert (weights is not None) == need_weights
    changed = torch.cat([x[:, :4], x[:, 4:] + 1], 1)
    moved = (made["ours"](changed)[0] != outputs["ours"][0])[:, 0].any()
    assert moved == (mask == "none")  # the last key is hidden from the first query


def test_contenders_that_differ_are_not_timed(monkeypatch):
    monkeypatch.setattr(measure, "bare", lambda *_: lambda x: (x, None))
    with pytest.raises(AssertionError, match="bare"):
        measure.contenders((3, 5, 16, 2), "none", False, training=True)


def test_memory_is_measured_in_processes_of_their_own(monkeypatch):
    monkeypatch.setattr(measure, "LENGTHS", (2048,))
    found = measure.memory("causal")
    assert found["lengths"] == [2048]
    scores = 8 * 2048 * 2048 * 4
    assert 2048 * 512 * 4 < found["bytes"][0] < scores / 2


def test_committed_results_are_whole():
    found = json.loads(measure.DATA.read_text(encoding="utf-8"))
    check(found)
    sizes = {tuple(row["size"]) for row in found["times"]}
    assert sizes == set(measure.SIZES)
    assert len(found["times"]) == len(measure.SIZES) * len(measure.MASKS) * len(measure.MODES) * 2
    assert all(row["lengths"] == list(measure.LENGTHS) for row in found["memory"])

"""What chapter 10 claims of five seeds: the committed results say so, and can be made again."""

import json

import pytest

from annotated_attention import MultiheadAttention, chapters
from book.run import seeds

RUNS = json.loads(seeds.DATA.read_text(encoding="utf-8"))["runs"]


def test_every_setup_from_every_seed_once():
    found = [(row["task"], row["heads"], row["attention"], row["seed"]) for row in RUNS]
    expected = [
        (task, heads, attention.__name__, seed)
        for seed in seeds.SEEDS
        for task, heads, _, attention in seeds.SETUPS
    ]
    assert found == expected


def test_results_are_of_the_chapter_as_it_is():
    training = chapters.load("10_training")
    steps = {(task, heads): getattr(training, name) for task, heads, name, _ in seeds.SETUPS}
    assert all(row["steps"] == steps[row["task"], row["heads"]] for row in RUNS)


@pytest.mark.parametrize("row", RUNS, ids=lambda r: f"{r['task']}-{r['attention']}-{r['seed']}")
def test_only_the_right_class_decodes(row):
    if row["attention"] == "MultiheadAttention":
        assert row["exact match"] >= 0.955
    else:
        assert row["exact match"] <= 0.005  # one of 200
    learns = (row["task"], row["attention"]) != ("backwards", "SplitAndMergeWithoutTranspose")
    assert (row["accuracy"] > 0.96) == learns
    assert (row["loss"] < 0.2) == learns


def test_provenance():
    provenance = json.loads(seeds.DATA.read_text(encoding="utf-8"))["provenance"]
    assert provenance["command"] == "make seeds"
    assert {"torch", "cpu", "date", "commit"} <= set(provenance)


def test_same_seed_same_numbers(monkeypatch):
    training = chapters.load("10_training")
    monkeypatch.setattr(training, "STEPS", 3)
    setup = ("ten_forwards", 2, "STEPS", MultiheadAttention)
    one, again, other = (seeds.run(setup, seed) for seed in (0, 0, 1))
    assert one == again
    assert one["loss"] != other["loss"]

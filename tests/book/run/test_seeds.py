"""What chapter 10 claims of five seeds: the committed results say so, and can be made again."""

import json

import pytest

from annotated_attention import MultiheadAttention, chapters
from book.run import seeds

KEPT = json.loads(seeds.DATA.read_text(encoding="utf-8"))
RUNS = KEPT["runs"]


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


def test_every_part_and_every_copier_from_every_seed_once():
    parts = [(row["seed"], row["part"]) for row in KEPT["parts"]]
    assert parts == [
        (seed, part) for seed in seeds.SEEDS for part in ("encoder", "decoder", "cross")
    ]
    copiers = [(row["seed"], tuple(row["setup"])) for row in KEPT["copying"]]
    assert copiers == [(seed, setup) for seed in seeds.SEEDS for setup in seeds.COPIERS]


@pytest.mark.parametrize("row", KEPT["parts"], ids=lambda r: f"{r['part']}-{r['seed']}")
def test_what_is_used_and_what_is_needed(row):
    """The trained model uses all three attentions; the task needs two, and one of them less."""
    assert row["silenced"] < 0.3
    low, high = {"encoder": (0.4, 0.9), "decoder": (0.95, 1), "cross": (0, 0.005)}[row["part"]]
    assert low <= row["never there"] <= high


@pytest.mark.parametrize("row", KEPT["copying"], ids=lambda r: f"{r['setup']}-{r['seed']}")
def test_copying_takes_two_layers_unless_the_period_is_fixed(row):
    layers, heads, shortest, longest = row["setup"]
    assert (row["accuracy"] > 0.95) == (layers == 2 or shortest == longest)
    if layers == 1:
        return
    assert max(row["layer 1"], row["layer 2"], row["both"], row["plain keys"]) < 0.35
    assert min(row["plain queries"], row["plain values"]) > 0.9
    assert min(row["previous"], row["behind"]) > 0.75
    assert (row["one head"] > 0.7) == (heads == 4)  # the others stand in


def test_provenance():
    provenance = KEPT["provenance"]
    assert provenance["command"] == "make seeds"
    assert {"torch", "cpu", "date", "commit"} <= set(provenance)


def test_copiers_and_parts_can_be_made_again(monkeypatch):
    training = chapters.load("10_training")
    monkeypatch.setattr(training, "COPY_STEPS", 25)
    monkeypatch.setattr(training, "LONG", 2)
    first = seeds.COPIERS[0]
    one, again = (seeds.copier(first, 1) for _ in range(2))
    assert one == again
    assert one.keys() == KEPT["copying"][0].keys()
    assert [row.keys() for row in seeds.parts(1)] == [row.keys() for row in KEPT["parts"][:3]]


def test_same_seed_same_numbers(monkeypatch):
    training = chapters.load("10_training")
    monkeypatch.setattr(training, "STEPS", 3)
    setup = ("ten_forwards", 2, "STEPS", MultiheadAttention)
    one, again, other = (seeds.run(setup, seed) for seed in (0, 0, 1))
    assert one == again
    assert one["loss"] != other["loss"]

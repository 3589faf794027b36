"""What chapters claim of five seeds: the committed results say so, and can be made again."""

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


@pytest.mark.parametrize("data", [seeds.DATA, seeds.WARM_UP_DATA], ids=lambda data: data.stem)
def test_provenance(data):
    provenance = json.loads(data.read_text(encoding="utf-8"))["provenance"]
    assert provenance["command"] == "make seeds"
    assert {"torch", "cpu", "date", "commit"} <= set(provenance)


def test_same_seed_same_numbers(monkeypatch):
    training = chapters.load("10_training")
    monkeypatch.setattr(training, "STEPS", 3)
    setup = ("ten_forwards", 2, "STEPS", MultiheadAttention)
    one, again, other = (seeds.run(setup, seed) for seed in (0, 0, 1))
    assert one == again
    assert one["loss"] != other["loss"]


WARM_UP_RUNS = json.loads(seeds.WARM_UP_DATA.read_text(encoding="utf-8"))["runs"]


def test_warm_ups_from_every_seed_once():
    found = [((row["layers"], row["order"], row["warm-up"]), row["seed"]) for row in WARM_UP_RUNS]
    assert found == [(setup, seed) for seed in seeds.SEEDS for setup in seeds.WARM_UPS]
    assert {row["steps"] for row in WARM_UP_RUNS} == {seeds.WARM_UP_STEPS}


@pytest.mark.parametrize(
    "row", WARM_UP_RUNS, ids=lambda r: f"{r['layers']}-{r['order']}-{r['warm-up']}-{r['seed']}"
)
def test_deep_post_ln_needs_warm_up(row):
    fails = (row["layers"], row["order"], row["warm-up"]) == (4, "post-LN", 0)
    assert (row["loss"] > 0.5) == fails
    assert (row["exact match"] < 0.3) == fails
    if row["layers"] == 4 and not fails:
        assert row["exact match"] > 0.85


def test_a_warm_up_of_the_same_seed_has_the_same_numbers():
    one, again, warm, pre = (
        seeds.run_warm_up(setup, 0, steps=2)
        for setup in ((1, "post-LN", 0), (1, "post-LN", 0), (1, "post-LN", 60), (1, "pre-LN", 0))
    )
    assert one == again
    assert len({one["loss"], warm["loss"], pre["loss"]}) == 3


def test_one_layer_without_warm_up_is_the_model_of_the_chapter():
    training = chapters.load("10_training")
    begun = training.begin(training.backwards, 2, 400)
    training.train(begun, 1)  # from then on, the learning rates of 200 and 400 steps differ
    mine = seeds.run_warm_up((1, "post-LN", 0), 0, steps=1)
    assert mine["loss"] == round(training.judge(begun)[0], 4)

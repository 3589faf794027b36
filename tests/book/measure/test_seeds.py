"""What chapters claim of five seeds: the committed results say so, and can be made again."""

import json
from functools import partial

import pytest

from annotated_attention import MultiheadAttention, chapters
from book.measure import seeds

RUNS, WARM_UPS, POSITIONS, GROUPS = KEPT = [
    json.loads((seeds.FOLDER / f"{name}.json").read_text("utf-8"))
    for name in ("training", "warm_up", "positions", "groups")
]


@pytest.mark.parametrize("row", RUNS["runs"], ids=str)
def test_only_the_right_class_decodes(row):
    right = row["attention"] == "MultiheadAttention"
    assert row["exact match"] >= 0.955 if right else row["exact match"] <= 0.005  # one of 200
    learns = (row["task"], row["attention"]) != ("backwards", "SplitAndMergeWithoutTranspose")
    assert (row["accuracy"] > 0.96) == (row["loss"] < 0.2) == learns


@pytest.mark.parametrize("row", RUNS["parts"], ids=str)
def test_what_is_used_and_what_is_needed(row):
    """The trained model uses all three attentions; the task needs two, and one of them less."""
    assert row["silenced"] < 0.3
    low, high = {"encoder": (0.4, 0.9), "decoder": (0.95, 1), "cross": (0, 0.005)}[row["part"]]
    assert low <= row["never there"] <= high


@pytest.mark.parametrize("row", RUNS["copying"], ids=lambda row: f"{row['setup']}-{row['seed']}")
def test_copying_takes_two_layers_unless_the_period_is_fixed(row):
    layers, heads, shortest, longest = row["setup"]
    assert (row["accuracy"] > 0.95) == (layers == 2 or shortest == longest)
    if layers == 1:
        return
    assert max(row["layer 1"], row["layer 2"], row["both"]) < 0.35
    assert (row["one head"] > 0.7) == (heads == 4)  # the others stand in


@pytest.mark.parametrize("row", WARM_UPS["runs"], ids=str)
def test_deep_post_ln_needs_warm_up_at_a_high_learning_rate(row):
    setup = tuple(row[name] for name in ("layers", "order", "warm-up", "learning rate"))
    fails = setup == (4, "post-LN", 0, 0.008)
    assert (row["loss"] > 0.6) == (row["exact match"] < 0.3) == fails
    if row["layers"] == 4 and row["learning rate"] == 0.008 and not fails:
        assert row["exact match"] > 0.85


@pytest.mark.parametrize("row", POSITIONS["runs"], ids=lambda row: f"{row['kind']}-{row['seed']}")
def test_what_is_kept_past_the_trained_length(row):
    """From every seed: ALiBi and buckets stay; rotary falls below all, unless it is slowed."""
    trained = row["as trained"]
    assert (trained["32"] > 0.98) == (row["kind"] != "none")
    low, high = {
        "none": (0.45, 0.55), "added": (0.7, 0.93), "rotary": (0.25, 0.4), "ALiBi": (0.97, 1),
        "buckets": (0.93, 0.97),
    }[row["kind"]]  # fmt: skip
    assert low < trained["512"] < high
    if row["kind"] == "rotary":
        last = {name: row[name]["512"] for name in ("linear", "as trained", "dynamic", "llama3")}
        assert sorted(last, key=last.__getitem__) == list(last)
        assert row["yarn"]["512"] > 0.93
        assert row["linear"]["32"] < 0.4


@pytest.mark.parametrize("row", GROUPS["runs"], ids=str)
def test_old_keys_are_worth_a_lot_and_need_some_training(row):
    if row["origin"] == "from scratch":
        assert row["300"] > 0.98
        return
    assert row["0"] < 0.8
    assert row["75"] < 0.3 if row["origin"] == "new" else row["75"] > 0.94
    if row["origin"] == "averaged":
        assert row["0"] < 0.5
        assert (row["15"] > 0.97) == (row["KV heads"] == 2)


def test_averages_depend_less_on_luck_than_first_heads():
    for g in (2, 1):
        spans = {}
        for origin in ("averaged", "first"):
            rows = [x for x in GROUPS["runs"] if (x["KV heads"], x["origin"]) == (g, origin)]
            spans[origin] = max(row["0"] for row in rows) - min(row["0"] for row in rows)
        assert spans["averaged"] < spans["first"]


def test_results_are_of_the_chapters_as_they_are():
    for data in KEPT:
        assert data["provenance"]["command"] == "make seeds"
        rows = [row for name, rows in data.items() if name != "provenance" for row in rows]
        assert {row["seed"] for row in rows} == {*seeds.SEEDS}
    training, keys = chapters.load("10_training"), chapters.load("20_fewer_keys")
    steps = {(task, heads): getattr(training, name) for task, heads, name, _ in seeds.SETUPS}
    assert all(row["steps"] == steps[row["task"], row["heads"]] for row in RUNS["runs"])
    for row in GROUPS["runs"]:
        taken = [training.COPY_STEPS] if row["origin"] == "from scratch" else keys.CHECKED
        assert [name for name in row if name.isdigit()] == [str(step) for step in taken]


@pytest.mark.parametrize(
    ("train", "setup", "rows"),
    [
        (seeds.run, ("ten_forwards", 2, "STEPS", MultiheadAttention), RUNS["runs"]),
        (seeds.copier, seeds.COPIERS[0], RUNS["copying"]),
        (seeds.part, seeds.PARTS[0], RUNS["parts"]),
        (partial(seeds.run_warm_up, steps=2), seeds.WARM_UPS[1], WARM_UPS["runs"]),
        (seeds.positions, "rotary", POSITIONS["runs"][2:]),
    ],
    ids=["runs", "copying", "parts", "warm-ups", "positions"],
)
def test_they_can_be_made_again_from_their_seed(monkeypatch, train, setup, rows):
    training, positions = chapters.load("10_training"), chapters.load("18_positions")
    for chapter, name, less in (
        (training, "STEPS", 3), (training, "LONG", 2), (training, "COPY_STEPS", 25),
        (positions, "LONG_STEPS", 2),
    ):  # fmt: skip
        monkeypatch.setattr(chapter, name, less)
    learn = partial(positions.learn_short, steps=2)
    monkeypatch.setattr(positions, "learn_short", learn)
    monkeypatch.setattr(positions, "copied_until", partial(positions.copied_until, b=20))
    one = train(setup, 0)
    assert one.keys() == rows[0].keys()
    if train is seeds.part:
        return  # too few steps to get one right, from any seed
    assert one != {**train(setup, 1), "seed": 0}
    if train is seeds.run:
        assert one == train(setup, 0)


def test_one_layer_without_warm_up_is_the_model_of_the_chapter():
    training = chapters.load("10_training")
    begun = training.begin(training.backwards, 2, 400)
    training.train(begun, 1)  # from then on, the learning rates of 200 and 400 steps differ
    mine = seeds.run_warm_up((1, "post-LN", 0, 0.008), 0, steps=1)
    assert mine["loss"] == round(training.judge(begun)[0], 4)

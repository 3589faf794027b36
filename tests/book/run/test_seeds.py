"""What chapters claim of five seeds: the committed results say so, and can be made again."""

import json
from functools import partial

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
    assert parts == [(seed, part) for seed in seeds.SEEDS for part in seeds.PARTS]
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


@pytest.mark.parametrize(
    "data", [seeds.DATA, seeds.WARM_UP_DATA, seeds.POSITIONS_DATA], ids=lambda data: data.stem
)
def test_provenance(data):
    provenance = json.loads(data.read_text(encoding="utf-8"))["provenance"]
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
    assert [seeds.part(name, 1).keys() for name in seeds.PARTS] == [
        row.keys() for row in KEPT["parts"][:3]
    ]


def test_same_seed_same_numbers(monkeypatch):
    training = chapters.load("10_training")
    monkeypatch.setattr(training, "STEPS", 3)
    setup = ("ten_forwards", 2, "STEPS", MultiheadAttention)
    one, again, other = (seeds.run(setup, seed) for seed in (0, 0, 1))
    assert one == again
    assert one["loss"] != other["loss"]


WARM_UP_RUNS = json.loads(seeds.WARM_UP_DATA.read_text(encoding="utf-8"))["runs"]


def warm_up(row):
    return tuple(row[name] for name in ("layers", "order", "warm-up", "learning rate"))


def test_warm_ups_from_every_seed_once():
    found = [(warm_up(row), row["seed"]) for row in WARM_UP_RUNS]
    assert found == [(setup, seed) for seed in seeds.SEEDS for setup in seeds.WARM_UPS]
    assert {row["steps"] for row in WARM_UP_RUNS} == {seeds.WARM_UP_STEPS}


@pytest.mark.parametrize(
    "row", WARM_UP_RUNS, ids=lambda row: "-".join(map(str, (*warm_up(row), row["seed"])))
)
def test_deep_post_ln_needs_warm_up_at_a_high_learning_rate(row):
    fails = warm_up(row) == (4, "post-LN", 0, 0.008)
    assert (row["loss"] > 0.6) == fails
    assert (row["exact match"] < 0.3) == fails
    if row["layers"] == 4 and row["learning rate"] == 0.008 and not fails:
        assert row["exact match"] > 0.85


def test_a_warm_up_of_the_same_seed_has_the_same_numbers():
    first = (1, "post-LN", 0, 0.008)
    changed = ((1, "post-LN", 60, 0.008), (1, "pre-LN", 0, 0.008), (1, "post-LN", 0, 0.004))
    one, again, *others = (
        seeds.run_warm_up(setup, 0, steps=2) for setup in (first, first, *changed)
    )
    assert one == again
    assert len({row["loss"] for row in (one, *others)}) == 4


def test_one_layer_without_warm_up_is_the_model_of_the_chapter():
    training = chapters.load("10_training")
    begun = training.begin(training.backwards, 2, 400)
    training.train(begun, 1)  # from then on, the learning rates of 200 and 400 steps differ
    mine = seeds.run_warm_up((1, "post-LN", 0, 0.008), 0, steps=1)
    assert mine["loss"] == round(training.judge(begun)[0], 4)


POSITION_RUNS = json.loads(seeds.POSITIONS_DATA.read_text(encoding="utf-8"))["runs"]


def test_positions_of_every_kind_from_every_seed_once():
    chapter = chapters.load("18_positions")
    found = [(row["seed"], row["kind"]) for row in POSITION_RUNS]
    assert found == [(seed, kind) for seed in seeds.SEEDS for kind in chapter.KINDS]
    assert {row["steps"] for row in POSITION_RUNS} == {chapter.LONG_STEPS}


@pytest.mark.parametrize("row", POSITION_RUNS, ids=lambda row: f"{row['kind']}-{row['seed']}")
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


def test_positions_can_be_made_again(monkeypatch):
    chapter = chapters.load("18_positions")
    monkeypatch.setattr(chapter, "LONG_STEPS", 2)
    learn = chapter.learn_short
    monkeypatch.setattr(chapter, "learn_short", lambda kind, seed: learn(kind, seed, steps=2))
    monkeypatch.setattr(chapter, "copied_until", partial(chapter.copied_until, b=20))
    one, again, other = (seeds.positions("rotary", seed) for seed in (0, 0, 1))
    assert one == again
    assert one["as trained"] != other["as trained"]
    assert one.keys() == POSITION_RUNS[2].keys()


GROUPS = json.loads(seeds.GROUPS_DATA.read_text(encoding="utf-8"))["runs"]


def test_every_way_to_share_keys_from_every_seed_once():
    found = [(row["seed"], row["KV heads"], row["origin"]) for row in GROUPS]
    assert found == [(seed, *setup) for seed in seeds.SEEDS for setup in seeds.GROUPS]


def test_accuracies_of_shared_keys_are_of_the_chapter_as_it_is():
    keys = chapters.load("20_fewer_keys")
    for row in GROUPS:
        steps = [keys.training.COPY_STEPS] if row["origin"] == "from scratch" else keys.CHECKED
        assert [name for name in row if name.isdigit()] == [str(step) for step in steps]


@pytest.mark.parametrize("row", GROUPS, ids=lambda r: f"{r['KV heads']}-{r['origin']}-{r['seed']}")
def test_old_keys_are_worth_a_lot_and_need_some_training(row):
    if row["origin"] == "from scratch":
        assert row["300"] > 0.98
        return
    assert row["0"] < 0.8
    if row["origin"] == "new":
        assert row["75"] < 0.3
    else:
        assert row["75"] > 0.94
    if row["origin"] == "averaged":
        assert row["0"] < 0.5
        assert (row["15"] > 0.97) == (row["KV heads"] == 2)


def test_averages_depend_less_on_luck_than_first_heads():
    for g in (2, 1):
        spans = {}
        for origin in ("averaged", "first"):
            values = [x["0"] for x in GROUPS if (x["KV heads"], x["origin"]) == (g, origin)]
            spans[origin] = max(values) - min(values)
        assert spans["averaged"] < spans["first"]

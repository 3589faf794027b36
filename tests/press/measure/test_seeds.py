"""What chapters claim of several seeds: the committed results say so, and can be made again."""

import itertools
import json
from functools import partial
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from annotated_attention import MultiheadAttention
from annotated_attention.modern import LanguageModel, Settings
from annotated_book import chapters
from press.measure import seeds

FILES = "training, warm_up, positions, groups, world, heads, far_key, two_heads, sinks"
RUNS, WARM_UPS, POSITIONS, GROUPS, WORLD, HEADS, FAR_KEY, GLASSES, SINKS = KEPT = [
    json.loads((seeds.FOLDER / f"{name}.json").read_text("utf-8")) for name in FILES.split(", ")
]


def test_only_the_right_class_decodes():
    for row in RUNS["runs"]:
        right = row["attention"] == "MultiheadAttention"
        assert row["exact match"] >= 0.955 if right else row["exact match"] <= 0.005, row
        learns = row["attention"] != "SplitAndMergeWithoutTranspose"
        assert (row["accuracy"] > 0.96) == (row["loss"] < 0.2) == learns, row


def test_the_trained_model_uses_all_three_attentions_and_needs_two():
    for row in RUNS["parts"]:
        low, high = {"encoder": (0.4, 0.9), "decoder": (0.95, 1), "cross": (0, 0.005)}[row["part"]]
        assert low <= row["never there"] <= high, row
        assert row["silenced"] < 0.3, row


def test_deep_post_ln_needs_warm_up_at_a_high_learning_rate():
    for row in WARM_UPS["runs"]:
        setup = tuple(row[name] for name in ("layers", "order", "warm-up", "learning rate"))
        fails = setup == (4, "post-LN", 0, 0.008)
        assert (row["loss"] > 0.6) == (row["exact match"] < 0.3) == fails, row
        if row["layers"] == 4 and row["learning rate"] == 0.008 and not fails:
            assert row["exact match"] > 0.85, row


def test_one_head_stays_where_it_cannot_do_it_and_two_heads_arrive_if_late():
    many = seeds.OTHER_SEEDS["two_heads"]
    at_one = {  # after 300 steps, and after 1,500
        (1, "blind"): ([*many], [*many]),
        (1, "seeing"): ([13, 18], [13, 18]),
        (2, "blind"): ([19], []),
        (2, "seeing"): ([7], []),
    }
    ends = {(1, "seeing"): 0.45, (2, "blind"): 0.01, (2, "seeing"): 0.04}
    for setup, whose in at_one.items():
        rows = [row for row in GLASSES["runs"] if (row["heads"], row["keys"]) == setup]
        for when, known in enumerate(whose):
            assert [row["seed"] for row in rows if row["off by"][when] > 0.9] == known, setup
        late = [row["off by"][1] for row in rows if row["seed"] not in whose[1]]
        assert max(late, default=0) < ends.get(setup, 0.1), setup


def test_without_its_first_key_a_model_predicts_badly_and_one_key_repairs_it():
    for seed in seeds.OTHER_SEEDS["sinks"]:
        rows = {(row["window"], row["sinks"]): row for row in SINKS["runs"] if row["seed"] == seed}
        assert list(rows) == seeds.CACHES
        everything, without, one, four = (torch.tensor(row["loss"]) for row in rows.values())
        for losses in (without, one, four):
            torch.testing.assert_close(losses[:8], everything[:8], atol=0.0011, rtol=0)
        dear, cheap = ((x - everything)[8:].mean().exp() for x in (without, one))
        assert dear > 1.6, seed
        assert cheap < 1 + 0.4 * (dear - 1), seed
        assert (one - four)[8:].mean().abs() < 0.02, seed


def test_what_is_read_after_a_token_left_depends_on_it_no_more_unless_it_is_a_sink(monkeypatch):
    torch.manual_seed(0)
    settings = Settings(
        vocab_size=11, embed_dim=24, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=8,
        hidden_dim=40,
    )  # fmt: skip
    model, text = LanguageModel(settings).eval(), torch.randint(1, 11, (1, 17))
    other = text.clone()
    other[0, 0] = 0
    for sinks in (0, 1):
        one, two = (seeds.read(model, tokens, 8, sinks)[0] for tokens in (text, other))
        torch.testing.assert_close(one[:8], seeds.read(model, text, None, 0)[0][:8])
        assert torch.allclose(one[8:], two[8:]) == (sinks == 0)
    assert seeds.read(model, text, 4, 0)[1] == 0 < seeds.read(model, text, 4, 1)[1]
    tokenizer = SimpleNamespace(encode=lambda text: SimpleNamespace(ids=[len(text) % 11] * 17))
    monkeypatch.setattr(seeds, "chat_model", lambda: (model, tokenizer))
    assert seeds.forget((8, 1), 0).keys() == SINKS["runs"][0].keys()


def test_a_chapter_is_read_as_paragraphs():
    paragraphs = seeds.prose("01_one_head").split("\n\n")
    assert paragraphs[0] == "*What does the word “it” mean?*"
    assert not [x for x in paragraphs if x[0] in "|#>$" or "](" in x or "\n" in x]


def test_alibi_and_buckets_stay_past_the_trained_length_and_rotary_only_if_slowed():
    kept = {
        "none": (0.45, 0.55),
        "added": (0.7, 0.93),
        "rotary": (0.25, 0.4),
        "ALiBi": (0.97, 1),
        "buckets": (0.93, 0.97),
    }
    for row in POSITIONS["runs"]:
        trained, (low, high) = row["as trained"], kept[row["kind"]]
        assert (trained["32"] > 0.98) == (row["kind"] != "none"), row
        assert low < trained["512"] < high, row
        if row["kind"] == "rotary":
            ends = [row[x]["512"] for x in ("linear", "as trained", "dynamic", "llama3", "yarn")]
            assert sorted(ends[:4]) == ends[:4], row
            assert ends[4] > 0.93, row
            assert row["linear"]["32"] < 0.4, row


def test_no_head_of_alibi_prefers_the_far_key_and_some_models_subtract():
    subtract = 0
    for row in FAR_KEY["runs"]:
        kind, far = row["kind"], row["asked"] == "first"
        if kind == "none":
            assert 0.45 < row["accuracy"] < 0.55, row
        elif kind != "ALiBi" and (kind, row["seed"], far) != ("rotary", 3, True):
            assert row["accuracy"] > 0.98, row
        if kind == "rotary" and far and row["accuracy"] > 0.98:
            assert max(row["weight, first"]) > 0.98, row
        if kind != "ALiBi":
            continue
        pairs = zip(row["weight, first"], row["weight, last"], strict=True)
        assert all(first < last + 0.002 for first, last in pairs), row
        assert far or row["accuracy"] > 0.99, row
        taken = min(row["logit, last"]) < -2 and far
        assert not far or taken == (row["accuracy"] > 0.9), row
        subtract += taken
    assert subtract == 2
    rows = {
        (kind, table): [
            row["accuracy"]
            for row in FAR_KEY[table]
            if (row["kind"], row["asked"]) == (kind, "first") and row["steps"] < 1000
        ]
        for kind, table in itertools.product(("ALiBi", "rotary"), ("runs", "longer"))
    }
    slow = [row["accuracy"] for row in FAR_KEY["longer"] if row["steps"] == 1000]
    assert len(slow) == 5
    assert median(rows["ALiBi", "longer"]) < median(slow) < 0.95
    assert median(rows["ALiBi", "runs"]) < median(rows["ALiBi", "longer"]) < 0.9
    assert min(rows["rotary", "longer"]) > 0.8


def test_old_keys_are_worth_a_lot_and_averages_depend_less_on_luck():
    begun = {}
    for row in GROUPS["runs"]:
        g, origin = row["KV heads"], row["origin"]
        if origin == "from scratch":
            assert row["300"] > 0.98, row
            continue
        begun.setdefault((g, origin), []).append(row["0"])
        assert row["0"] < (0.5 if origin == "averaged" else 0.8), row
        assert row["75"] < 0.3 if origin == "new" else row["75"] > 0.94, row
        assert origin != "averaged" or (row["15"] > 0.97) == (g == 2), row
    spans = {setup: max(accuracy) - min(accuracy) for setup, accuracy in begun.items()}
    assert all(spans[g, "averaged"] < spans[g, "first"] for g in (2, 1))


def test_a_storyteller_nears_the_floor_and_one_that_leaks_falls_through_it():
    ten = chapters.load("10_a_little_world")
    for row in WORLD["runs"]:
        leaks = row["setup"] in ten.LEAKS
        found = row["500"]
        assert (found["loss"] < 0.75 * ten.FLOOR) == leaks == (found["possible"] < 0.05), row
        if not leaks:
            assert row["100"]["so the"] < 0.65, row
            assert row["1000"]["so the"] > 0.97, row
            assert 0 < row["1000"]["loss"] - ten.FLOOR < 0.01, row


def test_every_storyteller_needs_the_quality_not_it_and_names_which_animal_layer_2_looks_at():
    for row in HEADS["questions"]:
        sets = [row[name] for name in ("a thing", "two animals")]
        for found in sets:
            assert found["right"] > 0.97, row
            assert found["it blanked"] > 0.9, row
            assert 0.4 < found["quality blanked"] < 0.6, row
            assert found["rows that turn it"]["“.”"] == 0, row
        *_, (carries, turned) = sorted(sets[0]["rows that turn it"].items(), key=lambda x: x[1])
        assert (carries, turned > 0.9) == ("the quality" if row["seed"] == 4 else "“the”", True)
        left = min(max(found["lead"][head] for found in sets) for head in sets[0]["lead"])
        assert left < 0.1 if row["seed"] == 0 else left > 0.2, row
        looks = sets[1]["looks"]
        assert looks["none"][0] < 0.4, row
        assert looks["both"][0] > 0.9, row
        assert looks["alone"][1] > 0.9, row


def test_what_is_kept_of_a_storyteller_is_its_training_in_int8(monkeypatch, tmp_path):
    ten = chapters.load("10_a_little_world")
    for seed in seeds.KEPT:
        (row,) = (x for x in WORLD["runs"] if (x["setup"], x["seed"]) == ("right", seed))
        judged = ten.judge(ten.shipped(seed), 1)
        assert judged["loss"] == pytest.approx(row["1000"]["loss"], abs=0.002)
        assert judged["so the"] == pytest.approx(row["1000"]["so the"], abs=0.01)
    monkeypatch.setattr(seeds, "FOLDER", tmp_path)
    monkeypatch.setattr(ten, "STEPS", 1)
    one = seeds.run_storyteller("right", 0)
    assert [*one] == ["setup", "seed", "1", "sample"]
    assert len((tmp_path / "storyteller-0.bin").read_bytes()) < 60_000


def test_results_are_of_the_chapters_as_they_are():
    for name, data in zip(FILES.split(", "), KEPT, strict=True):
        assert data["provenance"]["command"] == "make seeds"
        rows = [row for table, rows in data.items() if table != "provenance" for row in rows]
        assert {row["seed"] for row in rows} == {*seeds.OTHER_SEEDS.get(name, seeds.SEEDS)}
    training, keys = chapters.load("12_training"), chapters.load("22_fewer_keys")
    assert all(row["steps"] == training.LONG for row in RUNS["runs"])
    for row in GROUPS["runs"]:
        taken = [keys.COPY_STEPS] if row["origin"] == "from scratch" else keys.CHECKED
        assert [name for name in row if name.isdigit()] == [str(step) for step in taken]


@pytest.mark.parametrize(
    ("train", "setup", "rows"),
    [
        (seeds.run, MultiheadAttention, RUNS["runs"]),
        (seeds.part, seeds.PARTS[0], RUNS["parts"]),
        (partial(seeds.run_warm_up, steps=2), seeds.WARM_UPS[1], WARM_UPS["runs"]),
        (seeds.positions, "rotary", POSITIONS["runs"][2:]),
        (seeds.far_key, ("rotary", 0), FAR_KEY["runs"][4:]),
        (seeds.glasses, (2, "blind"), GLASSES["runs"]),
    ],
    ids=["runs", "parts", "warm-ups", "positions", "far key", "glasses"],
)
def test_they_can_be_made_again_from_their_seed(monkeypatch, train, setup, rows):
    training, positions = chapters.load("12_training"), chapters.load("20_positions")
    for chapter, name, less in (
        (training, "LONG", 3),
        (positions, "LONG_STEPS", 2),
        (chapters.load("02_two_heads"), "STEPS", (1, 3)),
    ):
        monkeypatch.setattr(chapter, name, less)
    learn = partial(positions.learn_short, steps=2)
    monkeypatch.setattr(positions, "learn_short", learn)
    monkeypatch.setattr(positions, "learn_seats", partial(positions.learn_seats, steps=2))
    monkeypatch.setattr(positions, "copied_until", partial(positions.copied_until, b=20))
    one = train(setup, 0)
    assert one.keys() == rows[0].keys()
    if train is seeds.part:
        return  # too few steps to get one right, from any seed
    assert one != {**train(setup, 1), "seed": 0}
    if train is seeds.run:
        assert one == train(setup, 0)


def test_a_part_is_silenced_after_training_or_from_the_first_step(monkeypatch):
    training, steps = chapters.load("12_training"), []
    train = training.train

    def watched(run, until):
        hooks = training.attentions(run.model)["decoder"].out_proj._forward_pre_hooks
        steps.append((until - run.done, len(hooks)))  # a hook silences a head
        train(run, until)

    monkeypatch.setattr(training, "LONG", 2)
    monkeypatch.setattr(training, "train", watched)
    seeds.part("decoder", 0)
    assert steps == [(2, 0), (0, 2), (0, 0), (2, 2)]


def test_keys_are_shared_as_their_origin_says(monkeypatch):
    keys = chapters.load("22_fewer_keys")
    copiers, taken = [], []

    def untrained(seed):
        copiers.append(keys.Copier())
        return copiers[-1]

    monkeypatch.setattr(keys, "learn_to_copy", untrained)
    monkeypatch.setattr(keys, "copied", lambda model: 1.0)
    monkeypatch.setattr(keys, "retrain", lambda model, seed: taken.append(model) or {0: 1.0})
    for origin in ("averaged", "first", "new", "from scratch"):
        row = seeds.share_keys((2, origin), 99)
    assert row == {"KV heads": 2, "origin": "from scratch", "seed": 99, "300": 1.0}
    four, scratch = copiers
    assert scratch.layers[1].num_kv_heads == 2
    heads = four.layers[1].in_proj_weight[64:].unflatten(0, (4, 2, 16))  # (2 * g, 2, d, e)
    averaged, first, new = (
        model.layers[1].in_proj_weight[64:].unflatten(0, (4, 16)) for model in taken
    )
    torch.testing.assert_close((averaged, first), (heads.mean(1), heads[:, 0]))
    assert not torch.isclose(new, averaged).any(-1).all()


def test_one_layer_without_warm_up_is_the_model_of_the_chapter():
    """To the end, where the learning rate is a tenth of what it was."""
    training = chapters.load("12_training")
    begun = training.begin(training.backwards, 2, 3)
    training.train(begun, 3)
    mine = seeds.run_warm_up((1, "post-LN", 0, 0.008), 0, steps=3)
    assert mine["loss"] == pytest.approx(training.judge(begun)[0], abs=1e-4)

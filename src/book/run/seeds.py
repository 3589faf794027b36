"""Trains the models of the chapter "Training" from several seeds, and keeps what came out as data.

    make seeds

The loop, the tasks and the measurements are the chapter's own; the chapter draws the result.
"""

import json
from pathlib import Path
from typing import Any

import annotated_attention
from annotated_attention import MultiheadAttention, chapters
from annotated_attention.measure import provenance
from annotated_attention.mistakes import (
    MergeWithoutTranspose,
    SplitAndMergeWithoutTranspose,
    SplitWithoutTranspose,
)

DATA = Path(annotated_attention.__file__).parent / "data" / "training.json"
SEEDS = range(5)
# The chapter's task, heads, the constant that says how many steps, and the class that attends.
SETUPS: list[tuple[str, int, str, type[MultiheadAttention]]] = [
    ("ten_backwards", 1, "STEPS", MultiheadAttention),
    ("backwards", 2, "LONG", MultiheadAttention),
    ("backwards", 2, "LONG", MergeWithoutTranspose),
    ("backwards", 2, "LONG", SplitAndMergeWithoutTranspose),
    ("ten_forwards", 2, "STEPS", MultiheadAttention),
    ("ten_forwards", 2, "STEPS", SplitWithoutTranspose),
    ("ten_forwards", 2, "STEPS", SplitAndMergeWithoutTranspose),
]
# Layers, heads, shortest and longest period of the models that copy.
COPIERS = [(2, 1, 4, 16), (2, 4, 4, 16), (1, 1, 4, 16), (1, 1, 10, 10)]


def run(setup: tuple[str, int, str, type[MultiheadAttention]], seed: int) -> dict[str, Any]:
    """Train one model of the chapter and judge it as the chapter does."""
    training: Any = chapters.load("10_training")
    task, heads, constant, attention = setup
    steps = getattr(training, constant)
    begun = training.begin(getattr(training, task), heads, steps, attention, seed)
    training.train(begun, steps)
    loss, accuracy, exact = (round(number, 4) for number in training.judge(begun))
    return {
        "task": task, "heads": heads, "steps": steps, "attention": attention.__name__, "seed": seed,
        "loss": loss, "accuracy": accuracy, "exact match": exact,
    }  # fmt: skip


def parts(seed: int) -> list[dict[str, Any]]:
    """Silence each attention of the right model: after training, and from its first step on."""
    training: Any = chapters.load("10_training")

    def begun() -> Any:
        return training.begin(training.backwards, 2, training.LONG, seed=seed)

    whole = begun()
    training.train(whole, training.LONG)
    left = training.contributions(whole)
    rows = []
    for part in training.attentions(whole.model):
        never = begun()
        attention = training.attentions(never.model)[part]
        with training.silenced(*((attention, head) for head in range(attention.num_heads))):
            training.train(never, training.LONG)
            exact = training.judge(never)[2]
        silent = {"silenced": left[f"{part}, both heads"][2], "never there": exact}
        rows.append({"part": part, "seed": seed} | {x: round(y, 4) for x, y in silent.items()})
    return rows


def copier(setup: tuple[int, int, int, int], seed: int) -> dict[str, Any]:
    """Train one model that copies; with two layers, silence its heads and say what they do."""
    training: Any = chapters.load("10_training")
    layers, heads, *periods = setup
    model, curve = training.learn_to_copy(layers, heads, seed, tuple(periods))
    measured = {"accuracy": curve[training.COPY_STEPS]}
    if layers == 2:
        measured |= training.silenced_copies(model)
        previous, behind = training.roles(model).unbind(-1)
        measured |= {"previous": previous[0].max().item(), "behind": behind[1].max().item()}
        for role in ("queries", "keys", "values"):
            measured[f"plain {role}"] = training.copied_if_plain(model, role)
        measured["one head"] = min(
            alone(training, model, attention, head)
            for attention in model.layers
            for head in range(heads)
        )
    return {"setup": setup, "seed": seed} | {name: round(x, 4) for name, x in measured.items()}


def alone(training: Any, model: Any, attention: MultiheadAttention, head: int) -> float:
    """Measure how well a model copies with one head silenced."""
    with training.silenced((attention, head)):
        return float(training.copied(model))


def main() -> None:
    """Train everything, with a progress bar, and rewrite the data."""
    found: dict[str, Any] = {"provenance": provenance([]) | {"command": "make seeds"}, "runs": []}
    found |= {"parts": [], "copying": []}
    total = len(SETUPS) * len(SEEDS)
    for seed in SEEDS:
        for setup in SETUPS:
            row = run(setup, seed)
            found["runs"].append(row)
            done = len(found["runs"])
            bar = ("#" * (20 * done // total)).ljust(20, ".")
            what = f"{row['task']}, {row['attention']}, seed {seed}"
            print(f"[{bar}] {done}/{total} {what}: exact {row['exact match']}", flush=True)
        found["parts"] += parts(seed)
        found["copying"] += [copier(setup, seed) for setup in COPIERS]
        print(f"seed {seed}: parts and copiers done", flush=True)
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

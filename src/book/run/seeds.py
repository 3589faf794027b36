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
from annotated_attention.mistakes import MergeWithoutTranspose, SplitAndMergeWithoutTranspose

DATA = Path(annotated_attention.__file__).parent / "data" / "training.json"
SEEDS = range(5)
# The chapter's task, heads, the constant that says how many steps, and the class that attends.
SETUPS: list[tuple[str, int, str, type[MultiheadAttention]]] = [
    ("ten_backwards", 1, "STEPS", MultiheadAttention),
    ("backwards", 2, "LONG", MultiheadAttention),
    ("backwards", 2, "LONG", MergeWithoutTranspose),
    ("backwards", 2, "LONG", SplitAndMergeWithoutTranspose),
    ("ten_forwards", 2, "STEPS", MultiheadAttention),
    ("ten_forwards", 2, "STEPS", SplitAndMergeWithoutTranspose),
]


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


def main() -> None:
    """Train everything, with a progress bar, and rewrite the data."""
    found: dict[str, Any] = {"provenance": provenance([]) | {"command": "make seeds"}, "runs": []}
    total = len(SETUPS) * len(SEEDS)
    for seed in SEEDS:
        for setup in SETUPS:
            row = run(setup, seed)
            found["runs"].append(row)
            done = len(found["runs"])
            bar = ("#" * (20 * done // total)).ljust(20, ".")
            what = f"{row['task']}, {row['attention']}, seed {seed}"
            print(f"[{bar}] {done}/{total} {what}: exact {row['exact match']}", flush=True)
    DATA.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

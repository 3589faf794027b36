"""Answers to the exercises of “Speed”."""

from typing import Any

from annotated_attention import measured


def peaks(name: str) -> dict[int, float]:
    found = measured.load()
    assert found is not None
    row = next(row for row in found["memory"] if row["name"] == name)
    return {n: b / 2**20 for n, b in zip(row["lengths"], row["bytes"], strict=True) if b}


LESS, MORE = peaks("final class"), peaks("final class, weights")

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_mebibytes": [
        ((LESS[8192], MORE[8192]), f"✓ mebibytes: close: {LESS[8192]:,.0f} MiB without weights "),
        ((0.8 * LESS[8192], 1.2 * MORE[8192]), "✓ "),
        ((MORE[8192], LESS[8192]), "the two are swapped"),
        ((LESS[4096], MORE[8192]), "that is the memory at half the length"),
        ((4 * LESS[4096], MORE[8192]), "nothing of size n² is kept"),
        ((LESS[8192], 2 * MORE[4096]), "there are n² weights"),
        ((LESS[8192] * 2**20, MORE[8192] * 2**20), "that reads like bytes"),
        ((LESS[8192], MORE[8192] / 1024), "that reads like gibibytes"),
        ((3 * LESS[8192], MORE[8192]), "without weights 502.184 MiB is too much. Which power of n"),
        ((LESS[8192], 0), "with weights 0 MiB is too little"),
    ],
}  # fmt: skip

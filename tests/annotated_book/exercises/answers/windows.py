"""Answers to the exercise of “Windows”."""

from typing import Any

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_counts": [
        ([1, 3, 4, 4, 10], "it sees them besides"),
        ([1, 3, 4, 6, 20], "look at the three layers again: 20"),
    ],
}

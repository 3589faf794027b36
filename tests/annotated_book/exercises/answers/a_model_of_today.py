"""Answers to the exercises of “A model of today”."""

from typing import Any

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_config": [
        ([4096, 4, 147_456], "✓ "),
        ([4096, 32, 147_456], "each serves 32 / 8"),
        ([4096, 4, 5], "look at the third number again: 5"),
    ],
    "check_reasons": [
        ([3, 4, 1, 2], "✓ "),
        ([3, 2, 1, 4], "the second chunk begins at position 3"),
        ([1, 4, 1, 2], "model A is not right with the rotation: a rotation turns"),
        ([3, 4, 1, 5], "from 1 to 4"),
    ],
    "check_tokens": [
        ([0, 1, 2, 3, 0, 2, 1, 3, 1, 0, 3, 2], "✓ "),
        ([0, 1, 2, 3] * 3, "the head is right 7 times. At index 5 stands 1 after 0"),
        ([0, 1, 2, 4] * 3, "the tokens are 0, 1, 2 and 3"),
        ([0, 1, 2], "twelve whole numbers"),
    ],
}

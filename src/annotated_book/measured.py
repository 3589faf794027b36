"""The committed results of the benchmark.

``make bench`` writes them to ``data/benchmarks.json``, with the machine and the date: the times of
all contenders of each case, in milliseconds and as ratios, and the peaks of memory. The chapter
"Speed" says how they are measured; it and others read them here.
"""

import json
from pathlib import Path
from typing import Any

__all__ = ["describe", "find", "load", "misses_goal", "origin"]

DATA = Path(__file__).parent / "data" / "benchmarks.json"


def load() -> dict[str, Any]:
    """Read the committed results.

    Returns:
        ``provenance``, ``times`` and ``memory``, as ``make bench`` writes them.

    Examples:
        >>> from annotated_book import measured
        >>> sorted(measured.load())
        ['memory', 'provenance', 'times']
    """
    return json.loads(DATA.read_text(encoding="utf-8"))


def find(section: str, **wanted: Any) -> list[dict[str, Any]]:
    """Read the committed cases of one section.

    Args:
        section: ``"one race"``, ``"cache"`` and so on: what is compared.
        **wanted: further fields that the cases must have, such as ``mode="forward"``.

    Examples:
        >>> from annotated_book import measured
        >>> case = measured.find("one by one", mode="forward")[0]
        >>> case["section"], case["mode"]
        ('one by one', 'forward')
    """
    rows = [row for row in load()["times"] if row["section"] == section]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def origin(section: str) -> dict[str, Any]:
    """Tell where the committed cases of one section come from: the machine, the date and so on.

    Args:
        section: as in ``find``; it may have been measured anew, alone.

    Examples:
        >>> from annotated_book import measured
        >>> "cpu" in measured.origin("one race")
        True
    """
    whole = load()["provenance"]
    return whole.get("renewed", {}).get(section, whole)


def misses_goal(row: dict[str, Any]) -> bool:
    """Tell whether a case of the final class takes longer than its goal allows.

    The goal is 1.05 times the time of PyTorch's class, and 1.07 times for a boolean (n, m) mask
    with weights at n = 2048.

    Examples:
        >>> from annotated_book import measured
        >>> row = {"size": (2, 3, 24, 4), "mode": "inference", "mask": "none", "weights": True}
        >>> measured.misses_goal(row | {"ratios": {"PyTorch": {"final class": (1.03, 1.06, 1.08)}}})
        True
    """
    special = row["mask"] == "boolean" and row["weights"] and row["size"][1] == 2048
    return row["ratios"]["PyTorch"]["final class"][1] > (1.07 if special else 1.05)


def describe(row: dict[str, Any]) -> str:
    """Name a case of the final class, with its time as a multiple of PyTorch's.

    Examples:
        >>> from annotated_book import measured
        >>> row = {"size": (2, 3, 24, 4), "mode": "inference", "mask": "none", "weights": True}
        >>> row |= {"memory": "kept", "ratios": {"PyTorch": {"final class": (1.03, 1.06, 1.08)}}}
        >>> measured.describe(row)
        'n = 3, inference, mask none, with weights, memory kept: 1.06'
    """
    weights = "with" if row["weights"] else "without"
    case = f"n = {row['size'][1]}, {row['mode']}, mask {row['mask']}, {weights} weights"
    return f"{case}, memory {row['memory']}: {row['ratios']['PyTorch']['final class'][1]:.2f}"

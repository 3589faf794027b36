"""The benchmark, and its committed results.

    make bench                                    # or: python -m annotated_attention.measure
    python -m annotated_attention.measure --seconds 0.2 --only versions --output x.json  # a look
    python -m annotated_attention.measure --only memory --machine cpu    # renew one section

All contenders of a case compute the same result, which is asserted on outputs and gradients before
anything is timed. Then they take turns in one process, and each ratio is taken within one round, so
that whatever slows the machine slows all of them. What the process did before may still slow some
contenders more than others, as the section "allocator" shows. A number is a median over the rounds,
with its quartiles. The timer is ``torch.utils.benchmark``.

The results are in ``data/benchmarks.json``, by machine: ``"cpu"``, and ``"cuda"`` if the benchmark
has run on a GPU. The chapter “Speed” and the goals of the final class read them with ``load``.
"""

import json
from pathlib import Path
from typing import Any

from annotated_attention.measure.machine import provenance

__all__ = ["DATA", "describe", "find", "load", "misses_goal", "provenance"]

DATA = Path(__file__).parents[1] / "data" / "benchmarks.json"


def load(machine: str = "cpu") -> dict[str, Any] | None:
    """Read the committed results.

    Args:
        machine: ``"cpu"`` or ``"cuda"``.

    Returns:
        ``provenance``, ``times`` and ``memory``, as ``python -m annotated_attention.measure``
        writes them, or None where nothing was measured.

    Raises:
        ValueError: ``machine`` is neither of the two.

    Examples:
        >>> from annotated_attention import measure
        >>> sorted(measure.load())
        ['memory', 'provenance', 'times']
    """
    if machine not in ("cpu", "cuda"):
        raise ValueError(f'machine ({machine!r}) must be "cpu" or "cuda"')
    return json.loads(DATA.read_text(encoding="utf-8")).get(machine)


def find(section: str, **wanted: Any) -> list[dict[str, Any]]:
    """Read the committed cases of one section, measured on the CPU.

    Args:
        section: ``"versions"``, ``"masks"`` and so on; see ``plan``.
        **wanted: further fields that the cases must have, such as ``mode="forward"``.

    Examples:
        >>> from annotated_attention import measure
        >>> case = measure.find("versions", mode="forward")[0]
        >>> case["section"], case["mode"]
        ('versions', 'forward')
        >>> measure.DATA.name
        'benchmarks.json'
    """
    found = load()
    rows = [row for row in found["times"] if row["section"] == section] if found else []
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def misses_goal(row: dict[str, Any]) -> bool:
    """Tell whether a case of the final class takes longer than its goal allows.

    The goal is 1.05 times the time of PyTorch's class, and 1.07 times for a boolean (n, m) mask
    with weights at n = 2048.

    Examples:
        >>> from annotated_attention import measure
        >>> row = {"size": (2, 3, 24, 4), "mode": "inference", "mask": "none", "weights": True}
        >>> measure.misses_goal(row | {"ratios": {"PyTorch": {"final class": (1.03, 1.06, 1.08)}}})
        True
    """
    special = row["mask"] == "boolean" and row["weights"] and row["size"][1] == 2048
    return row["ratios"]["PyTorch"]["final class"][1] > (1.07 if special else 1.05)


def describe(row: dict[str, Any]) -> str:
    """Name a case of the final class, with its time as a multiple of PyTorch's.

    Examples:
        >>> from annotated_attention import measure
        >>> row = {"size": (2, 3, 24, 4), "mode": "inference", "mask": "none", "weights": True}
        >>> row |= {"memory": "kept", "ratios": {"PyTorch": {"final class": (1.03, 1.06, 1.08)}}}
        >>> measure.describe(row)
        'n = 3, inference, mask none, with weights, memory kept: 1.06'
    """
    weights = "with" if row["weights"] else "without"
    case = f"n = {row['size'][1]}, {row['mode']}, mask {row['mask']}, {weights} weights"
    return f"{case}, memory {row['memory']}: {row['ratios']['PyTorch']['final class'][1]:.2f}"

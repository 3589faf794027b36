"""Measure the memory that a call takes at most, against the length of the sequence."""

import re
from pathlib import Path
from typing import Any

import torch

from annotated_attention.multihead import MultiheadAttention
from press.measure.machine import new_process

LENGTHS = (2048, 4096)  # of one sequence
E, H = 512, 8
WAYS: dict[str, dict[str, bool]] = {
    "final class": {"need_weights": False},
    "final class, causal": {"need_weights": False, "is_causal": True},
    "final class, weights": {"need_weights": True},
}
FORGET = Path("/proc/self/clear_refs")  # Linux: the highest point so far


def memory(name: str) -> dict[str, Any]:
    """Measure one way at each length, forward and backward, each in a process of its own.

    Returns:
        ``name``, ``lengths`` and, for each of them, ``bytes``.
    """
    return {"name": name, "lengths": LENGTHS, "bytes": [peak(name, n) for n in LENGTHS]}


def peak(name: str, n: int) -> int:
    """Return the peak memory of a call with its backward pass, in bytes, beyond what was in use.

    The call runs in a new process, because an allocator may keep freed memory for the next call.
    """
    with new_process({}) as elsewhere:
        return elsewhere(_raised, name, n)


def _raised(name: str, n: int) -> int:
    """Return the bytes by which one call raises what is held."""
    module, options = MultiheadAttention(E, H, batch_first=True), WAYS[name]
    x = torch.randn(1, 16, E)
    module(x, x, x, **options)[0].sum().backward()  # the first call loads libraries
    x = torch.randn(1, n, E, requires_grad=True)
    FORGET.write_text("5", "utf-8")
    before = _highest()
    module(x, x, x, **options)[0].sum().backward()
    return _highest() - before


def _highest() -> int:
    """Return the most memory that was held, in bytes."""
    (kilobytes,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
    return 1024 * int(kilobytes)

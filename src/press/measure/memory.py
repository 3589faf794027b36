"""Measure the memory that a call takes at most, against the length of the sequence."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from annotated_attention.multihead import MultiheadAttention
from press.measure.machine import new_process
from press.measure.plan import ALLOCATOR

LENGTHS = (2048, 4096)  # of one sequence
E, H = 512, 8


def attend(n: int, **options: bool) -> Callable[[], None]:
    """Make a call of the final class on n tokens, forward and backward."""
    module, x = MultiheadAttention(E, H, batch_first=True), torch.randn(1, n, E, requires_grad=True)
    return lambda: module(x, x, x, **options)[0].sum().backward()


WAYS: dict[str, Callable[[int], Callable[[], None]]] = {
    "final class": partial(attend, need_weights=False),
    "final class, causal": partial(attend, need_weights=False, is_causal=True),
    "final class, weights": partial(attend, need_weights=True),
}
FORGET = Path("/proc/self/clear_refs")  # Linux: the highest point so far


def memory(name: str) -> dict[str, Any]:
    """Measure one way at each length, each in a process of its own.

    Returns:
        ``name``, ``lengths`` and, for each of them, ``bytes``.
    """
    return {"name": name, "lengths": LENGTHS, "bytes": [peak(name, n) for n in LENGTHS]}


def peak(name: str, n: int) -> int:
    """Return the peak memory of a way, in bytes, beyond what was in use.

    In a new process, which gives freed memory back: what is kept would hide what a call takes.
    """
    with new_process(ALLOCATOR["returned"]) as elsewhere:
        return elsewhere(_raised, name, n)


def _raised(name: str, n: int) -> int:
    """Return the bytes by which one call raises what is held."""
    WAYS[name](16)()  # the first call loads libraries
    call = WAYS[name](n)
    FORGET.write_text("5", "utf-8")
    before = _highest()
    call()
    return _highest() - before


def _highest() -> int:
    """Return the most memory that was held, in bytes."""
    (kilobytes,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
    return 1024 * int(kilobytes)

"""Measure the memory that a call takes at most, against the length of the sequence."""

import os
import re
from pathlib import Path
from typing import Any

import torch

from annotated_attention.masks import block_padding
from annotated_attention.multihead import MultiheadAttention
from book.measure.machine import new_process

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)  # of one sequence
E, H = 512, 8
WAYS: dict[str, dict[str, bool]] = {
    "final class": {"need_weights": False},
    "final class, causal": {"need_weights": False, "is_causal": True},
    "final class, padding": {"need_weights": False},
    "final class, weights": {"need_weights": True},
}
FORGET = Path("/proc/self/clear_refs")  # Linux: the highest point so far; nothing else is measured


def memory(name: str) -> dict[str, Any]:
    """Measure one way at each length, forward and backward, each in a process of its own.

    Returns:
        ``bytes`` by length, or None if the call would need more than half of the machine's memory.
    """
    found = list[int | None]()
    last: int | None = 0
    for n in LENGTHS:  # twice the length takes four times the bytes, at most
        if last is not None:
            last = None if 4 * last > whole_memory() / 2 else peak(name, n)
        found.append(last)
    return {"name": name, "lengths": list(LENGTHS), "bytes": found}


def whole_memory() -> int:
    """Return how many bytes of memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak(name: str, n: int) -> int:
    """Return the peak memory of a call with its backward pass, in bytes, beyond what was in use.

    The call runs in a new process, because an allocator may keep freed memory for the next call.
    """
    with new_process({}) as elsewhere:
        return elsewhere(_raised, name, n)


def _raised(name: str, n: int) -> int:
    """Return the bytes by which one call raises what is held."""
    module, options = MultiheadAttention(E, H, batch_first=True), WAYS[name]
    padded = block_padding(torch.tensor([n // 2]), n) if "padding" in name else None
    x = torch.randn(1, 16, E)
    module(x, x, x, **options)[0].sum().backward()  # the first call loads libraries
    x = torch.randn(1, n, E, requires_grad=True)
    FORGET.write_text("5", "utf-8")
    before = _highest()
    module(x, x, x, padded, **options)[0].sum().backward()
    return _highest() - before


def _highest() -> int:
    """Return the most memory that was held, in bytes."""
    (kilobytes,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
    return 1024 * int(kilobytes)

"""Measure the memory that a call takes at most, against the length of the sequence."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated_attention.masks import block_padding
from annotated_attention.multihead import MultiheadAttention
from book.measure.machine import free_memory
from book.measure.process import new_process

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)  # of one sequence
E, H = 512, 8

Attend = Callable[[Tensor], Tensor]


def ways() -> dict[str, Callable[[int], Attend]]:
    """List what is measured: for a length, a function of x, one sequence of length n."""

    def ours(*, padded: bool = False, **options: Any) -> Callable[[int], Attend]:
        module = MultiheadAttention(E, H, batch_first=True)

        def at(n: int) -> Attend:
            padding = block_padding(torch.tensor([n // 2]), n) if padded else None
            return lambda x: module(x, x, x, padding, **options)[0]

        return at

    return {
        "final class": ours(need_weights=False),
        "final class, causal": ours(need_weights=False, is_causal=True),
        "final class, padding": ours(need_weights=False, padded=True),
        "final class, weights": ours(need_weights=True),
    }


def memory(name: str) -> dict[str, Any]:
    """Measure one way at each length, forward and backward, each in a process of its own.

    Returns:
        ``bytes`` by length, or None if the call would need more than half of the free memory.
    """
    found = list[int | None]()
    last: int | None = 0
    for n in LENGTHS:  # twice the length takes four times the bytes, at most
        if last is not None:
            last = None if 4 * last > free_memory() / 2 else peak(name, n)
        found.append(last)
    return {"name": name, "lengths": list(LENGTHS), "bytes": found}


def peak(name: str, n: int) -> int:
    """Return the peak memory of a call with its backward pass, in bytes, beyond what was in use.

    The call runs in a new process, because an allocator may keep freed memory for the next call.
    """
    with new_process({}) as elsewhere:
        return elsewhere(_raised, name, n)


def _raised(name: str, n: int) -> int:
    """Return the bytes by which one call raises what is held."""
    at = ways()[name]
    at(16)(torch.randn(1, 16, E)).sum().backward()  # the first call loads libraries
    x = torch.randn(1, n, E, requires_grad=True)
    attend, before = at(n), _start()
    attend(x).sum().backward()
    return _highest() - before


def _start() -> int:
    """Forget the highest point so far, where that is possible, and return where it stands."""
    if (forget := Path("/proc/self/clear_refs")).exists():
        forget.write_text("5", "utf-8")
    return _highest()


def _highest() -> int:
    """Return the most memory that was held. (Linux's rusage remembers the parent process.)"""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = status.read_text("utf-8").splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("VmHWM"))

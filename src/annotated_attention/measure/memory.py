"""Measure the memory that a call takes at most, against the length of the sequence."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.masks import block_padding
from annotated_attention.measure.machine import free_memory
from annotated_attention.measure.process import in_new_process
from annotated_attention.multihead import MultiheadAttention

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)  # of one sequence
AGAIN, TIMES = 1024, 3  # the length that is measured several times, to see what chance does
E, H = 512, 8

Attend = Callable[[Tensor], Tensor]


def ways(device: str) -> dict[str, Callable[[int], Attend]]:
    """List what is measured: for a length, a function of x, one sequence of length n."""

    def ours(*, padded: bool = False, dropout: float = 0.0, **options: Any) -> Any:
        module = MultiheadAttention(E, H, dropout, batch_first=True, device=device)

        def at(n: int) -> Attend:
            half = torch.tensor([n // 2], device=device)
            padding = block_padding(half, n) if padded else None
            return lambda x: module(x, x, x, padding, **options)[0]

        return at

    theirs = nn.MultiheadAttention(E, H, batch_first=True, device=device)
    return {
        "final class": ours(need_weights=False),
        "final class, causal": ours(need_weights=False, is_causal=True),
        "final class, padding": ours(need_weights=False, padded=True),
        "final class, dropout": ours(need_weights=False, dropout=0.1),
        "final class, weights": ours(need_weights=True),
        "PyTorch": lambda n: lambda x: theirs(x, x, x, need_weights=False)[0],
        "PyTorch, weights": lambda n: lambda x: theirs(x, x, x)[0],
    }


def memory(name: str, device: str = "cpu") -> dict[str, Any]:
    """Measure one way at each length, forward and backward, each in a process of its own.

    Returns:
        ``bytes`` by length, or None if the call would need more than half of the free memory;
        and ``again``, the results of several measurements at the length ``AGAIN``.
    """
    found = list[int | None]()
    last: int | None = 0
    for n in LENGTHS:  # twice the length takes four times the bytes, at most
        if last is not None:
            last = None if 4 * last > free_memory(device) / 2 else peak(name, n, device)
        found.append(last)
    once = found[LENGTHS.index(AGAIN)]
    again = [once, *(peak(name, AGAIN, device) for _ in range(TIMES - 1))]
    return {"name": name, "lengths": list(LENGTHS), "bytes": found, "again": again}


def peak(name: str, n: int, device: str) -> int:
    """Return the peak memory of a call with its backward pass, in bytes, beyond what was in use.

    The call runs in a new process, because an allocator may keep freed memory for the next call.
    """
    return in_new_process(_raised, name, n, device)


def _raised(name: str, n: int, device: str) -> int:
    """Return the bytes by which one call raises what is held."""
    at = ways(device)[name]
    at(16)(torch.randn(1, 16, E, device=device)).sum().backward()  # the first call loads libraries
    x = torch.randn(1, n, E, device=device, requires_grad=True)
    attend, before = at(n), _start(device)
    attend(x).sum().backward()
    return _highest(device) - before


def _start(device: str) -> int:
    """Forget the highest point so far, where that is possible, and return where it stands."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif (forget := Path("/proc/self/clear_refs")).exists():
        forget.write_text("5")
    return _highest(device)


def _highest(device: str) -> int:
    """Return the most memory that was held. (Linux's rusage remembers the parent process.)"""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = status.read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("VmHWM"))

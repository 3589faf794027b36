"""Describe where the numbers come from, and what the machine can do at most."""

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer

WIDTH = 4096  # of the square matrices that show what the machine can do at most
SECONDS = 1  # for which they are multiplied


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """Describe the machine, the versions, the date and the command.

    Args:
        command: the arguments of ``python -m annotated_attention.measure``.

    Examples:
        >>> import sys
        >>> import torch
        >>> from annotated_attention import measure
        >>> measure.provenance(sys.argv)["torch"] == torch.__version__
        True
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    cpu = Path("/proc/cpuinfo")
    models = [x for x in cpu.read_text().splitlines() if "model name" in x] if cpu.exists() else []
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": models[0].partition(": ")[2] if models else platform.processor(),
        "threads": torch.get_num_threads(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() + ("+" if changed.stdout.strip() else ""),
        "command": shlex.join(["python", "-m", "annotated_attention.measure", *command]),
    }


def peak_flops(device: str, dtype: torch.dtype) -> float:
    """Return the FLOP/s of one large product, with which attention can be compared."""
    matrix = torch.randn(WIDTH, WIDTH, device=device, dtype=dtype)
    timer = Timer("m @ m", globals={"m": matrix}, num_threads=torch.get_num_threads())
    fastest = min(timer.blocked_autorange(min_run_time=SECONDS).times)
    return float(f"{2 * WIDTH**3 / fastest:.4g}")


def free_memory(device: str) -> int:
    """Return how many bytes the machine, or its GPU, could still hand out."""
    if device == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]
    lines = Path("/proc/meminfo")
    if not lines.exists():
        return 4 * 2**30
    found = [x.split()[1] for x in lines.read_text().splitlines() if "MemAvailable" in x]
    return 1024 * int(found[0])

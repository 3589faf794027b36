"""Describe where the numbers come from, and how much memory is left."""

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """Describe the machine, the versions, the date and the command.

    Args:
        command: the arguments of ``python -m book.measure``.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    cpu = Path("/proc/cpuinfo")
    models = (
        [x for x in cpu.read_text("utf-8").splitlines() if "model name" in x]
        if cpu.exists()
        else []
    )
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": models[0].partition(": ")[2] if models else platform.processor(),
        "threads": torch.get_num_threads(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() + ("+" if changed.stdout.strip() else ""),
        "command": shlex.join(["python", "-m", "book.measure", *command]),
    }


def free_memory() -> int:
    """Return how many bytes the machine could still hand out."""
    lines = Path("/proc/meminfo")
    if not lines.exists():
        return 4 * 2**30
    found = [x.split()[1] for x in lines.read_text("utf-8").splitlines() if "MemAvailable" in x]
    return 1024 * int(found[0])

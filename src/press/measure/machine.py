"""Describe where the numbers come from, and call functions in a process of their own."""

import multiprocessing
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch


def provenance(command: str) -> dict[str, Any]:
    """Describe the machine, the versions, the date and the command."""
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    cpu = Path("/proc/cpuinfo")
    models = re.findall("model name.*: (.*)", cpu.read_text("utf-8")) if cpu.exists() else []
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": models[0] if models else platform.processor(),
        "threads": torch.get_num_threads(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() + ("+" if changed.stdout.strip() else ""),
        "command": command,
    }


@contextmanager
def new_process(environment: Mapping[str, str]) -> Iterator[Callable[..., Any]]:
    """Start a new process, and yield a function that calls other functions in it.

    Args:
        environment: variables that only the new process has; the C library reads its own once.

    Yields:
        ``call(function, *arguments)`` for functions that can be imported, so no lambdas. It raises
        whatever the function raises.
    """

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        with patch.dict(os.environ, environment):  # the process starts with the first call
            return pool.submit(function, *arguments).result()

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield call

"""Call a function in a process of its own."""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def in_new_process(
    function: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None
) -> Any:
    """Return what a function returns in a process that starts afresh.

    Args:
        function: one that can be imported, so no lambda.
        *arguments: its own.
        environment: variables that only the new process has; the C library reads its own once.

    Raises:
        BrokenProcessPool: the process died.
        Exception: whatever the function raises.
    """
    before = dict(os.environ)
    os.environ.update(environment or {})
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()
    finally:
        os.environ.clear()
        os.environ.update(before)

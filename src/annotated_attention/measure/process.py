"""Call a function in a process of its own."""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
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
        RuntimeError: the process died, of too little memory for example.
        Exception: whatever the function raises.
    """
    before = dict(os.environ)
    os.environ.update(environment or {})
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()
    except BrokenProcessPool as error:
        given = ", ".join(map(str, arguments))
        raise RuntimeError(f"the process for {function.__name__} died, given {given}") from error
    finally:
        os.environ.clear()
        os.environ.update(before)

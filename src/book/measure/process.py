"""Call functions in a process of their own."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any


@contextmanager
def new_process(environment: Mapping[str, str]) -> Iterator[Callable[..., Any]]:
    """Start a new process, and yield a function that calls other functions in it.

    Args:
        environment: variables that only the new process has; the C library reads its own once.

    Yields:
        ``call(function, *arguments)`` for functions that can be imported, so no lambdas. It raises
        whatever the function raises, and a RuntimeError where the process died, of too little
        memory for example.
    """
    before = dict(os.environ)

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        os.environ.update(environment)  # the process starts with the first call
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            given = ", ".join(map(str, arguments))
            raise RuntimeError(
                f"the process for {function.__name__} died, given {given}"
            ) from error
        finally:
            os.environ.clear()
            os.environ.update(before)

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield call


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process that ends with the call, and return the result."""
    with new_process({}) as call:
        return call(function, *arguments)

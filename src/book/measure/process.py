"""Call functions in a process of their own."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


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

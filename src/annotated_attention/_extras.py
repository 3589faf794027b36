"""What an extra of the package brings."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Let the error about a library that is missing name the extra that brings it.

    Args:
        extra: one of ``project.optional-dependencies`` in ``pyproject.toml``.

    Raises:
        ModuleNotFoundError: what is imported in the block is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install 'annotated-attention[{extra}]'",
            name=error.name,
        ) from None

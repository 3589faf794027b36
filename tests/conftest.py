"""Check the shape comments of ``src`` while the tests run."""

import pytest

from book.shapes import PytestPlugin, install_import_hook

pytest_plugins = ["pytester"]  # runs pytest on a small project


def pytest_configure(config: pytest.Config) -> None:
    """Install the checker before a test imports the package, and let it judge the session."""
    checker = install_import_hook(root=config.rootpath)
    config.pluginmanager.register(PytestPlugin(checker), "shape-comments")

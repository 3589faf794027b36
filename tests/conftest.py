"""Check the shape comments of ``src`` while the tests run; find the trained weights."""

import os
from pathlib import Path

import pytest

from shape_comments.imports import install_import_hook
from shape_comments.pytest_plugin import PytestPlugin

pytest_plugins = ["pytester"]  # runs pytest on a small project

# For tensors as small as these, waiting for a second thread takes longer than the work.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Install the checker before a test imports the package, and let it judge the session."""
    checker = install_import_hook(root=config.rootpath)
    config.pluginmanager.register(PytestPlugin(checker), "shape-comments")


def weights(name: str) -> Path:
    """Give the folder of trained weights; where they are asked for they must be there."""
    from annotated_attention import pretrained
    from press.run.record import NoRecord, weights_are_there

    model = getattr(pretrained, name)
    try:
        there = weights_are_there(model)
    except NoRecord:
        there = False
    if not there:
        reason = "no trained weights: nothing was tested on them (`make TRAINED=1 test` does)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return pretrained.find_weights(model=model)


@pytest.fixture(scope="session")
def trained() -> Path:
    """Give the folder of the sentence encoder's weights."""
    return weights("ENCODER")


@pytest.fixture(scope="session")
def chat_model() -> Path:
    """Give the folder of the chat model's weights."""
    return weights("CHAT_MODEL")

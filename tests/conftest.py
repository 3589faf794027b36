"""Check the shape comments of ``src`` while the tests run; find the trained weights."""

import os
from pathlib import Path

import pytest

from press.run.shapes import install_import_hook
from shape_comments.comments import FALSE
from shape_comments.pytest_plugin import NAME, Session

pytest_plugins = ["pytester"]  # runs pytest on a small project

# For tensors as small as these, waiting for a second thread takes longer than the work.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Install the checker before a test imports the package, and let it judge the session."""
    checker = install_import_hook(root=config.rootpath)
    config.pluginmanager.register(StrictSession(checker, strict=True), NAME)


class StrictSession(Session):
    """Fails a session over a swallowed mismatch and, where everything ran, an unreached comment."""

    deselected = False

    def pytest_deselected(self) -> None:
        """Note that this is no full run."""
        self.deselected = True

    def pytest_sessionfinish(self, session, exitstatus):
        """Say, too, whether a worker has left something out."""
        super().pytest_sessionfinish(session, exitstatus)
        if (handed_over := getattr(session.config, "workeroutput", None)) is not None:
            handed_over["deselected"] = self.deselected

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take over what a worker saw. One that crashed makes no full run."""
        super().pytest_testnodedown(node)
        self.deselected |= getattr(node, "workeroutput", {}).get("deselected", True)

    def judge(self, session, exitstatus):
        """Find what was false and, in a full run that passes, what was never reached."""
        full = exitstatus == 0 and not self.deselected and is_full(session.config)
        unreached = self.checker.unreached() if full else []
        self.problems = {
            text: FALSE for x in self.checker.seen().values() for text in x.failed.values()
        }
        self.problems |= dict.fromkeys(unreached, FALSE)

    def pytest_terminal_summary(self, terminalreporter):
        """Print what was found, if anything."""
        if self.problems:
            terminalreporter.section("shape comments", red=True)
        for problem in self.problems:
            terminalreporter.write_line(problem)


def is_full(config: pytest.Config) -> bool:
    """Tell whether the command line leaves nothing out."""
    options = ("collectonly", "keyword", "markexpr", "lf", "ignore", "ignore_glob", "deselect")
    if any(getattr(config.option, name, None) for name in options):
        return False
    given = [(config.invocation_params.dir / arg).resolve() for arg in config.args]
    tests = [(config.rootpath / path).resolve() for path in config.getini("testpaths")]
    return all(any(test.is_relative_to(path) for path in given) for test in tests)


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

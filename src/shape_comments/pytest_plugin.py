"""Judge a test session by the shape comments of the code it ran."""

from typing import Any

import pytest

from shape_comments.checker import Checker

HANDED_OVER = "shape comments"


class PytestPlugin:
    """Fails a session over a swallowed mismatch and, where everything ran, an unreached comment."""

    def __init__(self, checker: Checker) -> None:
        """Judge by what ``checker`` has seen."""
        self.checker = checker
        self.deselected = False
        self.problems: list[str] = []

    def pytest_deselected(self) -> None:
        """Note that this is no full run."""
        self.deselected = True

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        """Judge the session; a worker of pytest-xdist hands what it saw to its controller."""
        if (handed_over := getattr(session.config, "workeroutput", None)) is not None:
            reached = sorted(self.checker.reached())
            handed_over[HANDED_OVER] = (self.checker.mismatches, reached, self.deselected)
            return
        self.problems = list(dict.fromkeys(self.checker.mismatches))
        if exitstatus == 0 and not self.deselected and _is_full(session.config):
            self.problems += self.checker.unreached()
        if exitstatus == 0 and self.problems:
            session.exitstatus = 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker saw. One that crashed has nothing, and fails the session."""
        output = getattr(node, "workeroutput", {})
        mismatches, reached, deselected = output.get(HANDED_OVER, ((), (), True))
        self.checker.mismatches += mismatches
        self.checker.reached_elsewhere |= set(reached)
        self.deselected |= deselected

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what was found."""
        if self.problems:
            terminalreporter.section("shape comments", red=True)
        for problem in self.problems:
            terminalreporter.write_line(problem)


def _is_full(config: Any) -> bool:
    """Tell whether the command line leaves nothing out."""
    options = ("collectonly", "keyword", "markexpr", "lf", "ignore", "ignore_glob", "deselect")
    if any(getattr(config.option, name, None) for name in options):
        return False
    given = [(config.invocation_params.dir / arg).resolve() for arg in config.args]
    tests = [(config.rootpath / path).resolve() for path in config.getini("testpaths")]
    return all(any(test.is_relative_to(path) for path in given) for test in tests)

"""Check the shape comments of ``src`` while the tests run; find the trained weights."""

import itertools
import os
from pathlib import Path

import pytest

from book.shapes import PytestPlugin, install_import_hook

pytest_plugins = ["pytester"]  # runs pytest on a small project

if "PYTEST_XDIST_WORKER" in os.environ:  # there is one for each processor
    os.environ.setdefault("OMP_NUM_THREADS", "1")

SECONDS = "annotated-attention/seconds"  # in pytest's cache: what each file took last time


def pytest_configure(config: pytest.Config) -> None:
    """Install the checker before a test imports the package, and let it judge the session."""
    checker = install_import_hook(root=config.rootpath)
    config.pluginmanager.register(PytestPlugin(checker), "shape-comments")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files that took longest last time first; the order within a file stays.

    At the end no worker is to wait for another's long file.
    """
    seconds = config.cache.get(SECONDS, {}) if hasattr(config, "cache") else {}
    items.sort(key=lambda item: -seconds.get(item.location[0], 0))


@pytest.fixture(scope="session")
def trained() -> Path:
    """Give the folder of the trained weights; where they are asked for they must be there."""
    from book.run.record import NoRecord, weights_are_there

    try:
        there = weights_are_there()
    except NoRecord:
        there = False
    if not there:
        reason = "no trained weights: nothing was tested on them (`make TRAINED=1 test` does)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from annotated_attention.pretrained import find_weights

    return find_weights()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which checks were left out, and why: a green run is not to look like a whole one."""
    left_out: dict[str, dict[str, int]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        files = left_out.setdefault(reason, {})
        file = report.nodeid.partition("::")[0]
        files[file] = files.get(file, 0) + 1
    for reason, files in left_out.items():
        terminalreporter.section(f"left out: {reason}", yellow=True)
        for file, count in sorted(files.items()):
            terminalreporter.line(f"{file}: {count} checks")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remember how long each file took, after a run on several workers."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.config.getoption("dist") != "loadfile":
        return
    seconds: dict[str, float] = {}
    for report in itertools.chain.from_iterable(reporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            file = report.location[0]
            seconds[file] = seconds.get(file, 0) + report.duration
    session.config.cache.set(SECONDS, session.config.cache.get(SECONDS, {}) | seconds)

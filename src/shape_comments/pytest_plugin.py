"""Check shape comments while pytest runs, and report them."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from shape_comments.checker import Checker
from shape_comments.comments import ABOVE, BELOW, FALSE, TWO_SIZES, Comment
from shape_comments.imports import Finder

NAME = "shape-comments"
COLUMNS = ("compared", "not reached", "not understood")


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup(NAME, "shape comments, compared with the values beside them")
    group.addoption(
        "--shape-comments",
        action="append",
        default=[],
        metavar="PATH",
        help="check the shape comments of modules imported from this file or folder, and report "
        "those that are false (may be repeated)",
    )
    group.addoption(
        "--shape-comments-strict",
        action="store_true",
        help="fail the session over what is reported",
    )
    group.addoption(
        "--shape-comments-own-lines",
        choices=(ABOVE, BELOW),
        default="",
        help="check comments on lines of their own, too: each is about the line above or below",
    )


def pytest_load_initial_conftests(early_config: Any) -> None:
    """Begin before a conftest imports the project."""
    config, options = early_config, early_config.known_args_namespace
    if not options.shape_comments:
        return
    root = config.invocation_params.dir
    checker = Checker(root.resolve(), options.shape_comments_own_lines)
    try:
        finder = Finder(checker, [root / path for path in options.shape_comments])
    except FileNotFoundError as error:
        raise pytest.UsageError(f"--shape-comments: there is no {error.filename}") from None
    config.add_cleanup(lambda: sys.meta_path.remove(finder))
    session = Session(checker, options.shape_comments_strict, finder.missed)
    config.pluginmanager.register(session, NAME)
    if getattr(options, "numprocesses", None):  # workers load what -p names after the conftest
        names = (os.environ.get("PYTEST_PLUGINS"), "shape_comments")
        os.environ["PYTEST_PLUGINS"] = ",".join(filter(None, names))


class Session:
    """What a test session has seen of the comments."""

    def __init__(self, checker: Checker, strict: bool, missed: Sequence[str] = ()) -> None:
        """Report what ``checker`` has seen; a strict one judges the session by it."""
        self.checker, self.strict, self.missed = checker, strict, missed
        self.seen: dict[str, Comment] = {}
        self.problems: dict[str, str] = {}  # what is said, and its level

    def judge(self, session: Any, exitstatus: int) -> None:
        """Find what there is to say."""
        self.checker.read_all()
        self.seen = self.checker.seen()
        self.problems = {
            text: level for x in self.seen.values() for level, text in x.failed.items()
        }

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        """Judge the session; a worker of pytest-xdist hands what it saw to its controller."""
        if (handed_over := getattr(session.config, "workeroutput", None)) is not None:
            handed_over[NAME] = [
                (x.path, x.line, x.source, x.reached, x.compared, x.failed, x.unclear)
                for x in self.checker.comments
            ]
            return
        self.judge(session, exitstatus)
        if exitstatus == 0 and self.problems and self.strict:
            session.exitstatus = 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker saw; one that crashed has nothing."""
        seen = getattr(node, "workeroutput", {}).get(NAME, ())
        self.checker.comments += [Comment(*x) for x in seen]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what was found."""
        terminalreporter.section("shape comments", red=bool(self.problems))
        for line in [*self._table(), *self._problems()]:
            terminalreporter.write_line(line)
        others = [x for x in self.seen.values() if _column(x) != COLUMNS[0]]
        for comment in others if terminalreporter.verbosity > 0 else ():
            says = ": ".join(filter(None, (_column(comment), comment.unclear)))
            terminalreporter.write_line(f"{comment.where}: {says}\n    {comment.source}")

    def _table(self) -> Iterator[str]:
        """Write how many comments each file has, and what became of them."""
        files: dict[str, Counter[str]] = {}
        for x in self.seen.values():
            files.setdefault(x.path, Counter())[_column(x)] += 1
        files["all"] = sum(files.values(), Counter())
        width = max(map(len, files))
        yield f"{'':{width}}  {'  '.join(('read', *COLUMNS))}"
        for file, counts in files.items():
            cells = (f"{counts[column]:{len(column)}}" for column in COLUMNS)
            yield f"{file:{width}}  {counts.total():4}  {'  '.join(cells)}"
        if self.missed:
            yield f"imported before the checks began: {', '.join(self.missed)}"
        if not any(x.reached for x in self.seen.values()):
            yield "no such line ran: do the tests import another copy of these files?"
        elif files["all"][COLUMNS[1]]:
            yield "not reached: no test runs it, or compiled, traced, or in a process of its own"

    def _problems(self) -> Iterator[str]:
        for level in (FALSE, TWO_SIZES):
            texts = [text for text, x in self.problems.items() if x == level]
            yield from [f"\n{level}: {len(texts)}"] * bool(texts) + texts


def _column(comment: Comment) -> str:
    """Say what became of a line's comments."""
    return COLUMNS[0 if comment.compared or comment.failed else 2 if comment.unclear else 1]

"""The test session fails over what the checker saw, and over what a full run never reached."""

import sys
import textwrap
from pathlib import Path

import pytest

from book.shapes.imports import Finder

PROJECT = {
    "pyproject.toml": """
        [tool.pytest.ini_options]
        testpaths = ["tests"]
        addopts = "--import-mode=importlib -p no:cacheprovider --disable-plugin-autoload -p xdist"
        pythonpath = ["src"]
        """,
    "src/annotated_attention/__init__.py": """
        def f(x, wide=False):
            if wide:
                return x[..., None]  # (n, d, 1)
            return x + 0  # (n, d)
        """,
    "tests/test_f.py": """
        import numpy
        from annotated_attention import f

        def test_f():
            assert f(numpy.ones((3, 6))).shape == (3, 6)
        """,
}
SWALLOWING = """
    import numpy
    from annotated_attention import f

    def test_swallowed():
        try:
            f(numpy.ones(3))
        except AssertionError:
            pass
    """
REACHING = """
    import numpy
    from annotated_attention import f

    def test_wide():
        assert f(numpy.ones((3, 6)), wide=True).ndim == 3
    """
FILE = "src/annotated_attention/__init__.py"
SAYS = f"{FILE}:4: no run reaches this shape comment: return x[..., None]  # (n, d, 1)"
SWALLOWED = f"{FILE}:5: the comment says (n, d), but the shape is (3,)"


@pytest.fixture
def session(pytester, monkeypatch):
    """Run pytest on a small project whose conftest is this one's."""
    conftest = (Path(__file__).parents[2] / "conftest.py").read_text()
    for name in [name for name in sys.modules if name.split(".")[0] == "annotated_attention"]:
        monkeypatch.delitem(sys.modules, name)
    others = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    monkeypatch.setattr(sys, "meta_path", others)

    def run(*arguments, **tests):
        for name, text in {**PROJECT, **{f"tests/{x}.py": tests[x] for x in tests}}.items():
            path = pytester.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        (pytester.path / "tests" / "conftest.py").write_text(conftest)
        done = pytester.runpytest_inprocess(*arguments)
        return done.ret, done.stdout.str() + done.stderr.str()

    return run


@pytest.mark.parametrize("arguments", [[], ["."], ["tests"]])
def test_full_run_fails_over_an_unreached_comment(session, arguments):
    status, output = session(*arguments)
    assert "1 passed" in output
    assert SAYS in output
    assert "__init__.py:5" not in output
    assert status == 1


@pytest.mark.parametrize(
    "arguments",
    [["-k", "test_"], ["tests/test_f.py"], ["--deselect", "tests/test_none.py"], ["--co"]],
)
def test_partial_run_says_nothing_about_unreached_comments(session, arguments):
    status, output = session(*arguments)
    assert "shape comments" not in output
    assert status == 0


def test_run_that_a_plugin_cuts_short_is_partial(session):
    hook = "def pytest_collection_modifyitems(config, items):\n"
    _, output = session(
        **{"sub/conftest": hook + "    config.hook.pytest_deselected(items=[items.pop()])\n"},
        **{"sub/test_g": REACHING},
    )
    assert "1 deselected" in output
    assert "shape comments" not in output


def test_failing_run_says_nothing_about_unreached_comments(session):
    status, output = session(test_g="def test_g():\n    assert 0\n")
    assert "1 failed, 1 passed" in output
    assert "shape comments" not in output
    assert status == 1


def test_full_run_passes_where_all_is_reached(session):
    status, output = session(test_wide=REACHING)
    assert "2 passed" in output
    assert "shape comments" not in output
    assert status == 0


@pytest.mark.parametrize("arguments", [[], ["-k", "swallowed"]])
def test_swallowed_mismatch_fails_any_run(session, arguments):
    status, output = session(*arguments, test_g=SWALLOWING)
    assert "failed" not in output
    assert SWALLOWED in output
    assert status == 1


def test_workers_hand_over_what_they_saw(session):
    status, output = session("-n2", test_g=SWALLOWING)
    assert "2 passed" in output
    assert SAYS in output
    assert "__init__.py:5: no run" not in output
    assert SWALLOWED in output
    assert status == 1


def test_a_worker_that_crashes_fails_the_session_and_its_test_is_named(session):
    crash = "import os\n\ndef test_ends():\n    os._exit(1)\n"
    status, output = session("-n1", "--max-worker-restart=0", test_g=crash)
    assert "INTERNALERROR" not in output
    assert "tests/test_g.py::test_ends" in output
    assert status == 1

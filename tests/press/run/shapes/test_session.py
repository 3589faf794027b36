"""The test session fails over what the checker saw, and over what a full run never reached."""

import sys
import textwrap
from pathlib import Path

import pytest

from press.run.shapes import PACKAGES
from shape_comments.imports import Finder

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
    "src/attention_doctor/__init__.py": "",
    "src/annotated_book/__init__.py": "",
    "tests/test_f.py": """
        import numpy
        from annotated_attention import f

        def test_f():
            assert f(numpy.ones((3, 6))).shape == (3, 6)
        """,
}
SWALLOWING = """
    import contextlib, numpy
    from annotated_attention import f

    def test_swallowed():
        with contextlib.suppress(AssertionError):
            f(numpy.ones(3))
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


FAILING = "def test_g():\n    assert 0\n"
CRASHING = "import os\n\ndef test_ends():\n    os._exit(1)\n"
DESELECTING = """
    def pytest_collection_modifyitems(config, items):
        config.hook.pytest_deselected(items=[items.pop()])
    """
NOTHING = "shape comments"
# Arguments, further files, what is said, what is not, and how it ends.
SESSIONS = {
    "everything": ([], {}, ["1 passed", SAYS], ["__init__.py:5"], 1),
    "everything, named": (["tests"], {}, [SAYS], [], 1),
    "all is reached": ([], {"test_wide": REACHING}, ["2 passed"], [NOTHING], 0),
    "some by name": (["-k", "test_"], {}, ["1 passed"], [NOTHING], 0),
    "but one": (["--deselect", "tests/test_none.py"], {}, ["1 passed"], [NOTHING], 0),
    "nothing runs": (["--co"], {}, [], [NOTHING], 0),
    "a plugin leaves one out": (
        [],
        {"sub/conftest": DESELECTING, "sub/test_g": REACHING},
        ["1 deselected"],
        [NOTHING],
        0,
    ),
    "one fails": ([], {"test_g": FAILING}, ["1 failed, 1 passed"], [NOTHING], 1),
    "swallowed": ([], {"test_g": SWALLOWING}, [SWALLOWED], ["failed"], 1),
    "swallowed in a part": (["-k", "swallowed"], {"test_g": SWALLOWING}, [SWALLOWED], [], 1),
    "workers": (
        ["-n2"],
        {"test_g": SWALLOWING},
        ["2 passed", SAYS, SWALLOWED],
        ["__init__.py:5: no run"],
        1,
    ),
    "a worker crashes": (
        ["-n1", "--max-worker-restart=0"],
        {"test_g": CRASHING},
        ["tests/test_g.py::test_ends"],
        ["INTERNALERROR"],
        1,
    ),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_session(pytester, monkeypatch, name):
    """On a small project whose conftest is this one's."""
    for imported in [x for x in sys.modules if x.split(".")[0] in PACKAGES]:
        monkeypatch.delitem(sys.modules, imported)
    others = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    monkeypatch.setattr(sys, "meta_path", others)
    arguments, files, there, absent, ends = SESSIONS[name]
    conftest = {"tests/conftest.py": (Path(__file__).parents[3] / "conftest.py").read_text()}
    for file, text in (PROJECT | conftest | {f"tests/{x}.py": files[x] for x in files}).items():
        path = pytester.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    done = pytester.runpytest_inprocess(*arguments)
    output = done.stdout.str() + done.stderr.str()
    assert all(words in output for words in there)
    assert not any(words in output for words in absent)
    assert done.ret == ends

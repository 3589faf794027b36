"""``pytest -p shape_comments --shape-comments src`` on a small project."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROJECT = {
    "pyproject.toml": """
        [tool.pytest.ini_options]
        pythonpath = ["src"]
        """,
    "src/model/__init__.py": """
        import numpy
        def f(x):
            b, n = x.shape
            y = x + 0  # (b, n)
            y = x.T  # (b, n)
            y = x + 1  # (k, k)
            return numpy.exp(y)  # was (b, n)
        def never(x):
            return x  # (b, n)
        """,
    "src/model/unused.py": "x = 1 + 1  # (b, n)\n",
    "src/model/prose.py": "x = 1 + 1  # two\n",
    "src/model/broken.py": "x = = 1  # (b, n)\n",
    "tests/conftest.py": "import model\n",
    "tests/test_f.py": """
        import numpy, model.prose
        def test_f(): model.f(numpy.ones((2, 3)))
        def test_g(): model.f(numpy.ones((2, 5)))
        """,
}
FILE = "src/model/__init__.py"
REPORT = [
    "                       read  compared  not reached  not understood",
    f"{FILE}     5         3            1               1",
    "src/model/unused.py       1         0            1               0",
    "all                       6         3            2               1",
    "not reached: no test runs it, or compiled, traced, or in a process of its own",
    "false: 1",
    f"{FILE}:6: the comment says (b, n) with b = 2, n = ",
    "one letter for two sizes: 1",
    f"{FILE}:7: the comment says (k, k) with k = 2, but the shape is (2, ",
]
MORE = [
    f"{FILE}:8: not understood: it does not say what this line always gives",
    f"{FILE}:10: not reached\n    return x  # (b, n)",
]
OPTION = ["--shape-comments", "src"]
# Arguments, what is said, what is not, and how it ends.
SESSIONS = {
    "report": (OPTION, ["2 passed", *REPORT], ["failed", *MORE], 0),
    "strict": ([*OPTION, "--shape-comments-strict"], ["2 passed", *REPORT], [], 1),
    "workers": ([*OPTION, "--shape-comments-strict", "-n2"], ["2 passed", *REPORT], [], 1),
    "verbose": ([*OPTION, "-v"], [*REPORT, *MORE], [], 0),
    "one file": (["--shape-comments=src/model/unused.py"], ["no such line ran"], [FILE], 0),
    "without": ([], ["2 passed"], ["shape comments"], 0),
    "no such path": (["--shape-comments", "lib"], ["there is no", "lib"], ["passed"], 4),
    "early": ([*OPTION, "-p", "model"], ["before the checks began: model"], ["false"], 0),
    "help": (["--help"], ["--shape-comments=PATH", "fail the session over what"], [], 0),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_session(pytester, monkeypatch, name):
    arguments, there, absent, ends = SESSIONS[name]
    for file, text in PROJECT.items():
        path = pytester.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    if name == "early":
        monkeypatch.syspath_prepend(pytester.path / "src")
        arguments = [*arguments[2:], *arguments[:2]]
    before = list(sys.meta_path)
    plugins = ["-p", "no:cacheprovider", "-p", "xdist", "-p", "shape_comments"]
    if name == "early":
        plugins, arguments = [*plugins[:4], "-p", "model", *plugins[4:]], OPTION
    done = pytester.runpytest_inprocess("--disable-plugin-autoload", *plugins, *arguments)
    output = done.stdout.str() + done.stderr.str()
    assert [words for words in there if words not in output] == []
    assert [words for words in absent if words in output] == []
    assert done.ret == ends
    assert sys.meta_path == before
    done.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_neither_the_plugin_nor_the_extension_needs_torch():
    code = (
        "import sys, shape_comments, shape_comments.pytest_plugin, shape_comments.cells\n"
        "assert not {'torch', 'numpy', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_loader_is_left_alone(tmp_path, monkeypatch):
    from importlib.machinery import ModuleSpec, SourceFileLoader

    from shape_comments.checker import Checker
    from shape_comments.imports import Finder

    class Loader(SourceFileLoader):
        """As beartype's and typeguard's, which put in checks of their own."""

    class Other:
        def find_spec(self, name, path=None, target=None):
            loader = Loader(name, str(tmp_path / "m.py"))
            return ModuleSpec(name, loader) if name == "m_of_another" else None

    monkeypatch.setattr(sys, "meta_path", [Other(), *sys.meta_path])
    finder = Finder(Checker(tmp_path), [tmp_path])
    assert type(finder.find_spec("m_of_another").loader) is Loader
    assert finder.find_spec("no_such_module") is None


def test_a_module_that_runs_as_a_script_runs_as_it_stands(tmp_path, monkeypatch):
    import runpy

    from shape_comments.checker import Checker
    from shape_comments.imports import Finder

    (tmp_path / "m_as_script.py").write_text("x = [1] + [2]  # (b, n)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    Finder(Checker(tmp_path), [tmp_path])
    assert runpy.run_module("m_as_script")["x"] == [1, 2]


def test_the_page_shows_what_its_example_says(pytester, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "shape-comments.md").read_text(encoding="utf-8")
    layer, test, command, report = re.findall(r"```\w+\n(.*?)```", page, re.DOTALL)[:4]
    for file, text in {"layer.py": layer, "test_layer.py": test}.items():
        (pytester.path / file).write_text(text)
    monkeypatch.delitem(sys.modules, "layer", raising=False)  # another test's
    plugins = ["-p", "no:cacheprovider", "--disable-plugin-autoload"]
    done = pytester.runpytest_inprocess(*plugins, *command.split()[1:])
    assert report in done.stdout.str()
    assert done.ret == 0

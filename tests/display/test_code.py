"""Notebooks show the source that runs, and the real difference between two versions."""

import functools
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from annotated_attention import chapters, heads
from annotated_attention.display import diff, excerpts, source

Run = Callable[[str], Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Run a cell as a kernel does, and return the value of its last line."""
    InteractiveShell.clear_instance()
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    monkeypatch.setitem(sys.modules, "__main__", shell.user_module)
    shell.user_ns.update(source=source, diff=diff)

    def run(cell: str) -> Any:
        result = shell.run_cell(cell, store_history=True)
        result.raise_error()
        return result.result

    yield run
    InteractiveShell.clear_instance()


HEAD = '''class Head:
    """Cut (b, n, h * d)."""

    width = 6

    def forward(self, x):
        return x @ x.mT  # (b, n, d) -> (b, n, n)'''


class Documented:
    """What it is."""

    def forward(self, x):
        """Say more.

        Much more.
        """
        # It stays.
        text = """This, too."""
        return x, text

    def nothing(self):
        """Do nothing."""


class Local:
    """A class of a file."""

    def plain(self) -> int:
        """Return a number."""
        return 1

    @property
    def size(self) -> int:
        """Return another."""
        return 2

    @staticmethod
    @functools.cache
    def cached() -> int:
        """Return a third."""
        return 3


class Bare(Local):
    """No method of its own."""

    size = 3


def page(output: Any) -> Tag:
    """Parse what Jupyter renders, without the stylesheet before it."""
    soup = BeautifulSoup(output._repr_mimebundle_()["text/html"], "html.parser")
    style = soup.find("style", class_="aa-style")
    assert isinstance(style, Tag)
    style.extract()
    return soup


def test_source_without_docstrings() -> None:
    """What is left is the code: comments, texts, and a docstring that is all there is."""
    assert source(Documented, docstrings=False).text.split("\n") == [
        "class Documented:",
        "    def forward(self, x):",
        "        # It stays.",
        '        text = """This, too."""',
        "        return x, text",
        "",
        "    def nothing(self):",
        '        """Do nothing."""',
    ]


def test_source_of_a_class_of_the_notebook(run: Run) -> None:
    """Where inspect finds nothing, the text comes from the cell."""
    run(f"# a comment\n\n{HEAD}\n\nx = 1")
    with pytest.raises(OSError, match="source code not available"):
        inspect.getsource(run("Head"))
    assert run("source(Head)").text == HEAD


def test_source_of_a_method_and_a_function_of_the_notebook(run: Run) -> None:
    """A method loses the indentation of its class."""
    run(f"{HEAD}\n\ndef scale(x):\n    return x\n")
    assert run("source(Head.forward)").text.startswith("def forward(self, x):\n    return x @")
    assert run("source(Head().forward)").text == run("source(Head.forward)").text
    assert run("source(scale)").text == "def scale(x):\n    return x"


def test_source_after_a_cell_is_run_again(run: Run) -> None:
    """Each class object keeps its own text, whatever was defined since."""
    run(HEAD)
    run("old = Head")
    run(HEAD.replace("6", "7"))
    assert run("source(old)").text == HEAD
    assert run("source(Head)").text == HEAD.replace("6", "7")


@pytest.mark.parametrize(
    "text",
    [
        "@unchanged\n@dataclass\nclass A:\n    x: int = 1\n\n    def f(self): ...",
        "class A:\n    @property\n    def f(self): ...",
        "class A:\n    @classmethod\n    def f(cls): ...",
        "class A:\n    @functools.cache\n    def f(self): ...",
        "class A:\n    def f(self):\n        class A: ...",
    ],
)
def test_source_of_every_kind_of_method(run: Run, text: str) -> None:
    """Any method leads to its class, decorators included, after the name means another one."""
    run("import functools\nfrom dataclasses import dataclass\nunchanged = lambda cls: cls")
    run(f"%time 1\n{text}\nclass B:\n    def f(self): ...")
    run("old = A\nclass A: ...")
    assert run("source(old)").text == text


@pytest.mark.parametrize(
    "text", ["@dataclass\nclass A:\n    x: int = 1", "class A:\n    x = 1", "class A(list): ..."]
)
def test_source_of_a_class_without_methods(run: Run, text: str) -> None:
    """The latest definition in the history, past cells that do not parse."""
    run("from dataclasses import dataclass\nclass A: pass")
    run(f"{text}\nclass B:\n    def f(self): ...")
    with pytest.raises(SyntaxError):
        run("class A(")
    assert run("source(A)").text == text


def test_history_does_not_speak_for_an_imported_class(run: Run) -> None:
    """A class of that name was once defined here; the one in use comes from a file."""
    run("class Bare: x = 1")
    run(f"from {__name__} import Bare")
    assert run("source(Bare)").text == source(Bare).text != "class Bare: x = 1"


def test_source_of_a_nested_class(run: Run) -> None:
    """The indentation goes, and the outer class stays out, even of the same name."""
    run("class A:\n    class B:\n        def f(self): ...\n    def f(self): ...")
    assert run("source(A.B)").text == "class B:\n    def f(self): ..."
    run("class A:\n    class A:\n        def f(self): ...")
    assert run("source(A.A)").text == "class A:\n    def f(self): ..."


def test_borrowed_methods_do_not_speak_for_a_class(run: Run) -> None:
    """A method of another class, or put in later, comes from another place."""
    run("class A:\n    class B:\n        def f(self): ...")
    run("class B:\n    g = A.B.f\n    def h(self): ...")
    run("def late(self): ...\nB.late = late")
    assert run("source(B)").text == "class B:\n    g = A.B.f\n    def h(self): ..."


def test_no_source_is_an_error_and_not_a_guess(run: Run) -> None:
    """An older class without methods has no text of its own any more."""
    run("class A: x = 1")
    run("old = A")
    run("class A: x = 2")
    assert run("source(A)").text == "class A: x = 2"
    with pytest.raises(OSError, match="no source found for class A: it has no method"):
        run("source(old)")
    for made_in_c in (int, type("Made", (), {"__module__": "nowhere"})):
        with pytest.raises(OSError, match="no source found for class"):
            source(made_in_c)


def test_source_of_what_files_define() -> None:
    """Classes, functions, methods, modules, and what decorators wrap."""
    assert source(Local).text.startswith('class Local:\n    """A class of a file."""')
    assert source(Local).text.endswith("return 3")
    assert (
        source(Bare).text == 'class Bare(Local):\n    """No method of its own."""\n\n    size = 3'
    )
    assert source(Local.cached).text.startswith("@staticmethod\n@functools.cache\ndef cached()")
    assert source(heads.merge_heads).text in source(heads).text
    assert source(heads).text == Path(heads.__file__).read_text(encoding="utf-8").rstrip("\n")


def test_source_of_what_chapters_define(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class on the page, even where an exercise has a stub of that name above it."""
    monkeypatch.setattr(chapters, "NOTEBOOKS", tmp_path)
    stub = '# %% tags=["exercise"]\nclass Head:\n    def stub(self): ...\n\n'
    (tmp_path / "77_test.py").write_text(f"{stub}# %%\n{HEAD}\n", encoding="utf-8")
    module = chapters.load("77_test")
    monkeypatch.delitem(sys.modules, module.__name__)
    assert source(module.Head).text == HEAD


def test_source_of_a_file_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is read anew, not from a cache."""
    monkeypatch.setattr(chapters, "NOTEBOOKS", tmp_path)
    path = tmp_path / "78_test.py"
    for text in (HEAD, HEAD.replace("6", "77")):
        path.write_text(f"# %%\n{text}\n", encoding="utf-8")
        head = chapters.load("78_test").Head
        linecache.getlines(str(path))
        assert source(head).text == text
    del sys.modules["chapter_78_test"]


@pytest.mark.parametrize("obj", [3, "class A: ...", None, functools.partial(print)])
def test_source_of_something_else(obj: object) -> None:
    """The error says what fits."""
    with pytest.raises(TypeError, match="a class, a function or a module, got an object of type"):
        source(obj)


def test_source_is_highlighted_and_coloured(run: Run) -> None:
    """The text survives the highlighting; no token carries a style of its own."""
    run(HEAD)
    output = run("source(Head)")
    assert output._repr_mimebundle_()["text/plain"] == str(output) == repr(output) == HEAD
    code = page(output).select_one("div.highlight.aa-code > pre > code")
    assert code is not None
    assert code.get_text() == HEAD
    assert code.select_one(".k") is not None
    assert [b.get_text() for b in code.select(".c1 b.dim-n")] == ["n", "n", "n"]
    assert len(code.select(".sd b.dim")) == 4
    assert not page(output).select("[style]")


def scaled(x: Any, width: int) -> Any:
    """Scale x."""
    if width:
        x = x / width  # (n,)
    return x  # (n,)


def test_excerpts_are_lines_of_the_source() -> None:
    """They lose their indentation; the comments of a part stand in one column."""
    output = excerpts(
        one=(Local.plain, "return 1", scaled, "x = x", "return"),
        two=(Documented, "x, text"),
    )
    assert str(output).split("\n") == [
        "# one",
        "return 1",
        "x = x / width  # (n,)",
        "return x       # (n,)",
        "",
        "# two",
        "return x, text",
    ]
    code = page(output).select_one("div.highlight.aa-code.no-copy > pre > code")
    assert code is not None, "lines without their functions are nothing to copy"
    assert code.get_text() == str(output)


@pytest.mark.parametrize(("text", "found"), [("Scale", 0), ("x", 3)])
def test_an_excerpt_that_is_not_one_line(text: str, found: int) -> None:
    """A docstring is no code, and a page never shows a line by chance."""
    with pytest.raises(ValueError, match=f"one: '{text}' must stand in one line, got {found}"):
        excerpts(one=(scaled, text))


def rows(output: Any) -> list[str]:
    """List the lines of a rendered diff, with their signs."""
    code = page(output).select_one("div.highlight.aa-code.aa-diff > pre > code")
    assert code is not None
    assert code.get_text().split("\n") == [row.get_text() for row in code.find_all(recursive=False)]
    return code.get_text().split("\n")


def test_diff_marks_changed_lines(run: Run) -> None:
    """Signs and elements say what changed; the colours only repeat it."""
    run(HEAD)
    run(HEAD.replace("Head", "Wider").replace("    width = 6\n\n", "").replace(" @ x.mT", ""))
    output = run("diff(Head, Wider)")
    assert rows(output) == [
        "- class Head:",
        "+ class Wider:",
        '      """Cut (b, n, h * d)."""',
        "  ",
        "-     width = 6",
        "- ",
        "      def forward(self, x):",
        "-         return x @ x.mT  # (b, n, d) -> (b, n, n)",
        "+         return x  # (b, n, d) -> (b, n, n)",
    ]
    for row in page(output).select("code > *"):
        mark = row.get_text()[0]
        assert (mark, row.name, row.get("class")) in [
            ("-", "del", ["aa-del"]),
            ("+", "ins", ["aa-add"]),
            (" ", "span", None),
        ]
    assert len(page(output).select("ins .c1 b.dim-n")) == 3
    assert len(page(output).select("span > .sd b.dim-h")) == 1
    text = output._repr_mimebundle_()["text/plain"].split("\n")
    assert text[:2] == ["--- Head", "+++ Wider"]
    assert [f"{line[0]} {line[1:]}" for line in text[3:]] == rows(output)


def test_diff_of_strings() -> None:
    """Any code can be compared, and a string against an object."""
    assert rows(diff("x = 1\ny = 2\n", "x = 1\ny = 3")) == ["  x = 1", "- y = 2", "+ y = 3"]
    assert rows(diff("\nx = 1", "\n\nx = 1")) == ["+ ", "  ", "  x = 1"]
    assert diff("x = 1", "x = 2").text.startswith("--- old\n+++ new\n")
    assert "no difference" in diff(source(Local).text, Local).text


def test_diff_highlights_a_line_as_part_of_its_version() -> None:
    """A line inside a docstring looks like one, though its quotes stand elsewhere."""
    old = 'def f():\n    """One.\n\n    for x (n, d)\n    """'
    output = diff(old, old.replace("for x", "for y"))
    assert len(page(output).select("del .sd b.dim, ins .sd b.dim")) == 4
    assert not page(output).select(".aa-del .k, .aa-add .k")


@pytest.mark.parametrize(("unchanged", "shown"), [(8, 8), (9, 7)])
def test_diff_folds_long_unchanged_runs(unchanged: int, shown: int) -> None:
    """More than eight lines are folded to three at each end, in HTML only."""
    same = "\n".join(f"x{i} = {i}" for i in range(unchanged))
    output = diff(f"a = 1\n{same}\nb = 1", f"a = 2\n{same}\nb = 2")
    lines = rows(output)
    assert len(lines) == 4 + shown
    folded = [line for line in lines if "…" in line]
    assert folded == (["  … 3 unchanged lines"] if shown < unchanged else [])
    assert lines[2:5] == ["  x0 = 0", "  x1 = 1", "  x2 = 2"]
    assert lines[-3] == f"  x{unchanged - 1} = {unchanged - 1}"
    assert output.text.count("\n x") == unchanged


def test_diff_never_folds_changed_lines() -> None:
    """However many there are."""
    assert len(rows(diff("x\n" * 20, "y\n" * 20))) == 40


def test_diff_of_the_same(run: Run) -> None:
    """It says so."""
    run(HEAD)
    output = run("diff(Head, Head)")
    assert output.text == "no difference"
    assert page(output).get_text() == "no difference"


def test_diff_of_something_else() -> None:
    """The same errors as source()."""
    with pytest.raises(TypeError, match="a class, a function or a module"):
        diff(3, Local)
    with pytest.raises(OSError, match="no source found for class int"):
        diff(Local, int)


def test_diff_escapes_html() -> None:
    """Code stays text."""
    output = diff("x < 1", "x = '</code><script>'")
    assert rows(output) == ["- x < 1", "+ x = '</code><script>'"]
    assert not re.search("<script", output.html)

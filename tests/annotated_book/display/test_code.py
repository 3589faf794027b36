"""Notebooks show the source that runs, and the real difference between two versions."""

import functools
import sys

import pytest
from bs4 import BeautifulSoup
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from annotated_attention import heads
from annotated_book.display import diff, excerpts, source


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run a cell as a kernel does, and return the value of its last line."""
    InteractiveShell.clear_instance()
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    monkeypatch.setitem(sys.modules, "__main__", shell.user_module)
    shell.user_ns.update(source=source, diff=diff, print_nothing=lambda x: x)

    def run(cell):
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

    @staticmethod
    @functools.cache
    def nothing():
        """Do nothing."""


def test_source_without_docstrings():
    """What is left is the code: comments, texts, and a docstring that is all there is."""
    assert source(Documented, docstrings=False).text.split("\n") == [
        "class Documented:",
        "    def forward(self, x):",
        "        # It stays.",
        '        text = """This, too."""',
        "        return x, text",
        "",
        "    @staticmethod",
        "    @functools.cache",
        "    def nothing():",
        '        """Do nothing."""',
    ]


def test_source_of_what_a_notebook_defines_as_it_was_then(run):
    """Where inspect finds nothing, the text comes from the cell; a method loses its indentation."""
    run(f"%time 1\n@print_nothing\n{HEAD}\n\ndef scale(x):\n    return x\n")
    assert run("source(Head.forward)").text.startswith("def forward(self, x):\n    return x @")
    assert run("source(Head().forward)").text == run("source(Head.forward)").text
    assert run("source(scale)").text == "def scale(x):\n    return x"
    run("old = Head")
    run(HEAD.replace("6", "7"))
    assert run("source(old)").text == f"@print_nothing\n{HEAD}"
    assert run("source(Head)").text == HEAD.replace("6", "7")


def test_other_classes_do_not_speak_for_a_class(run):
    """A method of another class, or put in later, comes from another place."""
    run("class A:\n    class B:\n        def f(self): ...\n    def f(self): ...")
    assert run("source(A.B)").text == "class B:\n    def f(self): ..."
    run("class B:\n    g = A.B.f\n    def h(self): ...")
    run("def late(self): ...\nB.late = late")
    assert run("source(B)").text == "class B:\n    g = A.B.f\n    def h(self): ..."


def page(output):
    """Parse what Jupyter renders, without the stylesheet before it."""
    soup = BeautifulSoup(output._repr_mimebundle_()["text/html"], "html.parser")
    soup.find("style", class_="aa-style").extract()
    return soup


def test_source_is_highlighted_and_coloured(run):
    run(HEAD)
    output = run("source(Head)")
    assert output._repr_mimebundle_()["text/plain"] == str(output) == HEAD
    code = page(output).select_one("div.highlight.aa-code > pre > code")
    assert code.get_text() == HEAD
    assert code.select_one(".k") is not None
    assert [b.get_text() for b in code.select(".c1 b.dim-n")] == ["n", "n", "n"]
    assert len(code.select(".sd b.dim")) == 4


def scaled(x, width):
    """Scale x."""
    if width:
        x = max(x, width)  # (n,)
        x = x / width      # (n,)
    return x               # (n,)


def test_excerpts_are_lines_of_the_source():
    """They lose their indentation; the comments of a part stand in one column."""
    output = excerpts(one=(scaled, "max", "return"), two=(Documented, "x, text"))
    assert str(output).split("\n") == [
        "# one",
        "x = max(x, width)  # (n,)",
        "return x           # (n,)",
        "",
        "# two",
        "return x, text",
    ]
    assert page(output).select_one(".no-copy > pre > code").get_text() == str(output)
    for text, found in (("Scale", 0), ("x", 4)):
        with pytest.raises(ValueError, match=f"one: '{text}' must stand in one line, got {found}"):
            excerpts(one=(scaled, text))


def rows(output):
    """List the lines of a rendered diff, with their signs."""
    return page(output).select_one(".aa-diff > pre > code").get_text().split("\n")


def test_diff_marks_changed_lines(run):
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
        assert row.name == {"-": "del", "+": "ins", " ": "span"}[row.get_text()[0]]
    assert len(page(output).select("ins .c1 b.dim-n")) == 3
    assert len(page(output).select("span > .sd b.dim-h")) == 1
    assert len(rows(diff("a\n" + 8 * "b\n" + "c", "d\n" + 8 * "b\n" + "c"))) == 11


def test_what_has_no_source_is_refused():
    with pytest.raises(TypeError, match="class, method, function"):
        diff(3, heads)
    with pytest.raises(TypeError, match="int must have a method that is written in its body"):
        diff("x = 1", int)

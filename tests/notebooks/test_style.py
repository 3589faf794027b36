"""What keeps a page from breaking: the width and length of cells, headings, the way onward."""

import ast
import re
import subprocess
import sys
from collections import Counter

import pytest

from annotated_book import chapters
from press.run import scripts

CHAPTERS = sorted(scripts.CHAPTERS.glob("[0-9][0-9]_*.py"))
SCRIPTS = sorted(scripts.CHAPTERS.glob("*.py"))  # the cheat sheet, too
# Chapters whose visible cells have a dozen lines at most; the others follow.
SHORT = {script.stem for script in CHAPTERS if "03" <= script.stem[:2] <= "07"}
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


@each_script
def test_cells_are_short(script):
    for cell in scripts.code_cells(script):
        documented = re.findall(r'"""(.*?)"""', cell.source, re.DOTALL)
        lines = [line for line in cell.source.splitlines() if line.strip()]
        code = len(lines) - sum(len(text.splitlines()) for text in documented)
        hidden = {*scripts.FOLDED, "exercise"}.intersection(cell.tags)
        limit = 30 if hidden else 12 if script.stem in SHORT else 18
        assert code <= limit, f"{script.name}:{cell.line} is too long a cell"
        wide = [line for line in lines if len(line) > 92]
        assert not wide, f"{script.name}:{cell.line}: too wide for the page"


@each_script
def test_a_proof_asserts(script):
    for cell in scripts.code_cells(script):
        if "proof" in cell.tags:
            parts = [*ast.walk(ast.parse(cell.source))]
            called = {getattr(x.func, "attr", "") for x in parts if isinstance(x, ast.Call)}
            asserts = any(isinstance(x, ast.Assert) for x in parts)
            assert asserts or "assert_close" in called, (
                f"{script.name}:{cell.line}: a proof without an assertion"
            )


@each_script
def test_shapes_in_docstrings_are_ones_that_are_checked(script):
    for cell in scripts.code_cells(script):
        for text in re.findall(r'"""(.*?)"""', cell.source, re.DOTALL):
            for line in text.splitlines():
                shape = re.search(r"\((?:[bnmhde], )+[bnmhde]\)|\([bnmhde],\)", line)
                assert not shape or re.match(r"\s+\w+: \(", line), f"only Args are checked: {line}"


@pytest.mark.parametrize("script", CHAPTERS, ids=lambda script: script.stem)
def test_the_end_leads_on_to_the_next_chapter(script):
    cells = [cell.source for cell in scripts.notebook(script).cells]
    boxes = [i for i, text in enumerate(cells) if text.startswith("## What you have now")]
    assert len(boxes) == 1, f"{script.name} ends with what one has now"
    end, *after = cells[boxes[0] :]
    assert not after or "## More exercises" in "\n".join(after), "only an appendix comes after it"
    for following in CHAPTERS[CHAPTERS.index(script) + 1 :][:1]:
        link = f"]({following.stem}.ipynb)"
        assert link in end, f"the end of {script.name} has no link to {following.name}"


def test_what_later_chapters_import_uses_no_demonstration_and_is_defined_once(tmp_path):
    for name in chapters.names():
        script = scripts.CHAPTERS / f"{name}.py"
        kept = chapters._definitions(script.read_text(encoding="utf-8"), str(script))
        (tmp_path / script.name).write_text(ast.unparse(kept), encoding="utf-8")
        targets = [
            t for x in kept.body if isinstance(x, ast.Assign) for t in map(ast.unparse, x.targets)
        ]
        defined = Counter(targets + [x.name for x in kept.body if hasattr(x, "name")])
        twice = [what for what, count in defined.items() if count > 1]
        assert not twice, f"{script.name}: which {twice} counts would depend on where one looks"
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821"]
    run = subprocess.run([*ruff, "--output-format=concise", tmp_path], capture_output=True)
    assert run.returncode == 0, run.stdout.decode()


@each_script
def test_what_is_shown_ends_its_cell_or_nobody_sees_it(script):
    for cell in scripts.code_cells(script):
        if not cell.source.lstrip().startswith(("%", "!")):
            unseen = [
                ast.unparse(line)
                for line in ast.parse(cell.source).body[:-1]
                if ast.unparse(line).startswith(("display.show(", "display.annotated("))
            ]
            assert not unseen, f"{script.name}:{cell.line}"

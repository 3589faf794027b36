"""Each chapter ran to its end, as it stands now, and printed nothing to stderr."""

import nbformat
import pytest

from book.run import scripts

CHAPTERS = sorted(scripts.CHAPTERS.glob("*.py"))
each_chapter = pytest.mark.parametrize("script", CHAPTERS, ids=lambda script: script.stem)


@each_chapter
def test_ran_without_error(script):
    path = scripts.EXECUTED / f"{script.stem}.ipynb"
    assert path.exists(), f"{script.stem} was not executed: `make notebooks` does it"
    ran = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.source for cell in ran] == [cell.source for cell in scripts.code_cells(script)], (
        f"{script.stem} has changed since it was executed: `make notebooks` does it again"
    )
    assert [cell.execution_count for cell in ran] == list(range(1, len(ran) + 1))
    kinds = {(output.output_type, output.get("name")) for cell in ran for output in cell.outputs}
    assert kinds <= {("stream", "stdout"), ("display_data", None), ("execute_result", None)}


@each_chapter
def test_stubs_fail_and_solutions_pass(script):
    cells = nbformat.read(scripts.EXECUTED / f"{script.stem}.ipynb", as_version=4).cells
    for i, cell in enumerate(cells):
        tags = cell.metadata.get("tags", [])
        if "exercise" in tags:
            assert cells[i + 1].outputs[0].text.startswith("✗ "), cells[i + 1].source
        if "solution" in tags:
            assert cell.outputs[0].data["text/plain"].startswith("✓ "), cell.source

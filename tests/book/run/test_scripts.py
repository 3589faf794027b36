"""Reading percent scripts: where each cell stands, and the notebook that belongs to it."""

import textwrap

import pytest

from book.run import scripts

SCRIPT = """\
    # %% [markdown]
    # # Title

    # %% tags=["exercise"]

    x = 1
    y = 2

    # %% [markdown]
    # ## One
    # ## Two

    # %%
    x = 1
    y = 2

    # %%
    x = 1
    y = 2
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "01_x.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def test_code_cells_know_their_place(script):
    cells = scripts.code_cells(script)
    lines = script.read_text().splitlines()
    assert [cell.line for cell in cells] == [5, 14, 18]
    for cell in cells:
        source = cell.source.splitlines()
        assert lines[cell.line - 1 :][: len(source)] == source
    assert [cell.section for cell in cells] == [0, 2, 2]
    assert [cell.tags for cell in cells] == [{"exercise"}, set(), set()]


def test_pair_depends_on_the_cells_alone(script):
    text = scripts.pair_text(script)
    scripts._parsed.cache_clear()
    assert text == scripts.pair_text(script)
    ids = [cell.id for cell in scripts.notebook(script).cells]
    assert len(set(ids)) == len(ids)
    script.write_text(script.read_text().replace("# # Title", "# # Other"))
    after = [cell.id for cell in scripts.notebook(script).cells]
    assert after[1:] == ids[1:]
    assert after[0] != ids[0]


def test_text_before_the_first_cell_is_refused(script):
    script.write_text("print(0)\n\n" + script.read_text())
    with pytest.raises(ValueError, match=r"01_x\.py: every cell must start with a line `# %%`"):
        scripts.code_cells(script)


def test_a_notebook_belongs_to_who_asked_for_it(script):
    scripts.notebook(script).cells[0].source = "changed"
    assert scripts.notebook(script).cells[0].source != "changed"

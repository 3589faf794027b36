"""Reading percent scripts: where each cell stands, and the notebook that belongs to it."""

import pytest

from press.run import scripts

CELL = "# %%\nx = 1\ny = 2\n\n"
SCRIPT = f"""\
# %% [markdown]
# # Title

# %% tags=["exercise"]

x = 1
y = 2

# %% [markdown]
# ## One
# ## Two

{CELL}{CELL}"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "01_x.py"
    path.write_text(SCRIPT)
    return path


def test_code_cells_know_their_place(script):
    assert scripts.code_cells(script) == [
        scripts.CodeCell("\nx = 1\ny = 2", 5, section=0, tags=["exercise"]),
        scripts.CodeCell("x = 1\ny = 2", 14, section=2, tags=[]),
        scripts.CodeCell("x = 1\ny = 2", 18, section=2, tags=[]),
    ]


def test_a_pair_depends_on_the_cells_alone(script):
    text = scripts.pair_text(script)
    scripts._parsed.cache_clear()
    assert text == scripts.pair_text(script)
    notebook = scripts.notebook(script)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    notebook.cells[0].source = "changed"  # it belongs to who asked for it
    script.write_text(SCRIPT.replace("# # Title", "# # Other"))
    after = scripts.notebook(script).cells
    assert after[0].source == "# Other"
    assert [cell.id == id for cell, id in zip(after, ids, strict=True)] == [False] + [True] * 4


def test_a_named_cell_keeps_its_id_whatever_it_says(script):
    for title in ("# One", "# Another"):
        script.write_text(
            SCRIPT.replace("[markdown]\n# # Title", f'[markdown] name="it"\n# {title}')
        )
        assert scripts.notebook(script).cells[0].id == "it"


def test_text_before_the_first_cell_is_refused(script):
    script.write_text("print(0)\n\n" + SCRIPT)
    with pytest.raises(ValueError, match=r"01_x\.py: every cell must start with a line `# %%`"):
        scripts.code_cells(script)

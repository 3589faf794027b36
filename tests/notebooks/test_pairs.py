"""Each chapter's notebook is exactly what its script gives, and stays so through Jupyter."""

import json

import jupytext
import pytest
from jupytext.config import load_jupytext_config

from book.run import scripts

CHAPTERS = sorted(scripts.CHAPTERS.glob("*.py"))
each_chapter = pytest.mark.parametrize("script", CHAPTERS, ids=lambda script: script.stem)


def test_there_are_chapters():
    assert CHAPTERS[0].stem == "01_one_head"


@each_chapter
def test_pair_is_in_step(script):
    pair = script.with_suffix(".ipynb")
    assert pair.exists(), f"{pair.name} is missing: `make notebooks` writes it"
    assert pair.read_text(encoding="utf-8") == scripts.pair_text(script), (
        f"{pair.name} is out of step with {script.name}: `make notebooks` mends it"
    )


def test_no_notebook_without_a_script():
    stray = {path.stem for path in scripts.CHAPTERS.glob("*.ipynb")} - {s.stem for s in CHAPTERS}
    assert not stray, f"edit the script, not the notebook; no script for {stray}"


@each_chapter
def test_pair_has_no_outputs_and_ids_of_its_own(script):
    cells = json.loads(scripts.pair_text(script))["cells"]
    assert all(not cell.get("outputs") for cell in cells)
    assert all(cell.get("execution_count") is None for cell in cells)
    assert len({cell["id"] for cell in cells}) == len(cells)


@each_chapter
def test_saving_in_jupyter_leaves_the_script_alone(script):
    config = load_jupytext_config(str(script))
    assert config is not None
    notebook = scripts.notebook(script)
    saved = jupytext.writes(notebook, fmt="py:percent", config=config)
    assert saved == script.read_text(encoding="utf-8")

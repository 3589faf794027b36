"""Each chapter's notebook is exactly what its script gives, and stays so through Jupyter."""

import json

import jupytext
import pytest
from jupytext.config import load_jupytext_config

from press.run import scripts

CHAPTERS = sorted(scripts.CHAPTERS.glob("*.py"))
each_chapter = pytest.mark.parametrize("script", CHAPTERS, ids=lambda script: script.stem)


@each_chapter
def test_pair_is_in_step(script):
    pair = script.with_suffix(".ipynb")
    assert pair.exists(), f"{pair.name} is missing: `make notebooks` writes it"
    text = pair.read_text(encoding="utf-8")
    stale = f"{pair.name} is out of step with {script.name}: `make notebooks` mends it"
    assert text == scripts.pair_text(script), stale
    cells = json.loads(text)["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_no_notebook_without_a_script():
    stray = {path.stem for path in scripts.CHAPTERS.glob("*.ipynb")} - {s.stem for s in CHAPTERS}
    assert not stray, f"edit the script, not the notebook; no script for {stray}"


@each_chapter
def test_saving_in_jupyter_leaves_the_script_alone(script):
    config = load_jupytext_config(str(script))
    saved = jupytext.writes(scripts.notebook(script), fmt="py:percent", config=config)
    assert saved == script.read_text(encoding="utf-8")

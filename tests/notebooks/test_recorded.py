"""Chapters that need trained weights: their records are whole, true, and shown where needed."""

import json
import re
from dataclasses import replace

import nbformat
import pytest

from annotated_attention import pretrained
from press.run import execute, record, scripts

CHAPTERS = record.chapters()
each_chapter = pytest.mark.parametrize("script", CHAPTERS, ids=lambda script: script.stem)
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]\d+)?")


def recorded(script):
    return json.loads((record.FOLDER / f"{script.stem}.json").read_text(encoding="utf-8"))


MADE = recorded(CHAPTERS[0])["provenance"]


def tagged(notebook):
    return [cell for cell in notebook.cells if record.needs_weights(cell)]


def said(outputs):
    """Give what outputs say: text, and of figures the text alternative and the data."""
    for output in outputs:
        if output["output_type"] == "stream":
            yield re.sub(r"[\d.]+ tokens/s", "so many tokens/s", output["text"])  # the run's own
        else:
            html = output["data"].get("text/html", "")
            yield output["data"]["text/plain"]
            yield from re.findall(r"aria-label=\"(.*?)\"|data-state='(.*?)'", html)[:2]


def assert_same(one, other):
    """Compare texts; another processor may round otherwise, so numbers need only be close."""
    one, other = str(one), str(other)
    assert NUMBER.split(one) == NUMBER.split(other)
    for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True):
        expected = pytest.approx(float(b.replace(",", "")), rel=0.03, abs=0.03)
        assert float(a.replace(",", "")) == expected, (a, b, one[:200])


@each_chapter
def test_a_record_is_of_the_chapter_as_it_stands(script):
    found, model = recorded(script), record.model_of(script)
    assert list(found["outputs"]) == [cell.id for cell in tagged(scripts.notebook(script))], (
        f"cells of {script.stem} have changed: `make TRAINED=1 record` runs them"
    )
    made = {"sha256": model.sha256, "model": model.repository, "command": "make TRAINED=1 record"}
    assert made.items() < found["provenance"].items()
    assert {"torch", "transformers", "cpu", "date"} <= set(found["provenance"])


@each_chapter
def test_a_record_says_what_a_live_run_says(script, request):
    kind = "trained" if record.model_of(script) == pretrained.ENCODER else "chat_model"
    weights = request.getfixturevalue(kind)
    live = nbformat.read(scripts.EXECUTED / f"{script.stem}.ipynb", as_version=4)
    assert live.metadata["run"] == record.LIVE, f"{weights} is there, and was not used"
    outputs = recorded(script)["outputs"]
    for cell in tagged(live):
        texts = list(zip(said(outputs[cell.id]), said(cell.outputs), strict=True))
        assert texts or not cell.outputs
        for before, now in texts:
            assert_same(before, now)


CHAPTER = """\
# %%
1

# %% tags=["needs-weights"]
raise SystemExit("it is not run")

# %%
3
"""


def test_without_weights_the_record_is_shown_and_named(monkeypatch, tmp_path):
    folder, script = tmp_path / "notebooks" / "recorded", tmp_path / "notebooks" / "11_trained.py"
    folder.mkdir(parents=True)
    script.write_text(CHAPTER)
    monkeypatch.setenv("TRAINED", "0")
    for place, name, path in (
        (scripts, "ROOT", tmp_path),
        (scripts, "EXECUTED", tmp_path),
        (record, "FOLDER", folder),
    ):
        monkeypatch.setattr(place, name, path)
    kept = nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=9)
    outputs = {cell.id: [kept] for cell in tagged(scripts.notebook(script))}
    (folder / "11_trained.json").write_text(json.dumps({"provenance": MADE, "outputs": outputs}))
    execute.execute(script, tmp_path / "11_trained.ipynb")
    shown = scripts.executed("11_trained")
    assert shown.metadata["run"] == record.RECORDED
    note = next(cell.source for cell in shown.cells if cell.id == "recorded")
    assert note.startswith("> **Recorded.** ")
    assert all(x in note for x in (MADE["date"][:10], MADE["sha256"], "`make TRAINED=1 serve`"))
    cells = [cell for cell in shown.cells if cell.cell_type == "code"]
    assert [x.data["text/plain"] for cell in cells for x in cell.outputs] == ["1", "2", "3"]
    assert [cell.execution_count for cell in cells] == [1, None, 2]
    rules = (tmp_path / "11_trained.d").read_text(encoding="utf-8")
    of_the_chapter, *empty = rules.splitlines()
    assert "notebooks/recorded/11_trained.json:" in empty, "or make stops when it is gone"
    assert [f"{path}:" for path in of_the_chapter.split()[1:]] == empty
    with pytest.raises(record.NoRecord, match="was not run live"):
        record.write(script)


def test_a_record_that_does_not_fit_is_refused(monkeypatch, tmp_path):
    script = CHAPTERS[0]
    notebook = scripts.notebook(script)
    cell = tagged(notebook)[0]
    cell.id, cell.source = "00000000", "print(1)"
    older = r"older than the cell 'print\(1\)'.*TRAINED=1 record"
    with pytest.raises(record.NoRecord, match=older):
        record.replay(script, notebook)
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    with pytest.raises(record.NoRecord, match="no weights, and no record"):
        record.replay(script, scripts.notebook(script))


def test_whether_weights_are_there(monkeypatch, tmp_path):
    model = replace(pretrained.CHAT_MODEL, package="no_such_package_of_weights")
    monkeypatch.delenv(pretrained.VARIABLE, raising=False)
    monkeypatch.setenv("TRAINED", "")
    assert not record.weights_are_there(model)
    monkeypatch.setenv("TRAINED", "1")
    with pytest.raises(record.NoRecord, match=r"^TRAINED=1: No trained weights here"):
        record.weights_are_there(model)
    for name in model.files:
        (tmp_path / name).touch()
    monkeypatch.setenv(pretrained.VARIABLE, str(tmp_path))
    assert record.weights_are_there(model)
    monkeypatch.setenv("TRAINED", "0")
    assert not record.weights_are_there(model)

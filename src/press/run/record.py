"""What a chapter shows where it cannot run: the outputs of cells that need trained weights.

A cell tagged ``needs-weights`` is run where the weights are. Elsewhere its outputs are taken from
the chapter's record, a committed file that ``make record`` writes after a live run. A record
belongs to exactly the cells it was made from: a cell that has changed since is an error.
"""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbformat import NotebookNode

from press.run import scripts

if TYPE_CHECKING:
    from annotated_attention.pretrained import Pinned

TAG = "needs-weights"
FOLDER = scripts.CHAPTERS / "recorded"
LIVE, RECORDED = "live", "recorded"  # the executed notebook's metadata say under "run" which it is
NOTE = """\
> **Recorded.** This page was built without the trained weights. What needs them, from here on, \
shows the outputs of a run of {date}. You need nothing else to read on. To run it yourself, get \
the book's repository: there, `make TRAINED=1 serve` downloads the weights (177 MB, for *Trained \
weights* and *A model of today* together) and builds this page from a live run.

<details><summary>Which file, which version</summary>

PyTorch {torch}, `{file}`, SHA-256 `{sha256}`.

</details>"""
CHAT = "26_a_model_of_today"  # the other chapters look into the encoder


class NoRecord(Exception):
    """A chapter can neither run nor be shown from its record; the message says why."""


def needs_weights(cell: NotebookNode) -> bool:
    """Tell whether a cell can run only where the weights are."""
    return cell.cell_type == "code" and TAG in cell.metadata.get("tags", [])


def chapters() -> list[Path]:
    """List the scripts of chapters with cells that need weights."""
    found = sorted(scripts.CHAPTERS.glob("[0-9][0-9]_*.py"))
    return [script for script in found if any(map(needs_weights, scripts.notebook(script).cells))]


def model_of(script: Path) -> "Pinned":
    """Say which trained model a chapter looks into."""
    # With torch, so not for every chapter.
    from annotated_attention.pretrained import CHAT_MODEL, ENCODER

    return CHAT_MODEL if script.stem == CHAT else ENCODER


def weights_are_there(model: "Pinned") -> bool:
    """Tell whether there are a model's weights to run with; ``TRAINED=0`` leaves them aside.

    Raises:
        NoRecord: they were asked for, or a folder was named, and they are not there.
    """
    from annotated_attention.pretrained import NoWeights, find_weights

    asked = os.environ.get("TRAINED", "")
    if asked == "0":
        return False
    try:
        return bool(find_weights(model=model))
    except NoWeights as error:
        if asked:
            raise NoRecord(f"TRAINED={asked}: {error}") from None
        return False


def replay(script: Path, notebook: NotebookNode) -> dict[str, list[NotebookNode]]:
    """Give the recorded outputs of a chapter's cells by the cells' ids, and note it on the page.

    Raises:
        NoRecord: there is no record, or not of these cells.
    """
    path = FOLDER / f"{script.stem}.json"
    again = "`make TRAINED=1 record` runs the chapter and writes it anew"
    if not path.exists():
        raise NoRecord(f"{script.stem}: no weights, and no record; {again}")
    record = json.loads(path.read_text(encoding="utf-8"))
    wanted = [cell for cell in notebook.cells if needs_weights(cell)]
    for cell in wanted:
        if cell.id not in record["outputs"]:
            first = cell.source.splitlines()[0]
            raise NoRecord(f"{script.stem}: the record is older than the cell {first!r}; {again}")
    made = record["provenance"]
    note = NOTE.format(
        date=made["date"][:10],
        torch=made["torch"],
        file=model_of(script).files[0],
        sha256=made["sha256"],
    )
    before = next(i for i, cell in enumerate(notebook.cells) if needs_weights(cell))
    notebook.cells.insert(before, nbformat.v4.new_markdown_cell(note, id="recorded"))
    return {
        cell.id: [nbformat.from_dict(output) for output in record["outputs"][cell.id]]
        for cell in wanted
    }


def write(script: Path) -> None:
    """Write a chapter's record from its live run.

    Raises:
        NoRecord: the chapter was not run live.
    """
    from annotated_attention.pretrained import find_weights, sha256
    from press.measure.machine import provenance

    notebook = scripts.executed(script.stem)
    if notebook.metadata.get("run") != LIVE:
        raise NoRecord(f"{script.stem} was not run live: `make TRAINED=1 record` does it")
    model = model_of(script)
    run = provenance("make TRAINED=1 record") | {
        "transformers": version("transformers"),
        "model": model.repository,
        "sha256": sha256(find_weights(model=model), model),
    }
    outputs = {cell.id: cell.outputs for cell in notebook.cells if needs_weights(cell)}
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps({"provenance": run, "outputs": outputs}, ensure_ascii=False, indent=1)
    path = FOLDER / f"{script.stem}.json"
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{script.stem}: wrote {path.relative_to(scripts.ROOT)}", flush=True)


def main() -> None:
    """Write every record."""
    try:
        for script in chapters():
            write(script)
    except NoRecord as reason:
        sys.exit(str(reason))


if __name__ == "__main__":
    main()

"""Runs chapters and keeps the results for the site, or says which cell failed and why.

Each runs in a fork of this process: what most of them import from elsewhere is imported once.
"""

import importlib
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode

from press.run import record, scripts
from press.run.kernel import Kernel
from shape_comments.comments import ShapeCommentError

SECONDS_A_CELL = 300
# None of our packages: what a chapter needs of those, its own process shows.
SHARED = ("matplotlib.backends.backend_svg", "matplotlib.figure", "torch._dynamo")
# What each output carries for Jupyter, and the site links once.
CARRIED = re.compile(
    r'<style class="aa-style">.*?</style>|<script type="module" class="aa-script">.*?</script>',
    re.DOTALL,
)


class ChapterFailed(Exception):
    """A chapter cannot be built; the message names the place and the cause."""


class Chapter:
    """A chapter that runs in this process, and can say where it is."""

    def __init__(self, script: Path, said: Path) -> None:
        """Prepare to run ``script``, which stays as it is, and to write in ``said`` where it is."""
        self.script, self.said = script, said
        self.notebook, self.cells = scripts.notebook(script), scripts.code_cells(script)
        self.recorded: dict[str, list[NotebookNode]] = {}
        if any(map(record.needs_weights, self.notebook.cells)):
            live = record.weights_are_there(record.model_of(script))
            self.notebook.metadata["run"] = record.LIVE if live else record.RECORDED
            self.recorded = {} if live else record.replay(script, self.notebook)

    def run(self) -> set[str]:
        """Execute every cell; return the files of the checkout that the chapter depends on.

        Where weights are missing, cells that need them get their recorded outputs instead.
        """
        os.chdir(self.script.parent)
        kernel = Kernel.instance(self.script, self.said.parent)
        code = (x for x in self.notebook.cells if x.cell_type == "code" and x.source)
        for number, cell in enumerate(code):
            if cell.id in self.recorded:
                cell.outputs = self.recorded[cell.id]
            else:
                self._run_cell(kernel, cell, number)
        unreached = kernel.checker.unreached()
        if unreached and not self.recorded:
            raise ChapterFailed("\n".join(unreached))
        return kernel.needed()

    def _run_cell(self, kernel: Kernel, cell: NotebookNode, number: int) -> None:
        self.said.write_text(self._place(number, 0), encoding="utf-8")
        signal.alarm(SECONDS_A_CELL)  # which ends the process, wherever it hangs
        error = kernel.run(cell)
        signal.alarm(0)
        if error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [x.lineno or 1 for x in frames if x.filename.startswith("<ipython")]
            line, *_ = *lines, getattr(error, "lineno", 1)
            where = self._place(number, min(line, len(cell.source.splitlines())) - 1)
            raise ChapterFailed(f"{where}\n{type(error).__name__}: {error}")
        for output in cell.outputs:
            if output.get("name") == "stderr":
                raise ChapterFailed(
                    f"{self._place(number, 0)}\nit writes to stderr, which a reader would see "
                    f"on the page:\n{output.text.rstrip()}"
                )
            shown = output.get("data", {})
            if "text/html" in shown:
                shown["text/html"] = CARRIED.sub("", shown["text/html"])

    def _place(self, number: int, line: int) -> str:
        cell = self.cells[number]
        file = self.script.relative_to(scripts.ROOT)
        text = cell.source.splitlines()[line].strip()
        return (
            f"{file}:{cell.line + line}: chapter {self.script.stem}, "
            f"code cell {number + 1} of {len(self.cells)} failed at\n    {text}"
        )


def execute(script: Path, said: Path) -> str:
    """Run a chapter; write the executed notebook, and what it needs beside it; say how it went."""
    began = time.monotonic()
    chapter = Chapter(script, said)
    needed = chapter.run()
    if chapter.recorded:
        needed.add(str((record.FOLDER / f"{script.stem}.json").relative_to(scripts.ROOT)))
    result = scripts.EXECUTED / f"{script.stem}.ipynb"
    result.parent.mkdir(parents=True, exist_ok=True)
    # The empty rules let make go on when a file that was needed is gone.
    target = result.relative_to(scripts.ROOT)
    rules = [f"{target}: {' '.join(sorted(needed))}", *(f"{path}:" for path in sorted(needed))]
    result.with_suffix(".d").write_text("\n".join(rules) + "\n", encoding="utf-8")
    unfinished = result.with_suffix(".unfinished")
    nbformat.write(chapter.notebook, unfinished)
    unfinished.replace(result)
    seconds = time.monotonic() - began
    how = " and its record, for want of trained weights" * bool(chapter.recorded)
    return f"{script.stem}: {len(chapter.cells)} cells in {seconds:.1f} s{how}"


def fork(script: Path, said: Path) -> int:
    """Run a chapter in a fork of this process, which leaves in ``said`` what there is to say."""
    said.write_text(f"chapter {script.stem}, outside its cells", encoding="utf-8")
    print(f"{script.stem}: executing", flush=True)
    if process := os.fork():
        return process
    status = 1
    try:
        words = execute(script, said)
        status = 0
    except (ChapterFailed, ShapeCommentError, record.NoRecord) as failure:
        words = str(failure)
    except BaseException:
        words = traceback.format_exc()
    said.write_text(words, encoding="utf-8")
    os._exit(status)


def side_by_side(waiting: list[Path], at_once: int) -> bool:
    """Run chapters, so many at once; begin no more when one fails. Tell whether all ran."""
    running: dict[int, TemporaryDirectory[str]] = {}
    whole = True
    while running or (waiting and whole):
        if waiting and whole and len(running) < at_once:
            folder = TemporaryDirectory(prefix="chapter")
            running[fork(waiting.pop(0), Path(folder.name, "said"))] = folder
            continue
        process, status = os.wait()
        with running.pop(process) as name:
            words = Path(name, "said").read_text(encoding="utf-8")
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            late = f" after {SECONDS_A_CELL} s" * (code == -signal.SIGALRM)
            words += f"\nended by {signal.Signals(-code).name}{late}"
        whole = whole and code == 0
        print(words, file=sys.stderr if code else sys.stdout, flush=True)
    return whole


def main() -> None:
    """Run the chapters named, as many side by side as make allows itself."""
    waiting = [Path(name).resolve() for name in sys.argv[1:]]
    if len(waiting) > 1 and sys.platform == "linux":  # no fork elsewhere is sure of them
        for name in SHARED:
            importlib.import_module(name)
    at_once = re.search(r"-j *(\d+)", os.environ.get("MAKEFLAGS", ""))
    sys.exit(not side_by_side(waiting, int(at_once[1]) if at_once else 1))


if __name__ == "__main__":
    main()

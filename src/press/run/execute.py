"""Runs one chapter and keeps the result for the site, or says which cell failed and why."""

import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from press.run import kernel, record, scripts

SECONDS_A_CELL = 120
# What each output carries for Jupyter, and the site links once.
CARRIED = re.compile(
    r'<style class="aa-style">.*?</style>|<script type="module" class="aa-script">.*?</script>',
    re.DOTALL,
)


class ChapterFailed(Exception):
    """A chapter cannot be built; the message names the place and the cause."""


class Client(NotebookClient):
    """Runs a chapter's cells in a kernel of its own, and says how far it is."""

    def __init__(self, script: Path) -> None:
        """Prepare to run ``script``, which stays as it is."""
        self.folder = tempfile.TemporaryDirectory(prefix="chapter")
        # Sockets in a folder of our own: nobody else on the machine can listen.
        kernel = AsyncKernelManager(
            kernel_name="python3", transport="ipc", ip=f"{self.folder.name}/kernel"
        )
        super().__init__(
            scripts.notebook(script),
            kernel,
            timeout=SECONDS_A_CELL,
            coalesce_streams=True,
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": str(script.parent)}},
        )
        self.owns_km = True  # it ends the kernel, too
        self.recorded: dict[str, list[nbformat.NotebookNode]] | None = None
        if any(map(record.needs_weights, self.nb.cells)):
            live = record.weights_are_there(record.model_of(script))
            self.nb.metadata["run"] = record.LIVE if live else record.RECORDED
            self.recorded = None if live else record.replay(script, self.nb)
        self.script = script
        self.cells = scripts.code_cells(script)

    def run(self) -> dict[str, list[str]]:
        """Execute every cell; return what the kernel noted (see ``press.run.kernel.report``).

        Where weights are missing, cells that need them get their recorded outputs instead.
        """
        environment = os.environ | {
            "IPYTHONDIR": self.folder.name,  # a reader's start-up files are not part of the book
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        with self.folder, self.setup_kernel(env=environment):
            cells = json.dumps(list(map(asdict, self.cells)))
            arguments = f"{str(self.script)!r}, {str(scripts.ROOT)!r}, {cells!r}"
            self._run_aside(f"import press.run.kernel; press.run.kernel.start({arguments})")
            code = [(i, x) for i, x in enumerate(self.nb.cells) if x.cell_type == "code"]
            for number, (index, cell) in enumerate(pair for pair in code if pair[1].source):
                if self.recorded and cell.id in self.recorded:
                    cell.outputs = self.recorded[cell.id]
                else:
                    self._run_cell(cell, index, number)
            return dict(json.loads(self._run_aside("print(press.run.kernel.report())")))

    def _run_cell(self, cell: nbformat.NotebookNode, index: int, number: int) -> None:
        try:
            self.execute_cell(cell, index)
        except CellExecutionError as error:
            raise ChapterFailed(self._explain(number, error)) from None
        except (TimeoutError, DeadKernelError) as error:
            where = self._place(number, 0)
            raise ChapterFailed(f"{where}\n{type(error).__name__}: {error}") from None
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

    def _explain(self, number: int, error: CellExecutionError) -> str:
        # The outermost frame of IPython's traceback is the cell itself.
        plain = re.sub(r"\x1b\[[0-9;]*m", "", error.traceback)
        found = re.search(r"Cell In\s*\[\d+\], line (\d+)", plain)
        last = len(self.cells[number].source.splitlines())
        line = min(int(found[1]), last) - 1 if found else 0
        return f"{self._place(number, line)}\n{error.ename}: {error.evalue}"

    def _run_aside(self, code: str) -> str:
        """Run code that is no cell of the chapter; return what it prints."""
        cells = self.nb.cells
        cells.append(nbformat.v4.new_code_cell(code))
        try:
            self.execute_cell(cells[-1], len(cells) - 1, store_history=False)
        except CellExecutionError as error:
            where = f"chapter {self.script.stem}, outside its cells"
            raise ChapterFailed(f"{where}\n{error.ename}: {error.evalue}") from None
        return "".join(output.text for output in cells.pop().outputs)


def execute(script: Path, result: Path) -> None:
    """Run ``script``, write the executed notebook to ``result`` and what it needs beside it."""
    print(f"{script.stem}: executing", flush=True)
    began = time.monotonic()
    client = Client(script)
    noted = client.run()
    if noted["unreached"] and not client.recorded:
        raise ChapterFailed("\n".join(noted["unreached"]))
    result.parent.mkdir(parents=True, exist_ok=True)
    needed = {*noted["needed"], *kernel.imported(scripts.ROOT)}
    if client.recorded:
        needed.add(str((record.FOLDER / f"{script.stem}.json").relative_to(scripts.ROOT)))
    # The empty rules let make go on when a file that was needed is gone.
    rules = [f"{result}: {' '.join(sorted(needed))}", *(f"{path}:" for path in sorted(needed))]
    result.with_suffix(".d").write_text("\n".join(rules) + "\n", encoding="utf-8")
    unfinished = result.with_suffix(".unfinished")
    nbformat.write(client.nb, unfinished)
    unfinished.replace(result)
    seconds = time.monotonic() - began
    how = " and its record, for want of trained weights" * bool(client.recorded)
    print(f"{script.stem}: {len(client.cells)} cells in {seconds:.1f} s{how}", flush=True)


def main() -> None:
    """Run the chapter named first, into the file named second."""
    try:
        execute(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
    except (ChapterFailed, record.NoRecord) as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()

"""What runs a chapter's cells: IPython in this process, where Jupyter has a kernel in another."""

import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from IPython.core.interactiveshell import InteractiveShell
from nbformat import NotebookNode
from nbformat.v4 import new_output
from traitlets.config import Config

from press.run import scripts
from press.run.shapes import PACKAGES, install_in_kernel


class Kernel(InteractiveShell):
    """Runs the cells of a chapter and keeps what they print and display, as a notebook does.

    It checks their shape comments, and notes which files of the checkout the chapter needs.
    """

    def __init__(self, script: Path, folder: Path) -> None:
        """Take what this process writes from now on, by way of files in ``folder``.

        Raises:
            ShapeCommentError: a comment is malformed, or stands where it cannot be checked.
        """
        os.environ["IPYTHONDIR"] = str(folder)  # a reader's own settings are no part of the book
        super().__init__(config=Config(HistoryManager={"enabled": False}))
        vars(self.display_pub).update(publish=partial(self._keep, "display_data"))
        value = partial(self._keep, "execute_result")
        vars(self.displayhook).update(write_output_prompt=str, write_format_data=value)
        self.outputs: list[NotebookNode] = []
        self.number = 0
        self.files: dict[str, TextIO] = {}
        for descriptor, name in ((1, "stdout"), (2, "stderr")):  # of those it starts, too
            self.files[name] = (folder / name).open("a", buffering=1, encoding="utf-8")
            os.dup2(self.files[name].fileno(), descriptor)
            setattr(sys, name, self.files[name])
        self.checker = install_in_kernel(self, map(asdict, scripts.code_cells(script)), script)
        self.opened: set[Path] = set()
        self.elsewhere = False  # whether the packages run in another process, too
        sys.addaudithook(self._note)

    def run(self, cell: NotebookNode) -> BaseException | None:
        """Run a cell and give it its outputs; return what it raised."""
        self.outputs, self.number = [], self.execution_count
        result = self.run_cell(cell.source, store_history=True)
        self._take_what_was_written()
        cell.outputs, cell.execution_count = self.outputs, self.number
        return result.error_before_exec or result.error_in_exec

    def needed(self) -> set[str]:
        """Give the files of the checkout that the chapter depends on."""
        source = scripts.ROOT / "src"
        modules = {Path(getattr(x, "__file__", None) or "") for x in [*sys.modules.values()]}
        found = {path for path in modules if path.is_relative_to(source)} | self.opened
        if self.elsewhere:
            found |= {path for name in PACKAGES for path in (source / name).rglob("*.py")}
        return {str(path.relative_to(scripts.ROOT)) for path in found}

    def _keep(self, kind: str, data: Any, metadata: Any = None, **_: Any) -> None:
        self._take_what_was_written()
        output = new_output(kind, data, metadata=metadata or {})
        if "execution_count" in output:
            output.execution_count = self.number
        self.outputs.append(output)

    def _take_what_was_written(self) -> None:
        for name, file in self.files.items():
            file.flush()
            if text := Path(file.name).read_bytes().decode():
                file.truncate(0)
                same = [output for output in self.outputs if output.get("name") == name]
                if same:
                    same[0].text += text
                else:
                    self.outputs.append(new_output("stream", name=name, text=text))

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self.elsewhere |= any(name in str(arguments[1]) for name in PACKAGES)
        # Under src: modules are asked for when all is done, and the site links the rest.
        if event != "open" or not isinstance(arguments[0], str):
            return
        path, flags = Path(arguments[0]).absolute(), arguments[2]
        if flags & (os.O_WRONLY | os.O_RDWR):  # Python writes bytecode, for one
            return
        if path.is_relative_to(scripts.ROOT) and path.exists():  # cells are no files
            first = path.relative_to(scripts.ROOT).parts[0]
            of_the_site = path.suffix in {".css", ".js", ".py", ".pyc"} and first == "src"
            if not of_the_site and first not in {"build", "site"} and first[0] != ".":
                self.opened.add(path)

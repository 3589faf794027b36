"""What a chapter needs, as its kernel saw it: modules, chapters, data, and other processes."""

import json
import subprocess
import sys

from press.run import scripts

PACKAGE, BOOK = "src/annotated_attention", "src/annotated_book"
PROGRAM = f"""
import subprocess, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from press.run import kernel
InteractiveShell.instance()
root = Path({str(scripts.ROOT)!r})
kernel.start("notebooks/05_batches.py", str(root), "[]")
import annotated_attention.counting.formulas
subprocess.run(["true"])
for path in ("README.md", "{BOOK}/data/training.json", "{BOOK}/display/display.css",
             "{BOOK}/display/live_figures/calculator.js"):
    (root / path).read_text()
print(kernel.report())
subprocess.run([sys.executable, "-c", "import annotated_attention"])
print(kernel.report())
"""


def test_modules_files_that_were_read_and_with_another_process_the_whole_packages():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found, with_another = (set(json.loads(line)["needed"]) for line in run.stdout.splitlines())
    assert {f"{PACKAGE}/counting/formulas.py", "src/press/run/kernel.py"} <= found
    assert f"{PACKAGE}/modern/cache.py" not in found
    assert not {path for path in found if path.startswith("src/press/site")}
    read = {path for path in found if not path.endswith(".py")}
    assert read == {"README.md", f"{BOOK}/data/training.json"}, "the site links the others"
    for package in (PACKAGE, BOOK, "src/attention_doctor"):
        modules = (scripts.ROOT / package).rglob("*.py")
        assert with_another >= {path.relative_to(scripts.ROOT).as_posix() for path in modules}

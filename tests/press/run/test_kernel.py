"""What a chapter needs, as its kernel saw it: modules, chapters, data, and other processes."""

import json
import subprocess
import sys

from press.run import scripts

PACKAGE, BOOK = "src/annotated_attention", "src/annotated_book"
PROGRAM = f"""
import json, os, subprocess, sys
from pathlib import Path
from press.run import kernel, scripts
said = os.fdopen(os.dup(1), "w")
shell = kernel.Kernel.instance(scripts.CHAPTERS / "05_batches.py", Path(sys.argv[1]))
import annotated_attention.counting.formulas
subprocess.run(["true"])
for path in ("README.md", "{BOOK}/data/training.json", "{BOOK}/display/display.css",
             "{BOOK}/display/live_figures/calculator.js"):
    (scripts.ROOT / path).read_text()
print(json.dumps(sorted(shell.needed())), file=said)
subprocess.run([sys.executable, "-c", "import annotated_attention"])
print(json.dumps(sorted(shell.needed())), file=said)
"""


def test_modules_files_that_were_read_and_with_another_process_the_whole_packages(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True
    )
    assert run.returncode == 0, (tmp_path / "stderr").read_text()
    found, with_another = (set(json.loads(line)) for line in run.stdout.splitlines())
    assert {f"{PACKAGE}/counting/formulas.py", "src/press/run/kernel.py"} <= found
    assert f"{PACKAGE}/modern/cache.py" not in found
    assert not {path for path in found if path.startswith("src/press/site")}
    read = {path for path in found if not path.endswith(".py")}
    assert read == {"README.md", f"{BOOK}/data/training.json"}, "the site links the others"
    for package in (PACKAGE, BOOK, "src/attention_doctor"):
        modules = (scripts.ROOT / package).rglob("*.py")
        assert with_another >= {path.relative_to(scripts.ROOT).as_posix() for path in modules}

"""What a chapter needs, as its kernel saw it: modules, chapters, data, and other processes."""

import json
import subprocess
import sys

from book.run import scripts

START = """
import os, subprocess, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from book.run import kernel
InteractiveShell.instance()
kernel.start("notebooks/05_batches.py", {root!r}, "[]")
root = Path({root!r})
{code}
print(kernel.report())
"""
PACKAGE = "src/annotated_attention"
FORMULAS = f"{PACKAGE}/counting/formulas.py"


def needed(code):
    program = START.format(root=str(scripts.ROOT), code=code)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1])["needed"])


def test_modules_that_were_imported_and_files_that_were_read_but_for_what_the_site_links():
    found = needed(f"""
import annotated_attention.counting.formulas
subprocess.run(["true"])
for path in ("README.md", "{PACKAGE}/data/training.json", "{PACKAGE}/display/display.css",
             "{PACKAGE}/display/live_figures/calculator.js"):
    (root / path).read_text()
""")
    assert {FORMULAS, "src/book/run/kernel.py"} <= found
    assert f"{PACKAGE}/modern/cache.py" not in found
    assert not {path for path in found if path.startswith("src/book/site")}
    read = {path for path in found if not path.endswith(".py")}
    assert read == {"README.md", f"{PACKAGE}/data/training.json"}


def test_with_another_process_of_the_packages_all_of_them():
    found = needed("subprocess.run([sys.executable, '-c', 'import annotated_attention'])")
    for package in (PACKAGE, "src/attention_doctor"):
        modules = (scripts.ROOT / package).rglob("*.py")
        assert found >= {path.relative_to(scripts.ROOT).as_posix() for path in modules}

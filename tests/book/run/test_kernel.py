"""What a chapter needs, as its kernel saw it: modules, chapters, data, and other processes."""

import json
import subprocess
import sys

import pytest

from book.run import scripts

START = """
import sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from book.run import kernel
InteractiveShell.instance()
kernel.start("notebooks/05_batches.py", {root!r}, "[]")
root = Path({root!r})
{code}
print(kernel.report())
"""
MODULES = {
    path.relative_to(scripts.ROOT).as_posix()
    for path in (scripts.ROOT / "src" / "annotated_attention").rglob("*.py")
}


def needed(code):
    program = START.format(root=str(scripts.ROOT), code=code)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1])["needed"])


def test_modules_that_were_imported_and_no_others():
    code = "import annotated_attention.counting.formulas, subprocess"
    found = needed(f"{code}\nsubprocess.run(['true'])")
    module = "src/annotated_attention/counting/formulas.py"
    assert {module, "src/book/run/kernel.py"} <= found
    assert "src/annotated_attention/doctor/command.py" not in found
    assert not {path for path in found if path.startswith("src/book/site")}


def test_files_that_were_read_but_for_what_the_site_links():
    found = needed("""
(root / "README.md").read_text()
(root / "src/annotated_attention/data/training.json").read_text()
(root / "src/annotated_attention/display/display.css").read_text()
(root / "src/annotated_attention/display/live_figures/calculator.js").read_text()
""")
    read = {path for path in found if not path.endswith(".py")}
    assert read == {"README.md", "src/annotated_attention/data/training.json"}


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run([sys.executable, '-c', 'import annotated_attention'])",
        "import os\nfrom book.measure.process import in_new_process\nin_new_process(os.getpid)",
    ],
    ids=["subprocess", "multiprocessing"],
)
def test_with_another_process_of_the_package_all_of_it(code):
    if "in_new_process" in code:  # a new process imports the program anew, which is for a file
        code = f"import __main__\n__main__.__spec__ = None\n{code}"
    assert needed(code) >= MODULES

"""Writes requirements.lock: the newest versions that fit pyproject.toml, tried in a fresh place.

Torch is the exception: it stays at the locked version, or moves to the one given as the argument
(``make lock TORCH=torch==2.14.0``), since an open choice downloads gigabytes for a look.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "requirements.lock"
HEADER = """\
# Exact versions of everything that the book is made with. Written by `make lock`.
# Versions are the public ones: any build of that torch will do (see TORCH in the Makefile).
"""


def main() -> None:
    """Resolve in a temporary virtual environment and write what it ended up with."""
    torch = sys.argv[1:] or re.findall(r"^torch==\S+", LOCK.read_text("utf-8"), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        print("lock: resolving in a fresh environment (some minutes)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
        subprocess.run([*pip, "install", *torch], check=True)
        subprocess.run(
            [*pip, "install", f"{ROOT}[book,trained]", "--group", "dev"], check=True, cwd=ROOT
        )
        # Unlike `pip freeze`, it gives the version of what came from a file, too.
        listing = ["list", "--format=freeze", "--exclude=pip", "--exclude=annotated-attention"]
        listed = subprocess.run([*pip, *listing], check=True, capture_output=True, text=True).stdout
    lines = [line.partition("+")[0] for line in listed.splitlines()]  # without a local label
    LOCK.write_text(HEADER + "\n".join(lines) + "\n", "utf-8")
    print(f"lock: {len(lines)} packages in requirements.lock; `make test` tries them", flush=True)


if __name__ == "__main__":
    main()

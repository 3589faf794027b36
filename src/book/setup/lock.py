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
    pinned = re.search(r"^torch==\S+", LOCK.read_text() if LOCK.exists() else "", re.MULTILINE)
    torch = sys.argv[1:] or ([pinned[0]] if pinned else [])
    if not torch:
        sys.exit("requirements.lock names no torch: make lock TORCH=torch==...")
    with tempfile.TemporaryDirectory() as folder:
        print("lock: resolving in a fresh environment (some minutes)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
        subprocess.run([*pip, "install", *torch], check=True)
        subprocess.run(
            [*pip, "install", f"{ROOT}[book,trained]", "--group", "dev"], check=True, cwd=ROOT
        )
        frozen = subprocess.run(
            [*pip, "freeze", "--all", "--exclude", "pip", "--exclude", "annotated-attention"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    lines = [lock_line(line) for line in frozen.splitlines()]
    LOCK.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"lock: {len(lines)} packages in requirements.lock; `make test` tries them", flush=True)


def lock_line(frozen: str) -> str:
    """Give one line of ``pip freeze`` as a public version: no local label, no file address."""
    if " @ " in frozen:
        # A wheel from a file: its name carries the version.
        name, address = frozen.split(" @ ")
        version = re.search(r"/[^/]+?-(\d[^-]*)-[^/]*\.whl", address)
        if version is None:
            sys.exit(f"lock: no version can be read off {frozen!r}")
        frozen = f"{name}=={version[1]}"
    return re.sub(r"(\+|%2B)[\w.]+$", "", frozen)


if __name__ == "__main__":
    main()

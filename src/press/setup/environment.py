"""Sets up .venv from requirements.lock; run by the Makefile with the system's Python.

Only the standard library is used here, and the lines down to the version check are readable by
any Python 3, so that one that is too old says so instead of failing to parse.
"""

import sys

if sys.version_info < (3, 11, 5):  # which soupsieve and pymdown-extensions ask for
    sys.exit(
        "This needs Python 3.11.5 or later, and {} is {}.{}.{}.\n"
        "Name a newer one: make PYTHON=python3.12 ...".format(sys.executable, *sys.version_info[:3])
    )

import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"


def main() -> None:
    """Create or bring up to date .venv; the optional argument is another torch for pip."""
    chosen_torch = VENV / "torch-choice"
    torch = " ".join(sys.argv[1:]) or (
        chosen_torch.read_text("utf-8") if chosen_torch.exists() else ""
    )
    if not (VENV / "bin" / "python").exists():
        make_venv()
    if torch:
        print(f"setting up: torch as chosen: {torch}", flush=True)
        pip(*shlex.split(torch))
        chosen_torch.write_text(torch, "utf-8")
    pinned = [line for line in LOCK.read_text("utf-8").splitlines() if line and line[0] != "#"]
    wanted = VENV / "wanted.txt"
    others = (line for line in pinned if not (torch and line.startswith("torch==")))
    wanted.write_text("\n".join(others), "utf-8")
    print(f"setting up: {len(pinned)} packages from requirements.lock into .venv", flush=True)
    pip("-r", str(wanted))
    pip("--no-build-isolation", "--no-deps", "-e", str(ROOT))
    shutil.copyfile(LOCK, VENV / "requirements.lock")  # tells make that all of it is there
    print("setting up: done", flush=True)


def make_venv() -> None:
    """Create the empty virtual environment."""
    print(f"setting up: .venv with {sys.executable}", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True
    )
    if made.returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        sys.exit(
            f"Python could not make a virtual environment:\n{made.stdout}{made.stderr}"
            "On Debian and Ubuntu the package python3-venv is missing."
        )


def pip(*arguments: str) -> None:
    """Run ``pip install`` in .venv, which says itself how far it is and what went wrong.

    Python compiles what it imports; pip would compile all of it, which takes half of its time.
    """
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
    if subprocess.run([*command, "--no-compile", *arguments]).returncode:
        sys.exit("pip failed, as it says above. Set-up stopped; .venv is not complete.")


if __name__ == "__main__":
    main()

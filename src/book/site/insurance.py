"""Builds the site with ProperDocs, a continuation of MkDocs, and compares it with the one built.

Material for MkDocs ends in May 2027, and MkDocs 1 is not developed any more. As long as this holds,
another generator stands ready: it takes this configuration, this theme and these plugins, and makes
the same files. It needs no package that the book does not have, and is put where only this sees it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from book.run import scripts
from book.site.build import BUILD, SITE

PINNED = scripts.ROOT / "requirements-insurance.txt"
# Names the generator, as it should; a sitemap is packed with the time of its build.
GENERATOR = re.compile(rb'<meta name="generator" content="[^"]*">')
NOT_COMPARED = {"sitemap.xml.gz"}


def main() -> None:
    """Fetch the generator, build, and fail where a file is missing or another."""
    library, other = BUILD / "insurance", BUILD / "site-insurance"
    for folder in (library, other):
        shutil.rmtree(folder, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    only = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(PINNED)]
    subprocess.run([*pip, "--target", str(library), *only], check=True)
    print("insurance: building with ProperDocs", flush=True)
    command = [sys.executable, "-m", "properdocs", "build", "--strict", "--site-dir", str(other)]
    path = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        command,
        cwd=scripts.ROOT,
        env=os.environ | {"PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    if run.returncode:
        sys.exit(f"ProperDocs does not build the site:\n{run.stderr}")
    if different := differences(SITE, other):
        sys.exit("\n".join(["ProperDocs builds another site:", *different]))
    print(f"insurance: the same {len(list(SITE.rglob('*.html')))} pages", flush=True)


def differences(one: Path, other: Path) -> list[str]:
    """Name the files that are only in one of two sites, or say something else there."""
    files = [
        {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
        for site in (one, other)
    ]
    named = [f"{name}: only in one of them" for name in sorted(files[0] ^ files[1])]
    for name in sorted(files[0] & files[1] - NOT_COMPARED):
        first, second = (GENERATOR.sub(b"", (site / name).read_bytes()) for site in (one, other))
        if first != second:
            named.append(f"{name}: differs")
    return named


if __name__ == "__main__":
    main()

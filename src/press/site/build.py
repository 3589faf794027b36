"""Builds the static site beside the last good one and swaps them; serves it."""

import http.server
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from press.run import scripts
from press.site.chapter_list import address

SITE = scripts.ROOT / "site"
BUILD = scripts.ROOT / "build"
HOST = "127.0.0.1"


def build() -> None:
    """Build strictly into a folder beside ``site/``, which is replaced only by a whole one."""
    print("site: building", flush=True)
    began = time.monotonic()
    fresh, old = BUILD / "site-new", BUILD / "site-old"
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(fresh)]
    calm = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # of the theme, about its end
    made = subprocess.run(mkdocs, cwd=scripts.ROOT, env=calm, stderr=subprocess.PIPE, text=True)
    said = [line for line in made.stderr.splitlines() if not line.startswith("INFO")]
    causes = said if made.returncode else missing(fresh)
    if causes:
        sys.exit("\n".join(["the site was not built, the last one stays as it is:", *causes]))
    if SITE.exists():
        SITE.rename(old)
    fresh.rename(SITE)
    shutil.rmtree(old, ignore_errors=True)
    pages = len(list(SITE.rglob("*.html")))
    print(f"site: {pages} pages in {time.monotonic() - began:.1f} s", flush=True)


def missing(site: Path) -> list[str]:
    """Say which chapters lack cells, or their page: MkDocs drops them silently."""
    lacks = []
    for script in sorted(scripts.CHAPTERS.glob("*.py")):
        executed = scripts.executed(script.stem).cells
        cells = [cell for cell in executed if cell.cell_type == "code" and cell.source]
        html = site / address(script.stem) / "index.html"
        shown = html.read_text(encoding="utf-8").count("data-cell=") if html.exists() else 0
        if shown != len(cells):
            lacks.append(f"{script.stem}: its page shows {shown} of {len(cells)} cells")
    return lacks


def serve(port: str) -> None:
    """Serve ``site/`` until interrupted; a site built meanwhile is seen at the next load.

    Raises:
        SystemExit: ``port`` is none, or cannot be served on.
    """
    handler: Any = partial(Quiet, directory=str(SITE))
    try:
        server = http.server.ThreadingHTTPServer((HOST, int(port)), handler)
    except (ValueError, OSError, OverflowError) as error:
        sys.exit(f"port {port} cannot be used ({error}); name another: make serve PORT=8001")
    with server:
        print(f"serving the book at http://{HOST}:{port}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Do what the first argument names."""
    verb, *port = sys.argv[1:]
    if verb == "build":
        build()
    else:
        serve(*port)


if __name__ == "__main__":
    main()

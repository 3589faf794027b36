"""Takes the README's picture: the first page of the site as it is built, in a browser."""

import io
import shutil
import sys
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

from bs4 import BeautifulSoup
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from book.run import scripts
from book.site.build import HOST, SITE, Quiet

PICTURE = scripts.ROOT / "docs" / "assets" / "start-page.png"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
COLOURS = 64  # are enough for a page, and a quarter of the bytes


def main() -> None:
    """Write the picture, and into it the text that it shows, with which a test compares the page.

    Raises:
        SystemExit: there is no browser.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is on the PATH")
    with ThreadingHTTPServer((HOST, 0), partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shot = take(browser, f"http://{HOST}:{server.server_port}/")
        server.shutdown()
    said = PngInfo()
    said.add_itxt("shows", shown(SITE / "index.html"))
    few = Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(PICTURE, optimize=True, pnginfo=said)


def take(browser: str, address: str) -> bytes:
    """Give a picture of the window in which a page is open."""
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = running.new_page(
            viewport={"width": 1280, "height": 760},
            reduced_motion="reduce",
            device_scale_factor=1.5,
        )
        page.goto(address, wait_until="networkidle")
        shot = page.screenshot()
        running.close()
    return shot


def shown(page: Path) -> str:
    """Give the text of a first page that the picture shows."""
    first = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").select_one(".aa-first")
    return " ".join(first.text.split()) if first else ""


if __name__ == "__main__":
    main()

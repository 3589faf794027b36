"""What the tests in a browser share: the browser, and the site served to it."""

import functools
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from book.site.build import SITE, Quiet

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]

INDEX = "/search/search_index.json"

expect.set_options(timeout=60_000)  # how long until a test gives up; a busy machine is slow


class Handler(Quiet):
    """Serves the site, and pages that a test has put beside it, whole or slowly in parts."""

    extra: dict[str, str | list[str]] = {}  # noqa: RUF012

    def do_GET(self):
        if self.path not in self.extra:
            return super().do_GET()
        page = self.extra[self.path]
        parts = [part.encode() for part in ([page] if isinstance(page, str) else page)]
        kind = "text/xml" if self.path.endswith(".xml") else "text/html"
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(sum(map(len, parts))))
        self.end_headers()
        for part in parts:
            self.wfile.write(part)
            time.sleep(len(parts) > 1)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of the browser; without one, say so, which in CI is a failure."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        reason = "no Chromium on the PATH: nothing was looked at in a browser"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return browser


@pytest.fixture(scope="module")  # one for a whole session once stopped giving frames
def browser(chromium: str) -> Iterator[Browser]:
    """Give the browser, started."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def with_scrollbars(browser: Browser, chromium: str) -> Iterator[Browser]:
    """Give a browser whose scrollbars take room, as on most desktops; a driver hides them."""
    hide = ["--hide-scrollbars"]
    kind = browser.browser_type
    other = kind.launch(executable_path=chromium, args=FLAGS, ignore_default_args=hide)
    yield other
    other.close()


@pytest.fixture(scope="session")
def served(chromium: str) -> Iterator[tuple[str, dict[str, str | list[str]]]]:
    """Serve the site; give its address, and a dictionary for further pages.

    Nobody searches but who says so: with all that can be found, every page that is opened would
    spend a third of a second on it.
    """
    Handler.extra[INDEX] = json.dumps(json.loads((SITE / INDEX[1:]).read_bytes()) | {"docs": []})
    handler = functools.partial(Handler, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Handler.extra
        server.shutdown()


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest, browser: Browser, served: tuple) -> Iterator[Page]:
    """Open a module's ``PAGE`` at its figure, where it has least room; at the end, nothing failed.

    How much room it takes on wide pages is asked of every figure in ``test_browser.py``.
    """
    size = {"width": 360, "height": 900}
    page = browser.new_page(viewport=size, reduced_motion="reduce")
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto(served[0] + request.module.PAGE)
    page.locator("#" + request.module.PAGE.partition("#")[2]).scroll_into_view_if_needed()
    yield page
    page.close()
    assert problems == []

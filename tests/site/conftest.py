"""What the tests in a browser share: the browser, the site served to it, and a watched window."""

import functools
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from press.site.build import SITE, Quiet

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]

INDEX = "/search/search_index.json"

expect.set_options(timeout=60_000)  # how long until a test gives up; a busy machine is slow


class Handler(Quiet):
    """Serves the site, with another index for its search if there is one."""

    index = b""

    def do_GET(self):
        if not self.index or self.path != INDEX:
            return super().do_GET()
        self.send_response(200)  # without a date, or a browser would keep it
        self.send_header("Content-Length", str(len(self.index)))
        self.end_headers()
        self.wfile.write(self.index)


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


@pytest.fixture(scope="session")
def served(chromium: str) -> Iterator[tuple[str, type[Handler]]]:
    """Serve the site; give its address, and what serves it.

    Nobody searches but who takes the empty index away: with all that can be found, every page that
    is opened would spend a third of a second on it.
    """
    nothing = json.loads((SITE / INDEX[1:]).read_bytes()) | {"docs": []}
    Handler.index = json.dumps(nothing).encode()
    handler = functools.partial(Handler, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", Handler
        server.shutdown()


@pytest.fixture(scope="module")
def windows(browser: Browser, served: tuple) -> Iterator[Callable[..., tuple]]:
    """Give the window of some options, always the same one, and the list of what went wrong in it.

    Options are those of Playwright's ``new_context``. Every page of such a window is watched.
    """
    opened: dict[str, tuple[BrowserContext, list[str]]] = {}
    host = urlsplit(served[0]).netloc

    def window(**options) -> tuple[BrowserContext, list[str]]:
        if repr(options) in opened:
            return opened[repr(options)]
        made, problems = browser.new_context(base_url=f"{served[0]}/", **options), []
        made.on("weberror", lambda error: problems.append(str(error.error)))
        made.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        made.on(
            "request",
            lambda r: urlsplit(r.url).netloc in (host, "") or problems.append(f"asks for {r.url}"),
        )
        return opened.setdefault(repr(options), (made, problems))

    yield window
    for made, _ in opened.values():
        made.close()


@pytest.fixture
def visit(windows: Callable[..., tuple]) -> Iterator[Callable[..., Page]]:
    """Open a page in a window that remembers nothing of other tests.

    At the end, nothing failed, no other host was asked, and no cookie was set.
    """
    used = []

    def visit(path: str = "", **options) -> Page:
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
        window, problems = windows(**options)
        used.append((window, problems))
        page = window.new_page()
        page.goto(path)
        return page

    yield visit
    for window, problems in used:
        found = [*problems, *window.cookies()]
        problems.clear()
        for page in window.pages:
            page.evaluate("localStorage.clear()")
            page.close()
        assert found == []

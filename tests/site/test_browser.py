"""The built pages in a real browser: both schemes, wide and on a phone, without the network."""

import html
import json
import re
import subprocess
from pathlib import Path

import pytest

from book.site import SITE

PAGES = sorted(
    path.relative_to(SITE).as_posix().removesuffix("index.html")
    for path in SITE.rglob("index.html")
)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--virtual-time-budget=240000",
    "--dump-dom",
]
HARNESS = Path(__file__).with_name("measure.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def measured(chromium, served, tmp_path_factory):
    address, extra = served
    extra["/harness"] = HARNESS.replace("of PAGES", f"of {json.dumps(PAGES)}")
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    run = subprocess.run(
        [chromium, *FLAGS, profile, f"{address}/harness"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    report = re.search(r'<pre id="report">(.*?)</pre>', run.stdout, re.DOTALL)
    assert report, f"the browser reported nothing: {run.stderr[-2000:]}"
    assert report[1], "the browser was stopped before it had seen every page"
    return address, json.loads(html.unescape(report[1]))


def test_every_page_was_seen(measured):
    _, results = measured
    for page in PAGES:
        seen = [(r["width"], r["scheme"]) for r in results if r["page"] == page]
        assert seen == [(1280, "default"), (1280, "slate"), (390, "default")]
    assert all(result["text"] > 200 for result in results)


def test_no_request_leaves_the_site(measured):
    address, results = measured
    assert all(result["hosts"] == [address.removeprefix("http://")] for result in results)


def test_no_script_fails(measured):
    assert not [result for result in measured[1] if result["errors"]]


def test_nothing_is_wider_than_the_page(measured):
    wide = [(r["page"], r["width"], r["overflow"]) for r in measured[1] if r["overflow"] > 0]
    assert not wide


def test_text_can_be_read(measured):
    faint = {
        f"{r['page']} {r['width']} {r['scheme']}: {t}" for r in measured[1] for t in r["faint"]
    }
    assert not faint, "\n".join(sorted(faint))


def test_code_can_be_copied(measured):
    chapters = [result for result in measured[1] if result["page"].startswith("notebooks/")]
    assert chapters
    assert all(result["copy"] > 5 for result in chapters)

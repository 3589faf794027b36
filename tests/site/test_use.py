"""What readers do with the built pages in a real browser: read, use, search, take along."""

import html
import re
from urllib.parse import urljoin

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import expect

from book.run import scripts
from book.site.build import SITE
from book.site.contents import address

CHEAP = scripts.CHAPTERS / "05_batches.py"  # it is run here: quick, and it needs another chapter
PAGES = sorted(
    path.relative_to(SITE).as_posix().removesuffix("index.html")
    for path in SITE.rglob("index.html")
)


@pytest.fixture(scope="module")
def reader(browser, served):
    """Give a window that remembers nothing of the page before."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        base_url=served[0],
        reduced_motion="reduce",
    )
    yield context.new_page()
    context.close()


# Without scripts


@pytest.fixture(scope="module")
def plain(browser, served):
    context = browser.new_context(base_url=served[0], java_script_enabled=False)
    yield context.new_page()
    context.close()


UNSEEN = """
() => {
  const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
  const unseen = [];
  while (walker.nextNode()) {
    const { data, parentElement: element } = walker.currentNode;
    if (!data.trim() || element.checkVisibility({ opacityProperty: true })) continue;
    if (element.closest("details:not([open]), .headerlink, .aa-link, annotation, thead")) continue;
    unseen.push(data.trim());
  }
  const pictures = document.querySelectorAll("article :is(figure, img)");
  for (const picture of pictures)
    if (!picture.closest("details:not([open])") && !picture.getBoundingClientRect().height)
      unseen.push(picture.outerHTML.slice(0, 100));
  return unseen;
}
"""
TAG = re.compile(r"""<(?:"[^"]*"|'[^']*'|[^'">])*>|<!--.*?-->""", re.DOTALL)
TEXT = 'document.querySelector("article").textContent.replace(/\\s+/g, " ").trim()'


@pytest.mark.parametrize("page", PAGES)
def test_complete_without_scripts(plain, page):
    plain.goto(f"/{page}")
    built = (SITE / page / "index.html").read_text(encoding="utf-8")
    article = built[built.index("<article") : built.index("</article>")]
    assert plain.evaluate(TEXT) == " ".join(html.unescape(TAG.sub("", article)).split())
    assert plain.evaluate(UNSEEN) == []
    assert plain.locator(".aa-live :is(input, select, button)").count() == 0


# Live figures


def test_a_live_figure_starts_again_where_one_comes_back(reader):
    reader.goto(f"/{address('04_reshape_trick')}")
    reader.goto("/notation/")
    reader.go_back()
    frame = reader.locator(".aa-live")
    frame.scroll_into_view_if_needed()
    expect(frame.locator(".aa-stage")).to_have_count(1)


# Search


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("reshape", "chapters/reshape-trick/"),
        ("padding", "chapters/masks/"),
        ("MultiheadAttention", "package/attention/"),
    ],
)
def test_search_finds(reader, served, monkeypatch, words, where):
    monkeypatch.delitem(served[1], "/search/search_index.json")
    reader.goto("/notation/")
    expect(reader.locator(".md-search-result__meta")).to_have_text("Type to start searching")
    field = reader.locator(".md-search__input")
    field.fill(words)
    field.press("End")  # the theme waits for a key
    results = reader.locator(".md-search-result__item")
    expect(results.first).to_be_visible()
    found = results.locator("a").evaluate_all("links => links.map((link) => link.pathname)")
    assert f"/{where}" in found
    for result in results.all_inner_texts():
        assert words.lower() in result.lower()
        assert not re.search(r"¶|\\\w|[<>]/?\w+>|\$", result), result


# What is taken along


def test_copied_code_runs(tmp_path, monkeypatch):
    """What the copy buttons give, another test asks: the source of each cell that is shown."""
    cells = [c for c in scripts.code_cells(CHEAP) if "hide-input" not in c.tags]
    head = "from annotated_attention import display"  # the cell that the page does not show
    monkeypatch.chdir(tmp_path)
    exec("\n\n".join([head, *(cell.source for cell in cells)]), {"__name__": "__main__"})


def downloads(reader, script):
    """Give what a chapter's links lead to, as bytes: the notebook and the script."""
    reader.goto(f"/{address(script.stem)}")
    links = reader.locator("article a[download]").evaluate_all("links => links.map((a) => a.href)")
    return [reader.request.get(urljoin(reader.url, link)).body() for link in links]


def test_downloaded_notebook_runs_elsewhere(reader, tmp_path):
    notebook, _ = downloads(reader, CHEAP)
    book = nbformat.reads(notebook.decode(), as_version=4)
    NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    errors = [
        o for cell in book.cells for o in cell.get("outputs", ()) if o.get("name") == "stderr"
    ]
    assert errors == []

"""Heads at work, in a browser: layer, head and query can be chosen, and each number is Python's."""

import json
import re

import pytest
import torch
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from annotated_attention import chapters, display
from book.site.build import SITE

WORDS = ["one", "<b>", "three"]
MAPS = [
    [[[80, 15, 5], [0, 100, 0], [33, 33, 34]], [[1, 2, 97], [60, 0, 40], [0, 0, 100]]],
    [[[10, 20, 70], [5, 5, 90], [100, 0, 0]], [[0, 50, 50], [9, 9, 82], [40, 30, 30]]],
]


PAGES = [
    page.parent.name
    for page in sorted(SITE.glob("chapters/*/index.html"))
    if 'data-live="heads_at_work"' in page.read_text(encoding="utf-8")
]
# Goes through every layer, head and query, and gives what the figure says and draws of each.
EVERYTHING = r"""(figure) => {
  const find = (name) => [...figure.querySelectorAll('input')]
    .find((input) => input.parentElement.firstChild.textContent === name);
  const [layer, head, query] = ['layer', 'head', 'query'].map(find);
  const [lines, map] = figure.querySelectorAll('.aa-stage svg');
  const set = (input, value) => {
    input.value = value;
    input.dispatchEvent(new Event('input'));
  };
  const upTo = (input) => Array.from({ length: input ? Number(input.max) + 1 : 1 }, (_, i) => i);
  const seen = [];
  for (const l of upTo(layer)) for (const h of upTo(head)) for (const i of upTo(query)) {
    if (layer) set(layer, l);
    set(head, h);
    set(query, i);
    const texts = [...lines.querySelectorAll('text')].map((text) => text.textContent);
    const lit = lines.querySelectorAll('path[stroke="var(--aa-h)"]');
    seen.push([
      texts.filter((text) => /^[01]\.\d\d$/.test(text)),
      [...lit].map((line) => Number(line.getAttribute('stroke-width'))),
      [...map.querySelectorAll('.aa-weight')].map((cell) => Number(cell.style.fillOpacity)),
      figure.querySelector('[role=status]').textContent,
    ]);
  }
  return seen;
}"""


def frame(name, maps, keys):
    still = display.finish(display.panels(300, 200)[0], name=name, alt="Still.")
    weights = torch.tensor(maps) / 100
    start = (len(maps) - 1, 1, 0)
    return display.heads_at_work(still, weights, WORDS, keys, start=start).html


@pytest.fixture(scope="module")
def page(browser, served):
    address, extra = served
    text = (SITE / "notation" / "index.html").read_text(encoding="utf-8")
    cross = [[[row[:2] for row in head] for head in MAPS[0]]]  # one layer, two keys
    weights = torch.tensor(MAPS) / 100
    links = display.heads_map(weights, name="links", alt="All heads.").html
    far = '<p style="margin-top: 3000px"><a href="#head-2-1">far</a></p>'
    rows = display.heads_table({"one": weights[..., 0, 0]}).html
    frames = frame("many", MAPS, WORDS) + frame("cross", cross, ["x", "y"]) + links + far + rows
    extra["/heads/"] = re.sub(r"(<article[^>]*>)", rf"\1{frames}", text, count=1)
    problems = []
    page = browser.new_page(viewport={"width": 1000, "height": 1600})
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto(f"{address}/heads/")
    yield page
    page.close()
    del extra["/heads/"]
    assert problems == []


def figure(page, name):
    return page.locator(f"#fig-{name}")


def test_layer_head_and_query(page):
    shown = figure(page, "many")
    status = shown.get_by_role("status")
    expect(status).to_have_text("layer 2, head 2: “one” looks at <b> (0.50), three (0.50)")
    shown.get_by_role("slider", name="layer").press("ArrowLeft")
    expect(status).to_have_text("layer 1, head 2: “one” looks at three (0.97)")
    shown.get_by_role("slider", name="head").press("ArrowLeft")
    expect(status).to_have_text("layer 1, head 1: “one” looks at one (0.80), <b> (0.15)")
    token = shown.get_by_role("slider", name="query")
    token.press("ArrowRight")
    expect(status).to_have_text("layer 1, head 1: “<b>” looks at <b> (1.00)")
    expect(token).to_have_attribute("aria-valuetext", "<b>")
    lines = shown.get_by_role("img", name="layer 1, head 1: <b> looks at <b> (1.00).")
    numbers = [text for text in lines.locator("text").all_text_contents() if "." in text]
    assert numbers == ["0.00", "1.00", "0.00"]
    widths = lines.locator("path[stroke='var(--aa-h)']").evaluate_all(
        "lines => lines.map((line) => Number(line.getAttribute('stroke-width')).toFixed(1))"
    )
    assert sorted(widths) == ["0.4", "0.4", "12.4"]


def test_a_click_on_a_row_chooses_its_token(page):
    shown = figure(page, "many")
    cells = shown.get_by_role("img", name="a row per query").locator(".aa-weight")
    assert cells.count() == 9
    cells.nth(6).click()
    expect(shown.get_by_role("status")).to_contain_text("“three” looks at")
    expect(shown.get_by_role("slider", name="query")).to_have_value("2")
    shown.get_by_role("img", name="three looks at").locator(".aa-ask").nth(1).click()
    expect(shown.get_by_role("status")).to_contain_text("“<b>” looks at")
    expect(shown.get_by_role("slider", name="query")).to_have_attribute("aria-valuetext", "<b>")


def test_a_link_to_a_head_shows_it_wherever_the_link_stands(page):
    shown, status = figure(page, "many"), figure(page, "many").get_by_role("status")
    links = figure(page, "links").get_by_role("link")
    assert links.count() == 4
    current = page.locator(".aa-heads a[aria-current=true]")
    links.nth(1).click()
    expect(status).to_contain_text("layer 1, head 2: ")
    expect(current).to_have_attribute("aria-label", "layer 1, head 2")
    page.get_by_role("link", name="far", exact=True).click()
    expect(status).to_contain_text("layer 2, head 1: ")
    expect(shown.get_by_role("slider", name="layer")).to_be_in_viewport()
    assert page.url.endswith("#head-2-1")
    shown.get_by_role("slider", name="head").press("ArrowRight")
    expect(current).to_have_attribute("aria-label", "layer 2, head 2")
    expect(figure(page, "cross").get_by_role("status")).to_contain_text("head 2: ")
    page.go_back()


def test_without_scripts_a_link_leads_to_the_heads_row(page, served):
    context = page.context.browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{served[0]}/heads/")
    plain.locator("#fig-links").get_by_role("link").nth(3).click()
    expect(plain.locator("#head-2-2")).to_be_in_viewport()
    context.close()


def test_every_link_to_a_head_leads_to_a_row():
    text = (SITE / "chapters" / "trained-weights" / "index.html").read_text(encoding="utf-8")
    page = BeautifulSoup(text, "html.parser")
    links = {a["href"] for a in page.select("article a[href^='#head-']")}
    assert len(links) == 72
    assert links == {f"#{row['id']}" for row in page.select(".aa-every-head tr[id]")}


def test_one_layer_and_other_keys_than_queries(page):
    shown = figure(page, "cross")
    expect(shown.get_by_role("slider")).to_have_count(2)
    expect(shown.get_by_role("status")).to_have_text("head 2: “one” looks at y (0.02)")
    assert shown.locator(".aa-stage .aa-weight").count() == 6


def strongest(row, keys):
    order = sorted(range(len(keys)), key=lambda j: (-row[j], j))
    named = [j for place, j in enumerate(order) if place == 0 or row[j] >= 10][:3]
    return ", ".join(f"{keys[j]} ({row[j] / 100:.2f})" for j in named)


def test_there_are_heads_at_work():
    assert PAGES == ["multihead-attention", "trained-weights", "two-heads"]


@pytest.mark.parametrize("name", PAGES)
def test_every_number_on_the_page_is_the_chapters(page, served, name):
    chapter = page.context.browser.new_page()
    chapter.goto(f"{served[0]}/chapters/{name}/")
    frame = chapter.locator("[data-live=heads_at_work]")
    frame.scroll_into_view_if_needed()
    status = frame.get_by_role("status")
    expect(status).not_to_be_empty()
    data = json.loads(frame.get_attribute("data-state"))
    maps, keys, queries = data["maps"], data["keys"], data["queries"]
    layer, head, query = data["start"]

    # It begins with what the picture shows.
    row = maps[layer][head][query]
    expect(status).to_contain_text(f"“{queries[query]}” looks at {strongest(row, keys)}")
    still = frame.locator("figure > svg").get_attribute("aria-label")
    said = re.findall(r"([^\s.]+|\.) \(?([01]\.\d\d)\b", still)
    tops = [(keys[w.index(max(w))], f"{max(w) / 100:.2f}") for w in maps[layer][head]]
    whole = [(key, f"{weight / 100:.2f}") for key, weight in zip(keys, row, strict=True)]
    assert said in (tops, whole)

    seen = iter(chapter.evaluate(EVERYTHING, frame.element_handle()))
    for number, heads in enumerate(maps, 1):
        for name, rows in zip(data["heads"], heads, strict=True):
            where = f"layer {number}, {name}" if len(maps) > 1 else name
            for word, row in zip(queries, rows, strict=True):
                assert sum(row) == pytest.approx(100, abs=len(row) / 2)
                numbers, widths, cells, text = next(seen)
                assert numbers == [f"{weight / 100:.2f}" for weight in row]
                assert widths == pytest.approx([0.4 + 0.12 * weight for weight in row])
                flat = [0.0085 * weight for weights in rows for weight in weights]
                assert cells == pytest.approx(flat, abs=1e-6)
                assert text == f"{where}: “{word}” looks at {strongest(row, keys)}"
    assert next(seen, None) is None
    chapter.close()


def test_the_two_heads_of_chapter_2():
    one = chapters.load("01_one_head")
    text = (SITE / "chapters" / "two-heads" / "index.html").read_text(encoding="utf-8")
    at = text.rindex("<", 0, text.index('data-live="heads_at_work"'))
    state = BeautifulSoup(text[at : text.index("</figure>", at)], "html.parser").div
    x = one.EMBEDDINGS + one.attend(one.EMBEDDINGS, one.EMBEDDINGS, one.EMBEDDINGS)[0]
    weights = torch.stack([one.attend(part, part, part)[1] for part in (x[:, :2], x[:, 2:])])
    shown = torch.tensor(json.loads(state["data-state"])["maps"])[0] / 100
    torch.testing.assert_close(shown, weights, rtol=0, atol=0.00501)

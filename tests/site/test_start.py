"""The first page: its picture is in sight; and the map of the computation can be pointed at."""

import io
import json
import os
import re

from bs4 import BeautifulSoup
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import expect

from annotated_book import display
from press.run import scripts
from press.site.build import SITE

PICTURE = scripts.ROOT / "docs" / "assets" / "start-page.png"
# The picture holds the question and the figure, and nothing of the site around them.
ALONE = """
  .md-header, .md-tabs, .md-sidebar, .md-footer { display: none !important }
  .aa-first ~ *, .aa-doors, .aa-how, .aa-readout, .headerlink { display: none !important }
  .md-main__inner, .md-content__inner { margin: 0 auto !important; padding: 0 !important }
  .aa-first { padding: 4rem 1.5rem 1rem 2rem }
  .md-typeset .aa-first h1 { font-size: 2.3rem; margin-top: 1.5rem }
  .md-typeset .aa-lead { font-size: 1.2rem; line-height: 1.7 }
"""
MAP = "chapters/multihead-attention/"
LINES = dict(line.split(": ", 1) for line in display.whole_map().text.splitlines())


def said(page):
    """Give the lines that are seen below the map."""
    lines = page.locator(".aa-large li > p").all()
    return [line.text_content() for line in lines if line.is_visible()]


def test_all_that_the_tick_changes_is_in_sight_on_a_phone_and_the_doors_where_there_is_room(visit):
    for size, names in (
        ((390, 844), ()),
        ((1280, 720), ("Take the short path", "Check my code", "Prepare for an interview")),
    ):
        page = visit(viewport=dict(zip(("width", "height"), size, strict=True)))
        for drawn in (".aa-look", ".aa-gets"):
            expect(page.locator(f".aa-stage {drawn}")).to_be_in_viewport(ratio=1)
        expect(page.get_by_role("checkbox", name="heads")).to_be_in_viewport(ratio=1)
        cut = page.locator(".aa-tick-line code span")
        assert cut.evaluate("x => getComputedStyle(x).clipPath") == "none", "the call is seen"
        for name in names:
            link = page.locator("article").get_by_role("link", name=name, exact=True)
            expect(link).to_be_in_viewport(ratio=1)


def test_without_the_transpose_a_word_gets_what_was_found_for_others(visit):
    page = visit()
    said = page.locator("[data-live=first_look]").get_by_role("status")
    tick = page.get_by_role("checkbox", name="heads.transpose(0, 1).reshape(n, h * d)")
    told, answers = {}, {}
    answer = page.locator(".aa-stage .aa-look text[aria-hidden]")
    for merged in ("rightly", "wrongly"):
        tick.set_checked(merged == "rightly")
        for word in ("thirsty", "sweet"):
            page.get_by_role("button", name=word, exact=True).click()
            told[merged, word] = said.text_content()
            answers[merged, word] = answer.text_content()
    assert told["rightly", "thirsty"] != told["rightly", "sweet"]
    assert told["wrongly", "thirsty"] == told["wrongly", "sweet"]
    assert told["rightly", "thirsty"].endswith("So “it” means the animal, the cat.")
    assert told["rightly", "sweet"].endswith("So “it” means the food, the milk.")
    assert list(answers.values()) == ["it → cat", "it → milk", "it → ?", "it → ?"]
    assert "thirsty or sweet." in told["wrongly", "sweet"]
    inks = said.locator("b").evaluate_all("all => all.map((x) => x.style.color)")
    assert inks == ["var(--aa-d)"] * 2, "both are of the second head"
    page.get_by_role("button", name="drank asks").press("Enter")
    expect(said).to_contain_text("The two numbers of “drank”")
    assert "or sweet" not in said.text_content(), "only what is so is said"


def test_what_the_first_page_adds_up_is_what_the_figure_shows(visit):
    page = visit()
    told = page.locator(".aa-how").text_content()
    terms = re.search(r"(\d\.\d\d) × (\d) \+ (\d\.\d\d) × (\d) = (\d\.\d\d)", told)
    data = json.loads(page.locator("[data-live=first_look]").get_attribute("data-state"))
    it, last = data["query"], len(data["words"]) - 1
    expected = []
    for word in (last, it):
        expected += [data["weights"][0][0][it][word] / 100, data["gives"][0][word]]
    assert [float(number) for number in terms.groups()] == [
        *expected,
        data["right"][0][it][0] / 100,
    ]


def test_the_bars_move_to_where_the_arrows_end(visit):
    page = visit(reduced_motion="reduce")
    tick = page.get_by_role("checkbox", name="heads")
    expect(tick).to_be_checked()
    bars = page.locator(".aa-stage .aa-gets rect")
    lefts = "all => all.map((x) => parseFloat(getComputedStyle(x).x))"
    before = bars.evaluate_all(lefts)
    ways = page.locator(".aa-stage .aa-way")
    assert page.locator(".aa-stage .aa-way.aa-gone").count() == 2
    tick.uncheck()
    after = bars.evaluate_all(lefts)
    assert sorted(after) == sorted(before), "the same places"
    ends = ways.evaluate_all("all => all.map((x) => x.getPointAtLength(1e4).x - 6.5)")
    it, words = 5, 8
    moved = [after[it], after[words + it]]
    assert all(abs(end - left) < 0.1 for end, left in zip(ends, moved, strict=True))
    assert moved[0] == before[words + 2], "right of “drank”"
    assert moved[1] == before[words + 6], "right of “was”"


def test_a_pressed_word_has_a_frame_for_keys_only(visit):
    page = visit()
    word = page.get_by_role("button", name="thirsty asks")
    word.click()
    expect(word).not_to_be_focused()
    word.focus()
    page.keyboard.press("Enter")
    frame = word.locator("rect").bounding_box()
    text = word.locator("text").bounding_box()
    middle = [box["x"] + box["width"] / 2 for box in (frame, text)]
    assert abs(middle[0] - middle[1]) < 1, "the word stands in the middle of its frame"


def test_the_figure_and_the_map_speak_of_the_same_heads(visit):
    page = visit(java_script_enabled=False)
    told = page.locator("#fig-cat p").text_content()
    numbers = re.findall(r"\d\.\d\d", LINES["project out"])
    assert all(number in told for number in numbers)


def test_each_step_says_its_line_by_keyboard_without_scripts(visit):
    page = visit(MAP, java_script_enabled=False)
    assert said(page) == [LINES["project in"]], "at rest the first step"
    page.get_by_role("radio", name="project in", exact=True).press("Space")
    for step, line in LINES.items():
        chosen = page.get_by_role("radio", name=step, exact=True)
        expect(chosen).to_be_focused()
        expect(chosen).to_be_checked()
        expect(chosen).to_have_accessible_description(line)
        assert said(page) == [line]
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="project in", exact=True)).to_be_focused()
    page.emulate_media(media="print")
    assert said(page) == list(LINES.values()), "on paper every line"


def test_each_step_says_its_line_when_it_is_pointed_at(visit):
    page = visit(MAP)
    for step, line in LINES.items():
        name = page.get_by_text(step, exact=True)
        page.locator(".aa-large label").filter(has=name).hover()
        assert said(page) == [line]
    page.mouse.move(0, 0)
    assert said(page) == [LINES["project in"]]


def test_the_picture_of_the_readme_shows_this_page(visit):
    """It holds the text that it shows; with ``PICTURE`` set, another is taken."""
    first = BeautifulSoup((SITE / "index.html").read_bytes(), "html.parser").select_one(".aa-first")
    for hidden in first.select(".aa-doors, .aa-how"):
        hidden.decompose()
    shows = " ".join(first.text.split())
    if os.environ.get("PICTURE"):
        page = visit(viewport={"width": 1200, "height": 630}, device_scale_factor=1.5)
        page.add_style_tag(content=ALONE)
        page.get_by_role("checkbox", name="heads").uncheck()
        said = PngInfo()
        said.add_itxt("shows", shows)
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        few = shot.quantize(64, dither=Image.Dither.NONE)  # colours: a quarter of the bytes
        few.save(PICTURE, optimize=True, pnginfo=said)
    assert Image.open(PICTURE).text["shows"] == shows, "`make picture` takes another"
    assert PICTURE.stat().st_size <= 150_000

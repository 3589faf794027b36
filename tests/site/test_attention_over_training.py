"""Attention over training, on its page: each number, at every step, is that of a training here."""

import json
import re

import pytest
import torch
from playwright.sync_api import expect

from annotated_attention import chapters
from book.site.build import SITE

PAGES = [
    page.parent.name
    for page in sorted(SITE.glob("chapters/*/index.html"))
    if 'data-live="attention_over_training"' in page.read_text(encoding="utf-8")
]
# Goes through every step, and gives what the figure says, writes and draws at each.
EVERYTHING = """(figure) => {
  const slider = figure.querySelector("input");
  const [picture] = figure.querySelectorAll(".aa-stage svg");
  return Array.from({ length: Number(slider.max) + 1 }, (_, index) => {
    slider.value = index;
    slider.dispatchEvent(new Event("input"));
    const cells = [...picture.querySelectorAll(".aa-weight")];
    return {
      step: slider.getAttribute("aria-valuetext"),
      status: figure.querySelector("[role=status]").textContent,
      label: picture.getAttribute("aria-label"),
      written: cells.map((cell) => cell.nextElementSibling.textContent),
      drawn: cells.map((cell) => Number(cell.style.fillOpacity)),
    };
  });
}"""


@pytest.fixture(scope="module")
def trained_here():
    """Train as the chapter does; give its letters, and the map at every fifth step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the chapter does: sums are added up in one order
    training = chapters.load("10_training")
    src, tgt = training.ten_backwards(1, torch.Generator().manual_seed(7))
    run, maps = training.begin(training.ten_backwards, heads=1, steps=training.STEPS), {}
    training.keep(maps, run, src, tgt[:, :-1])
    training.train(run, training.STEPS, lambda run: training.keep(maps, run, src, tgt[:, :-1]))
    torch.set_num_threads(threads)
    return training.spell(src[0]), training.spell(tgt[0, 1:]), maps


@pytest.fixture(scope="module")
def frame(browser, served):
    problems = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{served[0]}/chapters/{PAGES[0]}/")
    frame = page.locator("[data-live=attention_over_training]")
    frame.scroll_into_view_if_needed()
    expect(frame.get_by_role("status")).not_to_be_empty()
    yield frame
    page.close()
    assert problems == []


def test_there_is_one():
    assert PAGES == ["training"]


def test_the_page_holds_what_training_gives(frame, trained_here):
    word, wanted, maps = trained_here
    data = json.loads(frame.get_attribute("data-state"))
    assert (data["keys"], data["queries"]) == (list(word), list(wanted))
    assert data["steps"] == list(maps) == list(range(0, 161, 5))
    shown = torch.tensor(data["maps"]) / 100
    # Half of the last digit, and a little for the last bits of a long sum.
    torch.testing.assert_close(shown, torch.stack([*maps.values()]), rtol=0, atol=0.0055)


def test_every_step_shows_its_numbers(frame, trained_here):
    word, wanted, maps = trained_here
    data = json.loads(frame.get_attribute("data-state"))
    seen = frame.evaluate(EVERYTHING)
    assert len(seen) == len(maps)
    for rows, shown, (step, weights) in zip(data["maps"], seen, maps.items(), strict=True):
        assert shown["step"] == str(step)
        share = re.fullmatch(rf"step {step} · on the right letter ([01]\.\d\d)", shown["status"])
        right = weights.flip(1).diagonal().mean().item()
        assert float(share[1]) == pytest.approx(right, abs=0.0055)
        flat = [weight for row in rows for weight in row]
        digits = (f"{weight / 100:.2f}".removeprefix("0") for weight in flat)
        small = [
            "" if w < 10 else "1" if w == 100 else d for w, d in zip(flat, digits, strict=True)
        ]
        assert shown["written"] == small
        assert shown["drawn"] == pytest.approx([0.006 * weight for weight in flat], abs=1e-6)
        most = [(max(row), word[row.index(max(row))]) for row in rows]
        said = (
            f"{asks} looks at {found} ({weight / 100:.2f})"
            for asks, (weight, found) in zip(wanted, most, strict=True)
        )
        assert shown["label"] == f"Attention at step {step}. {'; '.join(said)}."


def test_the_picture_says_the_same(frame, trained_here):
    _, _, maps = trained_here
    still = frame.locator("figure > svg").get_attribute("aria-label")
    said = re.findall(r"([01]\.\d\d) at step (\d+)", still)
    readings = dict(
        re.findall(
            r"step (\d+) · on the right letter ([\d.]+)",
            "\n".join(shown["status"] for shown in frame.evaluate(EVERYTHING)),
        )
    )
    assert [int(step) for _, step in said] == [0, 50, 70, 100, max(maps)]
    assert all(readings[step] == share for share, step in said)

"""The progress bar: what it shows at last, and how often it shows it."""

import pytest
from bs4 import BeautifulSoup

from annotated_attention import display
from annotated_attention.display import progress


class Handle:
    def __init__(self):
        self.shown = []

    def update(self, output):
        self.shown.append(output)


@pytest.fixture
def handle(monkeypatch):
    handle = Handle()
    monkeypatch.setattr(
        progress, "display", lambda output, display_id: handle.update(output) or handle
    )
    return handle


def test_ends_with_a_full_bar_over_a_table(handle):
    bar = display.Progress(200, "loss", "a < b")
    for step in range(1, 201):
        bar.to(step)
        if step % 100 == 0:
            bar.measured(1 / step, 0.5)
    last = handle.shown[-1]
    page = BeautifulSoup(last.html, "html.parser")
    assert (page.progress["max"], page.progress["value"]) == ("200", "200")
    assert page.label.text.strip() == "200 of 200 steps"
    assert [cell.text for cell in page.select("th")] == ["step", "loss", "a < b"]
    assert [[cell.text for cell in row.select("td")] for row in page.select("tbody tr")] == [
        ["100", "0.010", "0.500"],
        ["200", "0.005", "0.500"],
    ]
    assert last.text.splitlines() == [
        "200 of 200 steps",
        "step   loss  a < b",
        " 100  0.010  0.500",
        " 200  0.005  0.500",
    ]
    assert len(handle.shown) <= 1 + 50 + 2, "a notebook redraws each"


def test_few_steps_are_all_shown(handle):
    bar = display.Progress(3, "loss")
    for step in (1, 2, 3):
        bar.to(step)
    assert [output.text.split()[0] for output in handle.shown] == ["0", "1", "2", "3"]


def test_outside_of_a_notebook_it_does_not_stop_the_run(monkeypatch):
    monkeypatch.setattr(progress, "display", lambda output, display_id: None)
    bar = display.Progress(3, "loss")
    bar.to(3)
    bar.measured(0.5)

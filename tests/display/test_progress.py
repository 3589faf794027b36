"""The progress bar: what it shows at last, and how often it shows it."""

import pytest
from bs4 import BeautifulSoup

from annotated_attention import display
from annotated_attention.display import progress


@pytest.fixture
def shown(monkeypatch):
    """Collect what a notebook would show, in the place of what it showed before."""
    shown = []

    class Handle:
        update = staticmethod(shown.append)

    monkeypatch.setattr(
        progress, "display", lambda output, display_id: shown.append(output) or Handle
    )
    return shown


def test_ends_with_a_full_bar_over_a_table(shown):
    bar = display.Progress(200, "loss", "a < b")
    for step in range(1, 201):
        bar.to(step)
        if step % 100 == 0:
            bar.measured(1 / step, 0.5)
    page = BeautifulSoup(shown[-1].html, "html.parser")
    assert (page.progress["max"], page.progress["value"]) == ("200", "200")
    assert [cell.text for cell in page.select("th")] == ["step", "loss", "a < b"]
    assert shown[-1].text.splitlines() == [
        "200 of 200 steps",
        "step   loss  a < b",
        " 100  0.010  0.500",
        " 200  0.005  0.500",
    ]
    assert len(shown) <= 1 + 50 + 2, "a notebook redraws each"


def test_few_steps_are_all_shown(shown):
    bar = display.Progress(3, "loss")
    for step in (1, 2, 3):
        bar.to(step)
    assert [output.text.split()[0] for output in shown] == ["0", "1", "2", "3"]


def test_outside_of_a_notebook_it_does_not_stop_the_run(monkeypatch):
    monkeypatch.setattr(progress, "display", lambda output, display_id: None)
    bar = display.Progress(3, "loss")
    bar.to(3)
    bar.measured(0.5)

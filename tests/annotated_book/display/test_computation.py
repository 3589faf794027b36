"""The map: what it draws is what the book's own class computes on the first chapter's sentence."""

import math
import re

import pytest
import torch
from bs4 import BeautifulSoup

from annotated_attention import MultiheadAttention, masks
from annotated_book import chapters, display
from annotated_book.display import computation as drawn

STEPS = list(drawn.STEPS)
each_step = pytest.mark.parametrize("step", STEPS)
SQUARE = re.compile(r"M([\d.]+) ([\d.]+)h1v1h-1z")
STROKE = re.compile(r"M([\d.]+) ([\d.]+)l1-1")
CROSS = re.compile(r"M([\d.]+) ([\d.]+)l1 1m-1 0l1-1")


def parse(shown):
    return BeautifulSoup(shown.html, "html.parser")


def test_lights_up_what_is_named():
    strip = display.chapter_map("score", "mix")
    lit = parse(strip).select("li[aria-current] .aa-step > b")
    assert [name.text for name in lit] == ["score", "mix"]
    assert all(svg.find_parent(attrs={"aria-hidden": "true"}) for svg in parse(strip).select("svg"))
    assert all(shape.select(".dim") for shape in parse(strip).select("li code"))
    with pytest.raises(ValueError, match="step \\('scor'\\) must be one of project in, split"):
        display.chapter_map("scor")


def test_the_sentence_is_the_first_chapters():
    one = chapters.load("01_one_head")
    assert [*one.WORDS, "·", "·"] == drawn.WORDS
    assert drawn.X[: drawn.LENGTH].equal(one.EMBEDDINGS)
    assert not drawn.X[drawn.LENGTH :].any()


def test_the_computation_is_multi_head_attention():
    attention = MultiheadAttention(4, drawn.HEADS, bias=False, batch_first=True)
    with torch.no_grad():
        packed = torch.cat([drawn.W_Q.mT, drawn.W_K.mT, drawn.W_V.mT])
        attention.in_proj_weight.copy_(packed)
        attention.out_proj.weight.copy_(drawn.W_O.mT)
    x = drawn.X[None]                                                              # (b, n, e)
    padding = masks.block_padding(torch.tensor([drawn.LENGTH]), len(drawn.WORDS))  # (b, m)
    blocked = padding | padding.mT                                                 # (n, m)
    out, weights = attention(x, x, x, attn_mask=blocked, average_attn_weights=False)
    made = drawn.computation()
    torch.testing.assert_close(made["project out"]["output"], out[0])
    torch.testing.assert_close(made["mask again"]["weights"], weights[0])
    shares = made["softmax"]["weights"]
    torch.testing.assert_close(shares[:, : drawn.LENGTH], weights[0, :, : drawn.LENGTH])
    assert shares[:, drawn.LENGTH :].isnan().all(), "what the second mask is for"
    assert made["mask"]["scores"].isneginf().equal(blocked.expand(drawn.HEADS, 10, 10))


@each_step
def test_every_number_is_drawn_in_its_place(step):
    (svg,) = parse(display.chapter_map()).select(f"li:nth-child({STEPS.index(step) + 1}) svg")
    sizes = {"n": 10, "m": 10, "h": 2, "d": 2, "h * d": 4, "e": 4}
    shape = tuple(sizes[letter] for letter in drawn.STEPS[step][0].strip("()").split(", "))
    levels = {
        tuple(map(float, at)): float(path["opacity"])
        for path in svg.select("path[opacity]")
        for at in SQUARE.findall(path["d"])
    }
    crossed = {
        tuple(map(float, at)) for p in svg.select(".aa-line") for at in CROSS.findall(p["d"])
    }
    stroked = {
        (float(x), float(y) - 1) for p in svg.select(".aa-line") for x, y in STROKE.findall(p["d"])
    }
    left = 0
    for x in drawn.computation()[step].values():
        assert x.shape == shape
        slices = x if x.dim() == 3 else x[None]
        for i, part in enumerate(slices):
            top = 11 * i if len(slices) == 2 else 5.5
            peak = (part if part.size(1) == 10 else x).nan_to_num().max()
            for row, numbers in enumerate(part.tolist()):
                for column, number in enumerate(numbers):
                    at = (left + column, top + row)
                    assert (at in crossed) == (number == -math.inf)
                    assert (at in stroked) == math.isnan(number)
                    wanted = number / peak if math.isfinite(number) else 0
                    assert levels.pop(at, 0) == pytest.approx(wanted, abs=1 / 16)
        left += slices.size(-1) + 1
    assert not levels


@each_step
def test_each_step_says_what_it_does_and_shows_its_numbers_in_words(step):
    page = parse(display.whole_map())
    assert [tag["aria-labelledby"] for tag in page.select("[checked]")] == ["aa-step-0"]
    (name,) = (tag for tag in page.select("label b[id]") if tag.text == step)
    (choice,) = page.select(f'input[type=radio][aria-labelledby="{name["id"]}"]')
    (line,) = page.select(f'p[id="{choice["aria-describedby"]}"]')
    assert f"{step}: {line.text}" in display.whole_map().text
    first, *_ = drawn.computation()[step].values()
    numbers = (first if first.dim() == 2 else first[0])[drawn.WORDS.index("it")].tolist()
    said = " ".join("-∞" if number == -math.inf else f"{number:.2g}" for number in numbers)
    assert f": {said}" in choice.parent.svg["aria-label"]
    (below,) = choice.find_parent("li").select("table tr:nth-child(2)")
    shown = [float(x.text.replace("−∞", "-inf")) for x in below.select("td")]
    assert shown[: len(numbers)] == pytest.approx(numbers, abs=0.005)
    spans = [int(top["colspan"]) for top in choice.find_parent("li").select("tr:first-child th")]
    assert sum(spans) == len(shown)


def test_below_each_step_stand_the_numbers_on_the_way_to_the_answer():
    page = parse(display.whole_map())
    few = {
        label.b.text: [line.text for line in label.select(".aa-few > span")]
        for label in page.select("label")
    }
    made, it, thirsty = drawn.computation(), 5, 7
    scores, weights = (
        made[step][what][:, it, thirsty]
        for step, what in (("score", "scores"), ("softmax", "weights"))
    )
    assert few["score"] == [f"{score:.2f}" for score in scores.tolist()]
    assert few["mask"] == ["−∞", "−∞"]
    assert few["mask again"] == ["0", "0"]
    assert few["softmax"] == [f"{weight:.2f}" for weight in weights.tolist()]
    assert few["project out"] == [
        f"{x:.2f}" for x in made["project out"]["output"][it, :2].tolist()
    ]
    assert [row.split()[0] for row in few["mix"]] == few["project out"]

"""The calculator counts in a browser what Python counts, to the last digit."""

import random
import re
from dataclasses import asdict, replace
from typing import Any

import pytest

from annotated_attention import counting, display
from annotated_attention.counting import PRESETS, Model

MODULE = "calculator.js"
MODELS = [
    *PRESETS.values(),
    Model(layers=0),
    Model(512, 1),
    replace(PRESETS["gpt2"], bias=False, output="own", embeddings=2, norms=0),
]


def sizes(index: int) -> tuple[Model, int, int, int]:
    """Draw a model at random, and a length, a batch and a width."""
    draw = random.Random(index)
    h = draw.choice([1, 2, 3, 25, 96])
    model = replace(
        draw.choice(MODELS),
        embed_dim=h * draw.randint(1, 128),
        num_heads=h,
        feedforward=draw.randint(1, 50_000),
        layers=draw.randint(1, 128),
        decoder_layers=draw.choice([0, 1, 7]),
        vocabulary=draw.randint(1, 300_000),
    )
    return model, draw.choice([1, 3, 512, 131_072]), draw.choice([1, 2, 1024]), draw.choice([2, 4])


@pytest.mark.parametrize("index", range(len(MODELS)))
def test_published_sizes(script: Any, index: int) -> None:
    arguments = (MODELS[index], 1024, index % 3 + 1, 4)
    assert_equal(script, *arguments)


def test_random_sizes(script: Any) -> None:
    for index in range(150):
        assert_equal(script, *sizes(index))


def assert_equal(script: Any, model: Model, length: int, batch: int, width: int) -> None:
    """Compare every count, every cell and every note."""
    given = (asdict(model), length, batch)
    step = list(model.step_flops(length, batch).values())
    assert script("count", *given) == {
        "parameters": list(map(str, model.parameters().values())),
        "flops": list(map(str, model.flops(length, batch).values())),
        "kept": list(map(str, model.kept(length, batch).values())),
        "fused": list(map(str, model.kept(length, batch, fused=True).values())),
        "step": list(map(str, step)),
        "cache": str(model.cache(length, batch)),
    }
    assert script("rows", *given, width) == counting.rows(model, length, batch, width)
    assert script("notes", *given, width) == counting.notes(model, length, batch, width)


def test_heads_that_fit(script: Any) -> None:
    for width in (64, 1600, 12288):
        heads = script("divisors", width)
        assert heads[0] == 1
        assert all(width % h == 0 for h in heads)
        assert script("nearest", heads, 7) == heads.index(8)


def test_the_static_table() -> None:
    shown = display.calculator("bert-base", 512, 3, 2)
    rows = counting.rows(PRESETS["bert-base"], 512, 3, 2)
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", shown.html)
    assert [cell for cell in cells if cell] == [cell for row in rows for cell in row if cell]
    for note in counting.notes(PRESETS["bert-base"], 512, 3, 2):
        assert f"<li>{note}</li>" in shown.html
    assert shown.text == counting.table(PRESETS["bert-base"], 512, 3, 2)
    assert shown.data["bytes"] == 2
    assert shown.data["presets"]["gpt2"] == asdict(PRESETS["gpt2"])


def test_an_unknown_preset() -> None:
    with pytest.raises(ValueError, match=r"preset \('gpt9'\) must be one of transformer-base"):
        display.calculator("gpt9", 512)

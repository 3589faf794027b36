"""The mask merger computes in a browser what masks.py, attention.py and the chapter compute."""

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import chapters, display, masks, scaled_dot_product_attention
from annotated_attention.display.live_figures.mask_merger import written

MODULE = "mask_merger.js"
B, N, M = 2, 3, 5
PADDING = {
    "none": None,
    "nothing": torch.zeros(B, M, dtype=torch.bool),
    "right": masks.block_padding(torch.tensor([5, 2]), M),
    "left": torch.tensor([[True, True, False, False, False], [False] * M]),
    "a sample": torch.tensor([[False] * M, [True] * M]),
}
PAIRS = {
    "none": None,
    "nothing": torch.zeros(N, M, dtype=torch.bool),
    "causal": masks.block_future(N, M),
    "off by one": torch.ones(N, M, dtype=torch.bool).triu(0),
    "drawn": torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 1, 0, 1, 0]]).bool(),
    "all": torch.ones(N, M, dtype=torch.bool),
}
SCORES = 3 * torch.randn(B, N, M, dtype=torch.float64, generator=torch.Generator().manual_seed(6))


def listed(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.tolist()


def weights(blocked: Tensor | None, fate: str) -> Tensor:
    """Compute what the chapter, the package and a finite fill give; values do not matter."""
    broadcast = torch.zeros(()).bool() if blocked is None else blocked
    scores = SCORES[:, None]  # (b, h, n, m)
    if fate == "uniform":
        return scores.masked_fill(broadcast, -1e9).softmax(-1)[:, 0]
    if fate == "zeros":
        q, k = torch.zeros(B, 1, N, 4).double(), torch.zeros(B, 1, M, 4).double()
        call = scaled_dot_product_attention(q, k, k, blocked=blocked, score=lambda *_: scores)
        assert call[1] is not None
        return call[1][:, 0]
    attend = chapters.load("06_masks").attend
    # Queries that hold the scores, and keys that pick them out: d = m.
    return attend(scores * math.sqrt(M), torch.eye(M).double(), torch.eye(M).double(), blocked)[1][
        :, 0
    ]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("padding", PADDING)
def test_merged_and_weighed_as_the_package_does(script: Any, padding: str, pairs: str) -> None:
    strip, matrix = PADDING[padding], PAIRS[pairs]
    blocked, _ = masks.merge_masks(
        masks.padding_to_heads(strip), masks.attention_to_heads(matrix, 1)
    )
    merged = script("merge", listed(strip), listed(matrix))
    assert merged == listed(blocked)
    for fate in ("NaN", "zeros", "uniform"):
        given = script("weigh", SCORES.tolist(), merged, fate)
        found = torch.tensor([[[float(cell) for cell in row] for row in rows] for rows in given])
        expected = weights(blocked, fate).float()
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0, equal_nan=True)


def test_a_fully_masked_row_has_three_fates(script: Any) -> None:
    row, blocked = SCORES[0, 0].tolist(), [True] * M
    assert script("FATES.NaN", row, blocked) == ["NaN"] * M
    assert script("FATES.zeros", row, blocked) == [0] * M
    assert script("FATES.uniform", row, blocked) == [1 / M] * M


@pytest.mark.parametrize(("n", "m"), [(3, 5), (5, 3), (4, 4), (1, 8)])
def test_causal_mask(script: Any, n: int, m: int) -> None:
    assert script("causal", n, m) == masks.block_future(n, m).tolist()


def test_weights_are_written_alike(script: Any) -> None:
    for weight in (0.0, 1.0, 0.2, 1 / 3, 0.0049, 0.994, 0.996, 1e-9, math.nan):
        given = "digits(NaN)" if math.isnan(weight) else f"digits({weight})"
        name, argument = given.removesuffix(")").split("(")
        shown = (
            script(name, float(argument)) if argument != "NaN" else script("(() => digits(NaN))")
        )
        assert shown == written(weight)


def test_the_static_picture() -> None:
    words = [[f"w{i}{j}" for j in range(M)] for i in range(B)]
    asked = [row[:N] for row in words]
    padding, pairs = PADDING["right"], PAIRS["drawn"]
    assert padding is not None
    assert pairs is not None
    shown = display.mask_merger(asked, words, SCORES, padding, pairs)
    blocked = padding[:, None] | pairs
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", shown.html)
    expected = SCORES.masked_fill(blocked, -math.inf).softmax(-1).flatten().tolist()
    assert [text for text in texts if re.match(r"[.\d]|NaN", text)] == list(map(written, expected))
    assert f"Of 15 cells are blocked: {int(blocked[0].sum())} of sample 0" in shown.text
    assert shown.data["attn_mask"] == pairs.tolist()
    causal = display.mask_merger(asked, words, SCORES, padding, masks.block_future(N, M))
    assert causal.data["attn_mask"] == "causal"


@pytest.mark.parametrize("wrong", ["words", "padding", "attn_mask"])
def test_what_does_not_fit_is_named(wrong: str) -> None:
    words = [["w"] * (M - (wrong == "words"))] * B
    padding = torch.zeros(B, M - (wrong == "padding")).bool()
    pairs = torch.zeros(N, M - (wrong == "attn_mask")).bool()
    with pytest.raises(ValueError, match=r"scores \(2, 3, 5\), words .* must fit"):
        display.mask_merger([["q"] * N] * B, words, SCORES, padding, pairs)

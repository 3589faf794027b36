"""The short path: its two heads are those of the chapters; its test stands on PyTorch alone."""

import math

import pytest
import torch
from torch import nn

from annotated_book import chapters
from annotated_book.display import computation
from press.run import scripts


def test_the_two_heads_are_the_same_in_the_first_chapters_and_on_the_start_page():
    short, two = chapters.load("short_path"), chapters.load("02_two_heads")
    torch.testing.assert_close((short.HEADS, short.W_O), (two.HEADS, two.W_O))
    drawn = (computation.W_Q, computation.W_K, computation.W_V)
    torch.testing.assert_close(
        drawn, tuple(torch.cat(part, 1) for part in zip(*two.HEADS, strict=True))
    )
    torch.testing.assert_close(computation.W_O, two.W_O)


def test_the_sentences_that_the_page_writes_out_are_those_of_the_first_chapter():
    one, loaded = chapters.load("01_one_head"), {}
    cells = scripts.code_cells(scripts.CHAPTERS / "short_path.py")
    (source,) = [cell.source for cell in cells if "\nfirst = " in cell.source]
    exec(source, loaded)
    assert (loaded["words"], loaded["features"]) == (one.WORDS, one.FEATURES)
    assert loaded["words"][loaded["it"]] == "it"
    assert loaded["first"].equal(one.EMBEDDINGS)
    assert loaded["second"].equal(one.SWEET_EMBEDDINGS)


def test_the_comparison_can_be_copied_and_needs_nothing_but_pytorch():
    copied = {"math": math, "torch": torch, "nn": nn}
    cells = scripts.code_cells(scripts.CHAPTERS / "short_path.py")
    for start in ("class PlainAttention", "def lend"):  # the comparison stands below it
        (source,) = [cell.source for cell in cells if cell.source.lstrip().startswith(start)]
        exec(source, copied)
    kind = copied["PlainAttention"]
    copied["compare"](kind)
    halved = {"merge": lambda self, x: kind.merge(self, x.lerp(x.detach(), 0.5))}
    with pytest.raises(AssertionError):  # the outputs are right, the gradients are not
        copied["compare"](type("Halved", (kind,), halved))

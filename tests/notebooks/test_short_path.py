"""The short path: its two heads are those of the chapters and of the first page."""

import torch

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

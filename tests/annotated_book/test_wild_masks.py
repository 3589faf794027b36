"""Masks of strangers, measured: the verdicts, and that the lines shown are the lines run."""

import pytest
import torch
import transformers
from torch import Tensor, nn

from annotated_book import wild_masks
from annotated_book.wild_masks import CASES, DOORS, FAST, FUNCTION, FUSED, LAYER, WEIGHTS

FUTURE = CASES["the flag alone"].text


@pytest.mark.parametrize("door", DOORS)
def test_the_output_behind_a_door_is_weights(door):
    mask = wild_masks.NAMES["future"]
    given = {"attn_mask": ~mask if door == FUNCTION else mask}
    weights = wild_masks.weights_at(door, 8, given)
    assert weights.shape == (2, 2, 8, 8)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 8))
    assert not weights.masked_select(mask).abs().gt(1e-5).any()


@pytest.mark.parametrize(
    ("door", "line", "verdict"),
    [
        (WEIGHTS, "attn_mask=future", "right"),
        (WEIGHTS, "attn_mask=future & ~eye.roll(2, 1)", "leaks"),
        (WEIGHTS, "attn_mask=future | eye.roll(1, 0)", "hides"),
        (WEIGHTS, "attn_mask=future | eye[2][:, None]", "NaN"),
        (FUSED, "attn_mask=~future & eye", "leaks"),
        (FUNCTION, "attn_mask=future.long()", "error"),
    ],
)
def test_a_verdict_says_what_is_wrong(door, line, verdict):
    assert wild_masks.fate(door, line, FUTURE).verdict == verdict


def test_zeros_are_told_from_what_is_right():
    nothing = FUTURE._replace(blocked=FUTURE.blocked | wild_masks.NAMES["eye"][2][:, None])
    line = "attn_mask=future | eye[2][:, None]"
    assert wild_masks.fate(FUSED, line, nothing).verdict == "zeros"
    assert wild_masks.fate(FAST, line, nothing).note == "NaN in 2 of 16 rows"


def test_a_nan_says_whose_it_is():
    case = CASES["True is a word"]
    other = wild_masks.fate(WEIGHTS, case.of_class, case.text)
    assert "all of the other text" in other.note
    own = wild_masks.fate(WEIGHTS, CASES["padding * -inf"].of_class, case.text)
    assert own.verdict == "NaN"
    assert "other text" not in own.note


def test_the_word_that_asks_of_padding_on_the_left_has_nothing_left():
    each = wild_masks.handed()["padding on the left, causal"]
    assert each.words[each.asks] == "pad"
    assert not any(each.allowed)
    assert not any(each.fates[DOORS.index(FUNCTION)].seen)


def test_the_fast_path_is_seen():
    line = "attn_mask=future"
    fast = [door for door in DOORS if wild_masks.fate(door, line, FUTURE).fast]
    assert fast == [FAST, LAYER]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert not wild_masks.fate(FAST, line, FUTURE).fast
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_every_mask_that_goes_wrong_has_a_line_that_mends_it():
    for title, each in wild_masks.handed().items():
        wrong = {"leaks", "hides", "NaN", "error"}.intersection(x.verdict for x in each.fates)
        assert bool(wrong) == bool(each.mend), title
        assert len(each.words) == len(each.allowed) == 8


def test_the_mend_is_what_a_door_gets():
    case = CASES["True is padding"]
    assert wild_masks.arguments(FUNCTION, case, mended=True) == case.function_mended
    assert wild_masks.arguments(FUNCTION, case) == case.of_function
    assert wild_masks.arguments(WEIGHTS, case, mended=True) == case.of_class


@pytest.fixture
def llama():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=20, num_hidden_layers=1, **sizes)
    return transformers.LlamaForCausalLM(config).eval()


def looks(llama: nn.Module, given: Tensor) -> Tensor:
    """Say which words of a Llama react to which words, (4, 4)."""
    words = torch.arange(4).repeat(5, 1)
    words[1:] += 9 * torch.eye(4).bool()  # in each row but the first, another word
    with torch.no_grad():
        output = llama(words, attention_mask=given.expand(5, *given.shape[1:])).logits
    return (output[1:] - output[0]).abs().amax(-1).mT > 1e-6


@pytest.mark.parametrize("how", ["sdpa", "eager"])
def test_a_llama_reads_masks_as_the_table_says(llama, how):
    llama.set_attn_implementation(how)
    keeps = torch.tensor([[1, 1, 0, 1]])
    causal = keeps.bool()[:, None, None] & torch.ones(4, 4).bool().tril()
    sees = causal[0, 0] | torch.eye(4).bool()  # a word's own vector is added behind attention
    floats = torch.zeros(1, 1, 4, 4).masked_fill(~causal, -torch.inf)
    assert looks(llama, keeps).equal(sees)
    assert looks(llama, floats).equal(sees)
    everything = torch.ones(4, 4).bool()  # under eager True and False are added, as 1 and 0
    assert looks(llama, causal).equal(everything if how == "eager" else sees)

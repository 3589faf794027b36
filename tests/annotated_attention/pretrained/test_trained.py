"""The trained model itself; run where its weights are, and always where the book is checked."""

import pytest
import torch

from annotated_attention import pretrained
from annotated_attention.pretrained import load_encoder
from annotated_book import chapters

SENTENCES = [
    ["The cat drank milk because it was thirsty."],
    ["A dog.", "It was so thirsty that it drank all of the milk that there was in the house!", ""],
    ["Ünïcödé, 42 and 🙂", "attention is all you need", "one", "two words"],
]


def test_it_is_the_pinned_file(trained):
    assert pretrained.sha256(trained) == pretrained.ENCODER.sha256


@pytest.mark.parametrize("sentences", SENTENCES, ids=len)
def test_parity(trained, sentences):
    from transformers import AutoTokenizer, BertModel

    ours = load_encoder(trained)
    theirs = BertModel.from_pretrained(trained, local_files_only=True).eval()
    tokens, blocked = ours.tokenize(sentences)
    given = AutoTokenizer.from_pretrained(trained, local_files_only=True)(
        sentences, padding=True, return_tensors="pt"
    )
    assert tokens.equal(given["input_ids"])
    assert blocked.equal(given["attention_mask"] == 0)
    with torch.no_grad():
        states = ours(tokens, blocked)
        expected = theirs(tokens, attention_mask=(~blocked).long()).last_hidden_state
    torch.testing.assert_close(states[~blocked], expected[~blocked], rtol=1e-4, atol=1e-5)
    means = torch.stack([x[~row].mean(0) for x, row in zip(expected, blocked, strict=True)])
    vectors = torch.nn.functional.normalize(means, dim=-1)
    torch.testing.assert_close(ours.encode(sentences), vectors, rtol=1e-4, atol=1e-5)


def test_the_head_that_the_first_chapter_shows_is_the_model_s(trained):
    one, model = chapters.load("01_one_head"), load_encoder(trained)
    for last_word, shown in one.TRAINED.items():
        tokens, blocked = model.tokenize([" ".join([*one.WORDS[:-1], last_word])])
        with pretrained.attention_weights(model) as layers, torch.no_grad():
            model(tokens, blocked)
        row = layers[3][
            0, 1, 1 + one.WORDS.index("it"), 1:-1
        ]  # of "it", without the marks at the ends
        assert (100 * row).round().int().tolist() == shown

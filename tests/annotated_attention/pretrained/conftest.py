"""A small BERT with random weights, written by ``transformers``."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["[PAD]", "the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]


@pytest.fixture(autouse=True, scope="session")
def quiet():
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """Give a small BertModel and its folder."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=10,
        max_position_embeddings=13,
        hidden_dropout_prob=0.5,
    )
    model, folder = BertModel(config).double().eval(), tmp_path_factory.mktemp("bert")
    with torch.no_grad():  # norms and biases start at 1 and 0, which would hide a mistake
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.1 if "bias" in name else 0.6)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=11)
    tokenizer.enable_truncation(3)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model, folder

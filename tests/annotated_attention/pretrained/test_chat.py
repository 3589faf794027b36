"""Talking with a model, line by line."""

import io
import json
import sys

import pytest
import torch
from tokenizers import Tokenizer, models

from annotated_attention import chat
from annotated_attention.modern import generate
from annotated_attention.pretrained import chat_prompt, find, load_gguf, save_language_model
from tests.annotated_attention.pretrained.gguf_files import llama, write


def talk(monkeypatch, capsys, path, *lines):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([*lines, ""])))
    chat.main([str(path)])
    return capsys.readouterr().out


def test_it_answers_piece_by_piece(tmp_path, monkeypatch, capsys):
    path = write(tmp_path / "small.gguf", llama(True))
    monkeypatch.setattr(chat, "LONGEST", 9)
    said = talk(monkeypatch, capsys, path, "the cat", "12")
    model, tokenizer = load_gguf(path)
    turns, count = [], 0
    for line in ("the cat", "12"):
        tokens = torch.tensor([tokenizer.encode(chat_prompt(*turns, line)).ids])
        ids = [int(x) for x in generate(model, tokens, 9, stops=[2])]
        pieces = list(chat.answer(model, tokenizer, [*turns, line]))
        assert len(pieces) == len(ids)
        answer, count = "".join(pieces), count + len(ids)
        # What ends within a character is not said.
        assert tokenizer.decode(ids).startswith(answer)
        turns += [line, answer]
    assert said.startswith(f"> {turns[1]}\n> {turns[3]}\n> \n{count} tokens, ")
    assert said.endswith(" tokens/s\n")
    assert talk(monkeypatch, capsys, path) == "> \n"


def test_folders(tmp_path, monkeypatch, capsys):
    """Also one as transformers writes it, whose tokeniser must know the form."""
    model, tokenizer = load_gguf(write(tmp_path / "small.gguf", llama(True)))
    monkeypatch.setattr(chat, "LONGEST", 4)
    expected = talk(monkeypatch, capsys, tmp_path, "the cat")
    folder = tmp_path / "folder"
    save_language_model(model, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert talk(monkeypatch, capsys, folder, "the cat").split("\n")[0] == expected.split("\n")[0]
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    Tokenizer(models.WordLevel({"a": 0})).save(str(folder / "tokenizer.json"))
    with pytest.raises(SystemExit, match=r"was not trained on conversations that use <\|im_end"):
        chat.main([str(folder)])


def test_without_weights_a_sentence_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv(find.VARIABLE, "")
    monkeypatch.setattr(find.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^No trained weights here\. .* `make TRAINED=1 lab`"):
        chat.main([])
    with pytest.raises(SystemExit, match="must be one GGUF file at"):
        chat.main([str(tmp_path)])

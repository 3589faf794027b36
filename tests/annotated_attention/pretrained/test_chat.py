"""Talking with a model, line by line."""

import io
import json
import sys

import pytest
import torch
from tokenizers import Tokenizer, models, processors

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
        pieces = list(chat.answer(model, tokenizer, chat.load(path)[2], [*turns, line]))
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
    with pytest.raises(SystemExit, match=r"no chat template in .*SmolLM2's <\|im_end"):
        chat.main([str(folder)])


TEMPLATE = """{{ bos_token }}{% for message in messages %}
    {% if message.role == 'user' %}u:{% else %}m:{% endif %} {{ message.content | trim }}
    {{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}m:{% endif %}"""


@pytest.mark.parametrize("place", ["chat_template.jinja", "tokenizer_config.json", "by name"])
def test_a_folder_with_a_template_of_its_own_is_talked_with_in_its_form(tmp_path, place):
    """The ids are those of transformers."""
    from transformers import PreTrainedTokenizerFast

    model, tokenizer = load_gguf(write(tmp_path / "small.gguf", llama(True)))
    folder = tmp_path / "folder"
    save_language_model(model, folder)
    tokens = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    begin = (tokens["bos_token"], tokenizer.token_to_id(tokens["bos_token"]))
    tokenizer.post_processor = processors.TemplateProcessing(  # adds what the template adds, too
        single=f"{begin[0]} $A", special_tokens=[begin]
    )
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    theirs.chat_template = TEMPLATE
    tokenizer.save(str(folder / "tokenizer.json"))
    several = [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    stored = {"tokenizer_config.json": TEMPLATE, "by name": several}.get(place)
    config = tokens | ({"chat_template": stored} if stored else {})
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if place.endswith("jinja"):
        (folder / place).write_text(TEMPLATE)
    _, _, (encode, stops) = chat.load(folder)
    roles = zip(("user", "assistant", "user"), ("the cat", "12", " the"), strict=True)
    messages = [{"role": role, "content": content} for role, content in roles]
    right = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert encode(["the cat", "12", " the"]) == right
    assert stops == [tokenizer.token_to_id("<|im_end|>")]
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert chat.load(folder)[2][1] == [1, 2]
    template = folder / "chat_template.jinja"
    template.write_text("{% for x %}")
    with pytest.raises(SystemExit, match=r"chat template of .* cannot be read"):
        chat.main([str(folder)])
    template.write_text("{{ missing() }}")
    with pytest.raises(ValueError, match=r"chat template of .* fails: 'missing' is undefined"):
        chat.load(folder)[2][0](["the cat"])


def test_without_weights_a_sentence_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv(find.VARIABLE, "")
    monkeypatch.setattr(find.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^No trained weights here\. .* `make TRAINED=1 lab`"):
        chat.main([])
    with pytest.raises(SystemExit, match="must be one GGUF file at"):
        chat.main([str(tmp_path)])

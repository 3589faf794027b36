"""Talks with a trained language model: ``python -m annotated_attention.chat [FOLDER or FILE]``.

Without an argument it is SmolLM2-135M-Instruct, where `make TRAINED=1 ...` has put it. A folder's
chat template is followed; without one, a model must know SmolLM2's form of a conversation, which
many share. An empty line ends the conversation.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from annotated_attention.modern import LanguageModel, generate
from annotated_attention.pretrained import (
    CHAT_MODEL,
    chat_prompt,
    find_weights,
    load_gguf,
    load_language_model,
)
from annotated_attention.pretrained.checkpoint import needed, read_tokenizer

LONGEST = 512  # tokens of an answer
END = "<|im_end|>"
Form = tuple[Callable[[Sequence[str]], list[int]], list[int]]  # ids of turns; what ends an answer


def load(path: Path) -> tuple[LanguageModel, Any, Form]:
    """Read a model, its tokeniser and its form of a conversation: a GGUF file, or a folder.

    Args:
        path: the file or folder.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: the extra ``trained`` is not installed.
        ValueError: a file does not fit, or there is neither a chat template nor SmolLM2's form.
    """
    if (path / "config.json").is_file():
        model = load_language_model(path)
        tokenizer = read_tokenizer(path, model.settings.vocab_size)
        if (form := read_form(path, tokenizer)) is not None:
            return model, tokenizer, form
    else:
        model, tokenizer = load_gguf(path)
    if (end := tokenizer.token_to_id(END)) is None:
        raise ValueError(
            f"there is no chat template in {path}, and its tokens do not include SmolLM2's {END}"
        )
    return model, tokenizer, (lambda turns: tokenizer.encode(chat_prompt(*turns)).ids, [end])


def read_form(folder: Path, tokenizer: Any) -> Form | None:
    """Read how a conversation is written and what ends an answer, if the folder says so.

    The template is rendered as transformers does it, in a sandbox.
    """

    def read(name: str) -> dict[str, Any]:
        path = folder / name
        return json.loads(path.read_text("utf-8")) if path.is_file() else {}

    config, template = read("tokenizer_config.json"), folder / "chat_template.jinja"
    source = template.read_text("utf-8") if template.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several by name
        source = {x["name"]: x["template"] for x in source}.get("default")
    if source is None:
        return None
    library, ends = needed("jinja2.sandbox"), read("config.json") | read("generation_config.json")
    wrong = needed("jinja2").TemplateError
    room = library.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    room.filters["tojson"] = lambda x, **options: json.dumps(x, ensure_ascii=False, **options)
    room.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        written = room.from_string(source)
    except wrong as error:
        raise ValueError(f"the chat template of {folder} cannot be read: {error}") from None
    special = {name: config.get(f"{name}_token") for name in ("bos", "eos")}
    tokens = {
        f"{name}_token": token["content"] if isinstance(token, dict) else token or ""
        for name, token in special.items()
    }

    def encode(turns: Sequence[str]) -> list[int]:
        messages = [
            {"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)
        ]
        try:
            text = written.render(messages=messages, add_generation_prompt=True, **tokens)
        except wrong as error:
            raise ValueError(f"the chat template of {folder} fails: {error}") from None
        return tokenizer.encode(text, add_special_tokens=False).ids

    end = ends.get("eos_token_id")
    stops = [tokenizer.token_to_id(tokens["eos_token"])] if end is None else end
    return encode, [x for x in (stops if isinstance(stops, list) else [stops]) if x is not None]


def answer(model: LanguageModel, tokenizer: Any, form: Form, turns: Sequence[str]) -> Iterator[str]:
    """Give the answer to the last turn, piece by piece: one for each token, which may be empty.

    Args:
        model: answers.
        tokenizer: the model's.
        form: of a conversation, as ``load`` gives it.
        turns: what was said so far, as in ``chat_prompt``.
    """
    encode, stops = form
    tokens = torch.tensor([encode(turns)])
    pieces = needed("tokenizers").decoders.DecodeStream(skip_special_tokens=True)
    for token in generate(model, tokens, LONGEST, stops=stops):
        # A character of several bytes comes when its last byte is there.
        yield pieces.step(tokenizer, int(token)) or ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Load the model, and answer line by line."""
    parser = argparse.ArgumentParser(prog="annotated_attention.chat", description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, help="folder of a model, or a GGUF file")
    given = parser.parse_args(arguments)
    try:
        model, tokenizer, form = load(given.path or find_weights(model=CHAT_MODEL))
    except (FileNotFoundError, ImportError, ValueError) as error:
        sys.exit(str(error))
    turns: list[str] = []
    count, seconds = 0, 0.0
    print("> ", end="", flush=True)
    while line := sys.stdin.readline().strip():
        began, said = time.perf_counter(), ""
        for piece in answer(model, tokenizer, form, [*turns, line]):
            print(piece, end="", flush=True)
            said, count = said + piece, count + 1
        seconds += time.perf_counter() - began
        turns += [line, said]
        print("\n> ", end="", flush=True)
    print(f"\n{count} tokens, {count / seconds:.1f} tokens/s" if count else "")


if __name__ == "__main__":
    main()

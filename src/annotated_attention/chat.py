"""Talks with a trained language model: ``python -m annotated_attention.chat [FOLDER or FILE]``.

Without an argument it is SmolLM2-135M-Instruct, where `make TRAINED=1 ...` has put it. Every other
model must know SmolLM2's form of a conversation, which many models share. An empty line ends it.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
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


def load(path: Path) -> tuple[LanguageModel, Any]:
    """Read a model and its tokeniser from a GGUF file, or from a folder of either kind.

    Args:
        path: the file or folder.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: the extra ``trained`` is not installed.
        ValueError: a file does not fit, or the model knows another form of a conversation.
    """
    if (path / "config.json").is_file():
        model = load_language_model(path)
        tokenizer = read_tokenizer(path, model.settings.vocab_size)
    else:
        model, tokenizer = load_gguf(path)
    if tokenizer.token_to_id(END) is None:
        raise ValueError(f"the model in {path} was not trained on conversations that use {END}")
    return model, tokenizer


def answer(model: LanguageModel, tokenizer: Any, turns: Sequence[str]) -> Iterator[str]:
    """Give the answer to the last turn, piece by piece: one for each token, which may be empty.

    Args:
        model: answers.
        tokenizer: the model's.
        turns: what was said so far, as in ``chat_prompt``.
    """
    tokens = torch.tensor([tokenizer.encode(chat_prompt(*turns)).ids])
    pieces = needed("tokenizers").decoders.DecodeStream(skip_special_tokens=True)
    for token in generate(model, tokens, LONGEST, stops=[tokenizer.token_to_id(END)]):
        # A character of several bytes comes when its last byte is there.
        yield pieces.step(tokenizer, int(token)) or ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Load the model, and answer line by line."""
    parser = argparse.ArgumentParser(prog="annotated_attention.chat", description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, help="folder of a model, or a GGUF file")
    given = parser.parse_args(arguments)
    try:
        model, tokenizer = load(given.path or find_weights(model=CHAT_MODEL))
    except (FileNotFoundError, ImportError, ValueError) as error:
        sys.exit(str(error))
    turns: list[str] = []
    count, seconds = 0, 0.0
    print("> ", end="", flush=True)
    while line := sys.stdin.readline().strip():
        began, said = time.perf_counter(), ""
        for piece in answer(model, tokenizer, [*turns, line]):
            print(piece, end="", flush=True)
            said, count = said + piece, count + 1
        seconds += time.perf_counter() - began
        turns += [line, said]
        print("\n> ", end="", flush=True)
    print(f"\n{count} tokens, {count / seconds:.1f} tokens/s" if count else "")


if __name__ == "__main__":
    main()

"""GGUF files of Llama's architecture: settings, weights and tokeniser in one file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated_attention.modern.decoder import LanguageModel
from annotated_attention.modern.rotary import interleaved_to_half
from annotated_attention.modern.settings import Settings
from annotated_attention.pretrained.checkpoint import check_names, fill, needed

OUTSIDE = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
HEADS = 16  # as many times the width of a head are the rows that are dequantised at a time
CONTROL = 3  # the token_type of tokens that no text is made of, such as <|im_start|>
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def load_gguf(
    path: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> tuple[LanguageModel, Any]:
    """Read a GGUF file of Llama's architecture, and its tokeniser.

    Quantised weights are dequantised a few rows at a time, straight into the parameters. The rows
    of W_Q and W_K, which such files store for pairs side by side, are reordered for pairs half a
    head apart.

    Args:
        path: the file, or a folder with one such file.
        dtype: Dtype of the parameters, whatever the file's is.

    Returns:
        The model, in evaluation mode, on the CPU, and a tokeniser of the library ``tokenizers``.

    Raises:
        FileNotFoundError: there is no such file.
        ImportError: the extra ``trained`` is not installed.
        ValueError: not a whole GGUF file; another architecture, or a setting or a tokeniser that
            is not known here; a tensor that is missing, does not fit or has no place.

    Examples:
        >>> from annotated_attention.pretrained import load_gguf
        >>> model, tokenizer = load_gguf(folder)  # of a GGUF file
        >>> tokens = torch.tensor([tokenizer.encode("the cat").ids])
        >>> model(tokens).size(-1) == tokenizer.get_vocab_size()
        True
    """
    path = _file(Path(path))
    library = needed("gguf")
    try:
        reader = library.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a whole GGUF file: {error}") from None
    stored = {tensor.name: tensor for tensor in reader.tensors}
    settings = _settings(path, fields, tied="output.weight" not in stored)
    tokenizer = _tokenizer(path, fields, settings.vocab_size)
    for large in (fields, reader.fields):  # they take more memory than the file
        large.clear()
    with torch.device("meta"):
        model = LanguageModel(settings).to(dtype)
    state = model.state_dict()
    check_names(path, {*stored}, {name: [_stored_name(name)] for name in state}, unread="")
    for name, parameter in state.items():
        _check_tensor(path, stored[_stored_name(name)], parameter, library)
    d = settings.head_dim

    def read() -> Iterator[tuple[str, slice, Tensor]]:
        for name, parameter in state.items():
            tensor = stored[_stored_name(name)]
            for first in range(0, len(parameter), HEADS * d):
                rows = slice(first, first + HEADS * d)
                x = torch.tensor(library.quants.dequantize(tensor.data[rows], tensor.tensor_type))
                if name.endswith(("q_proj.weight", "k_proj.weight")):
                    x = interleaved_to_half(x, len(x) // d)
                yield name, rows, x

    return fill(model, read()), tokenizer


def chat_prompt(*turns: str, system: str = SYSTEM) -> str:
    """Write a conversation in the form that SmolLM2 was trained on, up to where it speaks.

    Args:
        turns: what the user said, what the model answered, and so on; the last is the user's.
        system: what the model is told first; the default is SmolLM2's own.

    Examples:
        >>> from annotated_attention.pretrained import chat_prompt
        >>> print(chat_prompt("Hello!", system="Be brief."))
        <|im_start|>system
        Be brief.<|im_end|>
        <|im_start|>user
        Hello!<|im_end|>
        <|im_start|>assistant
        <BLANKLINE>
    """
    spoken = [("system", system)]
    spoken += [(("user", "assistant")[i % 2], turn) for i, turn in enumerate(turns)]
    written = (f"<|im_start|>{role}\n{turn}<|im_end|>\n" for role, turn in spoken)
    return "".join(written) + "<|im_start|>assistant\n"


def _file(path: Path) -> Path:
    files = sorted(path.glob("*.gguf")) if path.is_dir() else [path]
    if len(files) != 1 or not files[0].is_file():
        raise FileNotFoundError(f"there must be one GGUF file at {path}")
    return files[0]


def _settings(path: Path, fields: dict[str, Any], tied: bool) -> Settings:
    """Read the settings, and refuse those that would change a number and are not known here."""
    kind = fields.get("general.architecture")
    if kind != "llama":
        raise ValueError(f"general.architecture ({kind!r}) must be 'llama', in {path}")
    given = {name[6:]: value for name, value in fields.items() if name.startswith("llama.")}
    try:
        e, h = given.pop("embedding_length"), given.pop("attention.head_count")
        read = {
            "embed_dim": e,
            "num_heads": h,
            "vocab_size": given.pop("vocab_size", len(fields.get("tokenizer.ggml.tokens", ()))),
            "num_layers": given.pop("block_count"),
            "num_kv_heads": given.pop("attention.head_count_kv", h),
            "head_dim": given.pop("attention.key_length", e // h),
            "hidden_dim": given.pop("feed_forward_length"),
            "norm_eps": given.pop("attention.layer_norm_rms_epsilon"),
            "rotary_base": given.pop("rope.freq_base", 10_000.0),
            "max_length": given.pop("context_length"),
        }
    except KeyError as missing:
        raise ValueError(f"{path} lacks llama.{missing.args[0]}") from None
    for name in ("rope.dimension_count", "attention.value_length"):
        if (found := given.pop(name, read["head_dim"])) != read["head_dim"]:
            raise ValueError(f"llama.{name} ({found}) must be {read['head_dim']}, in {path}")
    if given:
        raise ValueError(f"llama.{next(iter(given))} is not known here, in {path}")
    try:
        return Settings(**read, tie_embeddings=tied)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error}, in {path}") from None


def _stored_name(name: str) -> str:
    """Give the name that a parameter has in the file."""
    part, kind = name.rsplit(".", 1)
    if part.startswith("layers."):
        _, number, part = part.split(".", 2)
        return f"blk.{number}.{LAYER[part]}.{kind}"
    return f"{OUTSIDE[part]}.{kind}"


def _check_tensor(path: Path, tensor: Any, parameter: Tensor, library: Any) -> None:
    """Refuse a tensor that does not fit its place, or whose kind of numbers cannot be read."""
    shape = tuple(tensor.shape.tolist()[::-1])
    if shape != (wanted := tuple(parameter.shape)):
        raise ValueError(f"{tensor.name} has shape {shape}, and must have {wanted}, in {path}")
    try:
        library.quants.dequantize(tensor.data[:1], tensor.tensor_type)
    except NotImplementedError:
        kind = tensor.tensor_type.name
        raise ValueError(f"{tensor.name} ({kind}) cannot be dequantised, in {path}") from None


def _tokenizer(path: Path, fields: dict[str, Any], vocab_size: int) -> Any:
    """Build the tokeniser: bytes joined to ever longer tokens, each digit by itself."""
    given = {name[15:]: value for name, value in fields.items() if name[:15] == "tokenizer.ggml."}
    for name, value in (("model", "gpt2"), ("pre", "smollm")):
        if (found := given.get(name)) != value:
            raise ValueError(f"tokenizer.ggml.{name} ({found!r}) must be {value!r}, in {path}")
    words, kinds = given["tokens"], given["token_type"]
    if len(words) > vocab_size:
        raise ValueError(f"{path} knows {len(words)} tokens, and llama.vocab_size is {vocab_size}")
    library = needed("tokenizers")
    merges = [tuple(merge.split(" ")) for merge in given["merges"]]
    bpe = library.models.BPE({word: i for i, word in enumerate(words)}, merges)
    tokenizer = library.Tokenizer(bpe)
    digits = library.pre_tokenizers.Digits(individual_digits=True)
    as_bytes = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence([digits, as_bytes])
    tokenizer.decoder = library.decoders.ByteLevel()
    special = [word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens(special)
    return tokenizer

"""GGUF files: small ones that are written here, and the chat model's own where it is installed."""

import doctest
import tracemalloc

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, quants

from annotated_attention import pretrained
from annotated_attention.modern import generate
from annotated_attention.pretrained import chat_prompt, load_gguf
from tests.annotated_attention.pretrained.gguf_files import TOKENS, WORDS, llama, write


@pytest.mark.parametrize(
    ("kind", "tied"), [("F32", True), ("F16", False), ("Q4_1", True), ("Q8_0", False)]
)
def test_parity(tmp_path, kind, tied):
    theirs = llama(tied)
    ours, _ = load_gguf(write(tmp_path / "small.gguf", theirs, kind))
    tokens = torch.randint(TOKENS, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits)
    assert all(x.dtype == torch.float32 for x in ours.parameters())
    half, _ = load_gguf(tmp_path, dtype=torch.bfloat16)  # the folder's only file
    for name, x in half.state_dict().items():
        assert x.equal(ours.state_dict()[name].bfloat16()), name


def test_rows_are_dequantised_a_few_at_a_time(tmp_path):
    rows = 1 << 14
    large = {"token_embd.weight": torch.nn.Parameter(torch.randn(rows, 64))}
    path = write(
        tmp_path / "large.gguf",
        llama(True),
        "Q4_1",
        settings={"vocab_size": rows},
        tensors=lambda stored: stored | large,
    )
    load_gguf(path)  # what is imported on the first call is no part of it
    tracemalloc.start()
    try:
        model, _ = load_gguf(path)
        _, peak = tracemalloc.get_traced_memory()  # numpy's arrays, not torch's
    finally:
        tracemalloc.stop()
    assert peak < 4 * model.embed_tokens.weight.numel() / 2


def test_the_tokeniser_and_the_examples(tmp_path):
    _, tokenizer = load_gguf(write(tmp_path / "small.gguf", llama(True)))
    given = tokenizer.encode("<|im_start|>the cat 12ü<|im_end|>")
    assert given.tokens == ["<|im_start|>", "the", "Ġcat", "Ġ", "1", "2", "Ã", "¼", "<|im_end|>"]
    assert tokenizer.decode(given.ids) == "the cat 12ü"
    assert [tokenizer.id_to_token(i) for i in range(TOKENS)] == WORDS
    found = doctest.testmod(pretrained.gguf, globs={"folder": tmp_path, "torch": torch})
    assert found.attempted > 0
    assert found.failed == 0


BAD = {
    "general.architecture ('qwen2') must be 'llama'": {"arch": "qwen2"},
    "llama.expert_count is not known here": {"settings": {"expert_count": 4}},
    "lacks llama.block_count": {"settings": {"block_count": None}},
    "llama.rope.dimension_count (8) must be 16": {"settings": {"rope.dimension_count": 8}},
    "num_heads (4) must be divisible by num_kv_heads (3)": {
        "settings": {"attention.head_count_kv": 3}
    },
    "tokenizer.ggml.model ('llama') must be 'gpt2'": {"tokeniser": {"model": "llama"}},
    "tokenizer.ggml.pre ('qwen2') must be 'smollm'": {"tokeniser": {"pre": "qwen2"}},
    f"knows {TOKENS} tokens, and llama.vocab_size is 9": {"settings": {"vocab_size": 9}},
    "lacks blk.1.ffn_up.weight": {
        "tensors": lambda x: {k: v for k, v in x.items() if k != "blk.1.ffn_up.weight"}
    },
    "output_norm.weight has shape (32,), and must have (64,)": {
        "tensors": lambda x: x | {"output_norm.weight": torch.nn.Parameter(torch.ones(32))}
    },
}


@pytest.mark.parametrize("says", BAD)
def test_refused(tmp_path, says):
    path = write(tmp_path / "bad.gguf", llama(True), **BAD[says])
    with pytest.raises(ValueError) as refused:  # noqa: PT011 the message is looked at below
        load_gguf(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)


def test_files_that_are_not_whole(tmp_path):
    path = write(tmp_path / "whole.gguf", llama(True), "Q8_0")
    content = path.read_bytes()
    for size in (0, 30, len(content) // 2, len(content) - 40):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"whole\.gguf is not a whole GGUF file"):
            load_gguf(path)
    path.write_bytes(b"PK" + content[2:])
    with pytest.raises(ValueError, match="not a whole GGUF file"):
        load_gguf(path)
    for place in (tmp_path / "none.gguf", tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="must be one GGUF file at"):
            load_gguf(place)


def test_what_cannot_be_dequantised(tmp_path):
    path = write(tmp_path / "small.gguf", llama(True))
    reader = GGUFReader(path, "r+")
    field = next(x for x in reader.tensors if x.name == "token_embd.weight").field
    field.parts[4][0] = GGMLQuantizationType.I32
    reader.data.flush()
    with pytest.raises(ValueError, match=r"token_embd\.weight \(I32\) cannot be dequantised"):
        load_gguf(path)


def test_the_chat_model(chat_model, monkeypatch):
    """Its answer, its tokeniser's corners, and its own template."""
    from jinja2 import Environment

    inside = {}

    class Noting(GGUFReader):
        """Reading the file takes longer than all else here: it is read once."""

        def __init__(self, path):
            super().__init__(path)
            inside["template"] = self.fields["tokenizer.chat_template"].contents()
            inside["keys"] = next(x for x in self.tensors if x.name == "blk.3.attn_k.weight")

    monkeypatch.setattr("gguf.GGUFReader", Noting)
    assert pretrained.sha256(chat_model, pretrained.CHAT_MODEL) == pretrained.CHAT_MODEL.sha256
    model, tokenizer = load_gguf(chat_model)
    turns = ("Hi!", "Hello\n there.", "What is the capital of France?")
    roles = ("user", "assistant", "user")
    messages = [{"role": r, "content": x} for r, x in zip(roles, turns, strict=True)]
    rendered = (
        Environment()
        .from_string(inside["template"])
        .render(messages=messages, add_generation_prompt=True)
    )
    assert chat_prompt(*turns) == rendered
    prompt = torch.tensor([tokenizer.encode(chat_prompt(turns[-1])).ids])
    answer = [int(x) for x in generate(model, prompt, 20, stops=[2])]
    assert tokenizer.decode(answer) == "The capital of France is Paris."
    for text in ("Ünïcödé, 1 234,5 and 🙂\n\n\tx  y", "don't <|im_end|> 'tis"):
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    rows = quants.dequantize(inside["keys"].data, inside["keys"].tensor_type)
    expected = np.concatenate([head[i::2] for head in np.split(rows, 3) for i in (0, 1)])
    assert np.array_equal(model.layers[3].self_attn.k_proj.weight.detach().numpy(), expected)

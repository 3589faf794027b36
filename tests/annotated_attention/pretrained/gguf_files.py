"""Small GGUF files of random models, as llama.cpp stores them."""

import torch
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants
from tokenizers import pre_tokenizers

from annotated_attention.modern import half_to_interleaved

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "c a", "ca t", "Ġ cat", "1 2"]
WORDS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
WORDS += [merge.replace(" ", "") for merge in MERGES]
TOKENS = len(WORDS)
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
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
SETTINGS = {
    "embedding_length": 64,
    "block_count": 2,
    "attention.head_count": 4,
    "context_length": 50,
    "attention.head_count_kv": 2,
    "feed_forward_length": 96,
    "vocab_size": TOKENS,
    "rope.freq_base": 700.0,
    "attention.layer_norm_rms_epsilon": 1e-3,
    "rope.dimension_count": 16,
}
TOKENISER = {
    "model": "gpt2",
    "pre": "smollm",
    "tokens": WORDS,
    "merges": MERGES,
    "token_type": [3] * len(SPECIAL) + [1] * (TOKENS - len(SPECIAL)),
}


def llama(tied):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=TOKENS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        rms_norm_eps=1e-3,
        rope_theta=700.0,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def write(path, model, kind="F32", *, settings=(), tokeniser=(), tensors=None, arch="llama"):
    """Write a model of transformers, which gets the weights as they are then stored."""
    writer, kind = GGUFWriter(path, arch), GGMLQuantizationType[kind]
    fields = {f"{arch}.{name}": x for name, x in (SETTINGS | dict(settings)).items()}
    fields |= {f"tokenizer.ggml.{name}": x for name, x in (TOKENISER | dict(tokeniser)).items()}
    for name, value in fields.items():
        if value is not None:
            writer.add_key_value(name, value, GGUFValueType.get_type(value))
    stored = {}
    for name, parameter in model.named_parameters():
        part = name.removesuffix(".weight").removeprefix("model.layers.")
        number, _, rest = part.partition(".")
        theirs = f"blk.{number}.{NAMES[rest]}" if number.isdigit() else NAMES[part]
        stored[f"{theirs}.weight"] = parameter
    for name, parameter in (tensors or (lambda x: x))(stored).items():
        x = parameter.detach()
        heads = {"attn_q": 4, "attn_k": 2}.get(name.split(".")[-2])
        order = half_to_interleaved(torch.arange(len(x)), heads) if heads else torch.arange(len(x))
        as_kind = GGMLQuantizationType.F32 if x.dim() == 1 else kind
        data = quants.quantize(x[order].numpy(), as_kind)
        parameter.data[order] = torch.tensor(quants.dequantize(data, as_kind))
        writer.add_tensor(name, data, raw_dtype=as_kind)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    return path

"""Checkpoints of Llama and of families that are built like it, from Mistral to Gemma 3."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from annotated_attention.checks import check_dtype
from annotated_attention.modern.decoder import LanguageModel
from annotated_attention.modern.settings import LAYER_TYPES, Settings
from annotated_attention.pretrained.checkpoint import (
    Config,
    Weights,
    fill_stored,
    needed,
    open_weights,
)

# What transformers takes for a field that is left out, by the ``model_type``.
LEFT_OUT: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "max_window_layers": 28,
        "head_dim": 128,
    },
    "olmo2": {"rms_norm_eps": 1e-5},
    "smollm3": {"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": True},
    "gemma3_text": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "tie_word_embeddings": True,
    },
}
ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# What norms are called in checkpoints of families that have them after a part, too.
RENAMED = {
    "post_attention_layernorm": "pre_feedforward_layernorm",
    "attention_norm": "post_attention_layernorm",
    "feedforward_norm": "post_feedforward_layernorm",
}
# Settings that Llama has as they are left out alone.
NOT_LLAMA = "window local_base nope_layers norms scale scale_embeddings qk_norm qk_norm_whole"
ORIGINAL = "original_max_position_embeddings"
UNREAD = r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"  # computed from the settings


def load_language_model(
    folder: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> LanguageModel:
    """Read a checkpoint of Llama, Mistral, Qwen2, Qwen3, OLMo 2, SmolLM3 or Gemma 3 (text).

    They may be as transformers 4 or 5 writes them. Gemma stores the weights of its norms less one;
    here they are whole.

    Tensors are copied one by one out of the files, which are mapped into memory and let go at the
    end: the parameters are all that stays.

    Args:
        folder: holds ``config.json`` and ``model.safetensors``, or several files and
            ``model.safetensors.index.json``.
        dtype: Dtype of the parameters, whatever the file's is.

    Returns:
        The model, in evaluation mode, on the CPU.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: the extra ``trained`` is not installed.
        TypeError: ``dtype`` is not floating point.
        ValueError: a file cannot be read, a field of the configuration names something that
            cannot be built here, or a tensor is missing, superfluous or of the wrong shape.

    Examples:
        What is saved is read again, and by transformers, too:

        >>> import tempfile
        >>> import torch
        >>> from annotated_attention.modern import LanguageModel, Settings
        >>> from annotated_attention.pretrained import load_language_model, save_language_model
        >>> model = LanguageModel(Settings(
        ...     vocab_size=11, embed_dim=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8,
        ...     hidden_dim=40))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_language_model(model, folder)
        ...     again = load_language_model(folder)
        >>> tokens = torch.tensor([[3, 1, 4]])
        >>> torch.equal(again(tokens), model(tokens)), again.settings == model.settings
        (True, True)
    """
    check_dtype(dtype)
    config = Config(folder, *LEFT_OUT)
    settings = read_settings(config)
    with open_weights(config.folder) as weights:
        # A head that is stored is the one that counts, also where it should be the embedding.
        if settings.tie_embeddings and _differs(weights, "model.embed_tokens.weight"):
            settings = replace(settings, tie_embeddings=False)
        with torch.device("meta"):  # sizes without memory; no random number is drawn
            model = LanguageModel(settings).to(dtype)
        names = {name: [stored_name(name, settings.norms)] for name in model.state_dict()}
        unread = f"{UNREAD}|lm_head.weight" if settings.tie_embeddings else UNREAD
        model = fill_stored(model, weights, names, unread)
    if config.fields["model_type"] == "gemma3_text":
        with torch.no_grad():
            for norm in (x for x in model.modules() if isinstance(x, torch.nn.RMSNorm)):
                norm.weight.add_(1)
    return model


def save_language_model(model: LanguageModel, folder: str | os.PathLike[str]) -> None:
    """Write a model as a Llama checkpoint, which transformers 4 and 5 read.

    Args:
        model: with settings that Llama has: neither windows nor norms of queries and keys, whole
            heads that turn, and biases in all four matrices of the attention or in none.
        folder: gets ``config.json`` and ``model.safetensors``; it is created where it is missing.

    Raises:
        ImportError: the extra ``trained`` is not installed.
        ValueError: Llama has no such settings; the message names them.
    """
    config, home = write_settings(model.settings), Path(folder)
    library = needed("safetensors.torch")
    home.mkdir(parents=True, exist_ok=True)
    state = {stored_name(name): x.contiguous() for name, x in model.state_dict().items()}
    library.save_file(state, home / "model.safetensors", metadata={"format": "pt"})
    config["torch_dtype"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    (home / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def stored_name(name: str, norms: str = "before") -> str:
    """Give the name that a parameter of ``LanguageModel`` has in a checkpoint."""
    renamed = {} if norms == "before" else RENAMED
    name = ".".join(renamed.get(part, part) for part in name.split("."))
    return name if name.startswith("lm_head.") else f"model.{name}"


def read_settings(config: Config) -> Settings:
    """Translate a ``config.json``, and refuse what ``LanguageModel`` does not compute."""
    kind = config.fields["model_type"]
    config.fields = {"rms_norm_eps": 1e-6} | LEFT_OUT[kind] | config.fields
    config.require(
        is_causal=True, partial_rotary_factor=1.0, quantization_config=None, rope_interleaved=False
    )
    given = {
        **_read_sizes(config),
        **_read_rotation(config, kind),
        **_read_layers(config, kind),
        **_read_parts(config, kind),
    }
    try:
        return Settings(**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error}, in {config.path}") from None


def _read_sizes(config: Config) -> dict[str, Any]:
    """Give the sizes; those that may be left out follow from others."""
    e, h = config.size("hidden_size"), config.size("num_attention_heads")
    return {
        "vocab_size": config.size("vocab_size"),
        "embed_dim": e,
        "num_layers": config.size("num_hidden_layers"),
        "num_heads": h,
        "num_kv_heads": config.size_or("num_key_value_heads", h),
        "head_dim": config.size_or("head_dim", e // h),
        "hidden_dim": config.size("intermediate_size"),
        "max_length": config.size_or("max_position_embeddings", None),
    }


def _read_parts(config: Config, kind: str) -> dict[str, Any]:
    """Give norms, biases and the activation."""
    # Mistral has no biases and Qwen2 has always some, whatever is said.
    bias = kind not in ("mistral", "qwen2") and config.flag("attention_bias")
    gemma = kind == "gemma3_text"
    if gemma:
        config.require(final_logit_softcapping=None, attn_logit_softcapping=None)
        config.require(use_bidirectional_attention=False)
        config.fields["hidden_act"] = config.fields.get("hidden_activation", "gelu_pytorch_tanh")
    return {
        "norms": {"olmo2": "after", "gemma3_text": "both"}.get(kind, "before"),
        "norm_eps": config.number("rms_norm_eps"),
        "qk_norm": kind == "qwen3" or gemma,
        "qk_norm_whole": kind == "olmo2",
        "scale": config.number("query_pre_attn_scalar") ** -0.5 if gemma else None,
        "scale_embeddings": gemma,
        "qkv_bias": bias or kind == "qwen2",
        "out_bias": bias,
        "mlp_bias": kind in ("llama", "smollm3") and config.flag("mlp_bias"),
        "tie_embeddings": config.flag("tie_word_embeddings"),
        "activation": config.choice("hidden_act", ACTIVATIONS, left_out="silu"),
    }


def _read_rotation(config: Config, kind: str) -> dict[str, Any]:
    """Give the base and the scaling, from today's ``rope_parameters`` or what stood for them."""
    own: dict[str, Any] = {}
    if kind == "gemma3_text":
        both = config.fields.get("rope_parameters") or {}
        local = both.get("sliding_attention") or {}
        if local.get("rope_type", "default") != "default":
            raise config.error("rope_parameters", both, "must not scale sliding layers")
        config.fields["rope_parameters"] = both.get("full_attention")
        own["local_base"] = local.get("rope_theta", config.fields["rope_local_base_freq"])
    names = ("rope_parameters", "rope_scaling")
    for name in names:
        if not isinstance(found := config.fields.get(name), dict | None):
            raise config.error(name, found, "must be an object or null")
    today, older = (dict(config.fields.get(name) or {}) for name in names)
    base = today.pop("rope_theta", older.pop("rope_theta", config.fields.get("rope_theta")))
    for scaling in (today, older):
        scaling["rope_type"] = scaling.pop("rope_type", scaling.pop("type", "default"))
        if scaling["rope_type"] in ("llama3", "yarn"):
            scaling.setdefault(ORIGINAL, config.fields.get("max_position_embeddings"))
    if config.fields.get("rope_parameters") is None:
        today = older
    elif config.fields.get("rope_scaling") is not None and today != older:
        found = config.fields["rope_scaling"]
        raise config.error("rope_scaling", found, "must say what rope_parameters say, or be null")
    return own | {
        "rotary_base": 10_000.0 if base is None else base,
        "rotary_scaling": None if today == {"rope_type": "default"} else today,
    }


def _read_layers(config: Config, kind: str) -> dict[str, Any]:
    """Give the window, which layers have it, and which layers rotate nothing."""
    layers = range(config.size("num_hidden_layers"))
    window, types = config.size_or("sliding_window", None), config.fields.get("layer_types")
    if kind in ("llama", "olmo2"):
        config.require(sliding_window=None)
    if kind in ("llama", "mistral", "olmo2"):  # one kind of layer, whatever is said
        fits = [LAYER_TYPES[window is not None]] * len(layers)
        if types not in (None, fits):
            raise config.error("layer_types", types, f"must be {fits[0]} in every layer")
        return {"window": window, "layer_types": tuple(fits)}
    if kind != "gemma3_text" and not config.flag("use_sliding_window"):
        window = None
    nope: tuple[int, ...] = ()
    if kind == "smollm3":
        step = config.size_or("no_rope_layer_interval", 4)
        rotated = config.fields.get("no_rope_layers") or [(i + 1) % step for i in layers]
        if not isinstance(rotated, list) or len(rotated) < len(layers):
            raise config.error("no_rope_layers", rotated, "must have a number for each layer")
        nope = tuple(i for i in layers if not rotated[i])
    if types is None:
        if kind == "gemma3_text":
            step = config.size_or("sliding_window_pattern", 6)
            slides = [bool((i + 1) % step) for i in layers]
        elif kind == "smollm3":
            slides = [window is not None and i in nope for i in layers]
        else:
            first = 0 if window is None else config.size("max_window_layers", at_least=0)
            slides = [window is not None and i >= first for i in layers]
        types = [LAYER_TYPES[x] for x in slides]
    if not isinstance(types, list):
        raise config.error("layer_types", types, "must be an array")
    window = window if "sliding_attention" in types else None
    return {"window": window, "layer_types": tuple(types), "nope_layers": nope}


def write_settings(settings: Settings) -> dict[str, Any]:
    """Translate settings into a ``config.json`` of Llama, and refuse what it does not have."""
    fits = {name: getattr(Settings, name) for name in NOT_LLAMA.split()}
    fits |= {"out_bias": settings.qkv_bias, "rotary_dim": settings.head_dim}
    for name, value in fits.items():
        if (found := getattr(settings, name)) != value:
            raise ValueError(f"{name} ({found}) must be {value} in a Llama checkpoint")
    if settings.embed_dim % settings.num_heads:
        raise ValueError(
            f"embed_dim ({settings.embed_dim}) must be divisible by num_heads "
            f"({settings.num_heads}) in a Llama checkpoint"
        )
    longest = settings.max_length  # which is never null
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": settings.vocab_size,
        "hidden_size": settings.embed_dim,
        "num_hidden_layers": settings.num_layers,
        "num_attention_heads": settings.num_heads,
        "num_key_value_heads": settings.num_kv_heads,
        "head_dim": settings.head_dim,
        "intermediate_size": settings.hidden_dim,
        "rms_norm_eps": settings.norm_eps,
        "rope_theta": settings.rotary_base,
        "rope_scaling": settings.rotary_scaling,
        "attention_bias": settings.qkv_bias,
        "mlp_bias": settings.mlp_bias,
        "tie_word_embeddings": settings.tie_embeddings,
        "hidden_act": {ours: theirs for theirs, ours in ACTIVATIONS.items()}[settings.activation],
        "bos_token_id": None,
        "eos_token_id": None,
        **({} if longest is None else {"max_position_embeddings": longest}),
    }


def _differs(weights: Weights, embedding: str) -> bool:
    """Say whether a head is stored that is not the embedding."""
    head = "lm_head.weight"
    if not {head, embedding} <= weights.home.keys():
        return False
    same_shape = weights.header(head)[0] == weights.header(embedding)[0]
    return not (same_shape and weights.tensor(head).equal(weights.tensor(embedding)))

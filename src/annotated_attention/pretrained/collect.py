"""The attention weights of a whole model, collected while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from annotated_attention.modern.decoder import DecoderAttention
from annotated_attention.multihead import MultiheadAttention


@contextmanager
def attention_weights(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the attention weights of every head while the block runs.

    This works on every model whose attention is ``MultiheadAttention``, and on ``LanguageModel``,
    trained or not. The layers still ask for no weights; a hook asks in their place.

    Args:
        model: the model with the attention modules.

    Yields:
        A list. Each call of an attention module appends its weights, (b, h, n, m).

    Raises:
        ValueError: the model holds neither.

    Examples:
        >>> import torch
        >>> from annotated_attention import TransformerEncoder, TransformerEncoderLayer
        >>> from annotated_attention.pretrained import attention_weights
        >>> layer = TransformerEncoderLayer(24, 4, batch_first=True)
        >>> encoder = TransformerEncoder(layer, 3)
        >>> with attention_weights(encoder) as found:
        ...     output = encoder(torch.randn(2, 5, 24))
        >>> len(found), found[0].shape
        (3, torch.Size([2, 4, 5, 5]))
    """
    found: list[Tensor] = []

    def ask(module: nn.Module, given: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        averages = isinstance(module, MultiheadAttention)  # unless it is asked not to
        each_head = {"average_attn_weights": False} if averages else {}
        return given, options | {"need_weights": True} | each_head

    def collect(_: nn.Module, __: Any, result: tuple[Tensor, Tensor]) -> None:
        found.append(result[1])

    kinds = (MultiheadAttention, DecoderAttention)
    modules = [module for module in model.modules() if isinstance(module, kinds)]
    if not modules:
        names = " and no ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"model ({type(model).__name__}) holds no {names}")
    hooks = [module.register_forward_pre_hook(ask, with_kwargs=True) for module in modules]
    hooks += [module.register_forward_hook(collect) for module in modules]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()

"""Adapt attention with other arguments, layouts and masks to the call that the doctor makes.

Each adapter takes a callable and returns a callable, so adapters can be nested. The outermost one
changes the arguments first, the one nearest to the module last:

    sequence_first(allowed(module))

Most examples show what an adapter passes on to the function that it is put around, here one that
returns its mask; those of ``torch_like`` and ``allowed`` examine.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.masks import block_future
from attention_doctor import layouts
from attention_doctor.adapted import Adapted

__all__ = [
    "Adapted",
    "additive",
    "allowed",
    "always_masked",
    "causal",
    "folded",
    "for_all_queries",
    "for_all_samples",
    "for_each_head",
    "keywords",
    "numbers",
    "sequence_first",
    "torch_like",
    "with_mask",
    "without_mask",
]


def torch_like(
    module: nn.Module,
    kind: str = "cross",
    *,
    batch_first: bool | None = None,
    added: bool = False,
    **options: Any,
) -> Adapted:
    """Adapt a module with the arguments of ``torch.nn.MultiheadAttention``, in either layout.

    A mask that is the same for all queries goes in as ``key_padding_mask``, any other as
    ``attn_mask``, so that both are examined. Kind ``"causal"`` passes ``is_causal=True`` alone,
    or the mask alone to PyTorch's own class and to a ``forward`` without ``is_causal``.

    Args:
        module: the module; it has ``num_heads`` and may have ``batch_first``.
        kind: as in ``examine``.
        batch_first: whether it takes (b, n, e) and not (n, b, e); None means what its
            ``batch_first`` says, and True where it has none.
        added: whether ``attn_mask`` holds numbers that are added to the scores.
        **options: passed on, such as ``need_weights=False``.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters, examine
        >>> module = torch.nn.MultiheadAttention(24, 4)  # (n, b, e)
        >>> report = examine(adapters.torch_like(module), embed_dim=24, num_heads=4)
        >>> report.ok, report.codes
        (True, ('nan-row', 'weights-after-dropout'))
    """
    if batch_first is None:
        batch_first = getattr(module, "batch_first", True)

    def turn(x: Tensor) -> Tensor:
        return x if batch_first else x.transpose(0, 1)

    def call(query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None) -> Any:
        same = query is key is value
        given = [turn(query)] * 3 if same else [turn(x) for x in (query, key, value)]
        masks = _torch_masks(module, blocked)
        if added and "attn_mask" in masks:
            zeros = query.new_zeros(masks["attn_mask"].shape)
            masks["attn_mask"] = zeros.masked_fill(masks["attn_mask"], -torch.inf)
        result = module(*given, **masks, **options)
        output, *rest = result if isinstance(result, tuple) else (result,)
        return turn(output), *rest

    if kind == "cross":
        return Adapted(call, module)
    if kind == "self":
        return Adapted(lambda x, blocked: call(x, x, x, blocked), module)
    knows = "is_causal" in inspect.signature(module.forward).parameters
    if isinstance(module, nn.MultiheadAttention) or not knows:
        return causal(Adapted(call, module))
    options = {"is_causal": True, **options}
    return Adapted(lambda x: call(x, x, x), module, "none")


def _torch_masks(module: Any, blocked: Tensor | None) -> dict[str, Tensor]:
    if blocked is None:
        return {}
    if bool((blocked == blocked[:, :1]).all()):
        return {"key_padding_mask": blocked[:, 0]}
    if bool((blocked == blocked[:1]).all()):
        return {"attn_mask": blocked[0]}
    return {"attn_mask": blocked.repeat_interleave(module.num_heads, 0)}


def sequence_first(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention on (n, b, e) and (m, b, e) that returns (n, b, e); masks stay as they are.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> def attend(query, key, value, blocked):
        ...     print("it takes", *query.shape)
        ...     return query
        >>> adapters.sequence_first(attend)(*torch.randn(3, 2, 5, 24), None).shape
        it takes 5 2 24
        torch.Size([2, 5, 24])
    """
    return layouts.laid_out(attend, lambda x: x.transpose(0, 1), lambda x: x.transpose(0, 1))


def allowed(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention whose mask is True where a query may attend to a key.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters, examine
        >>> def attend(query, key, value, allowed):
        ...     by_head = None if allowed is None else allowed[:, None]
        ...     q, k, v = (x.unflatten(-1, (4, 6)).transpose(1, 2) for x in (query, key, value))
        ...     output = torch.nn.functional.scaled_dot_product_attention(q, k, v, by_head)
        ...     return output.transpose(1, 2).flatten(2)
        >>> examine(adapters.allowed(attend), embed_dim=24, num_heads=4).ok
        True
        >>> examine(attend, embed_dim=24, num_heads=4).codes
        ('mask-inverted',)
    """
    return with_mask(attend, lambda blocked: ~blocked)


def additive(attend: Callable[..., Any], finite: bool = False) -> Adapted:
    """Adapt attention that adds its mask to the scores: 0 for allowed keys, else minus infinity.

    Args:
        attend: takes tensors and a mask of numbers.
        finite: whether blocked keys get the lowest finite number in place of minus infinity.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> blocked = torch.tensor([[[False, True, False]]])
        >>> adapters.additive(lambda x, mask: mask)(torch.randn(1, 3, 24), blocked)
        tensor([[[0., -inf, 0.]]])
    """

    def call(*inputs: Any) -> Any:
        *tokens, blocked = inputs
        if blocked is not None:
            low = torch.finfo(tokens[0].dtype).min if finite else float("-inf")
            blocked = tokens[0].new_zeros(blocked.shape).masked_fill(blocked, low)
        return attend(*tokens, blocked)

    return Adapted(call, attend)


def numbers(attend: Callable[..., Any], fractional: bool = False) -> Adapted:
    """Adapt attention that takes its mask as numbers, 0 and 1.

    Args:
        attend: takes such a mask.
        fractional: whether the numbers have the dtype of the tokens; else they are integers.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> blocked = torch.tensor([[[False, True, False]]])
        >>> adapters.numbers(lambda x, mask: mask)(torch.randn(1, 3, 24), blocked)
        tensor([[[0, 1, 0]]])
    """

    def call(*inputs: Any) -> Any:
        *tokens, blocked = inputs
        dtype = tokens[0].dtype if fractional else torch.long
        return attend(*tokens, None if blocked is None else blocked.to(dtype))

    return Adapted(call, attend)


def for_each_head(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention that takes a mask of (b, 1, n, m), broadcast over the heads.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> blocked = torch.zeros(2, 5, 5, dtype=torch.bool)
        >>> adapters.for_each_head(lambda x, mask: mask)(torch.randn(2, 5, 24), blocked).shape
        torch.Size([2, 1, 5, 5])
    """
    return with_mask(attend, lambda mask: mask.unsqueeze(1))


def folded(attend: Callable[..., Any], num_heads: int) -> Adapted:
    """Adapt attention that takes a mask of (b * h, n, m), samples first.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> blocked = torch.zeros(2, 5, 5, dtype=torch.bool)
        >>> adapted = adapters.folded(lambda x, mask: mask, num_heads=4)
        >>> adapted(torch.randn(2, 5, 24), blocked).shape
        torch.Size([8, 5, 5])
    """
    return with_mask(attend, lambda mask: mask.repeat_interleave(num_heads, 0))


def for_all_samples(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention whose only mask is (n, m), the same for all samples.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> adapted = adapters.for_all_samples(lambda x, mask: mask)
        >>> adapted(torch.randn(2, 5, 24), torch.zeros(2, 5, 5, dtype=torch.bool)).shape
        torch.Size([5, 5])
        >>> adapted.masks
        'shared'
    """
    return with_mask(attend, lambda mask: mask[0], "shared")


def for_all_queries(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention whose only mask is a padding mask, (b, m), the same for all queries.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> adapted = adapters.for_all_queries(lambda x, mask: mask)
        >>> adapted(torch.randn(2, 5, 24), torch.zeros(2, 5, 5, dtype=torch.bool)).shape
        torch.Size([2, 5])
        >>> adapted.masks
        'padding'
    """
    return with_mask(attend, lambda mask: mask[:, 0], "padding")


def with_mask(
    attend: Callable[..., Any], change: Callable[[Tensor], Tensor], masks: str | None = None
) -> Adapted:
    """Adapt attention with another mask: ``change`` makes it from (b, n, m); None stays None.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> adapted = adapters.with_mask(lambda x, mask: mask, torch.logical_not)
        >>> adapted(torch.randn(1, 3, 24), torch.tensor([[[False, True, False]]]))
        tensor([[[ True, False,  True]]])
    """

    def call(*inputs: Any) -> Any:
        *tokens, blocked = inputs
        return attend(*tokens, None if blocked is None else change(blocked))

    return Adapted(call, attend, masks)


def always_masked(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention that requires a mask: a missing mask becomes one that blocks nothing.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> adapted = adapters.always_masked(lambda x, mask: mask.any())
        >>> adapted(torch.randn(2, 5, 24), None)
        tensor(False)
    """

    def call(*inputs: Any) -> Any:
        *tokens, blocked = inputs
        if blocked is None:
            shape = (*tokens[0].shape[:2], tokens[-1].size(1))
            blocked = torch.zeros(shape, dtype=torch.bool, device=tokens[0].device)
        return attend(*tokens, blocked)

    return Adapted(call, attend, required=True)


def without_mask(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention that takes no mask; tests that need one are reported as not examined.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> adapted = adapters.without_mask(torch.nn.Identity())
        >>> adapted(torch.randn(2, 5, 24), None).shape, adapted.masks
        (torch.Size([2, 5, 24]), 'none')
    """
    return Adapted(lambda *inputs: attend(*inputs[:-1]), attend, "none")


def keywords(attend: Callable[..., Any], *names: str, **options: Any) -> Adapted:
    """Adapt attention called with keywords: ``keywords(module, "q", "k", "v", "mask")``.

    Args:
        attend: what to call.
        *names: the argument names in the doctor's order; a mask that is None is left out.
        **options: passed on as they are.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> def attend(*, states, attention_mask=None, temperature):
        ...     return sorted(locals())
        >>> adapted = adapters.keywords(attend, "states", "attention_mask", temperature=1.0)
        >>> adapted(torch.randn(2, 5, 24), None)
        ['attention_mask', 'states', 'temperature']
    """

    def call(*inputs: Any) -> Any:
        given = dict(zip(names, inputs, strict=False))
        return attend(**{name: x for name, x in given.items() if x is not None}, **options)

    return Adapted(call, attend)


def causal(attend: Callable[..., Any], inputs: int = 3) -> Adapted:
    """Adapt attention that takes ``blocked`` to kind ``"causal"``, by blocking the future.

    Args:
        attend: takes ``inputs`` tensors and ``blocked``.
        inputs: 3 for query, key and value, 1 for x alone.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters
        >>> adapted = adapters.causal(lambda x, blocked: blocked[0], inputs=1)
        >>> adapted(torch.randn(2, 3, 24))
        tensor([[False,  True,  True],
                [False, False,  True],
                [False, False, False]])
    """

    def call(x: Tensor) -> Any:
        blocked = block_future(x.size(1), device=x.device).expand(x.size(0), -1, -1)
        return attend(*(x,) * inputs, blocked)

    return Adapted(call, attend, "none")

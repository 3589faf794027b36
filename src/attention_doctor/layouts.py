"""Adapt attention whose tokens lie in other axes than (b, n, e).

As with the other adapters, each takes a callable and returns a callable; masks stay as they are.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attention_doctor.adapted import Adapted, output_of

__all__ = ["first_asks", "laid_out", "one_by_one"]


def one_by_one(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention on one sequence, (n, e), that returns (n, e): it is called for each sample.

    Examples:
        >>> import torch
        >>> from attention_doctor import layouts
        >>> def attend(x, blocked):
        ...     print("it takes", *x.shape)
        ...     return x
        >>> layouts.one_by_one(attend)(torch.randn(2, 5, 24), None).shape
        it takes 5 24
        it takes 5 24
        torch.Size([2, 5, 24])
    """

    def call(*inputs: Any) -> Any:
        shape = inputs[0].shape[1:]
        found: list[Any] = []
        for i in range(inputs[0].size(0)):
            sample = [x[i] if isinstance(x, Tensor) else x for x in inputs]
            found.append(output_of(attend(*sample), shape)[0])
        return torch.stack(found) if all(isinstance(x, Tensor) for x in found) else found[0]

    return Adapted(call, attend)


def first_asks(attend: Callable[..., Any]) -> Adapted:
    """Adapt attention whose first token alone asks, such as a class token: each is put there once.

    Args:
        attend: takes (b, n, e) and returns (b, 1, e) or (b, e), or (b, n, e), the first counts.

    Examples:
        >>> import torch
        >>> from attention_doctor import layouts
        >>> attend = layouts.first_asks(lambda x: x[:, 0])
        >>> x = torch.randn(2, 5, 24)
        >>> bool((attend(x) == x).all())
        True
    """

    def call(x: Tensor, *rest: Any) -> Any:
        b, n, e = x.shape
        found: list[Any] = []
        for i in range(n):
            order = [i, *range(i), *range(i + 1, n)]
            masks = [_moved(mask, order) for mask in rest]
            output = output_of(attend(x[:, order], *masks), torch.Size((b, 1, e)))[0]
            if isinstance(output, Tensor) and output.shape == x.shape:  # the others pass through
                output = output[:, 0]
            if not isinstance(output, Tensor) or output.numel() != b * e:
                return output
            found.append(output.reshape(b, e))
        return torch.stack(found, 1)

    return Adapted(call, attend)


def _moved(mask: Any, order: list[int]) -> Any:
    """Move keys, and queries where there are as many."""
    if not isinstance(mask, Tensor):
        return mask
    rows = mask.dim() > 1 and mask.size(-2) == len(order)
    return (mask[..., order, :] if rows else mask)[..., order]


def _ends_with_a_mask(inputs: tuple[Any, ...]) -> bool:
    """Tell whether the last of some inputs is a mask: an added one is as real as tokens are."""
    last, others = inputs[-1], inputs[:-1]
    if not others or last is None or not last.is_floating_point():
        return bool(others)
    (b, n), m = others[0].shape[:2], others[-1].size(1)
    shapes = [(n, m, b), (n, m, 1)]
    return last.shape in shapes or (last.shape[-1] == m and last.shape != others[-1].shape)


def laid_out(
    attend: Callable[..., Any],
    into: Callable[[Tensor], Tensor],
    back: Callable[[Tensor], Tensor],
) -> Adapted:
    """Adapt attention with another layout; masks stay as they are.

    Args:
        attend: what to call.
        into: makes what it takes from (b, n, e).
        back: makes (b, n, e) from what it returns.

    Examples:
        >>> import torch
        >>> from attention_doctor import layouts
        >>> def channel_first(x):
        ...     print("it takes", *x.shape)
        ...     return x
        >>> adapted = layouts.laid_out(channel_first, lambda x: x.mT, lambda x: x.mT)
        >>> adapted(torch.randn(2, 5, 24)).shape
        it takes 2 24 5
        torch.Size([2, 5, 24])
    """

    def call(*inputs: Any) -> Any:
        count = len(inputs) - _ends_with_a_mask(inputs)
        tokens = [into(x).contiguous() for x in inputs[:count]]
        result = attend(*tokens, *inputs[count:])
        output, rest = output_of(result, tokens[0].shape)
        if not isinstance(output, Tensor) or output.dim() != tokens[0].dim():
            return result
        return (back(output), *rest) if rest else back(output)

    return Adapted(call, attend)

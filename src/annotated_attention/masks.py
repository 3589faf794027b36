"""Build masks, merge them, and convert between both meanings of True.

``blocked`` is True where a query must not see a key, ``allowed`` where it may; libraries disagree
about the meaning of a bare ``mask``. Floating-point numbers are added to the scores: 0 changes
nothing, ``-inf`` blocks.
"""

import math

import torch
from torch import Tensor

from annotated_attention.checks import check_integers


def block_padding(lengths: Tensor, m: int) -> Tensor:
    """Block the keys behind the end of each sequence.

    Args:
        lengths: (b,), integers, how many keys of each sequence are real.
        m: the length that the sequences are padded to.

    Returns:
        blocked, (b, m): True for padding. It fits ``key_padding_mask``.

    Raises:
        TypeError: ``lengths`` does not hold integers.
        ValueError: ``lengths`` does not have one axis.

    Examples:
        >>> import torch
        >>> from annotated_attention import block_padding
        >>> block_padding(torch.tensor([4, 2]), m=5)
        tensor([[False, False, False, False,  True],
                [False, False,  True,  True,  True]])
    """
    check_integers(lengths=lengths)
    if lengths.dim() != 1:
        raise ValueError(f"lengths must have shape (b,), got {tuple(lengths.shape)}")
    return torch.arange(m, device=lengths.device) >= lengths[:, None]  # (b, m)


def block_future(n: int, m: int | None = None, device: torch.device | None = None) -> Tensor:
    """Block key j for query i when j > i: no query looks ahead.

    Args:
        n: the number of queries.
        m: the number of keys; None means as many as queries. Query 0 and key 0 stand at the same
            position, whether there are more queries or more keys.
        device: Device of the mask.

    Returns:
        blocked, (n, m): True above the diagonal.

    Examples:
        >>> from annotated_attention import block_future
        >>> block_future(3, 5)
        tensor([[False,  True,  True,  True,  True],
                [False, False,  True,  True,  True],
                [False, False, False,  True,  True]])
    """
    m = n if m is None else m
    return torch.ones(n, m, dtype=torch.bool, device=device).triu(1)  # (n, m)


def as_blocked(mask: Tensor, *, true_means: str) -> Tensor:
    """Turn any mask into ``blocked``, given the meaning of its True (or 1).

    Args:
        mask: boolean, or integers with 0 for False; of any shape.
        true_means: ``"blocked"`` or ``"allowed"``.

    Returns:
        blocked, of the same shape: True means "this query must not see this key".

    Raises:
        TypeError: ``mask`` holds floating-point numbers, which are added and not read as True.
        ValueError: ``true_means`` is neither of the two.

    Examples:
        A tokenizer's ``attention_mask`` has 1 for a token and 0 for padding:

        >>> import torch
        >>> from annotated_attention import as_blocked
        >>> as_blocked(torch.tensor([[1, 1, 1], [1, 1, 0]]), true_means="allowed")
        tensor([[False, False, False],
                [False, False,  True]])
    """
    if mask.is_floating_point() or mask.is_complex():
        raise TypeError(f"mask must be boolean or hold integers, got {mask.dtype}")
    if true_means not in ("blocked", "allowed"):
        raise ValueError(f'true_means ({true_means!r}) must be "blocked" or "allowed"')
    return mask.bool() if true_means == "blocked" else ~mask.bool()


def merge_masks(
    *masks: Tensor | None, dtype: torch.dtype | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """Merge masks by broadcasting: blocked where one of them blocks, floats added up.

    The result is as small as broadcasting allows: padding, (b, 1, 1, m), with an attention mask,
    (n, m), gives (b, 1, n, m), with no copy for each head.

    Args:
        *masks: boolean (True = blocked) or floating point (added to the scores), with shapes that
            broadcast to (b, h, n, m) from the right; None is skipped.
        dtype: Dtype of ``bias``; None keeps the dtype of the masks. A number that is beyond the
            dtype, as -1e9 is in float16, becomes the last one within, and does not block.

    Returns:
        The booleans merged into one ``blocked``, and the others into one ``bias``; None where
        there is nothing to merge.

    Examples:
        >>> import torch
        >>> from annotated_attention import block_future, block_padding, merge_masks
        >>> padding = block_padding(torch.tensor([5, 3]), m=5)[:, None, None]
        >>> blocked, bias = merge_masks(padding, block_future(3, 5))
        >>> blocked.shape, bias
        (torch.Size([2, 1, 3, 5]), None)
    """
    blocked: Tensor | None = None
    bias: Tensor | None = None
    for mask in masks:
        if mask is not None and mask.dtype == torch.bool:
            blocked = mask if blocked is None else blocked | mask
        elif mask is not None:
            bias = mask if bias is None else bias + mask
    if bias is not None and dtype not in (None, bias.dtype):
        bias = _cast(bias, dtype)
    return blocked, bias


def _cast(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast numbers that are added to scores: a large one stays finite, as only ``-inf`` blocks."""
    largest = min(torch.finfo(x).max for x in (dtype, bias.dtype))
    return torch.where(bias.isinf(), bias, bias.clamp(-largest, largest)).to(dtype)


def masks_as_bias(blocked: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Write both kinds of masks as one tensor that is added to the scores; None without masks.

    It is ``bias``, or zeros of ``dtype``, with ``-inf`` where ``blocked`` is True, in the smallest
    shape that holds both.
    """
    if blocked is None:
        return bias
    if bias is None:
        return torch.zeros_like(blocked, dtype=dtype).masked_fill_(blocked, -math.inf)
    return bias.masked_fill(blocked, -math.inf)


def padding_to_heads(key_padding_mask: Tensor | None) -> Tensor | None:
    """View a padding mask, (..., m), with the axes of the scores, (..., 1, 1, m)."""
    return None if key_padding_mask is None else key_padding_mask[..., None, None, :]


def attention_to_heads(attn_mask: Tensor | None, num_heads: int) -> Tensor | None:
    """View a mask of each head, (b * h, n, m), as (b, h, n, m); (n, m) broadcasts as it is.

    Mask i * h + j is for sample i and head j. So a mask for each sample alone is repeated with
    ``repeat_interleave(h, 0)``; ``repeat`` has the same shape and swaps samples.
    """
    if attn_mask is None or attn_mask.dim() == 2:
        return attn_mask
    h = num_heads
    return attn_mask.unflatten(0, (-1, h))  # (b * h, n, m) -> (b, h, n, m)

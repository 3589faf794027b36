"""Splitting the model width into heads, and merging the heads again."""

from torch import Tensor


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Split the last axis into heads, and move the heads in front of the tokens.

    Args:
        x: (..., n, h * d), one row per token.
        num_heads: h; must divide the width of ``x``.

    Returns:
        (..., h, n, d): head i holds features i * d to (i + 1) * d of every token. A view of ``x``.

    Raises:
        ValueError: ``x`` has fewer than two axes, or ``num_heads`` does not divide its width.

    Examples:
        Two tokens of width 6, and three heads:

        >>> import torch
        >>> from annotated_attention import split_heads
        >>> x = torch.arange(12).view(2, 6)
        >>> x
        tensor([[ 0,  1,  2,  3,  4,  5],
                [ 6,  7,  8,  9, 10, 11]])
        >>> split_heads(x, num_heads=3).tolist()
        [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]

    Source: Vaswani et al. (2017), section 3.2.2. Reshaping straight to (..., h, n, d) gives
    the same shape and mixes tokens; see the chapter "The reshape trick".
    """
    if x.dim() < 2:
        raise ValueError(f"x must have shape (..., n, h * d), got {tuple(x.shape)}")
    if num_heads < 1 or x.size(-1) % num_heads:
        raise ValueError(
            f"the width of x ({x.size(-1)}) must be divisible by num_heads ({num_heads})"
        )
    h = num_heads
    return x.unflatten(-1, (h, -1)).transpose(-3, -2)  # (..., n, h, d) -> (..., h, n, d)


def merge_heads(x: Tensor) -> Tensor:
    """Put the heads back side by side, the inverse of ``split_heads``.

    Args:
        x: (..., h, n, d), one slice per head.

    Returns:
        (..., n, h * d): row i holds token i's output from head 1, then head 2, and so on.

    Raises:
        ValueError: ``x`` has fewer than three axes.

    Examples:
        >>> import torch
        >>> from annotated_attention import merge_heads, split_heads
        >>> x = torch.arange(12).view(2, 6)
        >>> merge_heads(split_heads(x, num_heads=3))
        tensor([[ 0,  1,  2,  3,  4,  5],
                [ 6,  7,  8,  9, 10, 11]])

    Source: Vaswani et al. (2017), section 3.2.2, "Concat". Reshaping without the transpose gives
    the same shape and mixes tokens; see the chapter "The reshape trick".
    """
    if x.dim() < 3:
        raise ValueError(f"x must have shape (..., h, n, d), got {tuple(x.shape)}")
    return x.transpose(-3, -2).flatten(-2)  # (..., n, h, d) -> (..., n, h * d)

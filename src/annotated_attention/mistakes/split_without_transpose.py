"""The features are split into heads by a straight reshape; the tokens lose their rows."""

from torch import Tensor


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Give (..., h, n, d) by reading the numbers of (..., n, h * d) in the order they lie in.

    Head i then holds all features of a run of tokens, not some features of all tokens: the first
    head sees only the beginning of the sequence, the last only its end. A straight reshape back is
    its exact inverse, so that splitting and merging looks right. What a token receives depends on
    how long its sequence is and on where in it the token stands.

    Args:
        x: (..., n, h * d), one row per token.
        num_heads: how many.
    """
    *batch, n, width = x.shape
    return x.reshape(*batch, num_heads, n, width // num_heads)  # (..., h, n, d)

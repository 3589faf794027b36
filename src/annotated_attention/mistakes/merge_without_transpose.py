"""The heads are merged by a straight reshape, without moving the heads behind the tokens first."""

from torch import Tensor


def merge_heads(x: Tensor) -> Tensor:
    """Give (..., n, h * d) by reading the numbers of (..., h, n, d) in the order they lie in.

    Row i of the result then holds h neighbouring tokens of one head, not token i of every head.
    Shape and numbers are those of the right version, only not in their places, and a model trains
    with it. Under a causal mask it shows each token some of its future.

    Args:
        x: (..., h, n, d), one slice per head.
    """
    *batch, h, n, d = x.shape
    return x.reshape(*batch, n, h * d)  # (..., n, h * d)

"""What a token need not look at: keys outside a window, and those of other documents."""

import torch
from torch import Tensor

from annotated_attention.checks import check_sizes


def block_outside(
    positions: Tensor, m: int, window: int, *, sinks: int = 0, dropped: int | Tensor = 0
) -> Tensor:
    """Block key j for a query at position p unless p - window < j <= p: the window counts p itself.

    Args:
        positions: (n,) or (b, n), integers, the positions of the queries, of all sequences or each.
        m: how many keys there are; key j is at position j, unless some were dropped.
        window: w, how many keys a query sees at most.
        sinks: how many of the first keys each query sees besides, if they are not in its future.
        dropped: how many keys are no longer there: those that followed the first ``sinks``, as in a
            ``WindowCache``.

    Returns:
        blocked, (n, m), or (b, 1, n, m), as in ``block_later``.

    Raises:
        TypeError: ``window`` or ``sinks`` is not an integer.
        ValueError: ``window`` is below 1, or ``sinks`` below 0.

    Examples:
        With a window of 3, queries see 1, 2, 3, 3 and 3 keys:

        >>> import torch
        >>> from annotated_attention.modern import block_outside
        >>> (~block_outside(torch.arange(5), m=5, window=3)).int()
        tensor([[1, 0, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 1, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 1, 1, 1]], dtype=torch.int32)

    Source: Beltagy et al. (2020), section 3.1; first keys: Xiao et al. (2023), section 3.2.
    """
    check_window(window, sinks)
    keys = torch.arange(m, device=positions.device)            # (m,)
    first = keys < sinks                                       # (m,)
    keys = torch.where(first, keys, keys + dropped)            # (m,)
    queries = positions[..., None]                             # (..., n, 1)
    gone = (keys <= queries - window) & ~first                 # (..., n, m)
    blocked = gone | (keys > queries)                          # (..., n, m)
    return blocked.unsqueeze(1) if positions.dim() == 2 else blocked


def check_window(window: int, sinks: int) -> None:
    """Refuse a window or a number of first keys that is none."""
    check_sizes({"window": window})
    if not isinstance(sinks, int) or isinstance(sinks, bool):
        raise TypeError(f"sinks ({sinks!r}) must be an integer")
    if sinks < 0:
        raise ValueError(f"sinks ({sinks}) must not be negative")

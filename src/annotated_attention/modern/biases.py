"""Biases by distance: a number for each head and each distance is added to the scores."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.checks import check_integers, check_nothing_appended, check_sizes
from annotated_attention.multihead import MultiheadAttention


def alibi_slopes(num_heads: int) -> Tensor:
    """Say how much each head takes off the score per step of distance.

    For h = 2^x heads these are 2^(-8 / h), 2^(-16 / h), ..., 2^-8. For another h they are those of
    the next smaller power of two, followed by every second one of the next larger power.

    Args:
        num_heads: h, any number of heads.

    Returns:
        The slopes, (h,), float32.

    Examples:
        >>> from annotated_attention.modern import alibi_slopes
        >>> alibi_slopes(4)
        tensor([0.2500, 0.0625, 0.0156, 0.0039])
        >>> alibi_slopes(6)
        tensor([0.2500, 0.0625, 0.0156, 0.0039, 0.5000, 0.1250])

    Source: Press et al. (2022), section 3; for other numbers of heads the authors' code.
    """
    check_sizes({"num_heads": num_heads})
    below = 2 ** (num_heads.bit_length() - 1)  # the next smaller power of two, or num_heads
    slopes = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    extra = [2 ** (-4 * i / below) for i in range(1, 2 * below + 1, 2)]
    return torch.tensor(slopes + extra[: num_heads - below])  # (h,)


class AlibiBias(nn.Module):
    """Take a penalty off the scores that grows linearly with the distance; nothing is learned.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import AlibiBias
        >>> AlibiBias(num_heads=2)(torch.arange(1, 3), torch.arange(4))[0] * 16
        tensor([[-1.,  0., -1., -2.],
                [-2., -1.,  0., -1.]])

    Source: Press et al. (2022), section 3.
    """

    def __init__(self, num_heads: int) -> None:
        """Keep the number of heads, h, whose errors are those of ``alibi_slopes``."""
        super().__init__()
        check_sizes({"num_heads": num_heads})
        self.num_heads = num_heads

    def forward(self, positions: Tensor, key_positions: Tensor) -> Tensor:
        """Give the bias of every head, query and key.

        Args:
            positions: (n,), integers: those of the queries.
            key_positions: (m,), integers: those of the keys.

        Returns:
            (h, n, m), float32: minus slope times distance, whichever of the two comes first.
        """
        distance = _distances(positions, key_positions).abs()      # (n, m)
        slopes = alibi_slopes(self.num_heads).to(distance.device)  # (h,)
        return slopes[:, None, None] * -distance                   # (h, n, m)


def relative_buckets(
    distance: Tensor, *, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> Tensor:
    """Sort distances into buckets: short ones alone, longer ones together, ever more of them.

    Half of the buckets hold one distance each. The others grow, evenly in the logarithm, up to
    ``max_distance``; whatever is farther shares the last one.

    Args:
        distance: (..., n, m), integers: the key's position minus the query's.
        num_buckets: how many buckets; with ``bidirectional`` an even number, half for each side.
        max_distance: beyond it all distances share the last bucket, which begins somewhat before.
        bidirectional: False puts all keys that come later into bucket 0, for a causal model.

    Returns:
        The numbers of the buckets, (..., n, m), from 0 to ``num_buckets - 1``.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import relative_buckets
        >>> distance = -torch.tensor([[0, 1, 2, 3, 4, 5, 8, 16, 99]])
        >>> relative_buckets(distance, num_buckets=8, max_distance=16, bidirectional=False)
        tensor([[0, 1, 2, 3, 4, 4, 6, 7, 7]])

    Source: Raffel et al. (2020), section 2.1; where the buckets begin, the authors' code.
    """
    of_side, alone = _check_buckets(num_buckets, max_distance, bidirectional)
    check_integers(distance=distance)
    far = distance.abs() if bidirectional else -distance.clamp(max=0)  # (..., n, m)
    share = (far.clamp(min=alone).float() / alone).log() / math.log(max_distance / alone)
    together = alone + (share * (of_side - alone)).long()                    # (..., n, m)
    bucket = torch.where(far < alone, far, together.clamp(max=of_side - 1))  # (..., n, m)
    return bucket + of_side * (distance > 0) if bidirectional else bucket    # (..., n, m)


def _distances(positions: Tensor, key_positions: Tensor) -> Tensor:
    """Give the key's position minus the query's for each pair, (n, m)."""
    check_integers(positions=positions, key_positions=key_positions)
    for name, n, x in (("positions", "n", positions), ("key_positions", "m", key_positions)):
        if x.dim() != 1:
            raise ValueError(f"{name} must have shape ({n},), got {tuple(x.shape)}")
    return key_positions - positions[:, None]  # (n, m)


def _check_buckets(num_buckets: int, max_distance: int, bidirectional: bool) -> tuple[int, int]:
    """Return how many buckets one side has, and how many of them hold one distance alone."""
    check_sizes({"num_buckets": num_buckets, "max_distance": max_distance})
    sides = 2 if bidirectional else 1
    if num_buckets % sides or num_buckets < 2 * sides:
        fits = "even and at least 4" if bidirectional else "at least 2"
        raise ValueError(f"num_buckets ({num_buckets}) must be {fits}")
    of_side, alone = num_buckets // sides, num_buckets // sides // 2
    if max_distance <= alone:
        raise ValueError(
            f"max_distance ({max_distance}) must be above {alone}, the number of distances with a "
            f"bucket of their own"
        )
    return of_side, alone


class BucketedBias(nn.Module):
    """Add a learned number for each head and each bucket of distances.

    ``table`` holds the numbers, one row per bucket, in the shape of T5's
    ``relative_attention_bias.weight``. They start at zero, where every distance counts alike.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import BucketedBias
        >>> bias = BucketedBias(num_heads=4, num_buckets=8, max_distance=20)
        >>> bias(torch.arange(3), torch.arange(5)).shape
        torch.Size([4, 3, 5])

    Source: Raffel et al. (2020), section 2.1.
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        """Create the table for h heads; the other settings are those of ``relative_buckets``."""
        super().__init__()
        check_sizes({"num_heads": num_heads})
        _check_buckets(num_buckets, max_distance, bidirectional)
        self.num_heads = num_heads
        self.sizes: dict[str, Any] = {
            "num_buckets": num_buckets,
            "max_distance": max_distance,
            "bidirectional": bidirectional,
        }
        self.table = nn.Parameter(torch.zeros(num_buckets, num_heads))

    def forward(self, positions: Tensor, key_positions: Tensor) -> Tensor:
        """Give the bias of every head, query and key, (h, n, m), as ``AlibiBias`` does."""
        distance = _distances(positions, key_positions)    # (n, m)
        bucket = relative_buckets(distance, **self.sizes)  # (n, m)
        return self.table[bucket].movedim(-1, 0)           # (n, m, h) -> (h, n, m)


class BiasedAttention(MultiheadAttention):
    """The final class, with a bias by distance added to the scores of each head.

    Positions are counted from 0 on both sides; an appended key, which has none, is refused. Without
    weights it keeps the fused kernel.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import AlibiBias, BiasedAttention
        >>> attention = BiasedAttention(24, 4, AlibiBias(num_heads=4), batch_first=True)
        >>> x = torch.randn(2, 5, 24)
        >>> attention(x, x, x, is_causal=True)[1].shape
        torch.Size([2, 5, 5])

    Source: Raffel et al. (2020), section 2.1; Press et al. (2022), section 3.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, position_bias: nn.Module, *args: Any, **options: Any
    ) -> None:
        """Create the parameters of the final class, which takes all other arguments.

        Args:
            position_bias: an ``AlibiBias`` or a ``BucketedBias`` for as many heads, or a module
                like these, called with the positions of queries and keys.
        """
        super().__init__(embed_dim, num_heads, *args, **options)
        check_nothing_appended(self.bias_k is not None, self.add_zero_attn)
        if (heads := getattr(position_bias, "num_heads", None)) != num_heads:
            raise ValueError(f"position_bias must have num_heads ({num_heads}), got {heads}")
        self.position_bias = position_bias

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Add the bias by distance to that of the caller, then attend as the final class does."""
        positions, key_positions = (torch.arange(x.size(-2), device=x.device) for x in (q, k))
        by_distance = self.position_bias(positions, key_positions).to(q.dtype)  # (h, n, m)
        bias = by_distance if bias is None else by_distance + bias              # (..., n, m)
        return super().attend(q, k, v, bias=bias, **options)

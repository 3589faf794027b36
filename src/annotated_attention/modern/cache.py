"""Caches of keys and values: what a model that writes keeps from one token to the next."""

from typing import Protocol

import torch
from torch import Tensor

from annotated_attention.checks import check_integers, check_sizes, check_tensors


class Cache(Protocol):
    """What an attention asks of a cache, such as ``KVCache``, ``StaticCache`` or ``PagedCache``."""

    @property
    def length(self) -> int | Tensor:
        """How many tokens are kept, which is the position of the next one.

        One number for all sequences; or (b,), where a cache holds sequences of different lengths.
        """

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of n more tokens.

        Args:
            k: (b, h, n, d), where h counts the heads of the keys.
            v: (b, h, n, d_v).

        Returns:
            All keys so far, (b, h, m, d), and all values, (b, h, m, d_v); key j is at position j.
            Slots behind the last token of a sequence must be masked, see ``block_by_position``.

        Raises:
            RuntimeError: gradients are wanted of a cache that keeps no graph, or no page is free.
            IndexError: a cache of fixed size has no room left.
        """

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``; 0 forgets everything."""

    def reorder(self, index: Tensor) -> None:
        """Let sequence i continue what was kept for sequence ``index[i]``.

        Args:
            index: int64 or int32, one for each sequence there is to be; one may occur repeatedly.

        Raises:
            IndexError: ``index`` names a sequence that is not there. On a GPU, where looking would
                mean waiting, PyTorch's own assertion fails instead.
        """

    def numel(self) -> int:
        """Count the numbers that the cache holds."""


class KVCache:
    """Keeps keys and values in two tensors that grow with each token.

    The tensors keep their graph, so gradients flow as if no cache were used.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import KVCache
        >>> cache = KVCache()
        >>> for n in (3, 1):
        ...     k, v = cache.append(torch.randn(2, 4, n, 6), torch.randn(2, 4, n, 6))
        >>> cache.length, k.shape
        (4, torch.Size([2, 4, 4, 6]))
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    @property
    def length(self) -> int:
        """How many tokens are kept."""
        return 0 if self.keys is None else self.keys.size(-2)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Join (b, h, n, d) and (b, h, n, d_v) to what is kept, and give all of it."""
        check_appended(k, v, self.keys, self.values)
        if self.keys is not None and self.values is not None:
            k = torch.cat([self.keys, k], -2)    # (b, h, m, d)
            v = torch.cat([self.values, v], -2)  # (b, h, m, d_v)
        self.keys, self.values = k, v
        return k, v

    def crop(self, length: int) -> None:
        """Copy the first ``length`` tokens, so that the memory of the others is free."""
        check_length(length)
        if self.keys is not None and self.values is not None and length < self.length:
            self.keys = self.keys[..., :length, :].clone()
            self.values = self.values[..., :length, :].clone()

    def reorder(self, index: Tensor) -> None:
        """Copy the sequences that ``index`` names; there may be more or fewer than before."""
        check_index(index)
        if self.keys is not None and self.values is not None:
            # Unlike keys[index], this refuses negative numbers.
            self.keys = self.keys.index_select(0, index)
            self.values = self.values.index_select(0, index)

    def numel(self) -> int:
        """Count the numbers of all tokens."""
        return sum(x.numel() for x in (self.keys, self.values) if x is not None)


class StaticCache:
    """Keeps keys and values in two tensors of fixed size, so that ``torch.compile`` runs once.

    ``append`` returns the whole tensors, and the next call writes into them. Behind the last token
    they hold zeros, or what was cropped, and **these slots must be masked**, as
    ``block_by_position`` does. No graph is kept.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import StaticCache
        >>> cache = StaticCache(batch_size=2, num_heads=4, max_length=9, head_dim=6)
        >>> for n in (3, 1):
        ...     k, v = cache.append(torch.randn(2, 4, n, 6), torch.randn(2, 4, n, 6))
        >>> cache.length, k.shape, k[:, :, 4:].any()
        (tensor(4), torch.Size([2, 4, 9, 6]), tensor(False))
    """

    def __init__(
        self,
        batch_size: int,
        num_heads: int,
        max_length: int,
        head_dim: int,
        value_dim: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Reserve room for ``max_length`` tokens.

        Args:
            batch_size: b, how many sequences there are.
            num_heads: h, the heads of the keys, where several queries may share one.
            max_length: how many tokens fit.
            head_dim: d, the width of a key.
            value_dim: the width of a value; None means d.
            device: Device of both tensors.
            dtype: Dtype of both tensors, which is that of the keys and values to come.
        """
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {"batch_size": batch_size, "num_heads": num_heads, "max_length": max_length}
        check_sizes(sizes | {"head_dim": head_dim, "value_dim": value_dim})
        slots = (batch_size, num_heads, max_length)
        self.keys = torch.zeros(*slots, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros(*slots, value_dim, device=device, dtype=dtype)
        self.length = torch.tensor(0, device=device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write (b, h, n, d) and (b, h, n, d_v) behind the last token, and give all slots."""
        check_appended(k, v, self.keys, self.values)
        refuse_graph(self, k, v)
        n = k.size(-2)
        # The length is a tensor: a Python number would be a part of the compiled program.
        slots = self.length + torch.arange(n, device=k.device)  # (n,)
        self.keys.index_copy_(-2, slots, k)
        self.values.index_copy_(-2, slots, v)
        self.length.add_(n)  # in place, so that a CUDA graph finds it at the same address
        return self.keys, self.values

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``; their numbers are overwritten later."""
        check_length(length)
        self.length.clamp_(max=length)

    def reorder(self, index: Tensor) -> None:
        """Copy the sequences that ``index`` names; there must be as many as before (ValueError)."""
        check_index(index)
        if len(index) != len(self.keys):
            raise ValueError(f"index ({len(index)}) must name {len(self.keys)} sequences")
        self.keys.copy_(self.keys.index_select(0, index))
        self.values.copy_(self.values.index_select(0, index))

    def numel(self) -> int:
        """Count the numbers of all slots, written or not."""
        return self.keys.numel() + self.values.numel()


def block_by_position(
    positions: Tensor, m: int, window: int | None = None, *, sinks: int = 0
) -> Tensor:
    """Block key j for a query at position p unless j <= p, and p - window < j with a window.

    So it blocks the future, whatever a cache of fixed size has not written yet, and what a sliding
    window has left behind. The window counts the query's own key.

    Args:
        positions: (n,) or (b, n), integers, the positions of the queries, of all sequences or each.
        m: how many keys there are; key j is at position j. With a window there may be fewer keys
            than tokens: those that followed the first ``sinks`` were dropped, as a ``WindowCache``
            does.
        window: w, how many keys a query sees at most, itself included; None sets no limit.
        sinks: how many of the first keys each query sees besides, if they are not in its future.

    Returns:
        blocked, (n, m), or (b, 1, n, m). If the queries are the last n of m tokens, the diagonal
        ends in the **lower right** corner; ``block_future`` begins it in the upper left one.

    Examples:
        Two queries behind three kept keys, and five with a window:

        >>> import torch
        >>> from annotated_attention.modern import block_by_position
        >>> block_by_position(3 + torch.arange(2), m=5)
        tensor([[False, False, False, False,  True],
                [False, False, False, False, False]])
        >>> (~block_by_position(torch.arange(5), m=5, window=3)).int()
        tensor([[1, 0, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 1, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 1, 1, 1]], dtype=torch.int32)

    Source: Beltagy et al. (2020), section 3.1; first keys: Xiao et al. (2023), section 3.2.
    """
    keys, queries = torch.arange(m, device=positions.device), positions[..., None]
    if window is None:
        blocked = keys > queries  # (..., n, m)
    else:
        check_window(window, sinks)
        first = keys < sinks  # (m,)
        # None were dropped where there are more keys than tokens, as in a cache of fixed size.
        dropped = (positions.max() + 1 - m).clamp(min=0)              # ()
        keys = torch.where(first, keys, keys + dropped)               # (m,)
        passed = (keys <= queries - window) & ~first                  # (..., n, m)
        blocked = passed | (keys > queries)                           # (..., n, m)
    return blocked.unsqueeze(1) if positions.dim() == 2 else blocked  # (..., n, m)


def check_window(window: int, sinks: int) -> None:
    """Refuse a window or a number of first keys that is none."""
    check_sizes({"window": window})
    check_sizes({"sinks": sinks}, least=0)


def check_appended(
    k: Tensor, v: Tensor, keys: Tensor | None = None, values: Tensor | None = None
) -> None:
    """Refuse keys and values that do not fit each other, or what is kept (but for its length)."""
    check_tensors(k=k, v=v)
    for name, x, kept in (("k", k, keys), ("v", v, values)):
        if x.dim() != 4:
            raise ValueError(f"{name} {tuple(x.shape)} must have four axes, (b, h, n, d)")
        if kept is None:
            continue
        if (*x.shape[:-2], *x.shape[-1:]) != (*kept.shape[:-2], *kept.shape[-1:]):
            raise ValueError(
                f"{name} {tuple(x.shape)} must have the shape of what is kept, "
                f"{tuple(kept.shape)}, on all axes but -2"
            )
        if x.dtype != kept.dtype:
            raise TypeError(f"{name} ({x.dtype}) must have the dtype of the cache ({kept.dtype})")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"v {tuple(v.shape)} must have as many sequences, heads and tokens as k "
            f"{tuple(k.shape)}"
        )


def check_length(length: int) -> None:
    """Refuse what is no integer, or is below zero, which would be read from the end."""
    if not isinstance(length, (int, Tensor)):
        raise TypeError(f"length ({length!r}) must be an integer")
    if length < 0:
        raise ValueError(f"length ({length}) must not be negative")


def check_index(index: Tensor) -> None:
    """Refuse what is no row of integers; which sequences it names is not looked at."""
    check_integers(indices=True, index=index)
    if index.dim() != 1:
        raise ValueError(f"index {tuple(index.shape)} must have one axis")


def refuse_graph(cache: Cache, k: Tensor, v: Tensor) -> None:
    """Refuse to write over numbers that a backward pass would need."""
    if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
        raise RuntimeError(
            f"{type(cache).__name__} keeps no graph: use torch.no_grad(), or KVCache"
        )

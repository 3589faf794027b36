"""Caches of keys and values: what a model that writes keeps from one token to the next.

All of them have the same four members, ``append``, ``length``, ``crop`` and ``reorder``. None asks
how many heads there are, whether keys are as wide as values, or what the numbers mean.
"""

import operator
from collections import Counter
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor

from annotated_attention.checks import check_sizes, check_tensors


class Cache(Protocol):
    """What an attention asks of a cache; ``KVCache``, ``StaticCache`` and ``PagedCache`` have it.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import Cache, KVCache
        >>> def continued(cache: Cache, k: torch.Tensor, v: torch.Tensor) -> int:
        ...     return cache.append(k, v)[0].size(-2)
        >>> continued(KVCache(), torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6))
        3
    """

    @property
    def length(self) -> int | Tensor:
        """How many tokens are kept, which is the position of the next one."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of n more tokens.

        Args:
            k: (b, h, n, d), where h counts the heads of the keys.
            v: (b, h, n, d_v).

        Returns:
            All keys so far, (b, h, m, d), and all values, (b, h, m, d_v); key j is at position j.
        """

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``.

        Raises:
            TypeError: ``length`` is not an integer.
            ValueError: ``length`` is negative.
        """

    def reorder(self, index: Tensor) -> None:
        """Let sequence i continue what was kept for sequence ``index[i]``.

        Raises:
            TypeError: ``index`` is not a tensor of integers.
            ValueError: ``index`` is not a row, or names a sequence that is not there.
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
        """How many tokens are kept, which is the position of the next one."""
        return 0 if self.keys is None else self.keys.size(-2)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of n more tokens.

        Args:
            k: (b, h, n, d), where h counts the heads of the keys.
            v: (b, h, n, d_v).

        Returns:
            All keys so far, (b, h, m, d), and all values, (b, h, m, d_v).

        Raises:
            TypeError: one is no tensor.
            ValueError: sizes that do not fit each other, or what is kept.

        Examples:
            >>> import torch
            >>> from annotated_attention.modern import KVCache
            >>> cache = KVCache()
            >>> for n in (2, 3):
            ...     k, v = cache.append(torch.randn(2, 4, n, 6), torch.randn(2, 4, n, 7))
            >>> k.shape, v.shape
            (torch.Size([2, 4, 5, 6]), torch.Size([2, 4, 5, 7]))
        """
        _check(k, v, self.keys, self.values)
        if self.keys is not None and self.values is not None:
            k = torch.cat([self.keys, k], -2)    # (b, h, m, d)
            v = torch.cat([self.values, v], -2)  # (b, h, m, d_v)
        self.keys, self.values = k, v
        return k, v

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``.

        Examples:
            >>> import torch
            >>> from annotated_attention.modern import KVCache
            >>> cache = KVCache()
            >>> k, v = cache.append(torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 7))
            >>> cache.crop(3)
            >>> cache.length, torch.equal(cache.keys, k[:, :, :3])
            (3, True)
        """
        _check_length(length)
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[..., :length, :], self.values[..., :length, :]

    def reorder(self, index: Tensor) -> None:
        """Let sequence i continue what was kept for sequence ``index[i]``.

        Args:
            index: integers, as many as there are to be sequences; one may occur several times.

        Raises:
            TypeError: as ``Cache.reorder``.
            ValueError: as ``Cache.reorder``.

        Examples:
            Sequence 1 goes on in two ways, sequence 0 in one:

            >>> import torch
            >>> from annotated_attention.modern import KVCache
            >>> cache = KVCache()
            >>> k, v = cache.append(torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 7))
            >>> cache.reorder(torch.tensor([1, 1, 0]))
            >>> torch.equal(cache.keys, torch.stack([k[1], k[1], k[0]]))
            True
        """
        _check_index(index, None if self.keys is None else self.keys.size(0))
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[index], self.values[index]

    def numel(self) -> int:
        """Count the numbers that the cache holds.

        Examples:
            >>> import torch
            >>> from annotated_attention.modern import KVCache
            >>> cache = KVCache()
            >>> k, v = cache.append(torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 7))
            >>> cache.numel() == 2 * 4 * 5 * (6 + 7)
            True
        """
        kept = (self.keys, self.values)
        return sum(x.numel() for x in kept if x is not None)


class StaticCache:
    """Keeps keys and values in two tensors of fixed size, so that ``torch.compile`` runs once.

    ``append`` returns the whole tensors. Behind the last token they hold zeros, or what was
    cropped, and **these places must be masked**: see ``block_later``. No graph is kept.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import StaticCache
        >>> cache = StaticCache(batch_size=2, num_heads=4, max_length=9, head_dim=6)
        >>> for n in (3, 1):
        ...     k, v = cache.append(torch.randn(2, 4, n, 6), torch.randn(2, 4, n, 6))
        >>> cache.length, k.shape
        (tensor(4), torch.Size([2, 4, 9, 6]))
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
            dtype: Dtype of both tensors.

        Raises:
            TypeError: a size is not an integer.
            ValueError: a size is below 1.
        """
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {"batch_size": batch_size, "num_heads": num_heads, "max_length": max_length}
        check_sizes(sizes | {"head_dim": head_dim, "value_dim": value_dim})
        places = (batch_size, num_heads, max_length)
        self.keys = torch.zeros(*places, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros(*places, value_dim, device=device, dtype=dtype)
        self.length = torch.tensor(0, device=device)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values of n more tokens behind the others.

        Args:
            k: (b, h, n, d), where h counts the heads of the keys.
            v: (b, h, n, d_v).

        Returns:
            The whole tensors, (b, h, m, d) and (b, h, m, d_v), where m is ``max_length``. The
            next call writes into them.

        Raises:
            TypeError: one is no tensor.
            ValueError: sizes that do not fit each other, or those of the cache.
            RuntimeError: gradients are wanted.
            IndexError: there is no room left.

        Examples:
            >>> import torch
            >>> from annotated_attention.modern import StaticCache
            >>> cache = StaticCache(batch_size=2, num_heads=4, max_length=9, head_dim=6)
            >>> k, v = cache.append(torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6))
            >>> k.shape, k[:, :, 3:].any()
            (torch.Size([2, 4, 9, 6]), tensor(False))
        """
        _check(k, v, self.keys, self.values)
        _refuse_graph(self, k, v)
        n = k.size(-2)
        # The length is a tensor: a Python number would be a part of the compiled program.
        places = self.length + torch.arange(n, device=k.device)  # (n,)
        self.keys.index_copy_(-2, places, k.to(self.keys.dtype))
        self.values.index_copy_(-2, places, v.to(self.values.dtype))
        self.length = self.length + n
        return self.keys, self.values

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``; their numbers are overwritten later.

        Examples:
            >>> import torch
            >>> from annotated_attention.modern import StaticCache
            >>> cache = StaticCache(batch_size=2, num_heads=4, max_length=9, head_dim=6)
            >>> k, v = cache.append(torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6))
            >>> cache.crop(1)
            >>> cache.length, cache.keys[:, :, 1:3].any()  # still there: mask them
            (tensor(1), tensor(True))
        """
        _check_length(length)
        self.length = self.length.clamp(max=length)

    def reorder(self, index: Tensor) -> None:
        """Let sequence i continue what was kept for sequence ``index[i]``.

        Args:
            index: (b,), integers; one may occur several times.

        Raises:
            TypeError: as ``Cache.reorder``.
            ValueError: as ``Cache.reorder``; also more or fewer sequences than there is room for.

        Examples:
            Sequence 1 goes on in two ways, sequence 0 ends:

            >>> import torch
            >>> from annotated_attention.modern import StaticCache
            >>> cache, k = StaticCache(2, 4, max_length=9, head_dim=6), torch.randn(2, 4, 3, 6)
            >>> keys, values = cache.append(k, torch.randn(2, 4, 3, 6))
            >>> cache.reorder(torch.tensor([1, 1]))
            >>> torch.equal(cache.keys[:, :, :3], torch.stack([k[1], k[1]]))
            True
        """
        _check_index(index, len(self.keys))
        if len(index) != len(self.keys):
            raise ValueError(f"index ({len(index)}) must name {len(self.keys)} sequences")
        self.keys.copy_(self.keys[index])
        self.values.copy_(self.values[index])

    def numel(self) -> int:
        """Count the numbers that the cache holds, written or not.

        Examples:
            >>> from annotated_attention.modern import StaticCache
            >>> cache = StaticCache(2, 4, max_length=9, head_dim=6, value_dim=7)
            >>> cache.numel() == 2 * 4 * 9 * (6 + 7)
            True
        """
        return self.keys.numel() + self.values.numel()


class PagedCache:
    """Keeps keys and values in pages of a pool; a table says which pages belong to a sequence.

    A sequence takes a page when it needs one. Sequences that begin alike share pages, until one of
    them writes into a page: it then gets a copy of its own. This is a teaching version: it collects
    the pages into tensors, where an inference engine has a kernel that reads them where they are.
    No graph is kept, and it need not compile.

    Examples:
        One sequence becomes three, which share what it has kept:

        >>> import torch
        >>> from annotated_attention.modern import PagedCache
        >>> cache = PagedCache(num_pages=7, page_size=2, num_heads=4, head_dim=6)
        >>> k, v = cache.append(torch.randn(1, 4, 3, 6), torch.randn(1, 4, 3, 6))
        >>> cache.reorder(torch.tensor([0, 0, 0]))
        >>> cache.tables
        [[0, 1], [0, 1], [0, 1]]
        >>> k, v = cache.append(torch.randn(3, 4, 1, 6), torch.randn(3, 4, 1, 6))
        >>> cache.tables
        [[0, 2], [0, 3], [0, 1]]

    Source: Kwon et al. (2023), section 4.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        num_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the pool.

        Args:
            num_pages: how many pages there are, for all sequences together.
            page_size: how many tokens fit on a page.
            num_heads: h, the heads of the keys, where several queries may share one.
            head_dim: d, the width of a key.
            value_dim: the width of a value; None means d.
            device: Device of the pool.
            dtype: Dtype of the pool.

        Raises:
            TypeError: a size is not an integer.
            ValueError: a size is below 1.
        """
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {"num_pages": num_pages, "page_size": page_size, "num_heads": num_heads}
        check_sizes(sizes | {"head_dim": head_dim, "value_dim": value_dim})
        places, self.page_size = (num_pages, page_size, num_heads), page_size
        self.keys = torch.zeros(*places, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros(*places, value_dim, device=device, dtype=dtype)
        self.tables: list[list[int]] = []  # for each sequence its pages, in order
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values of n more tokens onto the pages of their sequences.

        Args:
            k: (b, h, n, d), where h counts the heads of the keys.
            v: (b, h, n, d_v).

        Returns:
            All keys so far, (b, h, m, d), and all values, (b, h, m, d_v).

        Raises:
            TypeError: one is no tensor.
            ValueError: sizes that do not fit each other, or those of the cache.
            RuntimeError: gradients are wanted, or no page is free.

        Examples:
            Three tokens need two pages of two; two more tokens need a third page:

            >>> import torch
            >>> from annotated_attention.modern import PagedCache
            >>> cache = PagedCache(num_pages=7, page_size=2, num_heads=4, head_dim=6)
            >>> for n in (3, 2):
            ...     k, v = cache.append(torch.randn(1, 4, n, 6), torch.randn(1, 4, n, 6))
            ...     print(cache.tables, k.shape)
            [[0, 1]] torch.Size([1, 4, 3, 6])
            [[0, 1, 2]] torch.Size([1, 4, 5, 6])
        """
        _check_axes(k, v)
        b = len(self.tables) or len(k)
        pool = (x[:1].transpose(1, 2).expand(b, -1, -1, -1) for x in (self.keys, self.values))
        _check(k, v, *pool)
        _refuse_graph(self, k, v)
        self.tables = self.tables or [[] for _ in range(b)]
        start, end = self.length, self.length + k.size(-2)
        # Every page that is to be written must belong to its sequence alone.
        for table in self.tables:
            for number in range(start // self.page_size, _pages(end, self.page_size)):
                self._own(table, number)
        new, every = self._places(start, end), self._places(0, end)
        self.keys[new] = k.transpose(1, 2).to(self.keys.dtype)      # (b, n, h, d)
        self.values[new] = v.transpose(1, 2).to(self.values.dtype)  # (b, n, h, d_v)
        self.length = end
        return self.keys[every].transpose(1, 2), self.values[every].transpose(1, 2)

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``; pages that nobody needs are free again.

        Examples:
            Three tokens need two of the three pages that five tokens needed:

            >>> import torch
            >>> from annotated_attention.modern import PagedCache
            >>> cache = PagedCache(num_pages=7, page_size=2, num_heads=4, head_dim=6)
            >>> k, v = cache.append(torch.randn(1, 4, 5, 6), torch.randn(1, 4, 5, 6))
            >>> cache.crop(3)
            >>> cache.tables
            [[0, 1]]
        """
        _check_length(length)
        self.length = min(self.length, length)
        pages = _pages(self.length, self.page_size)
        self.tables = [table[:pages] for table in self.tables]

    def reorder(self, index: Tensor) -> None:
        """Let sequence i continue what was kept for sequence ``index[i]``; nothing is copied.

        Args:
            index: integers, as many as there are to be sequences; one may occur several times.

        Raises:
            TypeError: as ``Cache.reorder``.
            ValueError: as ``Cache.reorder``.

        Examples:
            Sequence 1, on pages 2 and 3, goes on in two ways, sequence 0 in one:

            >>> import torch
            >>> from annotated_attention.modern import PagedCache
            >>> cache = PagedCache(num_pages=7, page_size=2, num_heads=4, head_dim=6)
            >>> k, v = cache.append(torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6))
            >>> cache.reorder(torch.tensor([1, 1, 0]))
            >>> cache.tables
            [[2, 3], [2, 3], [0, 1]]
        """
        _check_index(index, len(self.tables) or None)
        if self.tables:
            self.tables = [list(self.tables[i]) for i in index.tolist()]

    def numel(self) -> int:
        """Count the numbers on the pages that are in use.

        Examples:
            Three tokens are on two pages, with room for two tokens each:

            >>> import torch
            >>> from annotated_attention.modern import PagedCache
            >>> cache = PagedCache(num_pages=7, page_size=2, num_heads=4, head_dim=6)
            >>> k, v = cache.append(torch.randn(1, 4, 3, 6), torch.randn(1, 4, 3, 6))
            >>> cache.numel() == 2 * 2 * 4 * (6 + 6)
            True
        """
        used = len(self._users())
        return used * (self.keys[0].numel() + self.values[0].numel())

    def _users(self) -> Counter[int]:
        """Count the sequences that each page in use belongs to."""
        return Counter(chain.from_iterable(self.tables))

    def _own(self, table: list[int], number: int) -> None:
        """Let a sequence have its page ``number`` for itself: a new one, or a copy."""
        users = self._users()
        if number < len(table) and users[table[number]] == 1:
            return
        free = next((page for page in range(len(self.keys)) if page not in users), None)
        if free is None:
            raise RuntimeError(f"all {len(self.keys)} pages are in use")
        if number < len(table):
            for pool in (self.keys, self.values):
                pool[free] = pool[table[number]]
        table[number : number + 1] = [free]

    def _places(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Give the page, (b, m), and the place on it, (m,), of the tokens from start to end."""
        tokens = torch.arange(start, end, device=self.keys.device)          # (m,)
        pages = torch.tensor(self.tables, device=self.keys.device)          # (b, p)
        return pages[:, tokens // self.page_size], tokens % self.page_size  # (b, m), (m,)


def block_later(positions: Tensor, m: int) -> Tensor:
    """Block key j for a query at position p when j > p: neither the future nor what is not written.

    Args:
        positions: (n,), integers, the positions of the queries.
        m: how many keys there are; key j is at position j.

    Returns:
        blocked, (n, m). If the queries are the last n of m tokens, the diagonal ends in the
        **lower right** corner; ``block_future`` begins it in the upper left one.

    Examples:
        Three tokens are kept, and two more come:

        >>> import torch
        >>> from annotated_attention.modern import block_later
        >>> block_later(3 + torch.arange(2), m=5)
        tensor([[False, False, False, False,  True],
                [False, False, False, False, False]])
    """
    return torch.arange(m, device=positions.device) > positions[:, None]  # (n, m)


def _check_axes(k: Tensor, v: Tensor) -> None:
    """Refuse what is no tensor of four axes."""
    check_tensors(k=k, v=v)
    for name, x in (("k", k), ("v", v)):
        if x.dim() != 4:
            raise ValueError(f"{name} {tuple(x.shape)} must have four axes, (b, h, n, d)")


def _check(k: Tensor, v: Tensor, keys: Tensor | None, values: Tensor | None) -> None:
    """Refuse what does not fit what is kept: all axes but that of the tokens, -2, must be equal."""
    _check_axes(k, v)
    for name, x, kept in (("k", k, keys), ("v", v, values)):
        if kept is None:
            continue
        if (*x.shape[:-2], *x.shape[-1:]) != (*kept.shape[:-2], *kept.shape[-1:]):
            raise ValueError(
                f"{name} {tuple(x.shape)} must have the shape of what is kept, "
                f"{tuple(kept.shape)}, on all axes but -2"
            )
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"v {tuple(v.shape)} must have as many samples, heads and tokens as k {tuple(k.shape)}"
        )


def _pages(length: int, page_size: int) -> int:
    """Count the pages that so many tokens need; the last may be full in part."""
    return -(-length // page_size)


def _check_length(length: int) -> None:
    """Refuse what is no integer, or is below zero, which would be read from the end."""
    try:
        operator.index(length)
    except TypeError:
        raise TypeError(f"length ({length!r}) must be an integer") from None
    if length < 0:
        raise ValueError(f"length ({length}) must not be negative")


def _check_index(index: Tensor, b: int | None) -> None:
    """Refuse what does not name some of b sequences; None means that nothing is kept yet."""
    check_tensors(index=index)
    if index.dtype not in (torch.int64, torch.int32):  # PyTorch takes no others for an index
        raise TypeError(f"index must be int64 or int32, got {index.dtype}")
    if index.dim() != 1:
        raise ValueError(f"index {tuple(index.shape)} must have one axis")
    # Its values are looked at, too: a negative one would count from the end in silence.
    if b is not None and (wrong := [i for i in index.tolist() if not 0 <= i < b]):
        raise ValueError(f"index names sequence {wrong[0]}; the sequences kept are 0 to {b - 1}")


def _refuse_graph(cache: Cache, k: Tensor, v: Tensor) -> None:
    """Refuse to write over numbers that a backward pass would need."""
    if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
        raise RuntimeError(
            f"{type(cache).__name__} keeps no graph: use torch.no_grad(), or KVCache"
        )

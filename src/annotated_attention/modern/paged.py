"""A cache in pages, for sequences of different lengths and for sequences that begin alike."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from annotated_attention.checks import check_sizes
from annotated_attention.modern.cache import check_appended, check_index, check_length, refuse_graph


class PagedCache:
    """Keeps keys and values in pages of a pool; a table says which pages belong to a sequence.

    A sequence takes a page when it needs one, so a short one beside a long one takes little room.
    Append prompts of different lengths padded on the **right**, then ``crop`` each to its own
    length: from there each goes on at its own position, and needs no padding mask. The tensors that
    ``append`` returns are as long as the longest sequence; behind the end of a shorter one they
    hold other numbers, which ``block_by_position`` hides.

    Sequences that begin alike share pages, until one of them writes into a page: it then gets a
    copy of its own. This is a teaching version: it collects the pages into tensors, where an
    inference engine has a kernel that reads them where they are. No graph is kept, and it need not
    compile.

    Examples:
        Two prompts, of five tokens and of three, and one more token for each:

        >>> import torch
        >>> from annotated_attention.modern import PagedCache
        >>> cache = PagedCache(num_pages=9, page_size=2, num_heads=4, head_dim=6)
        >>> k, v = cache.append(torch.randn(2, 4, 5, 6), torch.randn(2, 4, 5, 6))
        >>> cache.crop([5, 3])
        >>> cache.tables
        [[0, 1, 2], [3, 4]]
        >>> k, v = cache.append(torch.randn(2, 4, 1, 6), torch.randn(2, 4, 1, 6))
        >>> cache.length, k.shape
        (tensor([6, 4]), torch.Size([2, 4, 6, 6]))

        The second one, on pages 3 and 4, goes on in two ways, and shares them until it is written:

        >>> cache.crop([6, 3])
        >>> cache.reorder(torch.tensor([1, 1]))
        >>> k, v = cache.append(torch.randn(2, 4, 1, 6), torch.randn(2, 4, 1, 6))
        >>> cache.tables
        [[3, 0], [3, 4]]

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
            num_heads: h, as in ``StaticCache``; so are the others.
        """
        value_dim = head_dim if value_dim is None else value_dim
        sizes = {"num_pages": num_pages, "page_size": page_size, "num_heads": num_heads}
        check_sizes(sizes | {"head_dim": head_dim, "value_dim": value_dim})
        slots, self.page_size = (num_pages, page_size, num_heads), page_size
        self.keys = torch.zeros(*slots, head_dim, device=device, dtype=dtype)
        self.values = torch.zeros(*slots, value_dim, device=device, dtype=dtype)
        self.tables: list[list[int]] = []  # for each sequence its pages, in order
        self.lengths: list[int] = []  # and how many tokens are on them

    @property
    def length(self) -> int | Tensor:
        """How many tokens are kept: one number, or (b,), where the sequences differ."""
        if len(set(self.lengths)) > 1:
            return torch.tensor(self.lengths, device=self.keys.device)  # (b,)
        return self.lengths[0] if self.lengths else 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write (b, h, n, d) and (b, h, n, d_v) onto the pages of their sequences, and give all."""
        check_appended(k, v)
        b, n = len(self.tables) or k.size(0), k.size(-2)
        pool = (x[:1].transpose(1, 2).expand(b, -1, -1, -1) for x in (self.keys, self.values))
        check_appended(k, v, *pool)
        refuse_graph(self, k, v)
        # Every page that is to be written must belong to its sequence alone.
        starts = self.lengths or [0] * b
        tables = [[*table] for table in self.tables] or [[] for _ in range(b)]
        for table, start in zip(tables, starts, strict=True):
            for number in range(start // self.page_size, self._pages(start + n)):
                self._own(tables, table, number)
        self.tables, self.lengths = tables, [start + n for start in starts]
        tokens = torch.arange(max(self.lengths), device=k.device).expand(b, -1)  # (b, m)
        first = torch.tensor(starts, device=k.device)[:, None]                   # (b, 1)
        new = self._slots(first + tokens[:, :n])
        self.keys[new] = k.transpose(1, 2)    # (b, n, h, d)
        self.values[new] = v.transpose(1, 2)  # (b, n, h, d_v)
        every = self._slots(tokens)
        return self.keys[every].transpose(1, 2), self.values[every].transpose(1, 2)

    def crop(self, length: int | Sequence[int] | Tensor) -> None:
        """Forget all tokens but the first ones; pages that nobody needs are free again.

        Args:
            length: how many to keep: one number, or one for each sequence.
        """
        given = length.tolist() if isinstance(length, Tensor) else length
        each = given if isinstance(given, Sequence) else [given] * max(1, len(self.tables))
        for one in each:
            check_length(one)
        if isinstance(given, Sequence) and len(given) != len(self.tables):
            raise ValueError(f"length {given} must be one number, or {len(self.tables)}")
        self.lengths = [min(pair) for pair in zip(self.lengths, each, strict=False)]
        pages = map(self._pages, self.lengths)
        self.tables = [table[:count] for table, count in zip(self.tables, pages, strict=True)]

    def reorder(self, index: Tensor) -> None:
        """Copy the tables of the sequences that ``index`` names; no page is copied."""
        check_index(index)
        if not self.tables:
            return
        named, b = index.tolist(), len(self.tables)
        if wrong := [i for i in named if not 0 <= i < b]:  # -1 would be the last one, in silence
            raise IndexError(f"index names sequence {wrong[0]}; there are 0 to {b - 1}")
        self.tables = [self.tables[i] for i in named]
        self.lengths = [self.lengths[i] for i in named]

    def numel(self) -> int:
        """Count the numbers on the pages that are in use."""
        used = len({*chain.from_iterable(self.tables)})
        return used * (self.keys[0].numel() + self.values[0].numel())

    def _pages(self, length: int) -> int:
        """Count the pages that so many tokens need; the last may be full in part."""
        return -(-length // self.page_size)

    def _own(self, tables: list[list[int]], table: list[int], number: int) -> None:
        """Let one of the sequences have its page ``number`` for itself: a new one, or a copy."""
        users = Counter(chain.from_iterable(tables))
        if number < len(table) and users[table[number]] == 1:
            return
        free = next((page for page in range(len(self.keys)) if page not in users), None)
        if free is None:
            raise RuntimeError(f"all {len(self.keys)} pages are in use")
        if number < len(table):
            for pool in (self.keys, self.values):
                pool[free] = pool[table[number]]
        table[number : number + 1] = [free]

    def _slots(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Give the slot of each token: its page and the place on it, (b, n) both."""
        longest = max(map(len, self.tables))
        padded = [table + [0] * (longest - len(table)) for table in self.tables]
        pages = torch.tensor(padded, device=tokens.device)  # (b, ...)
        return pages.gather(1, tokens // self.page_size), tokens % self.page_size

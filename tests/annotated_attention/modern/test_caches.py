"""Every cache keeps what plain concatenation keeps, whatever happens to its texts."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from annotated_attention.modern import KVCache, PagedCache, StaticCache
from annotated_attention.modern.cached_attention import next_positions
from tests.settings import REPRODUCIBLE, B, D, H

ROOM, PAGE = 11, 3  # tokens of a text, and of a page
COUNTS, TOKENS = st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3, 4, 5])
SHARES = st.sampled_from([0, 0.3, 0.5, 0.7, 0.9, 1, 2])  # of what is kept


def made(b=B, h=H, d=D, d_v=D, **options):
    return {
        "grows": KVCache(),
        "fixed size": StaticCache(b, h, ROOM, d, d_v, **options),
        "pages": PagedCache(40, PAGE, h, d, d_v, **options),
    }


class Caches(RuleBasedStateMachine):
    """Appends, crops and reorders; a text is a tensor of keys, (h, n, d), and one of values."""

    @initialize(b=COUNTS, n=TOKENS, sizes=st.sampled_from([(4, 6, 6), (2, 6, 5), (1, 8, 2)]))
    def start(self, b, n, sizes):
        self.sizes, self.random = sizes, torch.Generator().manual_seed(sum(sizes))
        self.begin(b, n)

    @rule(b=COUNTS, n=TOKENS)
    @precondition(lambda self: len(self.caches) < 3)
    def begin(self, b, n):
        self.caches = made(b, *self.sizes)
        self.texts = [[x[0] for x in self.draw(1, 0)] for _ in range(b)]
        self.append(n)

    def draw(self, b, n):
        h, *widths = self.sizes
        return [torch.randn(b, h, n, width, generator=self.random) for width in widths]

    @property
    def lengths(self):
        return [k.size(1) for k, _ in self.texts]

    @rule(n=TOKENS)
    def append(self, n):
        n = min(n, ROOM - max(self.lengths))
        if not n:
            return
        k, v = self.draw(len(self.texts), n)
        news = zip(self.texts, k, v, strict=True)
        self.texts = [[torch.cat([a, x], 1), torch.cat([c, y], 1)] for (a, c), x, y in news]
        for name, cache in self.caches.items():
            keys, values = cache.append(k, v)
            longest = ROOM if name == "fixed size" else max(self.lengths)
            assert keys.size(2) == values.size(2) == longest
            for i, (text_k, text_v) in enumerate(self.texts):
                assert keys[i, :, : text_k.size(1)].equal(text_k), name
                assert values[i, :, : text_v.size(1)].equal(text_v), name

    @rule(share=SHARES)
    def crop(self, share):
        length = int(share * max(self.lengths))
        for name, cache in self.caches.items():
            # A static cache says its length as a tensor, so any takes one.
            cache.crop(torch.tensor(length) if name == "fixed size" else length)
        self.cut([length] * len(self.texts))

    @rule(shares=st.lists(SHARES, min_size=4, max_size=4), as_tensor=st.booleans())
    def crop_each(self, shares, as_tensor):
        """From here on the texts differ in length, which only pages can hold."""
        lengths = [int(x * n) for x, n in zip(shares, self.lengths, strict=False)]
        self.caches = {"pages": self.caches["pages"]}
        self.caches["pages"].crop(torch.tensor(lengths) if as_tensor else lengths)
        self.cut(lengths)

    def cut(self, lengths):
        pairs = zip(self.texts, lengths, strict=True)
        self.texts = [[k[:, :length], v[:, :length]] for (k, v), length in pairs]

    @rule(
        index=st.lists(st.sampled_from(range(4)), min_size=1, max_size=4),
        dtype=st.sampled_from([torch.int64, torch.int32]),
        same=st.booleans(),
    )
    def reorder(self, index, dtype, same):
        b = len(self.texts)
        index = [i % b for i in ((index * 4)[:b] if same else index)]
        if len(index) != b:  # the places of a cache of fixed size are counted once
            self.caches.pop("fixed size", None)
        for cache in self.caches.values():
            cache.reorder(torch.tensor(index, dtype=dtype))
        self.texts = [self.texts[i] for i in index]

    @invariant()
    def lengths_are_counted(self):
        for cache in self.caches.values():
            positions = next_positions(cache, 2, torch.device("cpu"))
            expected = torch.tensor(self.lengths)[:, None] + torch.arange(2)
            assert positions.expand_as(expected).equal(expected)

    @invariant()
    def nothing_is_held_that_is_not_kept(self):
        h, *widths = self.sizes
        token = h * sum(widths)
        if "grows" in self.caches:
            cache = self.caches["grows"]
            kept = [x for x in (cache.keys, cache.values) if x is not None]
            assert cache.numel() == token * sum(self.lengths)
            assert sum(x.untyped_storage().nbytes() for x in kept) == 4 * cache.numel()
        if "fixed size" in self.caches:
            assert self.caches["fixed size"].numel() == token * ROOM * len(self.texts)
        cache = self.caches["pages"]
        assert [len(x) for x in cache.tables] == [-(-n // PAGE) for n in self.lengths]
        assert cache.numel() == token * PAGE * len({page for x in cache.tables for page in x})


TestCaches = Caches.TestCase
TestCaches.settings = settings(
    REPRODUCIBLE, max_examples=100, stateful_step_count=12, report_multiple_bugs=False
)


@torch.no_grad()
def test_a_pool_that_is_full_says_so_and_loses_nothing():
    cache, k = PagedCache(3, 4, H, D), torch.randn(B, H, 4, D)
    cache.append(k, k)
    with pytest.raises(RuntimeError, match="all 3 pages are in use"):
        cache.append(k, k)
    assert (cache.length, cache.tables) == (4, [[0], [1]])
    cache.reorder(torch.tensor([1]))
    assert cache.append(k[:1], k[:1])[0].equal(torch.cat([k[1:], k[:1]], 2))


def test_no_cache_of_tensors_reads_the_numbers_of_an_index():
    """On a GPU, reading one means waiting for all that was asked of it before."""
    k = torch.empty(B, H, 4, D, device="meta")  # which has none
    for name, cache in made(device="meta").items():
        if name != "pages":
            cache.append(k, k)
            cache.reorder(torch.empty(B, dtype=torch.int64, device="meta"))

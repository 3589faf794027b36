"""The measured cases: those of the chapter “Speed”, and those of the final class's goals."""

import platform
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product

from book.measure import contenders as made
from book.measure.caching import more_tokens
from book.measure.fewer_keys import fewer_keys, kept_in_fewer_keys
from book.measure.timing import MODES, Case, Size

SIZES: tuple[Size, ...] = ((8, 128, 256, 8), (4, 512, 512, 8), (1, 2048, 512, 8))
MASKS = ("none", "causal", "padding", "floats", "boolean")  # the last two by query and key
EVERY_HEAD = "boolean, every head"  # a section of its own, outside the goal
KEPT = ((1, 255), (1, 1023), (1, 4095), (64, 960))  # how many tokens follow how many
# What glibc does with freed memory: keep all of it, or give it back to the system at once, each
# block of 128 KiB and more and what lies free at the end of its heap. By default that depends on
# what the process has done before. Source: mallopt(3).
ALLOCATOR = {
    "kept": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)},
    "returned": {"MALLOC_MMAP_THRESHOLD_": str(2**17), "MALLOC_TRIM_THRESHOLD_": "0"},
}


def plan() -> Iterator[Case]:
    """List the cases."""
    yield from _with_each_allocator()
    for size in SIZES:
        for mode in MODES[:2]:
            build = partial(made.versions, size, mode)
            yield Case("versions", size, mode, build, ("bare minimum",))
        build = partial(made.fast_path, size)
        yield Case("fast path", size, "inference", build, ("fast path off",))
    middle = SIZES[1]
    for mode in MODES[:2]:
        yield Case("fewer keys", middle, mode, partial(fewer_keys, middle), ("every head",))
    for weights, mode in product((False, True), MODES[:2]):
        build = partial(made.mask_kinds, middle, mode, weights)
        yield Case("masks", middle, mode, build, ("no mask",), options={"weights": weights})


def _with_each_allocator() -> Iterator[Case]:
    """List the cases with memory kept and returned: the final class, a list of heads, a cache."""
    for memory, environment in _allocators():
        masks = (*MASKS, EVERY_HEAD)
        for size, weights, mask, mode in product(SIZES, (False, True), masks, MODES):
            yield Case(
                mask if mask == EVERY_HEAD else "final class", size, mode,
                partial(made.final_class, size, mode, mask, weights),
                ("PyTorch",) + ("bare minimum",) * (not weights),
                options={"mask": mask, "weights": weights, "memory": memory},
                environment=environment, profiled=False,
            )  # fmt: skip
        for size, mode in product(SIZES[1:], MODES[:2]):
            yield Case(
                "one by one", size, mode, partial(made.one_by_one, size, mode),
                ("all heads at once",), options={"memory": memory}, environment=environment,
            )  # fmt: skip
        for n, kept in KEPT:
            size = (1, n, *SIZES[2][2:])
            yield Case(
                "cache", size, "inference", partial(more_tokens, size, kept),
                ("bare minimum", "without"), options={"kept": kept, "memory": memory},
                environment=environment,
            )  # fmt: skip
            yield Case(
                "cache of fewer keys", size, "inference",
                partial(kept_in_fewer_keys, size, kept), ("every head",),
                options={"kept": kept, "memory": memory}, environment=environment,
            )  # fmt: skip


def _allocators() -> Iterable[tuple[str, dict[str, str]]]:
    """List the ways in which freed memory can be dealt with, where that can be chosen."""
    glibc = platform.libc_ver()[0] == "glibc"
    return (ALLOCATOR if glibc else {"as it comes": dict[str, str]()}).items()

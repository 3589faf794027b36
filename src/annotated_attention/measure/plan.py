"""The measured cases: those of the chapter “Speed”, and those of the final class's goals."""

import platform
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch

from annotated_attention.measure import contenders as made
from annotated_attention.measure.caching import more_tokens
from annotated_attention.measure.fewer_keys import fewer_keys, kept_in_fewer_keys
from annotated_attention.measure.timing import MODES, Case, Size

SIZES: tuple[Size, ...] = ((8, 128, 256, 8), (4, 512, 512, 8), (1, 2048, 512, 8))
ON_A_GPU: tuple[Size, ...] = ((32, 512, 1024, 16), (8, 2048, 1024, 16), (1, 8192, 1024, 16))
MASKS = ("none", "causal", "padding", "floats", "boolean")  # the last two by query and key
EVERY_HEAD = "boolean, every head"  # a section of its own, outside the goal
LENGTHS = (256, 512, 1024, 2048, 4096)
HEADS = (1, 2, 4, 8, 16, 32, 64)
KEPT = ((1, 255), (1, 1023), (1, 4095), (64, 960))  # how many tokens follow how many
# What glibc does with freed memory: keep all of it, or give it back to the system at once, each
# block of 128 KiB and more and what lies free at the end of its heap. By default that depends on
# what the process has done before. Source: mallopt(3).
ALLOCATOR = {
    "kept": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)},
    "returned": {"MALLOC_MMAP_THRESHOLD_": str(2**17), "MALLOC_TRIM_THRESHOLD_": "0"},
}


def plan(device: str, dtype: torch.dtype) -> Iterator[Case]:
    """List the cases for a machine.

    Args:
        device: ``"cpu"`` or ``"cuda"``.
        dtype: dtype of the computation.
    """
    factory: dict[str, Any] = {"device": device, "dtype": dtype}
    case = partial(Case, device=device, dtype=dtype)
    sizes = ON_A_GPU if device == "cuda" else SIZES
    middle = sizes[1]
    _, _, e, h = sizes[2]
    yield from _with_each_allocator(case, sizes, factory)
    for size in sizes:
        for mode in MODES[:2]:
            build = partial(made.versions, size, factory, mode)
            yield case("versions", size, mode, build, ("bare minimum",))
        if device == "cuda":
            for mode in MODES[:2]:
                build = partial(made.kernels, size, factory, mode)
                yield case("kernels", size, mode, build, ("bare minimum",))
        build = partial(made.fast_path, size, factory)
        yield case("fast path", size, "inference", build, ("fast path off",))
    for size, mask, mode in product(sizes[1:], ("none", "padding"), MODES[:2]):
        build = partial(made.for_speed, size, factory, mode, mask)
        baselines = ("as the formula", "contiguous first")
        yield case("for speed", size, mode, build, baselines, options={"mask": mask})
    build = partial(made.division, sizes[2], factory, "forward")
    yield case("division", sizes[2], "forward", build, ("scores divided",))
    for mode in MODES[:2]:
        build = partial(fewer_keys, middle, factory)
        yield case("fewer keys", middle, mode, build, ("every head",))
    for weights in (False, True):
        options = {"weights": weights}
        for mode in MODES[:2]:
            build = partial(made.mask_kinds, middle, factory, mode, weights)
            yield case("masks", middle, mode, build, ("no mask",), options=options)
        counts = [count for count in HEADS if middle[2] % count == 0]
        build = partial(made.head_counts, middle, factory, "forward", weights, counts)
        yield case("heads", middle, "forward", build, ("8",), options=options)
    for n in LENGTHS:
        build = partial(made.lengths, (1, n, e, h), factory, "forward")
        yield case("lengths", (1, n, e, h), "forward", build, ("final class",))


def _with_each_allocator(
    case: Any, sizes: tuple[Size, ...], factory: dict[str, Any]
) -> Iterator[Case]:
    """List the cases with memory kept and returned: the final class, a list of heads, a cache."""
    for memory, environment in _allocators(factory["device"]):
        masks = (*MASKS, EVERY_HEAD)
        for size, weights, mask, mode in product(sizes, (False, True), masks, MODES):
            yield case(
                mask if mask == EVERY_HEAD else "final class", size, mode,
                partial(made.final_class, size, factory, mode, mask, weights),
                ("PyTorch",) + ("bare minimum",) * (not weights),
                options={"mask": mask, "weights": weights, "memory": memory},
                environment=environment, profiled=False,
            )  # fmt: skip
        for size, mode in product(sizes[1:], MODES[:2]):
            yield case(
                "one by one", size, mode, partial(made.one_by_one, size, factory, mode),
                ("all heads at once",), options={"memory": memory}, environment=environment,
            )  # fmt: skip
        for n, kept in KEPT:
            size = (1, n, *sizes[2][2:])
            yield case(
                "cache", size, "inference", partial(more_tokens, size, factory, kept),
                ("bare minimum", "without"), options={"kept": kept, "memory": memory},
                environment=environment,
            )  # fmt: skip
            yield case(
                "cache of fewer keys", size, "inference",
                partial(kept_in_fewer_keys, size, factory, kept), ("every head",),
                options={"kept": kept, "memory": memory}, environment=environment,
            )  # fmt: skip


def _allocators(device: str) -> Iterable[tuple[str, dict[str, str]]]:
    """List the ways in which freed memory can be dealt with, where that can be chosen."""
    glibc = device == "cpu" and platform.libc_ver()[0] == "glibc"
    return (ALLOCATOR if glibc else {"as it comes": dict[str, str]()}).items()

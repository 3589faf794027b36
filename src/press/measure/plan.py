"""The measured cases: those of the chapter “Speed”, and those of the final class's goals."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from press.measure import contenders as made
from press.measure.timing import MODES, Case, Size

SIZES: tuple[Size, ...] = ((8, 128, 256, 8), (4, 512, 512, 8), (1, 2048, 512, 8))
MASKS = ("none", "causal", "padding", "floats", "boolean", "boolean, every head")
TURNS = 17  # rounds at least, of the cases that the chapter “Speed” shows
ALONG = (32, 64, 128, 256, 512, 1024, 2048)  # tokens on the fast path and off it
SERVED: Size = (16, 256, 512, 8)  # a server's batch, padded
NEW = (128, 512, 2048)  # tokens of a prompt
BEHIND = (16, 400, 2000)  # tokens that one more follows
DTYPES = ("float32", "bfloat16")
DECODER = (576, 9)  # e and h of SmolLM2-135M
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
    yield from _speed(SIZES[2])
    middle = SIZES[1]
    build = partial(made.fewer_keys, middle)
    yield Case("fewer keys", middle, MODES[0], build, ("every head",))
    yield from _decoders()


def _speed(longest: Size) -> Iterator[Case]:
    """List what the chapter “Speed” shows, each in one race."""
    turns = partial(Case, mode=MODES[2], rounds=TURNS)
    build = partial(made.one_race, longest, MODES[2])
    bases = ("none: class", "none: function", "causal: class, fast path off")
    yield turns("one race", longest, build=build, baselines=bases, parts=True)
    build = partial(made.served, SERVED)
    yield turns("served", SERVED, build=build, baselines=("class",), parts=True)
    for n in ALONG:
        size = (1, n, *longest[2:])
        build = partial(made.fast_path, size, MODES[2])
        yield turns("fast path", size, build=build, baselines=("off", "off, mask"))
    build = partial(made.kernels, longest)
    yield turns("kernels", longest, build=build, baselines=("(b, h, n, d)",))
    build = partial(made.twice_as_wide, longest)
    yield turns("twice as wide", longest, build=build, baselines=("fused", "step by step"))
    size, kept = (1, 1, *longest[2:]), longest[1] - 1
    build = partial(made.one_query, size, kept)
    yield turns("one query", size, build=build, baselines=("fused",), options={"kept": kept})


def _decoders() -> Iterator[Case]:
    """List the language model beside transformers', and what bounds it: products and bytes read."""
    decoder = partial(Case, mode=MODES[2], baselines=("transformers",), profiled=False)
    yield Case("peak", (1, 1, *DECODER), MODES[2], made.multiplying, (), profiled=False)
    for dtype in DTYPES:
        yield Case(
            "bandwidth",
            (1, 1, *DECODER),
            MODES[2],
            partial(made.reading, dtype),
            (),
            options={"precision": dtype},
            profiled=False,
        )
        for n in NEW:
            size, options = (1, n, *DECODER), {"kept": 0, "precision": dtype}
            yield decoder(
                "prefill", size, build=partial(made.decoders, size, 0, dtype), options=options
            )
        for kept in BEHIND:
            size, options = (1, 1, *DECODER), {"kept": kept, "precision": dtype}
            yield decoder(
                "decoding", size, build=partial(made.decoders, size, kept, dtype), options=options
            )


def _with_each_allocator() -> Iterator[Case]:
    """List the cases with memory kept and returned: the final class, a list of heads, a cache."""
    for memory, environment in ALLOCATOR.items():
        where: dict[str, Any] = {"memory": memory}
        case = partial(Case, environment=environment)
        for size, weights, mask, mode in product(SIZES, (False, True), MASKS, MODES):
            build = partial(made.final_class, size, mode, mask, weights)
            bases = ("PyTorch",) + ("bare minimum",) * (not weights)
            options = {"mask": mask, "weights": weights} | where
            yield case("final class", size, mode, build, bases, options=options, profiled=False)
        for size, mode in product(SIZES[1:], MODES[:2]):
            build = partial(made.one_by_one, size, mode)
            yield case("one by one", size, mode, build, ("all heads at once",), options=where)
        for n, kept in KEPT:
            size, options = (1, n, *SIZES[2][2:]), {"kept": kept, **where}
            build, bases = partial(made.more_tokens, size, kept), ("bare minimum", "without")
            yield case("cache", size, MODES[2], build, bases, options=options)
            build = partial(made.kept_in_fewer_keys, size, kept)
            yield case(
                "cache of fewer keys", size, MODES[2], build, ("every head",), options=options
            )

"""Compare contenders, time them in turns, and report what they spend their time on."""

import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.profiler import profile
from torch.utils.benchmark import Timer

Contender = Callable[[Tensor], Tensor]  # of x, b x n x e, the output in the same shape
Contenders = dict[str, tuple[Contender, Contender]]  # each with another that it must equal
Size = tuple[int, int, int, int]  # of b, n, e and h
Taken = list[tuple[str, list[int], float]]  # operation, shape of its first input, microseconds

MODES = ("forward", "forward + backward", "inference")
ROUNDING = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # as a part of the result
ROUNDS = 7  # at least
BLOCK = 0.01  # seconds that a contender has, at least, when it is its turn
WATCHED = 5  # calls that are profiled, of which the quickest is kept
OPERATIONS = 6  # kept of a profile
PARTS = {  # of a call of attention, by operation
    "projections": ("addmm", "mm", "_transform_bias_rescale_qkv"),
    "products": ("bmm", "baddbmm"),
    "softmax": ("_softmax", "_masked_softmax"),
    "mask": ("masked_fill_", "where"),
    "fused": ("_scaled_dot_product_flash_attention_for_cpu",),
}
LAYS = ("copy_", "fill_")  # a mask, where they write n x m numbers


@dataclass(frozen=True)
class Case:
    """Contenders that are compared with each other.

    ``forward`` and ``forward + backward`` are in training mode, without dropout; ``inference`` is
    in evaluation mode without gradients, where PyTorch's module has a path of its own.
    """

    section: str
    size: Size
    mode: str
    build: Callable[[], Contenders]
    baselines: tuple[str, ...]  # what the others are divided by
    options: dict[str, Any] = field(default_factory=dict)  # what else tells it from other cases
    environment: dict[str, str] = field(default_factory=dict)  # of a process of its own, if any
    profiled: bool = True
    parts: bool = False  # of attention: what share of the time each takes
    rounds: int | None = None  # at least, where it is not ``ROUNDS``

    def __str__(self) -> str:
        """Name the case for the terminal."""
        options = [f"{key} {value}" for key, value in self.options.items()]
        return ", ".join([self.section, str(self.size), self.mode, *options])


def assert_same(name: str, contender: Contender, other: Contender, x: Tensor, mode: str) -> None:
    """Compare a contender with another, as it is timed: outputs, and gradients with a backward.

    Raises:
        AssertionError: they differ by more than rounding; the message names the contender.
    """

    def results(contender: Contender) -> dict[str, Tensor]:
        with torch.set_grad_enabled(mode != "inference"):
            output = contender(x)
        found = {"output": output.detach()}
        if mode == "forward + backward":
            slope = torch.arange(output.numel()).view(output.shape).cos()
            (found["gradient"],) = torch.autograd.grad(output, x, slope)
        return found

    right = results(other)
    for what, found in results(contender).items():
        apart = float((found - right[what]).norm() / right[what].norm())
        if not apart <= ROUNDING[found.dtype]:
            raise AssertionError(f"{name} has another {what} than it should, by {apart:.1e}")


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Time all contenders of a case in turns, for ``seconds`` and at least some rounds."""
    torch.manual_seed(0)
    x = torch.randn(case.size[:3], requires_grad=True)
    threads, made = torch.get_num_threads(), dict[str, Callable[[], None]]()
    for name, (contender, other) in case.build().items():
        assert_same(name, contender, other, x, case.mode)
        made[name] = _as_call(contender, x, case.mode)
    timers = {
        name: Timer("call()", globals={"call": call}, num_threads=threads)
        for name, call in made.items()
    }
    names, rounds, start = list(timers), 0, time.perf_counter()
    times: dict[str, list[float]] = {name: [] for name in names}
    while rounds < (case.rounds or ROUNDS) or time.perf_counter() - start < seconds:
        turn = rounds % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(timers[name].blocked_autorange(min_run_time=BLOCK).median)
        rounds += 1
    row = {
        "section": case.section,
        "size": list(case.size),
        "mode": case.mode,
        **case.options,
        "threads": threads,
        "rounds": rounds,
        "milliseconds": {name: _quartiles([1e3 * t for t in times[name]]) for name in names},
        "ratios": {base: _ratios(times, base) for base in case.baselines},
    }
    if case.profiled:
        seen = {name: quickest(call) for name, call in made.items()}
        row["profile"] = {name: profiled(taken) for name, taken in seen.items()}
        if case.parts:
            scores = case.size[1] ** 2
            row["parts"] = {name: parts(taken, scores) for name, taken in seen.items()}
    if case.environment:
        row["pages"] = {name: faults(call) for name, call in made.items()}
    return row


def _as_call(contender: Contender, x: Tensor, mode: str) -> Callable[[], None]:
    """Make a call without arguments of a contender."""

    def call() -> None:
        with torch.set_grad_enabled(mode != "inference"):
            output = contender(x)
            if mode == "forward + backward":
                output.sum().backward()

    return call


def _ratios(times: dict[str, list[float]], base: str) -> dict[str, list[float]]:
    """Divide within each round, and return the quartiles of the ratios."""
    return {
        name: _quartiles([a / b for a, b in zip(taken, times[base], strict=True)])
        for name, taken in times.items()
        if name != base
    }


def _quartiles(numbers: Sequence[float]) -> list[float]:
    """Return the lower quartile, the median and the upper quartile."""
    return [float(f"{x:.4g}") for x in statistics.quantiles(numbers, n=4, method="inclusive")]


def quickest(call: Callable[[], None]) -> Taken:
    """Say how long each operation of a call took, apart for each shape that it was given.

    Of a few calls it is the quickest: of a single one, a disturbance would look like a part.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it says that it starts and stops
    seen = list[Taken]()
    for _ in range(WATCHED):
        with profile(use_kineto=False, record_shapes=True) as watched:
            call()
        seen.append(
            [
                (x.key.removeprefix("aten::"), (x.input_shapes or [[]])[0], x.self_cpu_time_total)
                for x in watched.key_averages(group_by_input_shape=True)
            ]
        )
    return min(seen, key=lambda taken: sum(time for *_, time in taken))


def profiled(taken: Taken) -> list[list[Any]]:
    """Say which operations took most of a call's time, and their shares of it."""
    spent = dict[str, float]()
    for name, _, time_taken in taken:
        spent[name] = spent.get(name, 0) + time_taken
    first = sorted(spent, key=lambda name: -spent[name])[:OPERATIONS]
    total = sum(spent.values()) or 1
    return [[name, round(spent[name] / total, 3)] for name in first]


def parts(taken: Taken, scores: int) -> dict[str, float]:
    """Say which share of its time a call spends on each part of attention, and on the rest.

    Args:
        taken: as from ``quickest``.
        scores: how many numbers a mask has at least, n x m.
    """
    part_of = {name: part for part, names in PARTS.items() for name in names}
    spent = dict.fromkeys([*PARTS, "rest"], 0.0)
    for name, shape, time_taken in taken:
        # Zeros of four axes, the first two 1, are where the mean of the heads' weights goes.
        lays = name in LAYS and math.prod(shape) >= scores and shape[:2] != [1, 1]
        spent["mask" if lays else part_of.get(name, "rest")] += time_taken
    total = sum(spent.values()) or 1
    return {part: round(time_taken / total, 3) for part, time_taken in spent.items()}


def faults(call: Callable[[], None]) -> int:
    """Count the pages of memory that the system hands out during a call: the median of a few."""
    counts = list[int]()
    for _ in range(WATCHED):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        call()
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return statistics.median_low(counts)

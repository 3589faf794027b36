"""Measure the final class against PyTorch's and against the bare minimum.

    python -m annotated_attention.measure            # prints a table, rewrites data/multihead.json
    python -m annotated_attention.measure --seconds 1 --output x.json    # a quick look

All contenders take turns in one process, and each ratio is taken within a round, so that what
slows the machine slows them all. A number is a median over the rounds, with the quartiles beside
it. ``forward`` and ``forward + backward`` are in training mode without dropout; ``inference`` is in
evaluation mode without gradients, where PyTorch's module has a path of its own.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.masks import block_future, block_padding
from annotated_attention.multihead import MultiheadAttention

DATA = Path(__file__).parent / "data" / "multihead.json"
SIZES = ((8, 128, 256, 8), (4, 512, 512, 8), (1, 2048, 512, 8))  # b, n, e, h
MASKS = ("none", "causal", "padded")
MODES = ("forward", "forward + backward", "inference")
ROUNDS = 7  # at least
LENGTHS = (2048, 4096, 8192)  # of one sequence, for the memory

Contender = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def bare(module: nn.MultiheadAttention, mask: str, padding: Tensor) -> Contender:
    """Make the least that computes the same without weights: two products and the fused kernel."""
    h = module.num_heads

    def attend(x: Tensor) -> tuple[Tensor, None]:
        packed = F.linear(x, module.in_proj_weight, module.in_proj_bias)
        q, k, v = (t.unflatten(-1, (h, -1)).transpose(1, 2) for t in packed.chunk(3, -1))
        allowed = ~padding[:, None, None] if mask == "padded" else None
        heads = F.scaled_dot_product_attention(q, k, v, allowed, is_causal=mask == "causal")
        return module.out_proj(heads.transpose(1, 2).flatten(2)), None

    return attend


def contenders(
    size: Sequence[int], mask: str, need_weights: bool, training: bool
) -> dict[str, Contender]:
    """Make the modules, with the same parameters, and see that they compute the same."""
    b, n, e, h = size
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(e, h, batch_first=True).train(training)
    ours = MultiheadAttention(e, h, batch_first=True).train(training)
    ours.load_state_dict(theirs.state_dict())
    padding = block_padding(torch.arange(b) % 4 * n // 8 + n // 2, n)
    options: dict[str, Any] = {"need_weights": need_weights}
    if mask == "padded":
        options["key_padding_mask"] = padding
    future = block_future(n)
    hint = {"attn_mask": future, "is_causal": True} if mask == "causal" else {}
    made: dict[str, Contender] = {
        "ours": lambda x: ours(x, x, x, is_causal=mask == "causal", **options),
        "torch": lambda x: theirs(x, x, x, **hint, **options),
    }
    if mask == "causal":
        made["torch without the hint"] = lambda x: theirs(x, x, x, attn_mask=future, **options)
    if not need_weights:
        made["bare"] = bare(theirs, mask, padding)
    x = torch.randn(b, n, e)
    for name, attend in made.items():
        torch.testing.assert_close(attend(x)[0], made["ours"](x)[0], msg=name.__add__)
    return made


def run(attend: Contender, x: Tensor, mode: str) -> float:
    """Time one call, in seconds."""
    with torch.set_grad_enabled(mode != "inference"):
        start = time.perf_counter()
        output, _ = attend(x)
        if mode == "forward + backward":
            output.sum().backward()
        return time.perf_counter() - start


def compare(
    size: Sequence[int], mask: str, need_weights: bool, mode: str, seconds: float
) -> dict[str, Any]:
    """Time all contenders in turns, and return what ours takes of the others' time."""
    made = contenders(size, mask, need_weights, training=mode != "inference")
    x = torch.randn(*size[:3], requires_grad=True)
    for attend in made.values():  # warm up
        run(attend, x, mode)
    times: dict[str, list[float]] = {name: [] for name in made}
    rounds, start = 0, time.perf_counter()
    while rounds < ROUNDS or time.perf_counter() - start < seconds:
        names = list(made)[rounds % len(made) :] + list(made)[: rounds % len(made)]
        for name in names:
            times[name].append(run(made[name], x, mode))
        rounds += 1
    row: dict[str, Any] = {
        "size": list(size), "mask": mask, "weights": need_weights, "mode": mode, "rounds": rounds,
        "milliseconds": {name: round(1e3 * statistics.median(t), 3) for name, t in times.items()},
    }  # fmt: skip
    for name in list(made)[1:]:
        ratios = [a / b for a, b in zip(times["ours"], times[name], strict=True)]
        quartiles = statistics.quantiles(ratios, n=4, method="inclusive")
        row[f"ours / {name}"] = [round(ratio, 3) for ratio in quartiles]
    return row


def peak(n: int, mask: str, results: Any) -> None:
    """Put the bytes by which one call, with backward, raises the process's peak into a queue."""
    module = MultiheadAttention(512, 8, batch_first=True)
    x = torch.randn(1, n, 512, requires_grad=True)
    padding = block_padding(torch.tensor([n // 2]), n) if mask == "padded" else None
    module(*[torch.randn(1, 16, 512)] * 3, need_weights=False)[0].sum().backward()
    before = _highest()
    output, _ = module(x, x, x, padding, need_weights=False, is_causal=mask == "causal")
    output.sum().backward()
    results.put(_highest() - before)


def _highest() -> int:
    """Return the most memory that this process has held. (Linux's rusage remembers the parent.)"""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = status.read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("VmHWM"))


def memory(mask: str) -> dict[str, Any]:
    """Measure the peak at each length, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    found = []
    for n in LENGTHS:
        results = spawn.SimpleQueue()
        process = spawn.Process(target=peak, args=(n, mask, results))
        process.start()
        process.join()
        found.append(results.get())
    return {"mask": mask, "lengths": list(LENGTHS), "bytes": found}


def provenance(command: Sequence[str]) -> dict[str, Any]:
    """Say where numbers come from."""
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    cpu = Path("/proc/cpuinfo")
    models = [x for x in cpu.read_text().splitlines() if "model name" in x] if cpu.exists() else []
    return {
        "torch": torch.__version__,
        "cpu": models[0].partition(": ")[2] if models else platform.processor(),
        "threads": torch.get_num_threads(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() + ("+" if changed.stdout.strip() else ""),
        "command": shlex.join(["python", "-m", "annotated_attention.measure", *command]),
    }


def line(row: dict[str, Any]) -> str:
    """Write a row for the terminal."""
    ratios = "   ".join(
        f"{name} {middle:.2f} ({low:.2f} to {high:.2f})"
        for name, (low, middle, high) in ((k, v) for k, v in row.items() if k.startswith("ours /"))
    )
    weights = "weights" if row["weights"] else "fused"
    return f"{row['size']!s:20} {row['mask']:7} {weights:8} {row['mode']:19} {ratios}"


def line_of_memory(row: dict[str, Any]) -> str:
    """Write a row for the terminal."""
    points = zip(row["lengths"], row["bytes"], strict=True)
    return f"memory, {row['mask']}: " + ", ".join(
        f"{x / 2**20:.0f} MiB at n = {n}" for n, x in points
    )


def main(arguments: Sequence[str]) -> None:
    """Measure everything, print it and keep it."""
    parser = argparse.ArgumentParser(prog="python -m annotated_attention.measure")
    parser.add_argument("--seconds", type=float, default=6, help="for each row of the table")
    parser.add_argument("--output", type=Path, default=DATA, help="the file that is rewritten")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"provenance": provenance(arguments), "times": [], "memory": []}
    for size in SIZES:
        for need_weights in (False, True):
            for mask in MASKS:
                for mode in MODES:
                    found["times"].append(compare(size, mask, need_weights, mode, options.seconds))
                    print(line(found["times"][-1]), flush=True)
    for mask in MASKS:
        found["memory"].append(memory(mask))
        print(line_of_memory(found["memory"][-1]), flush=True)
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

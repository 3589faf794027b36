"""Run the benchmark: measure everything, print the results and save them."""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from annotated_attention.measure import DATA
from annotated_attention.measure.machine import peak_flops, provenance
from annotated_attention.measure.memory import memory, ways
from annotated_attention.measure.plan import plan
from annotated_attention.measure.process import new_process
from annotated_attention.measure.timing import Case, measure


def main(arguments: Sequence[str]) -> None:
    """Measure on the CPU and, where there is one, on a GPU; rewrite the results.

    Raises:
        SystemExit: the arguments do not fit, or the machine asked for is not there.
    """
    parser = argparse.ArgumentParser(prog="python -m annotated_attention.measure")
    parser.add_argument("--seconds", type=float, default=2, help="for each case (default 2)")
    parser.add_argument("--only", help="renew one section: versions, masks, ..., memory")
    parser.add_argument("--machine", choices=("cpu", "cuda"), help="measure only there")
    parser.add_argument("--output", type=Path, default=DATA, help="the file that is rewritten")
    options = parser.parse_args(arguments)
    if options.machine == "cuda" and not torch.cuda.is_available():
        parser.error("--machine cuda: torch finds no GPU")
    found = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    command = ["--seconds", f"{options.seconds:g}"]
    command += ["--only", options.only] if options.only else []
    command += ["--machine", options.machine] if options.machine else []
    machines = [("cpu", torch.float32)]
    machines += [("cuda", torch.bfloat16)] if torch.cuda.is_available() else []
    for device, dtype in machines:
        if options.machine not in (None, device):
            continue
        old = found.get(device) if options.only else None
        for new in on(device, dtype, options.seconds, options.only, command):
            found[device] = renewed(old, new, options.only) if old else new
            options.output.parent.mkdir(exist_ok=True)
            options.output.write_text(as_json(found), encoding="utf-8")


def renewed(old: dict[str, Any], new: dict[str, Any], section: str) -> dict[str, Any]:
    """Put one section into older results, and say where it comes from."""
    others = [row for row in old["times"] if row["section"] != section]
    origins = old["provenance"].get("renewed", {}) | {section: new["provenance"]}
    return {
        "provenance": old["provenance"] | {"renewed": origins},
        "times": others + new["times"],
        "memory": new["memory"] or old["memory"],
    }


def on(
    device: str, dtype: torch.dtype, seconds: float, only: str | None, command: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Measure everything on one machine; yield what there is after the times, and at the end."""
    made = provenance(command) | {"peak_flops": peak_flops(device, dtype)}
    found: dict[str, Any] = {"provenance": made, "times": [], "memory": []}
    if device == "cuda":
        made["gpu"] = torch.cuda.get_device_name()
    cases = [x for x in plan(device, dtype) if only in (None, x.section)]
    names = list(ways("meta")) if only in (None, "memory") else []
    with tqdm(total=len(cases) + len(names), desc=device, file=sys.stderr) as bar:
        for case, row in measured(cases, seconds):
            if row is None:
                advance(bar, f"{case}: left out, it takes more memory than there is")
                continue
            found["times"].append(row)
            advance(bar, f"{case}: {line(row)}")
        yield found
        for name in names:
            row = memory(name, device)
            found["memory"].append(row)
            advance(bar, f"memory {name}: {row['bytes']}")
    yield found


def measured(cases: Iterable[Case], seconds: float) -> Iterator[tuple[Case, dict[str, Any] | None]]:
    """Measure cases one by one: those of one environment, if they have one, in one new process."""
    for environment, group in itertools.groupby(cases, lambda case: case.environment):
        with new_process(environment) as elsewhere:
            for case in group:
                try:
                    row = (
                        elsewhere(measure, case, seconds) if environment else measure(case, seconds)
                    )
                except torch.OutOfMemoryError:  # only a GPU's; the others can still be measured
                    row = None
                yield case, row


def advance(bar: Any, text: str) -> None:
    """Show a result above the progress bar, and move the bar."""
    tqdm.write(text, file=sys.stdout)
    bar.update()


def line(row: dict[str, Any]) -> str:
    """Write what a case has shown for the terminal."""
    base = next(iter(row["ratios"]))
    ratios = row["ratios"][base]
    shown = [f"{name} {mid:.2f} ({low:.2f} to {up:.2f})" for name, (low, mid, up) in ratios.items()]
    return f"x {base}: {'; '.join(shown)}"


def as_json(found: dict[str, Any]) -> str:
    """Write a line for each case, so that a change is one in version control, too."""

    def rows(kept: list[Any]) -> str:
        return "[\n" + ",\n".join(json.dumps(row) for row in kept) + "\n]"

    machines = [
        f'"{device}": {{\n"provenance": {json.dumps(kept["provenance"], indent=1)},\n'
        f'"times": {rows(kept["times"])},\n"memory": {rows(kept["memory"])}\n}}'
        for device, kept in found.items()
    ]
    return "{\n" + ",\n".join(machines) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])

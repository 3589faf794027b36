"""Run the benchmark: measure everything, print the results and save them."""

import argparse
import itertools
import json
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from annotated_book.measured import DATA
from press.measure.machine import new_process, provenance
from press.measure.memory import WAYS, memory
from press.measure.plan import plan
from press.measure.timing import Case, measure

SECONDS = 2  # for each case


def main(arguments: Sequence[str]) -> None:
    """Measure all, or renew one section and say where it comes from; print and keep the results.

    Raises:
        SystemExit: the arguments do not fit.
    """
    parser = argparse.ArgumentParser(prog="python -m press.measure")
    parser.add_argument("--only", help="renew one section: one race, cache, ..., memory")
    only = parser.parse_args(arguments).only
    if platform.libc_ver()[0] != "glibc":
        parser.error("the chapters show what glibc does with memory: measure on Linux that has it")
    origin = provenance(shlex.join(["python", "-m", "press.measure", *arguments]))
    found: dict[str, Any] = {"provenance": origin, "times": [], "memory": []}
    if only:
        found = json.loads(DATA.read_text("utf-8"))
        found["provenance"].setdefault("renewed", {})[only] = origin
        found["times"] = [row for row in found["times"] if row["section"] != only]
    cases = [case for case in plan() if only in (None, case.section)]
    for number, (case, row) in enumerate(measured(cases), 1):
        found["times"].append(row)
        print(f"{number}/{len(cases)} {case}: {row['ratios']}", flush=True)
    DATA.write_text(as_json(found), encoding="utf-8")
    if only in (None, "memory"):
        found["memory"] = [memory(name) for name in WAYS]
        for row in found["memory"]:
            print(f"memory {row['name']}: {row['bytes']}")
        DATA.write_text(as_json(found), encoding="utf-8")


def measured(cases: Iterable[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Measure cases one by one: those of one environment, if they have one, in one new process."""
    for environment, group in itertools.groupby(cases, lambda case: case.environment):
        with new_process(environment) as elsewhere:
            for case in group:
                row = elsewhere(measure, case, SECONDS) if environment else measure(case, SECONDS)
                yield case, row


def as_json(found: dict[str, Any]) -> str:
    """Write a line for each case, so that a change is one in version control, too."""

    def rows(kept: list[Any]) -> str:
        return "[\n" + ",\n".join(json.dumps(row) for row in kept) + "\n]"

    provenance = json.dumps(found["provenance"], indent=1)
    times, memory = rows(found["times"]), rows(found["memory"])
    return f'{{\n"provenance": {provenance},\n"times": {times},\n"memory": {memory}\n}}\n'


if __name__ == "__main__":
    main(sys.argv[1:])

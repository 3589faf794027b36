"""Run the benchmark: measure everything, print the results and save them."""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tqdm import tqdm

from annotated_attention.measured import DATA
from book.measure.machine import provenance
from book.measure.memory import memory, ways
from book.measure.plan import plan
from book.measure.process import new_process
from book.measure.timing import Case, measure

SECONDS = 2  # for each case


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and rewrite the results.

    Raises:
        SystemExit: the arguments do not fit.
    """
    parser = argparse.ArgumentParser(prog="python -m book.measure")
    parser.add_argument("--only", help="renew one section: versions, masks, ..., memory")
    only = parser.parse_args(arguments).only
    old = json.loads(DATA.read_text("utf-8")) if only else None
    for new in everything(only, provenance(["--only", only] if only else [])):
        found = renewed(old, new, only) if old else new
        DATA.write_text(as_json(found), encoding="utf-8")


def renewed(old: dict[str, Any], new: dict[str, Any], section: str) -> dict[str, Any]:
    """Put one section into older results, and say where it comes from."""
    others = [row for row in old["times"] if row["section"] != section]
    origins = old["provenance"].get("renewed", {}) | {section: new["provenance"]}
    return {
        "provenance": old["provenance"] | {"renewed": origins},
        "times": others + new["times"],
        "memory": new["memory"] or old["memory"],
    }


def everything(only: str | None, origin: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Measure all or one section; yield what there is after the times, and at the end."""
    found: dict[str, Any] = {"provenance": origin, "times": [], "memory": []}
    cases = [case for case in plan() if only in (None, case.section)]
    names = list(ways()) if only in (None, "memory") else []
    with tqdm(total=len(cases) + len(names), file=sys.stderr) as bar:
        for case, row in measured(cases):
            found["times"].append(row)
            advance(bar, f"{case}: {line(row)}")
        yield found
        for name in names:
            row = memory(name)
            found["memory"].append(row)
            advance(bar, f"memory {name}: {row['bytes']}")
    yield found


def measured(cases: Iterable[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Measure cases one by one: those of one environment, if they have one, in one new process."""
    for environment, group in itertools.groupby(cases, lambda case: case.environment):
        with new_process(environment) as elsewhere:
            for case in group:
                row = elsewhere(measure, case, SECONDS) if environment else measure(case, SECONDS)
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

    provenance = json.dumps(found["provenance"], indent=1)
    times, memory = rows(found["times"]), rows(found["memory"])
    return f'{{\n"provenance": {provenance},\n"times": {times},\n"memory": {memory}\n}}\n'


if __name__ == "__main__":
    main(sys.argv[1:])

"""The page of symptoms: under what people see, its lists of the doctor's codes become tables.

A line of such a list is a link to the section of a chapter, a colon, and the codes that the section
is about. What each code means is the doctor's own.
"""

import re
from collections.abc import Callable, Iterator

from attention_doctor.codes import CODES

CAUSES = re.compile(r"(?:^- \[[^\]]*\]\(\.\./notebooks/[^)]*\): .*\n)+", re.MULTILINE)


def write(markdown: str, complain: Callable[[str], None]) -> str:
    """Write the lists of codes as tables: the likely cause, its code, its chapter."""
    return CAUSES.sub(lambda found: "\n".join(_table(found[0], complain)) + "\n", markdown)


def _table(causes: str, complain: Callable[[str], None]) -> Iterator[str]:
    yield from ("| likely cause | code | chapter |", "|---|---|---|")
    for line in causes.splitlines():
        chapter, _, codes = line.removeprefix("- ").rpartition(": ")
        for code in codes.split():
            if code not in CODES:
                complain(f"{code} is no code of the doctor")
                continue
            cause = f"{CODES[code][0].upper()}{CODES[code][1:]}"
            yield f"| {cause} | `{code}` | {chapter} |"

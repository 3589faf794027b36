"""A grid of verdicts: which test finds which mistake."""

import re
from collections.abc import Mapping, Sequence

from annotated_book.display._html import Output
from annotated_book.display.tables import show

_CELL = re.compile("<td>([^<]+)</td>")  # the corner may be empty


def told_apart(
    verdicts: Mapping[str, Sequence[str]], tests: Sequence[str], *, missed: str, corner: str = ""
) -> Output:
    """Show as a grid what each test says of each mistake: red where it does not see it.

    Args:
        verdicts: under the name of each mistake, what the tests say.
        tests: their names.
        missed: what a test says that does not see a mistake.
        corner: what the names of the mistakes are, over them.

    Examples:
        >>> from annotated_book.display.verdicts import told_apart
        >>> told_apart({"turned": ["missed", "caught"]}, ["sum", "mean"], missed="missed")
                   sum    mean
        turned  missed  caught
    """
    shown = show(verdicts, columns=tests, corner=corner)

    def shade(cell: re.Match[str]) -> str:
        seen = "aa-unnoticed" if cell[1] == missed else "aa-noticed"
        return f'<td><span class="{seen}">{cell[1]}</span></td>'

    return Output(shown.text, _CELL.sub(shade, shown.html))


def caught(passed: Mapping[str, Sequence[bool]], tests: Sequence[str]) -> Output:
    """Show as a grid which test catches which mistake; the first row is without one.

    Args:
        passed: under the name of each way, whether it passes each test.
        tests: their names.

    Examples:
        >>> from annotated_book.display.verdicts import caught
        >>> caught({"right": [True], "turned": [False], "cut": [True]}, ["sum"])
                   sum
        right   passes
        turned  caught
        cut     missed
    """
    right = next(iter(passed))
    verdicts = {
        way: [("passes" if way == right else "missed") if ok else "caught" for ok in row]
        for way, row in passed.items()
    }
    return told_apart(verdicts, tests, missed="missed")

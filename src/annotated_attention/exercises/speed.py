"""Exercises of "Speed": predictions, judged by the committed measurements."""

from collections.abc import Callable
from typing import Any

from annotated_attention import measured
from annotated_attention.exercises._verdict import Refused, check

MIB = 2**20
CLOSE = 0.25  # how far a prediction of memory may be off

Row = dict[str, Any]
Pair = tuple[str, str, Callable[[Row], bool], str]  # left, right, which case, why


def _is(section: str, **wanted: object) -> Callable[[Row], bool]:
    """Choose the longest sequence of a section."""
    return lambda row: row["section"] == section and all(row[k] == v for k, v in wanted.items())


PAIRS: tuple[Pair, ...] = (
    (
        "07 final class", "04 reshape trick", _is("versions", mode="forward"),
        "The one goes through the fused kernel, the other stores all weights.",
    ),
    (
        "scores divided", "queries divided", _is("division"),
        "The one divides h · n² scores by the root of d, the other the queries.",
    ),
    (
        "fast path", "fast path off", _is("fast path"),
        "The fast path computes all weights; without it the call goes through the fused kernel.",
    ),
    (
        "8", "64", _is("heads", mode="forward", weights=True),
        "The products cost the same, but each head has a matrix of weights of its own.",
    ),
)  # fmt: skip


@check("predictions")
def check_predictions(answer: object) -> str:
    """Judge which of two is faster, by the committed measurements, and print the verdict.

    Args:
        answer: for each of the four pairs "left" or "right".
    """
    given = answer if isinstance(answer, list | tuple) else None
    if given is None or len(given) != len(PAIRS):
        raise Refused(f'a list of {len(PAIRS)} is asked for, each "left" or "right".')
    if any(guess is None or guess is ... or guess == "" for guess in given):
        missing = [i for i, guess in enumerate(given, 1) if guess in (None, ..., "")]
        raise Refused(f"not yet, nothing is predicted for {_numbers(missing)}.")
    lines, wrong = [], []
    for i, (guess, (left, right, case, why)) in enumerate(zip(given, PAIRS, strict=True), 1):
        if guess not in ("left", "right"):
            raise Refused(f'prediction {i} is {guess!r}; "left" or "right" is asked for.')
        times = _longest(case)["milliseconds"]
        faster = "left" if times[left][1] < times[right][1] else "right"
        wrong += [i] if guess != faster else []
        measured = f"{times[left][1]:.1f} ms left, {times[right][1]:.1f} ms right"
        lines.append(f"    {i}. {measured}: {faster}. {why}")
    all_of_them = "\n".join(lines)
    if wrong:
        raise Refused(f"not what was measured in {_numbers(wrong)}.\n{all_of_them}")
    return f"as measured.\n{all_of_them}"


def _longest(case: Callable[[Row], bool]) -> Row:
    """Return the chosen case with the longest sequence."""
    found = measured.load()
    return max(filter(case, found["times"]), key=lambda row: row["size"][1])


def _numbers(found: list[int]) -> str:
    """Write "1, 2 and 4"."""
    *first, last = map(str, found)
    return f"{', '.join(first)} and {last}" if first else last


@check("mebibytes")
def check_mebibytes(answer: object) -> str:
    """Judge a prediction of peak memory at n = 8192, and print the verdict.

    Args:
        answer: two numbers, in MiB: without weights, and with weights.
    """
    if not isinstance(answer, list | tuple) or len(answer) != 2:
        raise Refused("two numbers are asked for: without weights, and with weights.")
    if any(x is None or x is ... for x in answer):
        raise Refused("not yet, a number is missing.")
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in answer):
        kinds = " and ".join(type(x).__name__ for x in answer)
        raise Refused(f"two numbers are asked for; these are of type {kinds}.")
    without, weights = (_peaks(name) for name in ("final class", "final class, weights"))
    if _close(answer[0], weights[8192]) and _close(answer[1], without[8192]):
        raise Refused("the two are swapped: without weights comes first.")
    for given, peaks, name in zip(answer, (without, weights), ("without", "with"), strict=True):
        _judge(given, peaks, name)
    return (
        f"close: {without[8192]:,.0f} MiB without weights and {weights[8192]:,.0f} MiB with them "
        "were measured. One grows like n, the other like n²."
    )


def _judge(given: float, peaks: dict[int, float], name: str) -> None:
    """Refuse one prediction, with the reason if it is a known one."""
    right, half = peaks[8192], peaks[4096]
    if _close(given, right):
        return
    other = 4 if name == "without" else 2
    reasons = {
        half: "that is the memory at half the length.",
        other * half: (
            "it does not take four times the memory at twice the length: nothing of size n² is kept"
            if name == "without"
            else "it takes more than twice the memory at twice the length: there are n² weights."
        ),
        right * MIB: "that reads like bytes; mebibytes are asked for, bytes / 2**20.",
        right / 1024: "that reads like gibibytes; mebibytes are asked for.",
    }
    for value, reason in reasons.items():
        if abs(given - value) <= 0.1 * value:
            raise Refused(f"{name} weights {given:,g} is not it: {reason}")
    how = "too little" if given < right else "too much"
    raise Refused(f"{name} weights {given:,g} MiB is {how}. Which power of n does the table show?")


def _close(given: float, right: float) -> bool:
    return abs(given - right) <= CLOSE * right


def _peaks(name: str) -> dict[int, float]:
    """Return the peak memory in MiB, by length."""
    found = measured.load()
    row = next(row for row in found["memory"] if row["name"] == name)
    pairs = zip(row["lengths"], row["bytes"], strict=True)
    return {n: size / MIB for n, size in pairs if size is not None}

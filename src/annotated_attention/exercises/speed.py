"""Exercise of "Speed": a prediction of memory, judged by the committed measurements."""

from torch import Tensor

from annotated_attention import measured
from annotated_attention.exercises._exercise import Either, Exercise
from annotated_attention.exercises._values import furthest, numbers


def _peak(name: str, n: int) -> float:
    """Give the peak memory that was measured at length n, in MiB."""
    found = measured.load()
    assert found is not None
    row = next(row for row in found["memory"] if row["name"] == name)
    size: float = row["bytes"][row["lengths"].index(n)]
    return size / 2**20


_HALF = _peak("final class", 4096), _peak("final class, weights", 4096)
_RIGHT = _peak("final class", 8192), _peak("final class, weights", 8192)


def _wrong(without: float | None = None, weights: float | None = None) -> Either:
    """Give the answers in which one of the two numbers is wrong like this, or both are."""
    ours, theirs = _RIGHT
    both = [] if without is None or weights is None else [(without, weights)]
    first = [] if without is None else [(without, theirs)]
    second = [] if weights is None else [(ours, weights)]
    return Either([*both, *first, *second])


def _too_much(answer: object, found: Tensor, right: Tensor) -> str:
    i = furthest(found, right)
    how = "too little" if found[i] < right[i] else "too much"
    return (
        f"{('without', 'with')[i]} weights {found[i]:,g} MiB is {how}. Which power of n does the "
        "table show?"
    )


check_mebibytes = Exercise(
    name="mebibytes",
    right=_RIGHT,
    praise=f"close: {_RIGHT[0]:,.0f} MiB without weights and {_RIGHT[1]:,.0f} MiB with them were "
    "measured. One grows like n, the other like n².",
    wrong={
        "the two are swapped: without weights comes first.": _RIGHT[::-1],
        "that is the memory at half the length.": _wrong(*_HALF),
        "without weights it does not take four times the memory at twice the length: nothing of "
        "size n² is kept.": _wrong(without=4 * _HALF[0]),
        "with weights it takes more than twice the memory at twice the length: there are n² "
        "weights.": _wrong(weights=2 * _HALF[1]),
        "that reads like bytes; mebibytes are asked for, bytes / 2**20.":
            _wrong(*(2**20 * x for x in _RIGHT)),
        "that reads like gibibytes; mebibytes are asked for.": _wrong(*(x / 1024 for x in _RIGHT)),
    },
    run=numbers(2),
    why=_too_much,
    close=0.25,  # a prediction, from a table
)  # fmt: skip

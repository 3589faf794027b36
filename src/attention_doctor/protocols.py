"""What attention of today can do besides, where it says so: positions, a cache, windows, packing.

The callable that is examined says so by attributes of these names:

- ``at_positions(x, positions)``: attend with rotary positions (n,), whole numbers; x is (b, n, e).
- ``start()`` makes an empty cache, and ``step(x, cache)`` attends from the next tokens, (b, n, e),
  to all that went before and among themselves, and puts them into the cache, or returns the
  result and a new cache; causal.
- ``window``: how many tokens a token sees, itself included; within one sequence without a causal
  mask, before and behind it together.
- ``packed(x, lengths)``: attend within documents of these lengths, one behind the other in x.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attention_doctor import situations
from attention_doctor.influence import exchanged, influence
from attention_doctor.patient import Inputs, NotAsked, Patient
from attention_doctor.report import WRONG, Finding

_SHIFT = 7


def claim(patient: Patient, *names: str) -> list[Any]:
    """Give what the callable says that it can do besides, by the names of its attributes.

    Raises:
        NotAsked: it does not say so.
    """
    found = [getattr(patient.attend, name, None) for name in names]
    # A module may have an attribute of this name that means something else.
    number = not isinstance(patient.attend, nn.Module)
    if not all(callable(x) or (number and type(x) is int) for x in found):
        raise NotAsked("the callable does not say that it has them")
    return found


def rotation(patient: Patient) -> Iterator[Finding]:
    """Rotary positions count by their differences alone, in queries and in keys."""
    (at_positions,) = claim(patient, "at_positions")
    situations.only_for(patient, "self", "causal")
    x = patient.draw(51).query
    n = x.size(1)

    def at(*places: int, tokens: Tensor = x) -> Tensor:
        return patient.ask_for(at_positions, tokens, torch.tensor(places))

    places = [*range(n)]
    here = at(*places)
    shifted = patient.gap(at(*(place + _SHIFT for place in places)), here)
    single = patient.gap(at(_SHIFT, tokens=x[:, :1]), at(0, tokens=x[:, :1]))
    if patient.same(at(*(3 * place for place in places)), here):
        yield Finding(
            "positions-ignored",
            WRONG,
            "positions change nothing",
            "three times as far apart, the same output",
            remedy="Rotate queries and keys by their positions before the scores.",
        )
    elif shifted > patient.tolerance:
        said = f"moved by {_SHIFT} together, positions change the output by {shifted:.0%}"
        yield _not_relative(said, _turned(patient, at, x), single > patient.tolerance)


def _turned(patient: Patient, at: Callable[..., Tensor], x: Tensor) -> str:
    """Say whose positions have no effect: "keys", "queries", or "" where both have one.

    Two equal tokens stand last. Exchanged, they ask from another place; the keys are the same.
    """
    n = x.size(1)
    twins = torch.cat([x[:, :-1], x[:, -2:-1]], 1)
    *rest, one, two = range(n)
    before = at(*rest, one, two, tokens=twins)[:, -1]
    if patient.same(at(*rest, two, one, tokens=twins)[:, -1], before):
        return "queries"
    others = [place + 3 * i for i, place in enumerate((*rest, one))]
    return "keys" if patient.same(at(*others, two, tokens=twins)[:, -1], before) else ""


def _not_relative(evidence: str, still: str, values: bool) -> Finding:
    """Name what makes positions count by more than their differences."""
    code = "positions-not-relative"
    remedy = "Turn both by the same function, with angles laid out as it pairs the features."
    cause = ""
    if values:
        code, remedy = "values-rotated", "Rotate queries and keys alone."
        evidence += "; so does the result of a single token, whose only weight is 1"
    elif still:
        code, remedy = "rotates-one-side", "Rotate queries and keys, each by its own position."
        evidence += f"; where the {still} stand has no effect"
        cause = f"the {still} are not rotated"
    symptom = "the result depends on more than the differences of positions"
    return Finding(code, WRONG, symptom, evidence, cause, remedy)


def window(patient: Patient) -> Iterator[Finding]:
    """A window has the width that it claims."""
    (width,) = claim(patient, "window")
    situations.only_for(patient, "self", "causal")
    n = width + 2
    if n > patient.max_length:
        raise NotAsked(
            f"a window of {width} takes sequences of {n}, and the longest has {patient.max_length}"
        )
    seen = influence(patient, patient.draw(54, n=n))[0].any(0) | torch.eye(n, dtype=torch.bool)
    found = int(seen[-1 if patient.kind == "causal" else n // 2].sum())
    if found == width:
        return
    near = abs(found - width) == 1
    yield Finding(
        "window-off-by-one" if near else "window-of-another-width",
        WRONG,
        f"the window is {found} wide, itself included, and it is said to be {width}",
        f"of {n} tokens, {found} have influence",
        remedy="Let query i see the keys j with 0 <= i - j < window.",
    )


def packing(patient: Patient) -> Iterator[Finding]:
    """Packed documents do not see each other."""
    (packed,) = claim(patient, "packed")
    situations.only_for(patient, "self", "causal")
    n = min(7, patient.max_length)
    lengths = [n - n // 2, n // 2]
    x = patient.draw(55, n=n).query
    documents = x.split(lengths, 1)
    together = patient.ask_for(packed, x, lengths)
    alone = torch.cat([patient.ask(Inputs(one, one, one)) for one in documents], 1)
    gap = patient.gap(together, alone)
    if gap <= patient.tolerance:
        return
    other = exchanged(x, 0, 3 * patient.draw(56).query[:, :1])
    moved = patient.gap(patient.ask_for(packed, other, lengths)[:, lengths[0] :],
                        together[:, lengths[0] :])  # fmt: skip
    leaks = moved > patient.tolerance
    yield Finding(
        "documents-see-each-other" if leaks else "packed-differs",
        WRONG,
        "packed documents see each other"
        if leaks
        else "a packed document gets another result than alone",
        f"documents of {lengths[0]} and {lengths[1]} tokens: results differ by {gap:.0%} from "
        "those of each alone",
        remedy="Block every key of another document; positions that begin anew do not hide it.",
    )

"""Tokens that are unseen by design: windows, blocks, steps, and keys that a query chooses.

The rule that asks these, ``sliding-window``, stands in ``designs``; what accuses where none of them
holds, ``visible-unseen`` and ``past-unseen``, in ``causal``.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.evidence import inner, pairs
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.inner import Inner
from attention_doctor.rules.causal import missed
from attention_doctor.rules.rule import Sign, Test


def unseen(e: Evidence, part: str) -> tuple[pairs.Pairs, Tensor] | None:
    """Give what is seen, and what may be, (n, m), where something is not seen."""
    if part == "visible":
        found = e.of(pairs.visible)
        return None if found is None else (found, torch.ones_like(found.seen[0]))
    past = missed(e)
    return None if past is None or past.leaks.any() else (past.every, ~past.ahead)


def _said(every: pairs.Pairs, may: Tensor) -> str:
    return f"{int((every.deaf.any(0) & may).sum())} of {int(may.sum())} pairs are not seen"


def chosen(part: str) -> Test:
    def test(e: Evidence) -> Sign | None:
        if (found := unseen(e, part)) is None:
            return None
        every, may = found
        if not (every.deaf.any(0) & ~every.deaf.all(0) & may).any():  # others in another sample
            return None
        symptom = "each query chooses some keys: by design, not all that it may see matter"
        return Sign(symptom, _said(every, may))

    return test


def windowed(part: str) -> Test:
    def test(e: Evidence) -> Sign | None:
        if (found := unseen(e, part)) is None:
            return None
        if (inside := measured(e)) is not None and not inside.near:
            return None  # a window hides tokens; it does not take one for another
        every, may = found
        itself = torch.eye(*may.shape, dtype=torch.bool)
        visible = every.seen.any(0)
        visible |= itself if e.patient.kind != "cross" else torch.zeros_like(itself)
        words = local(visible & may, may)
        return Sign(f"tokens see {words}", _said(every, may)) if words else None

    return test


def local(seen: Tensor, may: Tensor) -> str:
    """Say which design lets queries see some tokens: windows, blocks, steps; "" if none does.

    Of (n, m), ``seen`` has influence, themselves included; ``may`` is what no causal mask hides.
    """
    if seen.size(0) != seen.size(1):
        return ""
    if torch.equal(seen & may, may):
        return ""  # nothing else is hidden
    shapes = _shapes(len(seen))
    return next((words for words, mask in shapes if torch.equal(seen & may, mask & may)), "")


def _shapes(n: int) -> Iterator[tuple[str, Tensor]]:
    """Give windows, blocks and steps, with their words."""
    place = torch.arange(n)
    distance = place[:, None] - place
    for behind in range(1, n - 1):
        for ahead in range(n):
            words = f"a window of {behind + ahead + 1}, themselves included, and nothing farther"
            yield f"{words} away", (distance <= behind) & (distance >= -ahead)
    for w in range(1, n - 1):
        for offset in range(w + 1):
            block = (place + offset) // (w + 1)
            yield f"blocks of {w + 1}", block[:, None] == block
        for k in range(1, n - w):
            words = f"a window of {w} on each side, and the first {k}"
            yield words, (distance.abs() < w) | (place < k)
        first = place[:, None] // (w + 1) * (w + 1)
        for halo in range(1, w + 2):
            near = (place >= first - halo) & (place <= first + w + halo)
            yield f"blocks of {w + 1}, and {halo} beside on each side", near
        yield f"every token that is a multiple of {w + 1} away", distance % (w + 1) == 0


def measured(e: Evidence) -> Inner | None:
    """Give what moves what inside, where that can be measured."""
    try:
        return e.of(inner.inner)
    except (Failed, NotAsked):
        return None

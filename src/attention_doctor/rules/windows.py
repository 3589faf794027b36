"""Windows: tokens that are unseen by design, and windows whose width is said.

What accuses where no design holds, ``visible-unseen`` and ``past-unseen``, stands in ``causal``.
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from attention_doctor.evidence import inner, pairs, protocols
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.rules.cache import cached
from attention_doctor.rules.causal import missed
from attention_doctor.rules.masks import HIDING
from attention_doctor.rules.predictions import ORDER, SUMS, predicts
from attention_doctor.rules.questions import CONVENTION, WINDOW
from attention_doctor.rules.rule import Rule, Sign, Test, named, of_mistake


# Windows, blocks and steps by design, and keys that a query chooses.
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
        if (inside := e.had(inner.inner)) is not None and not inside.near:
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
        wide, rest = divmod(n, w + 1)  # of an image that is as wide as this
        for high, across in itertools.product(range(1, wide + 1), range(1, w + 2)):
            block = place // (w + 1) // high * n + place % (w + 1) // across
            if not rest and wide > 1:
                yield f"windows of {high} by {across} in an image", block[:, None] == block
        yield f"every token that is a multiple of {w + 1} away", distance % (w + 1) == 0


def sees_a_window(e: Evidence) -> bool:
    part = "past" if e.patient.kind == "causal" else "visible"
    return windowed(part)(e) is not None


# In a window that is said.
def other_width(e: Evidence) -> tuple[str, Sign] | None:
    seen, may = e.of(pairs.behind)
    window = e.patient.window
    first = seen[-1].cumprod(0).bool()  # attention sinks are seen by all
    may = may if first.all() else may | first & torch.ones_like(may).tril()
    if torch.equal(seen, may):
        return None
    said = f"the last of {len(seen)} tokens sees {int(seen[-1].sum())}, itself among them, "
    said += f"and its window has {window}"
    if torch.equal(seen, may | torch.ones_like(may).tril(-window).triu(-window)):
        return "window-off-by-one", Sign("each token sees one more than its window", said)
    return "window-differs", Sign("tokens see others than those of their window", said)


def lost_with_padding(e: Evidence) -> Sign | None:
    back = e.of(pairs.brought_back).tril(-1)
    if not back.any():
        return None
    return Sign(
        "with a mask that blocks padding, tokens see farther back than without it",
        f"{int(back.sum())} pairs with an earlier token",
        "Join the two masks: neither stands in for the other.",
        cause="a mask of padding stands in the place of the window",
    )


# Documents in one row.
def across_documents(e: Evidence) -> Sign | None:
    found = e.of(protocols.packing)
    if found is None or not found.pairs:
        return None
    said = f"{found.pairs} of {found.count} pairs of tokens from different documents react"
    return Sign("in one row, documents see each other", said)


def otherwise_packed(e: Evidence) -> Sign | None:
    found = e.of(protocols.packing)
    if found is None or found.pairs:
        return None
    symptom = "in one row with another, a document gets other results than alone"
    return Sign(symptom, f"they differ by {found.gap:.0%}, and no document sees another")


RULES = (
    of_mistake("documents-leak", signs={"packing": across_documents}, steps=HIDING),
    Rule(
        "packing-differs",
        "positions, or a number of keys, that go on from one document to the next",
        "Count positions within each document.",
        explanation="No document sees another, and each but the first gets other results than it "
        "gets alone.",
        signs={"packing": otherwise_packed},
        neighbours=("documents-leak",),
    ),
    Rule(
        "keys-selected",
        "each query chooses keys, such as the k with the highest scores",
        severity=CONVENTION,
        signs={"visible": chosen("visible"), "past": chosen("past")},
        ignore="the choice is meant",
    ),
    of_mistake(
        "window-off-by-one",
        signs={WINDOW: named("window-off-by-one", other_width)},
        steps=HIDING,
        neighbours=("window-differs",),
    ),
    Rule(
        "window-differs",
        "a window of another width, or one that is applied to the keys of a cache in another way",
        "Hide what is later, and what is `window` tokens back or more: "
        "`(keys > queries) | (keys <= queries - window)`, by places in the whole text.",
        signs={
            "past": lost_with_padding,
            WINDOW: named("window-differs", other_width),
            "cache": cached("window-differs"),
        },
        steps=HIDING,
        neighbours=("window-off-by-one",),
        explanation="Texts up to the length of the window do not show it, and in longer ones "
        "most keys are the right ones.",
    ),
    Rule(
        "sliding-window",
        "a sliding window, or local attention",
        severity=CONVENTION,
        signs={"visible": windowed("visible"), "past": windowed("past")},
        excuses=predicts(sees_a_window, SUMS, ORDER),
        neighbours=("split-and-merge-without-transpose", "visible-unseen"),
        explanation="Tokens see their neighbours alone, or blocks, or every second token. "
        "Nothing else is hidden.",
        ignore="the window is meant; say how wide it is with `--window`",
    ),
)

"""The causal mask, rows of which masks leave nothing, and numbers that half precision lacks."""

from dataclasses import replace

import torch

from attention_doctor.evidence import conduct, inner, looks, pairs
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.rules.masks import FILLS, HIDING, no_finite_row
from attention_doctor.rules.questions import CONVENTION, MASKED
from attention_doctor.rules.rule import FOLLOW, Rule, Sign, Test, of_mistake


# Under a causal mask.
def with_padding(e: Evidence) -> Sign | None:
    ahead = e.of(pairs.brought_back).triu(1)
    if not ahead.any():
        return None
    symptom = "with a mask that blocks padding, tokens see some of their future"
    said = f"{int(ahead.sum())} pairs with a later token"
    return Sign(symptom, said, "Join the two masks: neither stands in for the other.")


def future_seen(next_alone: bool) -> Test:
    def test(e: Evidence) -> Sign | None:
        found = e.of(pairs.future)
        if not found.leaks.any() or found.next_alone != next_alone:
            return None
        i, j = found.leaks.nonzero()[0].tolist()
        symptom = "each token sees the one after it"
        said = f"{int(found.leaks.sum())} of {int(found.ahead.sum())} pairs with a later token "
        said += f"react, the first is output {i} to input {j}, counted from 0"
        if next_alone:
            return Sign(symptom, said)
        return elsewhere(e, Sign("tokens see some of their future", said))

    return test


def elsewhere(e: Evidence, sign: Sign) -> Sign:
    """Say where else the future comes in, if each softmax is given scores that hide it."""
    look = e.had(looks.free)
    if look is None or not all(hides_the_future(x, e.patient.n) for x in look.found):
        return sign
    rows = e.had(inner.inner)
    within = "queries, keys or values of a token are made from later ones, too"
    if rows is not None and rows.rows_are_tokens:
        within = "weights are changed behind the softmax, or mixed with values of other places"
    remedy = f"{FOLLOW} Look at norms, means and convolutions over tokens, and at cut-off columns."
    return replace(sign, cause=f"the causal mask is right: {within}", remedy=remedy, nowhere=True)


def hides_the_future(seen: Seen, n: int) -> bool:
    """Tell whether scores enter the softmax with all that is later hidden; keys may be appended."""
    query, key = seen.query.kept, seen.axis if seen.keys is None else seen.keys
    if query is None or query == key or seen.mask.size(query) != n or seen.mask.size(key) < n:
        return False
    hidden = seen.mask.movedim((query, key), (-2, -1))[..., :n]
    return bool((hidden | torch.ones(n, n, dtype=torch.bool).tril()).all())


def future_leaks(e: Evidence) -> Sign | None:
    return with_padding(e) or future_seen(next_alone=False)(e)


def past_unseen(itself: bool) -> Test:
    def test(e: Evidence) -> Sign | None:
        found = missed(e)
        if found is None or bool(found.behind.diagonal().any()) != itself:
            return None
        pairs_ = f"{int(found.behind.sum())} of {int((~found.ahead).sum())} pairs"
        symptom = "tokens do not react to what they may see"
        return Sign(symptom, f"{pairs_} with itself or an earlier token")

    return test


def missed(e: Evidence) -> pairs.Order | None:
    """Give what is seen under a causal mask, where something is not that should be."""
    if e.of(pairs.brought_back).triu(1).any():
        return None
    found = e.of(pairs.future)
    return found if found.misses and not found.is_turned else None


def first_row_empty(e: Evidence) -> Sign | None:
    return no_finite_row(e, "first")


# Fully masked rows, and modes.
def nan_spreads(e: Evidence) -> Sign | None:
    said = e.of(pairs.fully_masked).spreads
    return Sign("a fully masked query makes others NaN", said) if said else None


def nan_row(e: Evidence) -> Sign | None:
    said = e.of(pairs.fully_masked).nan
    return Sign("a fully masked query gets NaN", said) if said else None


def refused_in_half(e: Evidence) -> Sign | None:
    found = e.of(conduct.half_precision)
    if found is None or not found.error:
        return None
    symptom = f"with {found.case.name}, it fails in float16"
    return Sign(symptom, found.error)


def differs_in_half(e: Evidence) -> Sign | None:
    found = e.of(conduct.half_precision)
    if found is None or found.error:
        return None
    return Sign(
        f"with {found.case.name}, the result in float16 is far from the precise one",
        f"the result has NaN or infinity in it: {not found.finite}; else it differs by up to "
        f"{min(found.gap, 9.99):.0%} of its size",
    )


def unseen(e: Evidence) -> Sign | None:
    found = e.of(pairs.visible)
    if found is None:
        return None
    return Sign("keys that nothing hides have no influence", found.text)


RULES = (
    of_mistake(
        "causal-off-by-one", signs={"future": future_seen(True)}, steps=HIDING, explains=MASKED
    ),
    Rule(
        "future-leaks",
        "a causal mask that is missing or too small, or a straight reshape",
        "Block with `triu(diagonal=1)`, and follow one number through every reshape.",
        signs={"future": future_leaks},
        steps=HIDING,
        neighbours=("causal-off-by-one", "mask-taken-for-causal"),
        explanation="A token sees what it should predict, and copies it: the loss is almost "
        "perfect at once, and what the model writes is not.",
        wrong="weights = scores.softmax(-1)",
        right="weights = scores.masked_fill(future, -math.inf).softmax(-1)",
    ),
    of_mistake(
        "causal-hides-itself",
        signs={"answers": first_row_empty, "past": past_unseen(itself=True)},
        steps=HIDING,
        explains=MASKED,
    ),
    Rule(
        "past-unseen",
        "a mask that blocks too much, or is inverted",
        "Block with `triu(diagonal=1)`.",
        signs={"past": past_unseen(itself=False)},
        hides=True,
        explanation="Tokens that may be seen change nothing. The model learns, and less than it "
        "should.",
        ignore="the pattern is meant, and the doctor does not know it",
    ),
    Rule(
        "visible-unseen",
        "a straight reshape, a mask that is always there, or scores cut off",
        "Let each query see every key that its mask allows.",
        signs={"visible": unseen},
        hides=True,
        neighbours=("sliding-window",),
        explanation="Without a mask, some tokens change nothing. The model learns, and less "
        "than it should.",
        ignore="the pattern is meant, and the doctor does not know it",
    ),
    Rule(
        "nan-spreads",
        "the NaN of a fully masked row reaches other rows",
        signs={"fully masked rows": nan_spreads},
        steps=HIDING,
        neighbours=("nan-row",),
        remedy="Leave each row one key, or give fully masked rows zeros before anything "
        "mixes them with others: `heads.masked_fill(fully_masked, 0)`.",
        explanation="A single query without a key makes results NaN that have keys. One short "
        "sequence spoils its whole batch.",
    ),
    of_mistake(
        "nan-row",
        severity=CONVENTION,
        signs={"fully masked rows": nan_row},
        steps=HIDING,
        ignore="nobody reads the rows of padding, as with PyTorch's own class",
    ),
    of_mistake(
        "finite-fill-in-half",
        severity=CONVENTION,
        signs={"half precision": refused_in_half},
        steps=FILLS,
        ignore="nobody will run it in float16",
    ),
    Rule(
        "half-differs",
        "a number that half precision does not hold, such as a large fill",
        "Fill with minus infinity, or with `torch.finfo(scores.dtype).min`.",
        signs={"half precision": differs_in_half},
        steps=FILLS,
        explanation="Float16 ends at 65504. What is larger is infinite, and so is the sum of "
        "two fills that hold each by itself. In float32 nothing shows it.",
    ),
)

"""The causal mask, rows of which masks leave nothing, and numbers that half precision lacks."""

from dataclasses import replace
from typing import Any

import torch

from attention_doctor.evidence import conduct, looks, pairs
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.rules.masks import FILLS, HIDING, no_finite_row
from attention_doctor.rules.questions import CONVENTION, MASKED
from attention_doctor.rules.rule import FOLLOW, Rule, Sign, of_mistake, told


# Under a causal mask.
def future_leaks(e: Evidence) -> Sign | None:
    """Find what is seen of the future, and where else it comes in if each softmax hides it."""
    if e.of(pairs.brought_back).triu(1).any():
        symptom = "with a mask that blocks padding, tokens see some of their future"
        return Sign(symptom, remedy="Join the two masks: neither stands in for the other.")
    if not (said := e.of(pairs.future).text):
        return None
    sign, look = Sign("tokens see some of their future", said), e.had(looks.free)
    if len(e.of(pairs.future).leaks) < e.patient.n:
        return replace(sign, cause="a causal mask that a text within a window is left without")
    if look is None or not all(hides_the_future(x, e.patient.n) for x in look.found):
        return sign
    cause = "the causal mask is right: tokens are mixed before it, or weights changed behind it"
    remedy = f"{FOLLOW} Look at norms, means and convolutions over tokens, and at cut-off columns."
    return replace(sign, cause=cause, remedy=remedy, nowhere=True)


def hides_the_future(seen: Seen, n: int) -> bool:
    """Tell whether scores enter the softmax with all that is later hidden; keys may be appended."""
    query, key = seen.query.kept, seen.axis if seen.keys is None else seen.keys
    if query is None or query == key or seen.mask.size(query) != n or seen.mask.size(key) < n:
        return False
    hidden = seen.mask.movedim((query, key), (-2, -1))[..., :n]
    return bool((hidden | torch.ones(n, n, dtype=torch.bool).tril()).all())


_UNSEEN = "tokens do not react to what they may see"
_PATTERN: dict[str, Any] = {
    "hides": True,
    "explanation": "Tokens that may be seen change nothing. The model learns, and less than it "
    "should.",
    "ignore": "the pattern is meant, and the doctor does not know it",
}
RULES = (
    of_mistake(
        "causal-off-by-one",
        signs={
            "future": told(
                pairs.future,
                "each token sees the one after it",
                "text",
                lambda x: x.next_alone,
            )
        },
        steps=HIDING,
        explains=MASKED,
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
        signs={
            "answers": no_finite_row("first"),
            "visible": told(pairs.unseen, _UNSEEN, "text", lambda x: x.causal and x.itself),
        },
        steps=HIDING,
        explains=MASKED,
    ),
    Rule(
        "past-unseen",
        "a mask that blocks too much, or is inverted",
        "Block with `triu(diagonal=1)`.",
        signs={"visible": told(pairs.unseen, _UNSEEN, "text", lambda x: x.causal)},
        **_PATTERN,
    ),
    Rule(
        "visible-unseen",
        "a straight reshape, a mask that is always there, or scores cut off",
        "Let each query see every key that its mask allows.",
        signs={"visible": told(pairs.unseen, _UNSEEN, "text")},
        neighbours=("sliding-window",),
        **_PATTERN,
    ),
    Rule(
        "nan-spreads",
        "the NaN of a fully masked row reaches other rows",
        signs={
            "fully masked rows": told(
                pairs.fully_masked, "a fully masked query makes others NaN", "spreads"
            )
        },
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
        signs={
            "fully masked rows": told(pairs.fully_masked, "a fully masked query gets NaN", "nan")
        },
        steps=HIDING,
        ignore="nobody reads the rows of padding, as with PyTorch's own class",
    ),
    of_mistake(
        "finite-fill-in-half",
        severity=CONVENTION,
        signs={"half precision": told(conduct.half_precision, "it fails in float16", "refused")},
        steps=FILLS,
        ignore="nobody will run it in float16",
    ),
    Rule(
        "half-differs",
        "a number that half precision does not hold, such as a large fill",
        "Fill with minus infinity, or with `torch.finfo(scores.dtype).min`.",
        signs={
            "half precision": told(
                conduct.half_precision,
                "the result in float16 is far from the precise one",
                "differs",
            )
        },
        steps=FILLS,
        explanation="Float16 ends at 65504. What is larger is infinite, and so is the sum of "
        "two fills that hold each by itself. In float32 nothing shows it.",
    ),
)

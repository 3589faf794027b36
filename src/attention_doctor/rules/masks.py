"""Masks that are given: which they are, by the pairs that react; how hidden scores keep weight."""

import re
from functools import partial

import torch

from attention_doctor.call.places import raised_at
from attention_doctor.evidence import conditions, conduct, pairs
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.pairs import Unseen
from attention_doctor.rules.questions import MASKED
from attention_doctor.rules.rule import HIDE, Named, Rule, Sign, Test, of_mistake, told

_ANY = ("mask", "weak mask", "late mask", "softmax")
HIDING = ("mask", "softmax")
FILLS = ("mask", "weak mask", "softmax")
_TURN = (  # the way out, where it is no mistake
    "If its masks are meant so, turn them: `--mask allowed` in place of `--mask blocked`, or "
    'back; in Python, `adapt(attend, mask="bnm allowed")`.'
)


# Which mask it is, by the pairs that react.
def failing(e: Evidence) -> Sign | None:
    if (found := e.of(pairs.failing_mask)) is None:
        return None
    case, failure = found
    cause, remedy = _cause(failure.error)
    place = None if failure.error is None else raised_at(failure.error)
    symptom, alone = f"it fails with {case}", e.patient.mask_error is not None
    return Sign(symptom, str(failure), remedy, cause=cause, place=place, alone=alone)


def _cause(error: Exception | None) -> tuple[str, str]:
    """Say why a mask fails, and what to do; "" twice where its axes do not fit."""
    said = str(error)
    if isinstance(error, NameError | ImportError):
        return "the lines that apply a mask do not run: none was ever given", "Mend that line."
    if re.search("bool|dtype|scalar type", said) and not re.search("size|shape|dimension", said):
        cause = "one line takes numbers for a mask and another True and False, or neither is taken"
        return cause, "Take one of both: `mask = mask.bool()`, and `~mask` in place of `1 - mask`."
    return "", ""


def which(e: Evidence) -> Named | None:
    """Name the mask that hides exactly what is not seen."""
    if (leak := e.of(pairs.leak)) is None:
        return None
    blocked, own, h = leak.blocked, e.patient.own_future, e.patient.num_heads
    (b, n, m), every = blocked.shape, torch.ones_like(blocked)
    sample, head = torch.arange(b)[:, None], torch.arange(h)
    orders = (sample * h + head) % b, (head * b + sample) // h  # whose mask each head has
    square = n == m and leak.case.varies != "padding"
    apart = ~torch.eye(n, dtype=torch.bool)
    ahead = own and leak.seen.triu(1).any()
    found = {
        "mask-makes-nan": not leak.finite,
        "mask-ignored": not leak.moves,
        "mask-inverted": leak.is_mask(~blocked),
        "mask-transposed": square and leak.is_mask(blocked.mT),
        "masks-joined-by-or": own and (leak.seen == ~blocked.triu(1))[:, apart].all(),
        "mask-taken-for-causal": not ahead and leak.is_mask(every.triu(1), every.triu(1 + m - n)),
        "mask-in-the-wrong-order": not leak.mixed
        and leak.is_mask(*(blocked[x].all(1) for x in orders)),
        "padding-mask-on-queries": leak.hides_queries,
    }
    code = next((x for x, holds in found.items() if holds), "blocked-has-influence")
    nan = "results are NaN or infinite with a mask that leaves them keys to see"
    symptom = "blocked keys have influence, or allowed ones have none"
    return code, Sign(symptom if leak.finite else nan, leak.text)


def no_finite_row(place: str) -> Test:
    """Make the test of one token, the first or the last, that is left with nothing to see."""
    symptom = "the mask hides every token from one query, even the query's own"
    return told(pairs.row_without_keys, symptom, holds=lambda x: x.startswith(place))


def inverted_answers(e: Evidence) -> Sign | Named | None:
    if e.of(conditions.finite).all():
        return None
    if e.of(pairs.finite_once_all_is_hidden):
        return Sign("results are NaN or infinite, unless a mask blocks every key")
    return no_finite_row("last")(e)


def hides_the_future(found: Unseen) -> bool:
    seen = found.seen.any(0).fill_diagonal_(True)
    return not found.causal and seen.equal(torch.ones_like(seen).tril())


def missing_in(mode: str) -> Test:
    """Make the test of a mask that is missing in one mode."""
    return told(conduct.training, f"in {mode} mode tokens see what is hidden in the other", mode)


of_mask = partial(of_mistake, steps=_ANY, explains=MASKED)
RULES = (
    Rule(
        "mask-fails",
        "a mask whose axes do not broadcast to those of the scores",
        "Give the mask an axis of size 1 for the heads: (b, 1, n, m); padding (b, 1, 1, m). "
        "If it takes another mask, say its form.",
        signs={"failing masks": failing},
        steps=_ANY,
        explanation="Axes are aligned from the right, whatever they mean: a mask of (b, n, m) "
        "meets the axis of the heads with its samples. It runs where there are as "
        "many of one as of the other, and is wrong there.",
        wrong="scores.masked_fill(blocked, -math.inf)  # (b, n, m) against (b, h, n, m)",
        right="scores.masked_fill(blocked[:, None], -math.inf)",
    ),
    Rule(
        "mask-makes-nan",
        "a mask or a fill of the wrong sign, or one that is multiplied in",
        "Add minus infinity, or fill with it, where a key is hidden; add 0 elsewhere.",
        signs={"blocked": which},
        steps=_ANY,
        explains=MASKED,
        neighbours=("mask-after-softmax",),
        explanation="Where a key is allowed, the mask is 0, and 0 times infinity is NaN. The "
        "softmax then makes the whole row NaN.",
        wrong="scores = scores + blocked[:, None] * -math.inf",
        right="scores = scores.masked_fill(blocked[:, None], -math.inf)",
    ),
    of_mask(
        "mask-ignored",
        signs={"blocked": which},
        neighbours=("mask-missing-in-evaluation",),
    ),
    of_mask(
        "mask-inverted",
        _TURN,
        signs={
            "answers": inverted_answers,
            "blocked": which,
            "future": told(
                pairs.future,
                "the past and itself are hidden from each token, and not the future",
                "text",
                lambda x: x.inverted,
                remedy="Turn the mask: `masked_fill` hides where it is True, and "
                "`scaled_dot_product_attention` where it is False.",
            ),
        },
        explains=MASKED | {"attention"},  # one that must be given then hides everything
    ),
    of_mask(
        "mask-transposed",
        signs={
            "blocked": which,
            "future": told(
                pairs.future,
                "the past is hidden, and not the future",
                "text",
                lambda x: x.turned,
            ),
        },
    ),
    Rule(
        "masks-joined-by-or",
        "two masks are joined so that a key is seen where either of them allows it",
        "A key may be seen only where both masks allow it: `causal & allowed`, or "
        "`future | blocked`.",
        signs={"blocked": which},
        steps=_ANY,
        explains=MASKED,
        neighbours=("mask-taken-for-causal", "future-leaks"),
        explanation="Masks that say what is hidden are joined by `or`, and masks that say what "
        "is seen by `and`. The other way round, a key that one of the two lets "
        "through is seen: in a causal model, the future.",
        wrong="hidden = future & blocked",
        right="hidden = future | blocked",
    ),
    Rule(
        "mask-taken-for-causal",
        "any mask that is given hides the future, whatever is in it",
        "Use the mask; or, where it is only a switch, ask without it: `--mask none`.",
        signs={"blocked": which},
        steps=_ANY,
        explains=MASKED,
        neighbours=("future-leaks",),
        explanation="The argument is only asked whether it is there. In a causal model without "
        "padding that is right; in a batch, padding is seen.",
        wrong="scores = scores.masked_fill(future, -math.inf)  # if there is a mask",
        right="scores = scores.masked_fill(blocked[:, None], -math.inf)",
    ),
    of_mask(
        "mask-in-the-wrong-order",
        signs={"blocked": which},
    ),
    of_mask(
        "padding-mask-on-queries",
        signs={"blocked": which},
    ),
    of_mistake("mask-on-the-wrong-axis", steps=_ANY),
    Rule(
        "blocked-has-influence",
        "a mask on the wrong axis, applied too late, or too weak to block",
        HIDE,
        signs={"blocked": which},
        explanation="Replace a token that the mask hides, and results move all the same. None "
        "of the known mistakes hides and shows exactly these pairs.",
    ),
    Rule(
        "mask-missing-in-training",
        "a mask that is applied in evaluation mode only",
        "Apply the mask in both modes.",
        signs={"training": missing_in("training")},
        steps=_ANY,
        explanation="Training sees what evaluation hides. With a causal mask, the loss in "
        "training is far too good, and that in evaluation is not.",
        wrong="hidden = None if self.training else blocked",
        right="hidden = blocked",
    ),
    Rule(
        "mask-missing-in-evaluation",
        "a mask that is applied in training mode only",
        "Apply the mask in both modes.",
        signs={"training": missing_in("evaluation")},
        steps=_ANY,
        explains=MASKED,
        instead_of=("mask-ignored",),
        explanation="The model is trained with the mask and used without it: results depend on "
        "padding, or on what comes later.",
        wrong="hidden = blocked if self.training else None",
        right="hidden = blocked",
    ),
    of_mask(
        "causal-unasked",
        signs={
            "visible": told(
                pairs.unseen, "without a mask, the future is hidden", "text", hides_the_future
            )
        },
        ignore="the class is meant for a decoder: ask it with `--kind causal`",
    ),
)

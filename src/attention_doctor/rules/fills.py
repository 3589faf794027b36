"""How scores that a mask should hide keep a weight, as it shows inside."""

import torch

from annotated_attention.masks import block_future
from attention_doctor.call.trace import Step
from attention_doctor.evidence import looks
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.looks import Look
from attention_doctor.evidence.sight import Seen
from attention_doctor.rules.masks import FILLS
from attention_doctor.rules.questions import MASKED
from attention_doctor.rules.rule import HIDE, Named, Rule, Sign, of_mistake

_ONES = {  # where a key is hidden, by where they stand
    "may be seen": "where it is 0: `scores.masked_fill(mask == 0, -math.inf)`; "
    "`scaled_dot_product_attention` takes booleans so, True = allowed.",
    "should be hidden": "where it is 1: `scores.masked_fill(mask == 1, -math.inf)`; "
    "`scaled_dot_product_attention` takes booleans turned, True = allowed.",
}


def masked_calls(e: Evidence) -> list[Look]:
    """Give the calls in which a mask hides something."""
    return [e.of(looks.free)] if e.patient.kind == "causal" else e.of(looks.masked)


def masked(e: Evidence) -> list[Seen]:
    """Give the attentions in which a mask hides something."""
    return [seen for call in masked_calls(e) for seen in call.found]


def filled(e: Evidence) -> Named | None:
    """Tell a mask that is multiplied or added in from a fill that leaves a weight."""
    for call in masked_calls(e):
        for seen in call.found:
            weak = seen.steps.get("weak mask")
            step = weak or seen.steps.get("mask")
            if step is not None and step.name == "mul":
                return "mask-multiplied", Sign("scores are multiplied by the mask")
            if weak is None or (put := _put(weak)) is None:
                continue
            number, changed = put
            if weak.name in ("add", "sub") and abs(number) == 1:
                return "boolean-mask-added", _ones(call, number, changed)
            symptom = "scores that should be hidden get a number that leaves them a weight"
            return "fill-does-not-block", Sign(symptom, f"the number is {number:g}")
    return None


def _ones(call: Look, number: float, changed: torch.Tensor) -> Sign:
    """Tell whether ones stand where keys may be seen, or where they are hidden, by how many."""
    n = call.case.inputs.query.size(1)
    hidden = block_future(n) if call.case.blocked is None else call.case.blocked
    shares = {"should be hidden": hidden, "may be seen": ~hidden}
    part = changed.double().mean()
    where = [x for x, mask in shares.items() if torch.isclose(mask.double().mean(), part)]
    said = f"{number:g} is added where keys {where[0]}" if len(where) == 1 else ""
    symptom = "a mask of True and False is added to the scores, as 1 and 0"
    remedy = f"Fill with minus infinity {_ONES[where[0]]}" if said else ""
    return Sign(symptom, said, remedy)


def undone(e: Evidence) -> Sign | None:
    for seen in masked(e):
        if "mask" in seen.steps and "undone" in seen.steps:
            said = f"the lowest score that enters the softmax is {seen.scores.min().item():.3g}"
            return Sign("scores are hidden, and another step makes them finite", said)
    return None


def too_late(e: Evidence) -> Sign | None:
    calls = masked(e)
    late = any("late mask" in x.steps and x.normalised for x in calls)  # a sigmoid hides by 0
    if not late or any(x.mask.any() for x in calls):
        return None
    return Sign("nothing is hidden before the softmax, and weights are changed after it")


def _put(step: Step) -> tuple[float, torch.Tensor] | None:
    """Give the one number that a step puts in the place of scores, or adds; and to which."""
    old = next(x.value for x in step.parents if x.from_tokens).view_as(step.value)
    changed = old != step.value
    numbers = (step.value - old if step.name in ("add", "sub") else step.value)[changed]
    # A number for all scores hides none.
    alike = not changed.all() and torch.allclose(numbers, numbers[:1], 1e-6, 1e-6)
    return (round(numbers[0].item(), 6), changed) if alike else None


RULES = (
    Rule(
        "mask-undone",
        "a soft cap, a clamp or `nan_to_num` stands behind the mask",
        "Hide scores last, right before the softmax.",
        signs={"hidden inside": undone},
        steps=("undone",),
        explains=MASKED,
        neighbours=("fill-does-not-block",),
        explanation="Minus infinity becomes minus the cap, which leaves a weight to what should "
        "be hidden: a small one behind a large cap.",
        wrong="scores = cap * ((scores + mask) / cap).tanh()",
        right="scores = cap * (scores / cap).tanh() + mask",
    ),
    of_mistake(
        "mask-multiplied",
        signs={"hidden inside": filled},
        steps=FILLS,
        explains=MASKED,
        neighbours=("fill-does-not-block",),
    ),
    Rule(
        "fill-does-not-block",
        "blocked scores are filled with a number that does not block, such as 0",
        HIDE,
        signs={"hidden inside": filled},
        steps=("weak mask",),
        explains=MASKED | {"half precision"},
        instead_of=("mask-multiplied",),  # which a fill of 0 comes to
        neighbours=("mask-multiplied", "boolean-mask-added"),
        explanation="A score of 0 is that of an average key, so it keeps a weight; 1e-9 is no "
        "smaller. The mask does change results, and so seems to work.",
        wrong="scores.masked_fill(blocked[:, None], 1e-9)",
        right="scores.masked_fill(blocked[:, None], -math.inf)",
    ),
    Rule(
        "boolean-mask-added",
        "a mask of True and False stands where one of 0 and minus infinity is added",
        "Add 0 and minus infinity, or fill: `masked_fill(mask, -math.inf)` where True is blocked, "
        "`masked_fill(~mask, -math.inf)` where it is allowed.",
        signs={"hidden inside": filled},
        steps=("weak mask",),
        explains=MASKED | {"half precision"},
        neighbours=("fill-does-not-block", "mask-inverted"),
        explanation="True counts as 1: some scores grow by one, and none is hidden. A cast, as by "
        "`float()`, makes no other numbers of it.",
        wrong="scores = scores + allowed[:, None].float()",
        right="scores = scores.masked_fill(~allowed[:, None], -math.inf)",
    ),
    of_mistake(
        "mask-after-softmax",
        signs={"hidden inside": too_late},
        steps=("late mask", "softmax"),
        explains=MASKED,
        neighbours=("mask-makes-nan",),
    ),
)

"""How scores that a mask should hide keep a weight, as it shows inside."""

import torch

from attention_doctor.call.trace import Step
from attention_doctor.evidence import looks
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.rules.masks import FILLS
from attention_doctor.rules.questions import MASKED
from attention_doctor.rules.rule import HIDE, Named, Rule, Sign, of_mistake


def masked(e: Evidence) -> list[Seen]:
    """Give the attentions in which a mask hides something."""
    calls = [e.of(looks.free)] if e.patient.kind == "causal" else e.of(looks.masked)
    return [seen for call in calls for seen in call.found]


def filled(e: Evidence) -> Named | None:
    """Tell a mask that is multiplied or added in from a fill that leaves a weight."""
    for seen in masked(e):
        weak = seen.steps.get("weak mask")
        step = weak or seen.steps.get("mask")
        if step is not None and step.name == "mul":
            return "mask-multiplied", Sign("scores are multiplied by the mask")
        if weak is None or (number := _put(weak)) is None:
            continue
        if weak.name in ("add", "sub") and abs(number) == 1:
            symptom = "a mask of True and False is added to the scores, as 1 and 0"
            return "boolean-mask-added", Sign(symptom)
        symptom = "scores that should be hidden get a number that leaves them a weight"
        return "fill-does-not-block", Sign(symptom, f"the number is {number:g}")
    return None


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


def _put(step: Step) -> float | None:
    """Give the one number that a step puts in the place of scores, or adds."""
    old = next(x.value for x in step.parents if x.from_tokens).view_as(step.value)
    changed = old != step.value
    numbers = (step.value - old if step.name in ("add", "sub") else step.value)[changed]
    # A number for all scores hides none.
    alike = not changed.all() and torch.allclose(numbers, numbers[:1], 1e-6, 1e-6)
    return round(numbers[0].item(), 6) if alike else None


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
        "smaller. The mask does change results, and so seems to work. Even -1e4 blocks only as "
        "long as no trained score falls below it.",
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

"""What is wrong with masks, seen inside: scores that get a weak number, weights hidden too late."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from attention_doctor.look_paths import constant
from attention_doctor.look_scores import seen_inside
from attention_doctor.look_sight import Look
from attention_doctor.look_softmaxes import LOW
from attention_doctor.look_trace import Step
from attention_doctor.report import Finding


def masks(looks: Sequence[Look]) -> Iterator[Finding]:
    """Find how hidden scores keep a weight; which scores are hidden, the tests of masks say."""
    seen = [seen for look in looks for seen in look.found]
    low = sum(int(x.mask.sum()) for x in seen)
    evidence = f"{low} of {sum(x.mask.numel() for x in seen)} scores enter the softmax hidden"
    for x in seen:
        step = x.steps.get("weak mask") or x.steps.get("mask")
        if step is None or not step.parents:
            continue
        if step.name.strip("ir") in ("mul", "multiply"):
            symptom = "scores are multiplied by the mask"
            yield seen_inside("mask-multiplied", symptom, evidence, step.where)
            return
        if "weak mask" in x.steps and (value := _put(step)) is not None:
            symptom = "scores that should be hidden get a number that leaves them a weight"
            number = f"the number is {value:g}"
            yield seen_inside("fill-does-not-block", symptom, number, step.where)
            return
    if seen and not low:
        late = next((place for x in seen if (place := x.where("late mask"))), None)
        if late is not None:
            symptom = "nothing is hidden before the softmax, and weights are set to zero after it"
            yield seen_inside("mask-after-softmax", symptom, evidence, late)


def _put(step: Step) -> float | None:
    """Give the one number that a step puts in the place of scores, or adds to some of them."""
    if step.name == "scaled_dot_product_attention":
        attn_mask = step.option("attn_mask", 3)
        return _one(attn_mask[attn_mask != 0]) if isinstance(attn_mask, Tensor) else None
    olds = [x for x in step.parents if x.from_tokens and x.value.shape == step.value.shape]
    if not olds or constant(olds[0], step) is not None:
        return None
    old = olds[0].value
    changed = old != step.value
    added = "add" in step.name or "sub" in step.name
    return _one(((step.value - old) if added else step.value)[changed])


def _one(numbers: Tensor) -> float | None:
    if not numbers.numel() or (numbers - numbers[0]).abs().max() > 1e-6 * (1 + numbers[0].abs()):
        return None
    return None if numbers[0] <= LOW else numbers[0].item()

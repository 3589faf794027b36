"""What is wrong with masks, seen inside: which scores are hidden, with which number, and when."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from annotated_attention.masks import block_future
from attention_doctor.paths import constant
from attention_doctor.patient import Patient
from attention_doctor.places import Where, where
from attention_doctor.report import Finding
from attention_doctor.scoring import seen_inside
from attention_doctor.seen import Seen
from attention_doctor.sight import Look
from attention_doctor.softmaxes import LOW
from attention_doctor.traced import Step

# What is hidden where a mask, with an axis for heads, is read so; by what it varies between, and h.
Reading = Callable[[Tensor, str, int], Tensor]
_READINGS: dict[str, Reading] = {
    "mask-inverted": lambda blocked, varies, h: ~blocked,
    "padding-mask-on-queries": lambda blocked, varies, h: (
        blocked.mT if varies == "padding" else blocked
    ),
    "mask-transposed": lambda blocked, varies, h: blocked.mT,
    "mask-on-the-wrong-axis": lambda blocked, varies, h: (
        blocked[None, :, 0, 0]
        if varies == "padding" and len(blocked) == blocked.size(2)
        else blocked
    ),
    "mask-in-the-wrong-order": lambda blocked, varies, h: (
        blocked.squeeze(1).repeat(h, 1, 1).unflatten(0, (-1, h))
    ),
    "causal-unasked": lambda blocked, varies, h: blocked | torch.ones_like(blocked).triu(1),
    "mask-taken-for-causal": lambda blocked, varies, h: torch.ones_like(blocked).triu(1),
}
_CAUSAL = _READINGS | {
    "causal-off-by-one": lambda blocked, varies, h: torch.ones_like(blocked).triu(2),
    "causal-hides-itself": lambda blocked, varies, h: torch.ones_like(blocked).triu(0),
}
# Where samples and queries may stand among four axes, and how to put heads between them.
_ORDERS = {
    (0, 2): (0, 1, 2, 3), (0, 1): (0, 2, 1, 3), (1, 2): (1, 0, 2, 3), (1, 0): (1, 2, 0, 3),
}  # fmt: skip
_HERE = {
    "mask-inverted": "{line} hides exactly the scores that should stay; turn its condition.",
    "mask-transposed": "{line} hides with queries and keys exchanged; let the last axis be keys.",
    "padding-mask-on-queries": "{line} hides rows of queries; give it (b, 1, 1, m).",
    "mask-on-the-wrong-axis": "{line} takes samples for queries; give it (b, 1, 1, m).",
    "mask-in-the-wrong-order": "{line} hides with the masks of other samples; fold (b, h).",
    "causal-unasked": "{line} hides the future, whatever it is told.",
    "mask-taken-for-causal": "{line} hides the future for any mask; let it hide what that says.",
    "causal-off-by-one": "{line} hides from the second diagonal on; let it be the first.",
    "causal-hides-itself": "{line} hides the main diagonal, too; begin one above it.",
    "mask-after-softmax": "hide the scores before the softmax, and not the weights in {line}.",
    "mask-multiplied": "in {line}, put minus infinity in the place of hidden scores.",
    "mask-ignored": "hide the blocked scores before {line}; `--mask none` where it takes no mask.",
}


def masks(patient: Patient, looks: Sequence[Look], heads_first: bool) -> Iterator[Finding]:
    """Compare the scores that are hidden, in calls with masks, with those that should be."""
    pairs = [(look, seen) for look in looks for seen in look.found]
    aligned = [_aligned(seen, look, heads_first) for look, seen in pairs]
    hidden = [low for low in aligned if low is not None]
    if not pairs or len(hidden) < len(pairs):
        return

    def fits(reading: Reading) -> bool:
        expected = [
            reading(_blocked(patient, look), look.case.varies, low.size(1))
            for low, (look, _) in zip(hidden, pairs, strict=True)
        ]
        return all(map(_same, hidden, expected))

    if fits(lambda blocked, varies, h: blocked):
        return
    seen = [seen for _, seen in pairs]
    readings = _CAUSAL if patient.kind == "causal" else _READINGS
    code = next((name for name, reading in readings.items() if fits(reading)), "")
    if code:
        drawn = [where(look.triangle[0]) for look, _ in pairs if look.triangle]
        causal = code.startswith("causal-") or patient.kind == "causal"
        places = drawn if causal and code != "mask-inverted" else []
        symptom = "the scores that are hidden are not those that should be"
        yield _finding(code, seen, places, symptom)
    elif (weak := _weak(seen)) is not None:
        yield weak
    elif not any(x.mask.any() for x in seen):
        late = any("late mask" in x.steps for x in seen)
        after = "nothing is hidden before the softmax, and weights are set to zero after it"
        before = "no score is hidden before the softmax"
        if late or patient.kind != "causal":
            code = "mask-after-softmax" if late else "mask-ignored"
            yield _finding(code, seen, [], after if late else before)


def _finding(code: str, seen: Sequence[Seen], places: list[Where], symptom: str) -> Finding:
    roles = {
        "mask-after-softmax": ("late mask", "softmax"), "mask-ignored": ("softmax",),
        "mask-multiplied": ("weak mask", "mask"),
    }.get(code, ("mask", "softmax"))  # fmt: skip
    places = places + [place for x in seen if (place := x.where(*roles)) is not None]
    low = sum(int(x.mask.sum()) for x in seen)
    evidence = f"{low} of {sum(x.mask.numel() for x in seen)} scores enter the softmax hidden"
    return seen_inside(code, symptom, evidence, _HERE[code], places[0] if places else None)


def _blocked(patient: Patient, look: Look) -> Tensor:
    """Give what should be hidden, (b, 1, n, m)."""
    if look.case.blocked is not None:
        return look.case.blocked[:, None]
    b, n, m = *look.output.shape[:2], look.case.inputs.key.size(1)
    blocked = (
        block_future(n, m) if patient.kind == "causal" else torch.zeros(n, m, dtype=torch.bool)
    )
    return blocked.expand(b, 1, n, m)


def _same(low: Tensor, expected: Tensor) -> bool:
    return low.shape[-2:] == expected.shape[-2:] and torch.equal(low, expected.expand_as(low))


def _aligned(seen: Seen, look: Look, heads_first: bool) -> Tensor | None:
    """Turn what is hidden into (b, h, n, m); None if that cannot be told."""
    b, n = look.output.shape[:2]
    x = seen.mask.movedim(seen.axis, -1)
    more = x.size(-1) - look.case.inputs.key.size(1)
    if more > 0:  # keys are appended, in front or behind, and never hidden
        x = x[..., :-more] if x[..., :more].any() else x[..., more:]
    if more < 0:
        return None
    if x.dim() == 5:  # groups of heads
        x = x.flatten(1, 2)
    if x.dim() == 3 and x.size(1) == n and x.size(0) % b == 0:
        return x.unflatten(0, (-1, b)).transpose(0, 1) if heads_first else x.unflatten(0, (b, -1))
    if x.dim() == 2 and x.size(0) == n:  # a mask of its own
        return x.expand(b, 1, -1, -1)
    for (sample, query), order in _ORDERS.items():
        if x.dim() == 4 and x.size(sample) == b and x.size(query) == n:
            return x.permute(order)
    return None


def _weak(seen: Sequence[Seen]) -> Finding | None:
    """Find a mask that changes scores, but leaves them a weight."""
    for x in seen:
        step = x.steps.get("weak mask") or x.steps.get("mask")
        if step is None or not step.parents:
            continue
        if step.name.strip("ir") in ("mul", "multiply"):
            return _finding("mask-multiplied", seen, [], "scores are multiplied by the mask")
        if "weak mask" in x.steps and (value := _put(step)) is not None:
            return seen_inside(
                "fill-does-not-block",
                "scores that should be hidden get a number that leaves them a weight",
                f"the number is {value:g}; of {x.mask.numel()} scores {int(x.mask.sum())} are low "
                "enough to leave none",
                f"in {{line}}, put minus infinity in the place of {value:g}.",
                step.where,
            )
    return None


def _put(step: Step) -> float | None:
    """Give the one number that a step puts in the place of scores, or adds to some of them."""
    old = next(
        (x for x in step.parents if x.from_tokens and x.value.shape == step.value.shape), None
    )
    if step.name == "scaled_dot_product_attention":
        attn_mask = step.option("attn_mask", 3)
        return _one(attn_mask[attn_mask != 0]) if isinstance(attn_mask, Tensor) else None
    if old is None or constant(old, step) is not None:
        return None
    changed = old.value != step.value
    if "add" in step.name or "sub" in step.name:
        return _one((step.value - old.value)[changed])
    return _one(step.value[changed])


def _one(numbers: Tensor) -> float | None:
    if not numbers.numel() or (numbers - numbers[0]).abs().max() > 1e-6 * (1 + numbers[0].abs()):
        return None
    return None if numbers[0] <= LOW else numbers[0].item()

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

# What is hidden where a mask with an axis for heads is read so; by what it varies between, and h.
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


def masks(patient: Patient, looks: Sequence[Look], heads_first: bool) -> Iterator[Finding]:
    """Compare the scores that are hidden, in calls with masks, with those that should be."""
    pairs = [(look, seen) for look in looks for seen in look.found]
    hidden = [low for look, seen in pairs if (low := _aligned(seen, look, heads_first)) is not None]
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
        yield _finding(code, seen, symptom, places)
    elif (weak := _weak(seen)) is not None:
        yield weak
    elif not any(x.mask.any() for x in seen):
        late = any("late mask" in x.steps for x in seen)
        after = "nothing is hidden before the softmax, and weights are set to zero after it"
        if late:
            yield _finding("mask-after-softmax", seen, after)
        elif patient.kind != "causal":
            yield _finding("mask-ignored", seen, "no score is hidden before the softmax")


def _finding(
    code: str, seen: Sequence[Seen], symptom: str, places: Sequence[Where] = ()
) -> Finding:
    roles = {
        "mask-after-softmax": ("late mask", "softmax"), "mask-ignored": ("softmax",),
        "mask-multiplied": ("weak mask", "mask"),
    }.get(code, ("mask", "softmax"))  # fmt: skip
    places = [*places, *(place for x in seen if (place := x.where(*roles)) is not None)]
    low = sum(int(x.mask.sum()) for x in seen)
    evidence = f"{low} of {sum(x.mask.numel() for x in seen)} scores enter the softmax hidden"
    return seen_inside(code, symptom, evidence, places[0] if places else None)


def _blocked(patient: Patient, look: Look) -> Tensor:
    """Give what should be hidden, (b, 1, n, m)."""
    b, n, m = *look.output.shape[:2], look.case.inputs.key.size(1)
    hidden = torch.zeros(n, m, dtype=torch.bool) if patient.kind != "causal" else block_future(n, m)
    if look.case.blocked is not None:
        hidden = hidden | look.case.blocked
    return hidden.expand(b, n, m)[:, None]


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
            return _finding("mask-multiplied", seen, "scores are multiplied by the mask")
        if "weak mask" in x.steps and (value := _put(step)) is not None:
            symptom = "scores that should be hidden get a number that leaves them a weight"
            evidence = f"the number is {value:g}"
            return seen_inside("fill-does-not-block", symptom, evidence, step.where)
    return None


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

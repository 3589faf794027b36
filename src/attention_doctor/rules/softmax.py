"""The softmax, its axis, and the weights: those that mix the values, those that are returned."""

from torch import Tensor

from attention_doctor.evidence import looks, mixing, order
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.rules.questions import OUTPUTS
from attention_doctor.rules.rule import Named, Rule, Sign, inside, of_mistake, told

_CLOSE = 1e-3
_MIX = "Mix the values of other tokens, with weights that are made from queries and keys."


def axis(e: Evidence) -> Named | None:
    """Tell whether the softmax runs over the axis that is summed over when values are mixed."""
    patient = e.patient
    h, n = patient.num_heads, patient.n
    for seen in e.of(looks.free).found:
        shape, mixed = tuple(seen.scores.shape), seen.mixed.step.value
        if patient.kind != "cross" and shape[-2:] == (h, h) and h != n and n in shape[:-2]:
            symptom = "each token attends over heads, and sees no other token"
            said = f"the scores have shape {shape}: {h} heads against {h} heads"
            return "heads-attended-over", Sign(symptom, said)
        if sums_to_one(mixed, seen.mixed.summed) or not seen.normalised:
            continue
        # A mask may hide everything, and more than an order may change behind the softmax.
        if not mixed.isfinite().any() or not _reordered(mixed, seen.weights):
            continue
        over = [axis for axis in range(-mixed.dim(), 0) if sums_to_one(mixed, axis)]
        sizes = {h: "heads", patient.b: "samples"}
        what = sizes.get(shape[seen.axis], "heads")
        what = "queries" if seen.mixed.own in over else what
        if seen.keys == seen.axis and what == "queries":
            symptom = "each output sums the weights of one key over the queries"
            said = f"the softmax runs over the keys, axis {seen.axis} of {shape}"
            return "mixed-over-queries", Sign(symptom, said)
        symptom = f"weights sum to one over the {what}, and not over the keys"
        said = f"the softmax runs over axis {seen.axis} of {shape}; the mix sums over another"
        return f"softmax-over-{what}", Sign(symptom, said)
    return None


def _reordered(x: Tensor, y: Tensor) -> bool:
    """Tell whether two tensors hold the same numbers in any order."""
    numbers = [z.double().flatten().sort().values for z in (x, y)]
    same = numbers[0].shape == numbers[1].shape
    return same and bool(((numbers[0] - numbers[1]).nan_to_num().abs() < 1e-6).all())


def sums_to_one(weights: Tensor, axis: int) -> bool:
    """Tell whether weights, as far as they are finite, sum to one over an axis."""
    sums = weights.double().sum(axis)
    sums = sums[sums.isfinite()]
    return bool(sums.numel()) and bool(((sums - 1).abs() < _CLOSE).all())


def sums_differ(e: Evidence) -> Sign | None:
    """Tell whether weights sum to one, by equal tokens, and without a softmax by others, too."""
    symptom = "with equal values the result should not depend on the weights, and it does"
    gap = e.of(order.equal_values)
    if gap is None and (e.had(looks.free) is not None or not e.had(order.unequal_keys)):
        return None
    return Sign(symptom, e.of(order.unequal_keys) if gap is None else gap.text)


def scaled_late(seen: Seen) -> Sign | None:
    if "late scale" not in seen.steps or sums_to_one(seen.mixed.step.value, seen.mixed.summed):
        return None
    return Sign("the weights are multiplied by a number after the softmax")


def others_returned(e: Evidence) -> Sign | None:
    symptom = "the weights that are returned are not those that were used"
    for look in (e.of(looks.free), *e.of(looks.masked)):
        given = e.patient.answer(look.case.inputs, look.case.blocked).weights
        (seen, *more), used = look.found, look.found[0].mixed.step.value
        if more or given is None or given.shape != seen.weights.shape:
            return None
        # A mask may hide everything, or come behind the softmax.
        alike = [seen.weights, *([used] if used.shape == given.shape else [])]
        if not alike[-1].isfinite().all() or not sums_to_one(given, seen.axis):
            continue
        if not any(e.patient.same(given, x) for x in alike):
            gap = f"they differ by {e.patient.gap(given, seen.weights):.0%} of their size"
            return Sign(symptom, f"{gap}, with {look.case.name}")
    return None


_UNUSED = frozenset({"parameters-without-gradient"})  # what makes weights that are not used
_OVER = {
    "softmax-over-queries": "softmax",
    "softmax-over-heads": "softmax",
    "heads-attended-over": "product",
}
RULES = (
    Rule(
        "context-ignored",
        "keys and values are made from the queries' tokens, and what is given beside them is not "
        "read",
        "Make keys and values from the context that is given.",
        signs={
            "attention": told(mixing.mixing, "the context that is given changes nothing", "unread")
        },
        explains=OUTPUTS,
        neighbours=("no-attention",),
        explanation="It is a self-attention where another was meant: every shape is right, and a "
        "decoder never reads what it should translate.",
        wrong="k, v = W_k(x), W_v(x)",
        right="k, v = W_k(context), W_v(context)",
    ),
    Rule(
        "no-attention",
        "heads attended over, weights that are never used, or no attention at all",
        _MIX,
        signs={
            "attention": told(
                mixing.mixing, "the weights of other tokens change nothing", "unmixed"
            )
        },
        explains=_UNUSED,
        alike=True,
        explanation="Each result is made from its own token, or from no token. Other parts of a "
        "model may hide it, since they learn.",
    ),
    Rule(
        "queries-ignored",
        "weights that are averaged over the queries, or made from the keys alone",
        "Compute one row of weights for each query, from that query and the keys.",
        signs={"attention": told(mixing.mixing, "which query asks makes no difference", "unasked")},
        explains=_UNUSED,
        alike=True,
        explanation="Every query gets the same mean of the values.",
    ),
    Rule(
        "keys-ignored",
        "weights that are made from the queries alone, or without a softmax",
        "Score each query against each key, and let the softmax run over the keys.",
        signs={
            "attention": told(mixing.mixing, "the weights do not depend on the keys", "unscored")
        },
        explains=_UNUSED,
        alike=True,
        explanation="What a key holds makes no difference to its weight, only its place does.",
    ),
    Rule(
        "weights-do-not-sum-to-one",
        "a mask after the softmax, or a softmax over another axis",
        "Let the softmax run over the last axis of (b, h, n, m), with blocked scores at minus "
        "infinity, and mix the values.",
        signs={"equal values": sums_differ},
        steps=("late mask", "softmax"),
        explanation="Results are then no mean of values: they grow and shrink with the length, "
        "or with the mask.",
    ),
    Rule(
        "scaled-after-softmax",
        "the scale is applied to the weights, and not to the scores",
        signs={"numbers": inside(scaled_late)},
        steps=("late scale",),
        explains=OUTPUTS,
        remedy="Scale the scores.",
        explanation="The softmax gets scores that are too large, and the weights behind it sum "
        "to 1/√d.",
        wrong="weights = scores.softmax(-1) / math.sqrt(d)",
        right="weights = (scores / math.sqrt(d)).softmax(-1)",
    ),
    Rule(
        "other-weights-returned",
        "the weights that are returned are not those that mix the values",
        signs={"returned": others_returned},
        steps=("softmax",),
        remedy="Return the weights that mix the values.",
        explanation="What is shown is not what was used: pictures of these weights mislead.",
        wrong="return output, scores.softmax(-1)",
        right="return output, weights",
    ),
    *(
        of_mistake(code, signs={"axis": axis}, steps=(step,), explains=OUTPUTS)
        for code, step in _OVER.items()
    ),
    Rule(
        "softmax-over-samples",
        "the softmax runs over the samples of the batch",
        signs={"axis": axis},
        steps=("softmax",),
        explains=OUTPUTS,
        remedy="Let the softmax run over the keys, the last axis.",
        explanation="Weights depend on who else is in the batch, and with one sample each of "
        "them is 1.",
        wrong="weights = scores.softmax(0)",
        right="weights = scores.softmax(-1)",
    ),
    Rule(
        "mixed-over-queries",
        "weights that are summed over the queries when values are mixed",
        signs={"axis": axis},
        steps=("mix",),
        explains=OUTPUTS,
        remedy="Sum over the keys.",
        explanation="Each output collects what all queries think of one key. With as many "
        "queries as keys, every shape is right.",
        wrong="heads = weights.mT @ v",
        right="heads = weights @ v",
    ),
)

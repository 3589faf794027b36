"""How it behaves as a module: modes, dropout, precision, hooks, arguments; and the reference."""

from attention_doctor.evidence import conditions, conduct, pairs
from attention_doctor.evidence.conditions import DROPOUT, TRIES
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.reference import compare
from attention_doctor.rules.questions import TRUSTED
from attention_doctor.rules.rule import Rule, Sign, of_mistake


def not_finite(e: Evidence) -> Sign | None:
    finite = e.of(conditions.finite)
    if finite.all():
        return None
    bad = e.of(pairs.unfilled)
    said = f"in {int((~finite).sum())} of {finite.numel()} rows; parameters that are NaN, "
    said += f"infinite or huge: {', '.join(bad) or 'none'}"
    remedy = "Initialise every parameter in the constructor." if bad else ""
    return Sign("standard normal inputs give NaN or infinity", said, remedy)


def random_in_evaluation(e: Evidence) -> Sign | None:
    gap = e.of(conditions.varies)
    if not gap:
        return None
    return Sign(
        "in evaluation mode the same input gives a different result each time",
        f"{TRIES} calls differ by up to {gap:.0%} of their size, with dropout at {DROPOUT}",
    )


def drawn_anew(e: Evidence) -> Sign | None:
    gap = e.of(conditions.varies)
    if not gap or (place := e.had(conditions.made_within)) is None:
        return None
    return Sign(
        "in evaluation mode the same input gives a different result each time",
        f"{TRIES} calls differ by up to {gap:.0%} of their size; parameters are used that the "
        "module does not hold, and others in each call",
        place=place,
    )


def coarse(e: Evidence) -> Sign | None:
    step = e.of(conditions.coarse)
    if step is None:
        return None
    names = [str(x).removeprefix("torch.") for x in (e.patient.dtype, step.value.dtype)]
    said = f"{names[0]} goes in; `{step.name}` gives {names[1]}"
    return Sign("the result is coarser than the inputs", said, place=step.where)


def dropped_scores(e: Evidence) -> Sign | None:
    varied = e.of(conduct.dropped_scores)
    if varied is None:
        return None
    said = f"in training results vary by {varied:.0%}, and not at all where all values are equal"
    return Sign("with dropout, the weights still sum to one", said)


def nan_in_training(e: Evidence) -> Sign | None:
    said = e.of(conduct.not_finite_in_training)
    symptom = "in training, with dropout, results are NaN or infinite"
    return Sign(symptom, said) if said else None


def no_hooks(e: Evidence) -> Sign | None:
    if e.of(conduct.hook_runs):
        return None
    name = type(e.patient.module).__name__
    return Sign("hooks on the module never run", f"{name} defines `__call__`")


def changed(e: Evidence) -> Sign | None:
    names = e.of(conduct.changed_arguments)
    symptom = "an argument has changed after the call"
    return Sign(symptom, f"changed: {', '.join(names)}") if names else None


def other_parameters(e: Evidence) -> Sign | None:
    said = e.of(compare).parameters
    symptom = "its parameters are not those of the reference, so that outputs cannot be compared"
    return Sign(symptom, said) if said else None


def other_outputs(e: Evidence) -> Sign | None:
    found = e.of(compare)
    symptom = f"with the same parameters, outputs are not those of {found.name}"
    return Sign(symptom, found.difference) if found.difference else None


RULES = (
    Rule(
        "output-not-finite",
        "parameters that are never filled, or a mask that hides everything",
        signs={"answers": not_finite},
        steps=("mask", "softmax"),
        explanation="NaN stands in the first answer, before anything was trained: as of memory "
        "that `torch.empty` has given and nobody filled.",
        wrong="self.weight = nn.Parameter(torch.empty(e, e))",
        right="self.weight = nn.Parameter(torch.randn(e, e) / math.sqrt(e))",
    ),
    Rule(
        "weights-drawn-anew",
        "a layer is made in `forward`: its weights are drawn anew in each call",
        "Make the layer in the constructor, and use it in `forward`.",
        signs={"evaluation": drawn_anew},
        neighbours=("dropout-in-evaluation",),
        explanation="No optimizer knows its weights and no checkpoint holds them: it never learns, "
        "and what the others learn is undone by the next call.",
        wrong="return nn.Linear(e, e)(heads)  # in forward",
        right="return self.out(heads)",
    ),
    of_mistake(
        "dropout-in-evaluation",
        neighbours=("weights-drawn-anew",),
        signs={"evaluation": random_in_evaluation},
        steps=("dropout", "softmax"),
        ignore="it is meant, to measure how sure the model is",
    ),
    Rule(
        "computed-in-low-precision",
        "the softmax, or another step, runs in half precision",
        "Compute the softmax in the dtype of the scores, or in float32.",
        signs={"precision": coarse},
        steps=("softmax",),
        explanation="Results have two or three digits, whatever goes in.",
        wrong="weights = scores.half().softmax(-1).to(v.dtype)",
        right="weights = scores.softmax(-1)",
        ignore="it is there for speed, and you know what it costs",
    ),
    of_mistake(
        "dropout-before-softmax", signs={"dropout": dropped_scores}, steps=("dropout", "softmax")
    ),
    Rule(
        "training-not-finite",
        "dropout falls on scores that are minus infinity, and 0 · ∞ is NaN",
        "Drop weights, behind the softmax, and not scores.",
        signs={"finite training": nan_in_training},
        steps=("dropout", "softmax"),
        instead_of=("dropout-before-softmax",),
        explanation="A dropout multiplies what it keeps and what it drops: 0 times minus "
        "infinity is NaN. Evaluation, which drops nothing, is right.",
        wrong="weights = dropout(scores).softmax(-1)  # some scores are -inf",
        right="weights = dropout(scores.softmax(-1))",
    ),
    of_mistake("call-instead-of-forward", signs={"hooks": no_hooks}),
    of_mistake("input-changed-in-place", signs={"inputs": changed}),
    Rule(
        "parameters-differ",
        "other parameters than those of the reference that was given",
        "Give both the same parameters: the same names, or the same shapes in the same order.",
        signs={TRUSTED: other_parameters},
        explanation="Outputs are compared with the same parameters in both, and these cannot be "
        "copied.",
    ),
    Rule(
        "differs-from-reference",
        "outputs are not those of the reference that was given",
        "Compare both step by step in that situation: projections, positions (which features a "
        "rotation turns together), scores, mask, weights, merge.",
        signs={TRUSTED: other_outputs},
        explanation="No property of attention need be hurt: another layout of a rotation, "
        "another slope, another scale is valid by itself, and reads a checkpoint "
        "wrongly.",
        ignore="the two are meant to differ there",
    ),
    Rule(
        "fails",
        "the call raises an error",
        remedy="Mend the line that it names, or say how it is called.",
        explanation="What raises cannot be examined there. The report names the test, the "
        "message and the line.",
    ),
    Rule(
        "wrong-result",
        "what it returns is no output of (b, n, e)",
        remedy="Return (b, n, e), alone or among other tensors.",
        explanation="There is nothing of the right shape to compare.",
    ),
)

"""How it behaves as a module: modes, dropout, precision, hooks, arguments; and the reference."""

from attention_doctor.evidence import conditions, conduct, pairs
from attention_doctor.evidence.conditions import DROPOUT, STEP, TRIES
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


def coarse(e: Evidence) -> Sign | None:
    steps = e.of(conditions.steps)
    if not steps:
        return None
    name = str(e.patient.dtype).removeprefix("torch.")
    return Sign(
        "the result is coarser than the inputs",
        f"{name} goes in; moved by {STEP}, the inputs move the output in steps of up to "
        f"{steps:.0e} of its size",
    )


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
    ),
    of_mistake(
        "dropout-in-evaluation",
        signs={"evaluation": random_in_evaluation},
        steps=("dropout", "softmax"),
    ),
    Rule(
        "computed-in-low-precision",
        "the softmax, or another step, runs in half precision",
        "Compute the softmax in the dtype of the scores, or in float32.",
        signs={"precision": coarse},
        steps=("softmax",),
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
    ),
    of_mistake("call-instead-of-forward", signs={"hooks": no_hooks}),
    of_mistake("input-changed-in-place", signs={"inputs": changed}),
    Rule(
        "parameters-differ",
        "other parameters than those of the reference that was given",
        "Give both the same parameters: the same names, or the same shapes in the same order.",
        signs={TRUSTED: other_parameters},
    ),
    Rule(
        "differs-from-reference",
        "outputs are not those of the reference that was given",
        "Compare both step by step in that situation: projections, positions (which features a "
        "rotation turns together), scores, mask, weights, merge.",
        signs={TRUSTED: other_outputs},
    ),
    Rule("fails", "the call raises an error"),
    Rule("wrong-result", "what it returns is no output of (b, n, e)"),
)

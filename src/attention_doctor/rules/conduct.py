"""How it behaves as a module: modes, dropout, precision, hooks, arguments; and the reference."""

from attention_doctor.evidence import conditions, conduct
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.reference import compare
from attention_doctor.rules.questions import TRUSTED
from attention_doctor.rules.rule import Named, Rule, Sign, of_mistake, told


def random(e: Evidence) -> Named | None:
    if not (said := e.of(conditions.varies)):
        return None
    symptom = "in evaluation mode the same input gives a different result each time"
    if (place := e.had(conditions.made_within)) is None:
        return "dropout-in-evaluation", Sign(symptom, said)
    said += "; parameters are used that the module does not hold, and others in each call"
    return "weights-drawn-anew", Sign(symptom, said, place=place)


def coarse(e: Evidence) -> Sign | None:
    step = e.of(conditions.coarse)
    if step is None:
        return None
    said = f"{e.patient.dtype} goes in; `{step.name}` gives {step.value.dtype}"
    return Sign("the result is coarser than the inputs", said, place=step.where)


RULES = (
    Rule(
        "output-not-finite",
        "parameters that are never filled, or a mask that hides everything",
        "Initialise every parameter in the constructor, and leave each query a key.",
        signs={
            "answers": told(conditions.not_finite, "standard normal inputs give NaN or infinity")
        },
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
        signs={"evaluation": random},
        neighbours=("dropout-in-evaluation",),
        explanation="No optimizer knows its weights and no checkpoint holds them: it never learns, "
        "and what the others learn is undone by the next call.",
        wrong="return nn.Linear(e, e)(heads)  # in forward",
        right="return self.out(heads)",
    ),
    of_mistake(
        "dropout-in-evaluation",
        neighbours=("weights-drawn-anew",),
        signs={"evaluation": random},
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
        "dropout-before-softmax",
        signs={
            "dropout": told(conduct.dropped_scores, "with dropout, the weights still sum to one")
        },
        steps=("dropout", "softmax"),
    ),
    Rule(
        "training-not-finite",
        "dropout falls on scores that are minus infinity, and 0 · ∞ is NaN",
        "Drop weights, behind the softmax, and not scores.",
        signs={
            "finite training": told(
                conduct.not_finite_in_training,
                "in training, with dropout, results are NaN or infinite",
            )
        },
        steps=("dropout", "softmax"),
        instead_of=("dropout-before-softmax",),
        explanation="A dropout multiplies what it keeps and what it drops: 0 times minus "
        "infinity is NaN. Evaluation, which drops nothing, is right.",
        wrong="weights = dropout(scores).softmax(-1)  # some scores are -inf",
        right="weights = dropout(scores.softmax(-1))",
    ),
    of_mistake(
        "call-instead-of-forward",
        signs={"hooks": told(conduct.deaf_to_hooks, "hooks on the module never run")},
    ),
    of_mistake(
        "input-changed-in-place",
        signs={"inputs": told(conduct.changed, "an argument has changed after the call")},
    ),
    Rule(
        "parameters-differ",
        "other parameters than those of the reference that was given",
        "Give both the same parameters: the same names, or the same shapes in the same order.",
        signs={
            TRUSTED: told(
                compare,
                "its parameters are not those of the reference, so that outputs cannot be compared",
                "parameters",
            )
        },
        explanation="Outputs are compared with the same parameters in both, and these cannot be "
        "copied.",
    ),
    Rule(
        "differs-from-reference",
        "outputs are not those of the reference that was given",
        "Compare both step by step in that situation: projections, positions (which features a "
        "rotation turns together), scores, mask, weights, merge.",
        signs={
            TRUSTED: told(
                compare,
                "with the same parameters, outputs are not those of the reference",
                "difference",
            )
        },
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

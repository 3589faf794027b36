"""Projections: which parameters make queries, keys and values; which are used and trained."""

from functools import partial

from attention_doctor.call.trace import Step, tensors
from attention_doctor.evidence import conduct, looks, mixing
from attention_doctor.evidence.agreement import agreement
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.parameters import role_of
from attention_doctor.evidence.steps import before, is_projection
from attention_doctor.rules.questions import CONVENTION, OUTPUTS, WRONG
from attention_doctor.rules.rule import Named, Rule, Sign, of_mistake, told


def swapped(e: Evidence) -> Named | None:
    """Find what is made by parameters that are named after something else."""
    roles = {x.data_ptr(): role_of(name) for name, x in e.patient.named.items()}
    if not {"q", "k", "v"} <= {*roles.values()}:
        return None  # what is shared by design has no parameters of its own

    def role(made: Step) -> str:
        projections = [step for step in before(made) if is_projection(step)]
        taken = [x for step in projections for x in tensors([step.arguments, step.options])]
        own = {id(x.tensor) for step in projections for x in step.parents}
        names = {roles.get(x.data_ptr(), "") for x in taken if id(x) not in own}
        return names.pop() if len(names) == 1 else ""

    for seen in e.of(looks.free).found:
        query, key, value = made_by = [role(x.step) for x in (seen.query, seen.key, seen.value)]
        code = {"q": "keys-from-queries", "v": "keys-and-values-swapped"}.get(key, "")
        code = code or ("values-from-keys" if value == "k" else "")
        if sorted(made_by) == ["k", "q", "v"] and query != "q":
            code = "chunks-in-the-wrong-order"
        if code:
            names = ", ".join(x or "nothing" for x in made_by)
            symptom = "queries, keys and values are made by projections that are named after "
            return code, Sign(symptom + names)
    return None


def unused(e: Evidence) -> Sign | None:
    """Tell whether values are made from the keys' tokens, as far as is seen: not the queries'."""
    said, free = e.of(mixing.unused_values), e.had(looks.free)
    ways = [] if free is None else [seen.value.step.roots for seen in free.found]
    if not said or any("query" in roots and "key" not in roots for roots in ways):
        return None
    return Sign("the result does not depend on the values that are given", said)


def in_another_order(e: Evidence) -> Named | None:
    """Tell how projections are ordered that agree with the right version in another order."""
    found = e.of(agreement)
    severity, said = WRONG, "not what their names say"
    if found.packed:
        severity, said = CONVENTION, "packed in another way than PyTorch's"
    return found.code, Sign(f"the projections are {said}", found.said, severity=severity)


of_outputs = partial(of_mistake, explains=OUTPUTS)
RULES = (
    of_outputs(
        "chunks-in-the-wrong-order",
        signs={
            "numbers": swapped,
            "reference": in_another_order,
        },
        steps=("chunk", "split"),
    ),
    of_outputs(
        "interleaved-per-head",
        signs={"reference": in_another_order},
        steps=("split",),
    ),
    of_outputs(
        "keys-and-values-swapped",
        signs={"numbers": swapped},
        steps=("chunk", "split"),
    ),
    of_outputs(
        "keys-from-queries",
        signs={
            "numbers": swapped,
            "packed gradients": told(
                conduct.gradients, "the rows of the keys get no gradient", "keys"
            ),
        },
        steps=("product",),
        alike=True,
    ),
    of_outputs(
        "values-from-keys",
        signs={
            "numbers": swapped,
            "values": unused,
            "packed gradients": told(
                conduct.gradients, "the rows of the values get no gradient", "values"
            ),
        },
        steps=("mix",),
    ),
    of_mistake("keys-of-one-head", steps=("product",)),
    of_mistake(
        "heads-in-a-plain-list",
        signs={
            "registration": told(
                conduct.unregistered, "some parameters are not registered with the module"
            )
        },
    ),
    Rule(
        "no-gradient",
        "`no_grad`, `detach`, `.data`, `item` or numpy on the way",
        "Compute with tensors from end to end.",
        signs={
            "gradients": told(
                conduct.gradients, "no gradient reaches what the output depends on", "stopped"
            )
        },
        explanation="The output depends on these parameters, and training never moves them.",
        wrong="heads = weights.detach() @ v",
        right="heads = weights @ v",
    ),
    Rule(
        "parameters-without-gradient",
        "parameters on which the output does not depend",
        "Use them, or do not create them.",
        signs={
            "gradients": told(conduct.gradients, "no gradient reaches some parameters", "unused")
        },
        alike=True,
        explanation="Training never moves them. Mostly something was built and then forgotten "
        "in `forward`.",
        ignore="they are for a path that this call does not take",
    ),
    Rule(
        "gradient-not-finite",
        "gradients through a fully masked row, or through a number too large",
        signs={
            "finite gradients": told(conduct.gradients, "gradients are NaN or infinite", "wild")
        },
        remedy="Keep NaN and infinity out of the backward pass, too: mask with `where` "
        "before a root, a logarithm or a division.",
        explanation="The output is finite, and one step of training makes every parameter NaN.",
    ),
)

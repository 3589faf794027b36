"""Projections: which parameters make queries, keys and values; which are used and trained."""

from attention_doctor.evidence import conduct, looks, mixing
from attention_doctor.evidence.agreement import agreement
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.parameters import role_of
from attention_doctor.evidence.sight import Seen, has_another_way
from attention_doctor.evidence.steps import before, is_projection
from attention_doctor.evidence.trace import Step, tensors
from attention_doctor.rules.questions import CONVENTION, OUTPUTS, WRONG
from attention_doctor.rules.rule import Rule, Sign, Test, named, of_mistake
from attention_doctor.rules.scale import normed

_BENDS = {"relu", "gelu", "silu", "tanh", "sigmoid", "elu", "softplus"}


def swapped(e: Evidence) -> tuple[str, Sign] | None:
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


def in_another_order(code: str) -> Test:
    """Make the test of projections that agree with the right version in another order."""

    def test(e: Evidence) -> Sign | None:
        found = e.of(agreement)
        if found.code != code:
            return None
        severity, said = WRONG, "not what their names say"
        if found.packed:
            severity, said = CONVENTION, "packed in another way than PyTorch's"
        return Sign(f"the projections are {said}", found.evidence, severity=severity)

    return test


def third_unused(role: str) -> Test:
    """Make the test of packed projections of which a third gets no gradient."""

    def test(e: Evidence) -> Sign | None:
        for whose, name in e.of(conduct.gradients).dead_thirds:
            if whose == role:
                symptom = f"the rows of the {role} get no gradient"
                return Sign(symptom, f"a third of {name} changes nothing")
        return None

    return test


def values_unused(e: Evidence) -> Sign | None:
    if e.of(mixing.value_counts):
        return None
    symptom = "the result does not depend on the values that are given"
    return Sign(symptom, "another `value` gives the same result, and another `key` does not")


def one_side_normed(e: Evidence) -> Sign | None:
    for seen in e.of(looks.free).found:
        if len({*normed(seen)}) > 1:
            symptom = "either the queries or the keys are normalised, and not both"
            return Sign(symptom, place=seen.where("product"))
    return None


def values_bent(e: Evidence) -> Sign | None:
    for seen in e.of(looks.free).found:
        values, *others = ([*_bends(seen, side)] for side in ("value", "query", "key"))
        for bend in values[:1]:
            place = bend.where and bend.where._replace(step=bend.name)
            symptom = f"the values go through {bend.name} before they are mixed"
            return Sign(symptom, severity=CONVENTION if any(others) else WRONG, place=place)
    return None


def _bends(seen: Seen, name: str) -> list[Step]:
    side = getattr(seen, name)
    made = (x for x in before(side.step) if x.name in _BENDS)
    return [x for x in made if not has_another_way(side.step, x)]


def unregistered(e: Evidence) -> Sign | None:
    if not (lost := e.of(conduct.unregistered)):
        return None
    count = sum(x.numel() for x in lost.values())
    names = f"{', '.join(list(lost)[:4])}{' …' if len(lost) > 4 else ''}"
    symptom = "some parameters are not registered with the module"
    return Sign(symptom, f"{count} numbers in {names}")


# Gradients.
def no_gradient(e: Evidence) -> Sign | None:
    found = e.of(conduct.gradients)
    if not found.graph:
        return Sign("no gradient flows", "the output has no graph")
    if not found.dead or not found.used:
        return None
    symptom = "no gradient reaches parameters on which the output depends"
    return Sign(symptom, _dead(found))


def without_gradient(e: Evidence) -> Sign | None:
    found = e.of(conduct.gradients)
    if not found.dead or found.used:
        return None
    return Sign("no gradient reaches some parameters", _dead(found))


def _dead(found: conduct.Gradients) -> str:
    more = " …" if len(found.dead) > 5 else ""
    return f"{len(found.dead)} of {found.count}: {', '.join(found.dead[:5])}{more}"


def not_finite(e: Evidence) -> Sign | None:
    return None if e.of(conduct.gradients).finite else Sign("gradients are NaN or infinite")


_ORDERS = ("chunks-in-the-wrong-order", "interleaved-per-head")
RULES = (
    Rule(
        "one-side-normed",
        "queries are normalised, and keys are not, or the other way round",
        severity=CONVENTION,
        signs={"numbers": one_side_normed},
        steps=("product",),
        explanation="Models that normalise their queries do so with their keys, too.",
        ignore="one side is meant",
    ),
    Rule(
        "values-bent",
        "an activation stands between the projection of the values and the mix",
        signs={"numbers": values_bent},
        explains=OUTPUTS,
        remedy="Mix the projected values.",
        explanation="What is mixed has lost a part of what the values held. With queries and "
        "keys bent as well, it is a design.",
        wrong="v = W_v(value).relu()",
        right="v = W_v(value)",
        ignore="it is meant",
    ),
    of_mistake(
        "chunks-in-the-wrong-order",
        signs={
            "numbers": named("chunks-in-the-wrong-order", swapped),
            "reference": in_another_order("chunks-in-the-wrong-order"),
        },
        steps=("chunk", "split"),
        explains=OUTPUTS,
    ),
    of_mistake(
        "interleaved-per-head",
        signs={"reference": in_another_order("interleaved-per-head")},
        steps=("split",),
        explains=OUTPUTS,
    ),
    of_mistake(
        "keys-and-values-swapped",
        signs={"numbers": named("keys-and-values-swapped", swapped)},
        steps=("chunk", "split"),
        explains=OUTPUTS,
    ),
    of_mistake(
        "keys-from-queries",
        signs={
            "numbers": named("keys-from-queries", swapped),
            "packed gradients": third_unused("keys"),
        },
        steps=("product",),
        explains=OUTPUTS,
    ),
    of_mistake(
        "values-from-keys",
        signs={
            "numbers": named("values-from-keys", swapped),
            "values": values_unused,
            "packed gradients": third_unused("values"),
        },
        steps=("mix",),
        explains=OUTPUTS,
    ),
    of_mistake("keys-of-one-head", steps=("product",)),
    of_mistake("heads-in-a-plain-list", signs={"registration": unregistered}),
    Rule(
        "no-gradient",
        "`no_grad`, `detach`, `.data`, `item` or numpy on the way",
        "Compute with tensors from end to end.",
        signs={"gradients": no_gradient},
        explanation="The output depends on these parameters, and training never moves them.",
        wrong="heads = weights.detach() @ v",
        right="heads = weights @ v",
    ),
    Rule(
        "parameters-without-gradient",
        "parameters on which the output does not depend",
        "Use them, or do not create them.",
        signs={"gradients": without_gradient},
        explanation="Training never moves them. Mostly something was built and then forgotten "
        "in `forward`.",
        ignore="they are for a path that this call does not take",
    ),
    Rule(
        "gradient-not-finite",
        "gradients through a fully masked row, or through a number too large",
        signs={"finite gradients": not_finite},
        remedy="Keep NaN and infinity out of the backward pass, too: mask with `where` "
        "before a root, a logarithm or a division.",
        explanation="The output is finite, and one step of training makes every parameter NaN.",
    ),
)

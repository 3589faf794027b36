"""The factor on the scores."""

from attention_doctor.evidence import looks
from attention_doctor.evidence.agreement import agreement
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.evidence.steps import NORMS, before
from attention_doctor.rules.questions import CONVENTION
from attention_doctor.rules.rule import Named, Rule, Sign, of_mistake

_CLOSE = 1e-3
_STEPS = ("scale", "product")


def off(e: Evidence) -> Named | None:
    """Compare the factor on the scores, in calls of two lengths, with 1/√d, d the keys' width."""
    first, short = e.of(looks.free), e.had(looks.short)
    others = first.found if short is None else short.found
    for seen, other in zip(first.found, others, strict=False):
        d, factor = seen.width, seen.scale
        if factor is None or other.scale is None or d < 2 or any(normed(seen)):
            continue
        if _is(factor, d**-0.5) and _is(other.scale, d**-0.5):
            continue
        said = f"the product q kᵀ is multiplied by {factor:.3g}"
        if not _is(factor, other.scale):
            said += f", and by {other.scale:.3g} with another number of tokens"
        code = _code(e, seen, other)
        return code, Sign(
            "the scores are scaled by another number than 1/√d",
            f"{said}; with d = {d}, 1/√d is {d**-0.5:.3g}",
            severity=CONVENTION if code == "no-scale" else "",
        )
    return None


def _code(e: Evidence, seen: Seen, other: Seen) -> str:
    """Name a scale that is not the usual one."""
    (factor, short), d = (x.scale or 0.0 for x in (seen, other)), seen.width
    if not _is(factor, short):
        lengths = zip(seen.scores.shape[-2:], other.scores.shape[-2:], strict=True)
        by_length = any(_is(factor, n**-0.5) and _is(short, m**-0.5) for n, m in lengths)
        return "scale-by-length" if by_length else "scale-by-convention"
    wide = {e.patient.embed_dim, d * e.patient.num_heads} - {d}
    numbers = {
        "no-scale": [1.0],
        "scale-by-model-width": [x**-0.5 for x in wide],
        "scale-twice": [1 / d],
        "scale-inverted": [y for x in (d, *wide) for y in (x**0.5, x)],
    }
    named = (code for code, found in numbers.items() if any(_is(factor, x) for x in found))
    return next(named, "scale-by-convention")


def _is(factor: float, expected: float) -> bool:
    return abs(abs(factor) - abs(expected)) <= _CLOSE * abs(expected)


def normed(seen: Seen) -> list[bool]:
    """Tell whether a norm makes up for the scale, of the queries and of the keys."""
    return [any(x.name in NORMS for x in before(side.step)) for side in (seen.query, seen.key)]


def unscaled(e: Evidence) -> Sign | None:
    """Without a scale, it is wrong only by the parameters of a class that has one."""
    found = e.of(agreement)
    if found.code != "no-scale":
        return None
    usual = "" if "in_proj_" in " ".join(e.patient.named) else CONVENTION
    return Sign("the scores are not scaled", found.said, severity=usual)


RULES = (
    of_mistake(
        "no-scale",
        signs={"numbers": off, "reference": unscaled},
        steps=_STEPS,
        ignore="the model is of a family without a scale, as T5",
    ),
    *(
        of_mistake(code, signs={"numbers": off}, steps=_STEPS)
        for code in ("scale-by-model-width", "scale-inverted", "scale-by-length")
    ),
    of_mistake(
        "scale-twice",
        signs={"numbers": off},
        steps=_STEPS,
        ignore="the model is scaled by µP (maximal update parametrization), which does it "
        "on purpose",
    ),
    Rule(
        "scale-by-convention",
        "another scale than usual, as some families of models have",
        severity=CONVENTION,
        signs={"numbers": off},
        steps=_STEPS,
        explanation="It may be a number of the family's own, or a learned one.",
        ignore="it is that of your model",
    ),
)

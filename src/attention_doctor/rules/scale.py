"""The factor on the scores."""

from attention_doctor.evidence import looks
from attention_doctor.evidence.agreement import agreement
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.reference import compare
from attention_doctor.evidence.sight import Seen
from attention_doctor.evidence.steps import NORMS, before
from attention_doctor.rules.questions import CONVENTION, WRONG
from attention_doctor.rules.rule import Rule, Sign, named, of_mistake

_CLOSE = 1e-3
_STEPS = ("scale", "product")


def off(e: Evidence) -> tuple[str, Sign] | None:
    """Compare the factor on the scores, in calls of two lengths, with 1/√d, d the keys' width."""
    first, short = e.of(looks.free), e.of(looks.short)
    others = first.found if short is None else short.found
    for i, seen in enumerate(first.found):
        other = others[i] if i < len(others) else seen
        if seen.scale is None or other.scale is None or seen.width < 2 or any(normed(seen)):
            continue
        d, factor = seen.width, seen.scale
        if _is(factor, d**-0.5) and _is(other.scale, d**-0.5):
            continue
        code = _code(e, seen, other)
        text = f"{factor:.3g}"
        if code == "scale-by-model-width":
            text += f" = 1/√{round(factor**-2)}"
        if not _is(factor, other.scale):
            lengths = [x.scores.size(x.axis) for x in (seen, other)]
            text += f" with {lengths[0]} keys and by {other.scale:.3g} with {lengths[1]}"
        return code, Sign(
            "the scores are scaled by another number than 1/√d",
            f"the product q kᵀ is multiplied by {text}; with d = {d}, 1/√d is {d**-0.5:.3g}",
            severity=CONVENTION if _is_meant(e, code, factor) else WRONG,
            place=seen.where("scale", "product"),
        )
    return None


def _is_meant(e: Evidence, code: str, factor: float) -> bool:
    """Some families of models have no scale, or another: what is wrong there, a reference says."""
    trusted = e.had(compare)
    usual = trusted is None or trusted.scale is None or _is(factor, trusted.scale)
    return usual and code in ("scale-by-convention", "no-scale")


def _code(e: Evidence, seen: Seen, other: Seen) -> str:
    """Name a scale that is not the usual one."""
    factor, d = seen.scale or 0.0, seen.width
    widths = {e.patient.embed_dim, d * e.patient.num_heads} - {d}
    if not _is(factor, other.scale or 0.0):
        by_length = [
            all(_is(x.scale or 0.0, x.scores.size(axis) ** -0.5) for x in (seen, other))
            for axis in (seen.axis, -1, -2)
            if seen.scores.dim() > 1
        ]
        return "scale-by-length" if any(by_length) else "scale-by-convention"
    if _is(factor, 1.0):
        return "no-scale"
    if any(_is(factor, width**-0.5) for width in widths):
        return "scale-by-model-width"
    if _is(factor, 1 / d):
        return "scale-twice"
    inverted = [d**0.5, d, *(x for width in widths for x in (width**0.5, width))]
    return "scale-inverted" if any(_is(factor, x) for x in inverted) else "scale-by-convention"


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
    if "in_proj_" in " ".join(e.patient.named):
        return Sign(evidence=found.evidence)
    usual = Sign("the scores are not scaled", found.evidence, severity=CONVENTION)
    return named("no-scale", off)(e) or usual


RULES = (
    of_mistake(
        "no-scale",
        signs={"numbers": named("no-scale", off), "reference": unscaled},
        steps=_STEPS,
        ignore="the model is of a family without a scale, as T5",
    ),
    *(
        of_mistake(code, signs={"numbers": named(code, off)}, steps=_STEPS)
        for code in ("scale-by-model-width", "scale-inverted", "scale-by-length")
    ),
    of_mistake(
        "scale-twice",
        signs={"numbers": named("scale-twice", off)},
        steps=_STEPS,
        ignore="the model is scaled by µP (maximal update parametrization), which does it "
        "on purpose",
    ),
    Rule(
        "scale-by-convention",
        "another scale than usual, as some families of models have",
        severity=CONVENTION,
        signs={"numbers": named("scale-by-convention", off)},
        steps=_STEPS,
        explanation="It may be a number of the family's own, or a learned one.",
        ignore="it is that of your model",
    ),
)

"""The factor on the scores."""

import ast
import contextlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from attention_doctor.evidence import looks, situations
from attention_doctor.evidence.agreement import agreement
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.evidence.steps import NORMS, SCALES, before, constant
from attention_doctor.rules.questions import CONVENTION
from attention_doctor.rules.rule import Named, Rule, Sign, of_mistake

_CLOSE = 1e-3
_STEPS = ("scale", "product")
_SCALE = re.compile("scal|sqrt|temperature|factor|norm_f")  # in a name


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
        code, said = _code(e, seen, other), f"{said}; with d = {d}, 1/√d is {d**-0.5:.3g}"
        symptom = "the scores are scaled by another number than 1/√d"
        return code, unscaled(e, symptom, said) if code == "no-scale" else Sign(symptom, said)
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


def agrees_unscaled(e: Evidence) -> Sign | None:
    found = e.of(agreement)
    if found.code != "no-scale":
        return None
    return unscaled(e, "the scores are not scaled", found.said)


def unscaled(e: Evidence, symptom: str, said: str) -> Sign:
    """Make it wrong where a scale is made, or by the parameters of a class that has one."""
    lost = next(forgotten(e), "")
    usual = not lost and "in_proj_" not in " ".join(e.patient.named)
    return Sign(symptom, "; ".join(filter(None, [said, lost])), severity=CONVENTION * usual)


def forgotten(e: Evidence) -> Iterator[str]:
    """Say which scale is made and not used: in an attribute, by a product, in a local name."""
    patient, parts = e.patient, [*e.patient.module.modules()]
    widths = patient.embed_dim // patient.num_heads, patient.embed_dim
    numbers = [x**y for x in widths for y in (0.5, -0.5)]

    def fits(x: Any) -> bool:
        return type(x) in (int, float) and any(_is(x, y) for y in numbers)

    for name, x in (y for part in parts for y in {**vars(part), **part._buffers}.items()):
        number = x.item() if isinstance(x, Tensor) and x.numel() == 1 else x
        if _SCALE.search(name) and fits(number):
            yield f"`{name}` is {number:.3g}, and no score is multiplied by it"
    steps = looks.watched(patient, situations.free(patient))[0]
    for step in {*steps} - {x for y in steps for x in y.parents}:
        if step.name in SCALES and step.where and fits(constant(step.parents[0], step)):
            yield f"what `{step.where.text}` gives is not used"
    for part in parts:
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            text = ast.parse(textwrap.dedent(inspect.getsource(part.forward)))
            names = [x for x in ast.walk(text) if isinstance(x, ast.Name)]
            unread = {x.id for x in names} - {x.id for x in names if isinstance(x.ctx, ast.Load)}
            yield from (f"`{x}` is computed, and not used" for x in unread if _SCALE.search(x))


RULES = (
    of_mistake(
        "no-scale",
        signs={"numbers": off, "reference": agrees_unscaled},
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

"""What was seen inside: the mistakes that show there, and the lines of those found outside."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from attention_doctor import look_scores
from attention_doctor.call.patient import Failed, NotAsked, Patient
from attention_doctor.call.places import Where
from attention_doctor.evidence import situations
from attention_doctor.evidence.sight import Look, look
from attention_doctor.evidence.situations import Situation
from attention_doctor.evidence.steps import back
from attention_doctor.evidence.trace import Step, tensors
from attention_doctor.report import CONVENTION, WRONG, Finding

# The steps whose line is meant by codes that begin so, the likeliest first.
_ROLES = {
    ("scale", "product"): ("scale-", "no-scale"),
    ("softmax",): ("softmax-over-", "keys-appended", "computed-in-low-precision"),
    ("late mask", "softmax"): ("weights-do-not-sum-to-one", "mask-after-softmax"),
    ("product",): ("keys-of-one-head", "keys-from-queries", "positions-not-relative"),
    ("table",): ("table-mixed",),
    ("heads mixed",): ("heads-mixed",),
    ("dropout", "softmax"): ("dropout-",),
    ("dropout",): ("weights-after-dropout",),
    ("weak mask", "mask", "softmax"): ("mask-multiplied",),
    ("mask", "weak mask", "late mask", "softmax"): ("mask-",),  # all others
    ("mask", "softmax"): ("padding-mask-", "causal-", "future-leaks", "nan-", "output-not-finite"),
    ("mask", "weak mask", "softmax"): ("finite-fill-in-half", "half-differs"),
    ("merge", "mix"): ("merge-without-transpose", "heads-of-other-samples"),
    ("split",): (
        "split-",
        "batch-mixed-into-sequence",
        "interleaved-per-head",
        "shared-heads",
    ),
    ("chunk", "split"): ("chunks-in-the-wrong-order", "keys-and-values-swapped"),
    ("mix",): ("values-from-keys",),
}
_SUMS = ("weights-do-not-sum-to-one",)
_ORDER = "query-order-matters"
# Where nothing wrong shows inside: what a design explains.
_DESIGNS = {
    "keys-appended": _SUMS,
    "queries-are-keys": _SUMS,
    "heads-mixed": _SUMS,
    "table-mixed": (*_SUMS, _ORDER),
    "positions-added": (*_SUMS, _ORDER),
    "tokens-projected": (*_SUMS, _ORDER, "blocked-has-influence"),
    "window-of-one": ("no-attention", "parameters-without-gradient"),
    "tokens-convolved": (*_SUMS, _ORDER, "blocked-has-influence", "visible-unseen"),
    "sliding-window": (*_SUMS, _ORDER),
}


@dataclass
class Inside:
    """What was seen in all calls that were watched, by their names; None where nothing can be."""

    patient: Patient
    looks: dict[str, Look | None] = field(default_factory=dict)
    reason: str = ""  # why nothing was seen

    def watch(self, case: Situation) -> Look | None:
        """Watch a call; None where it fails, or shows nothing."""
        if case.name not in self.looks:
            self.looks[case.name] = None
            try:
                self.looks[case.name] = look(self.patient, case)
            except Failed:
                pass  # which the tests say
            except NotAsked as reason:
                self.reason = self.reason or str(reason)
            except Exception as error:  # what the sight stumbles over is no fault of the patient
                self.reason = self.reason or f"the sight fails, with {type(error).__name__}"
        return self.looks[case.name]

    @property
    def first(self) -> Look | None:
        """The call without a mask."""
        return self.watch(situations.free(self.patient))

    @property
    def short(self) -> Look | None:
        """A call of another length."""
        return self.watch(Situation("short", self.patient.draw(22, n=2, m=2), None))

    @property
    def equal(self) -> Look | None:
        """A call with equal tokens."""
        inputs = self.patient.draw(12).map(lambda tokens: tokens[:, :1].expand_as(tokens))
        return self.watch(Situation("equal tokens", inputs, None))


def named(inside: Inside, findings: Sequence[Finding], right: bool) -> list[Finding]:
    """Name the mistakes that show inside; few where it is ``right`` as without positions."""
    patient, first = inside.patient, inside.first
    if first is None:
        return []
    if right:
        return [*look_scores.turned(inside.equal), *look_scores.returned(patient, first)]
    names = [
        *look_scores.scale(patient, first, inside.short),
        *look_scores.slips(first),
        *look_scores.returned(patient, first),
        *look_scores.swapped(patient, first.found),
        *look_scores.repeated(patient, first),
    ]
    more = list(look_scores.axis(patient, first.found))
    if any(x.severity == WRONG for x in findings):
        cases = [] if patient.kind == "causal" else situations.with_masks(patient)
        masked = [x for case in cases if (x := inside.watch(case)) is not None]
        masked += [first] if patient.kind == "causal" else []
        # Which scores a mask hides can be told once it is clear which axis counts the keys.
        more += [] if more else look_scores.masks(masked)
    more += () if more else look_scores.turned(inside.equal)
    return [*names, *more]


def cleared(inside: Inside, complaints: Sequence[Finding]) -> list[Finding]:
    """Take back what is by design, where nothing wrong shows inside."""
    first = inside.first
    if first is None or all(x.severity != WRONG for x in complaints):
        return [*complaints]
    holds = _designs(inside, first)
    holds["sliding-window"] = any(x.code == "sliding-window" for x in complaints)
    holds["tokens-projected"] &= not holds["sliding-window"]
    kept: list[Finding] = []
    for finding in complaints:
        for code, codes in _DESIGNS.items():
            if holds[code] and finding.code in codes and finding.severity == WRONG:
                finding = replace(finding, code=code, severity=CONVENTION, cause="", remedy="")
        if finding.severity == WRONG or all(x.code != finding.code for x in kept):
            kept.append(finding)
    return kept


def _designs(inside: Inside, first: Look) -> dict[str, bool]:
    """Tell which designs hold, by what is seen."""
    patient, looks = inside.patient, [x for x in (first, inside.short) if x is not None]
    parts = [] if patient.module is None else [*patient.module.modules()]
    windows = [x for part in parts for name, x in vars(part).items() if "window" in name]
    keys = [{x.scores.size(x.axis) for x in one.found} for one in looks]
    appended = [
        {size - one.case.inputs.key.size(1) for size in sizes}
        for one, sizes in zip(looks, keys, strict=True)
    ]
    joined = [{one.case.inputs.query.size(1) + one.case.inputs.key.size(1)} for one in looks]
    return {
        "keys-appended": len(looks) == 2 and appended[0] == appended[1] and min(appended[0]) > 0,
        "tokens-projected": len(keys) == 2
        and keys[0] == keys[1] != {first.case.inputs.key.size(1)}
        and any(not keys[0].isdisjoint(x.shape) for part in parts for x in part.parameters()),
        "queries-are-keys": patient.memory and keys == joined,
        "heads-mixed": any("heads mixed" in x.steps for x in first.found),
        "table-mixed": patient.kind != "cross" and any("table" in x.steps for x in first.found),
        "positions-added": any(back(x.value.step, _adds_places) for x in first.found),
        "window-of-one": keys[0] == {1} and 1 in windows,
        "tokens-convolved": any(
            isinstance(x, nn.Conv1d | nn.Conv2d) and max(x.kernel_size) > 1 for x in parts
        ),
    }


def _adds_places(step: Step) -> bool:
    """Tell whether a step adds rows that differ, and that no token has made."""
    made = zip(step.given, tensors(step.arguments), strict=False) if step.name == "add" else ()
    rows = [x for given, x in made if given is None and x.dim() > 1]
    return any(x.size(-2) > 1 and not x[..., :1, :].equal(x[..., 1:2, :]) for x in rows)


def located(inside: Inside, findings: Iterable[Finding]) -> list[Finding]:
    """Add the lines that findings are about, where they are known."""
    return [replace(x, where=x.where or _where(inside, x)) for x in findings]


def _where(inside: Inside, finding: Finding) -> Where | None:
    roles = next((x for x, codes in _ROLES.items() if finding.code.startswith(codes)), ())
    if inside.first is None:
        return None
    # Calls with masks are watched first, if they may show something.
    cases = situations.with_masks(inside.patient) if "mask" in roles else ()
    looks = [*(inside.watch(case) for case in cases), *inside.looks.values()]
    found = [seen for one in looks if one is not None for seen in one.found]
    places = (seen.where(role) for role in roles for seen in found)
    return next((place for place in places if place is not None), None)


def summary(inside: Inside) -> str:
    """Say in a sentence what was seen."""
    if inside.first is None:
        return ""
    found = inside.first.found
    seen = found[-1]
    text = f"softmax over axis {seen.axis} of the scores{_line(seen.where('softmax'))}"
    if seen.scale is not None:
        usual = abs(seen.scale * seen.width**0.5 - 1) < 1e-3
        factor = f"{seen.scale:.3g}{f' = 1/√{seen.width}' if usual else ''}"
        text = f"scores times {factor}{_line(seen.where('scale', 'product'))}, {text}"
    return f"{f'{len(found)} times ' if len(found) > 1 else ''}{text}"


def _line(place: Where | None) -> str:
    return "" if place is None else f" ({re.sub('.*/', '', place.shown)}:{place.line})"

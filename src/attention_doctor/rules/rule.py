"""What a rule is: everything about one code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from annotated_attention.multihead import MultiheadAttention
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import Where
from attention_doctor.evidence import looks
from attention_doctor.evidence.agreement import agreement
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.mistakes import MISTAKES
from attention_doctor.rules.questions import WRONG

HIDE = "Set blocked scores to minus infinity before the softmax, with the mask as (b, 1, n, m)."
FOLLOW = "Follow one number through every reshape: it must stay with its token."


@dataclass(frozen=True)
class Sign:
    """What a rule goes by in one implementation; what it does not say is as the rule has it."""

    symptom: str = ""
    evidence: str = ""
    remedy: str = ""
    severity: str = ""
    cause: str = ""
    place: Where | None = None
    nowhere: bool = False  # whether no line that is known is meant
    alone: bool = False  # whether it follows from nothing else


Named = tuple[str, Sign]  # code: where several are told from each other in one place
Test = Callable[[Evidence], Sign | Named | None]


@dataclass(frozen=True)
class Observed:
    """A rule that applies, by a sign, and the question that brought it out."""

    rule: "Rule"
    sign: Sign
    question: str

    @property
    def severity(self) -> str:
        """How grave it is here."""
        return self.sign.severity or self.rule.severity


Excuse = Callable[[Evidence, Observed], bool]


@dataclass(frozen=True)
class Rule:
    """Everything about one code.

    Attributes:
        code: its stable name.
        cause: the probable cause, in a few words.
        remedy: what to change; "" where the sign says it.
        severity: "wrong" or "convention", where the sign does not say.
        explanation: what follows from it, and why nobody notices.
        wrong: the line as people write it; "" where there is no single one.
        right: the line to write instead.
        ignore: when it is no mistake; "" for never.
        signs: by question, what tells that it applies; see ``questions``.
        steps: the steps of the attention whose line is meant, the likeliest first.
        explains: questions and codes; what is found in their answers follows from it. A version
            that agrees explains all but conduct.
        excuses: codes that it predicts by design, with what tells that it predicts this one.
        hides: by a model's own masks it is a convention, since these may hide tokens.
        alike: it shows, too, where a mask hides everything, so that all weights are alike.
        neighbours: codes that it must not be confused with.
        instead_of: codes that are half of it, which it is said in the place of.
    """

    code: str
    cause: str = ""
    remedy: str = ""
    severity: str = WRONG
    explanation: str = ""
    wrong: str = ""
    right: str = ""
    ignore: str = ""
    signs: Mapping[str, Test] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    explains: frozenset[str] = frozenset()
    excuses: Mapping[str, Excuse] = field(default_factory=dict)
    hides: bool = False
    alike: bool = False
    neighbours: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()

    def sign(self, part: str, evidence: Evidence) -> Sign | None:
        """Give what tells that it applies, in a part of a question."""
        found = self.signs[part](evidence) if part in self.signs else None
        if isinstance(found, tuple):
            code, found = found
            return found if code == self.code else None
        return found

    def place(self, evidence: Evidence) -> Where | None:
        """Give the line of the step that is meant, first in calls with masks if they show it."""
        if (free := evidence.had(looks.free)) is None:
            return None
        calls = [free, *evidence.of(looks.masked)]
        if "mask" in self.steps:
            calls.append(calls.pop(0))
        places = (x.where(step) for step in self.steps for call in calls for x in call.found)
        return next((x for x in places if x is not None), None)


def of_mistake(code: str, besides: str = "", **more: Any) -> Rule:
    """Make the rule of a mistake in the list, which has its cause, its remedy and its version."""
    entry = MISTAKES[code]
    signs = dict(more.pop("signs", {}))
    if entry.of is MultiheadAttention:
        signs.setdefault("reference", agrees)
    return Rule(
        code,
        entry.title,
        f"{entry.remedy} {besides}".strip(),
        explanation=entry.explanation,
        wrong=entry.wrong,
        right=entry.right,
        signs=signs,
        **more,
    )


def told(
    measured: Callable[[Patient], Any],
    symptom: str,
    part: str = "",
    holds: Callable[[Any], object] = bool,
    **more: Any,
) -> Test:
    """Make the test of what is measured: it holds, and it, or a part of it, is a text."""

    def test(evidence: Evidence) -> Sign | None:
        found = evidence.of(measured)
        if found is None or not holds(found):
            return None
        said = getattr(found, part) if part else found
        return Sign(symptom, said, **more) if said else None

    return test


def inside(find: Callable[[Seen], Sign | None]) -> Test:
    """Make the test of what shows in an attention: the first that shows it tells."""
    return lambda e: next(filter(None, map(find, e.of(looks.free).found)), None)


def agrees(e: Evidence) -> Named | None:
    """Tell which mistake gives the same outputs, with the same weights."""
    found = e.of(agreement)
    return (found.code, Sign(evidence=found.said)) if found.code else None

"""The answers to the questions of an examination: which rules apply, and what is not asked."""

from collections.abc import Iterator, Sequence
from functools import partial

from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.evidence import looks
from attention_doctor.evidence.agreement import Agreement, agreement
from attention_doctor.evidence.conditions import finite
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.rules.catalogue import RULES
from attention_doctor.rules.questions import (
    CONDUCT,
    CONVENTION,
    FINE,
    HOLDS,
    PARTS,
    TRUSTED,
    WINDOW,
    WRONG,
)
from attention_doctor.rules.rule import Observed

_GUESS = "`{}` must be given, and its meaning is guessed; say it: `--mask allowed` or `blocked`"


def first(evidence: Evidence, part: str, question: str) -> list[Observed]:
    """Give the first rule whose sign shows."""
    return list(every(evidence, part, question))[:1]


def every(evidence: Evidence, part: str, question: str) -> Iterator[Observed]:
    """Give all rules whose signs show."""
    for rule in RULES:
        sign = rule.sign(part, evidence)
        if sign is not None:
            yield Observed(rule, sign, question)


class Answers:
    """What rules say of an implementation, by the question that brought it out.

    Attributes:
        outside: by calls alone.
        inside: by what was seen within a call.
        reference: by a version that agrees, with the same weights.
        failures: the tests that raised an error, by its message.
        results: as in ``Report``.
        agreement: the version that agrees; without a name if none does.
    """

    def __init__(self, evidence: Evidence, nothing: str) -> None:
        """Ask every question once; ``nothing`` says why there is nothing to compare, or ""."""
        self.evidence, self.nothing = evidence, nothing
        self.first, self.every = partial(first, evidence), partial(every, evidence)
        self.results: dict[str, str] = {}
        self.failures: dict[str, list[str]] = {}
        self._left: dict[str, list[str]] = {}  # names of tests, by the reason
        self.outside = self._outside()
        self.agreement, reason = self._agreement()
        self.inside = self._inside()
        self.reference = [] if reason else self.first("reference", "reference")
        if reason:
            names = self._left.setdefault(reason, [])
            names += [x for x in HOLDS if nothing and not self._knows(x)]
            names.append("reference")
        else:
            self.results["reference"] = _worst(self.reference)

    def _knows(self, name: str) -> bool:
        return name in self.results or any(name in names for names in self._left.values())

    @property
    def not_examined(self) -> list[str]:
        """What could not be asked, and why, as in ``Report``."""
        return [f"{', '.join(names)}: {why}" for why, names in self._left.items()]

    def _outside(self) -> list[Observed]:
        """Ask by calls; where there is nothing to compare, the rest is left out."""
        found: list[Observed] = []
        patient = self.evidence.patient
        names = [*HOLDS, *[TRUSTED] * (patient.reference is not None)]
        names += [WINDOW] * (patient.window > 0)
        if self.nothing:
            names = names[:2] if self.evidence.of(finite).all() else names[:1]
        for name in names:
            try:
                observed = self._parts(name)
            except NotAsked as why:
                self._left.setdefault(str(why), []).append(name)
            except Failed as failure:
                self.failures.setdefault(str(failure), []).append(name)
                self.results[name] = "fails"
            else:
                found += observed
                self.results[name] = _worst(observed)
        return found

    def _parts(self, name: str) -> list[Observed]:
        """Ask all parts of a question; where its own cannot be asked, another one may tell."""
        found: list[Observed] = []
        reason: NotAsked | None = None
        for part in PARTS.get(name, (name,)):
            try:
                found += self.first(part, name)
            except NotAsked as why:
                reason = why if part == name else reason
        if reason is not None and not found:
            raise reason
        guessed = self.evidence.patient.guessed
        if guessed and any(x.rule.alike for x in found):
            raise NotAsked(_GUESS.format(guessed))
        return found

    def _agreement(self) -> tuple[Agreement, str]:
        """Compare with right and wrong versions; or say why they cannot be compared."""
        if self.nothing:
            return Agreement("", ""), self.nothing
        try:
            return self.evidence.of(agreement), ""
        except NotAsked as why:
            return Agreement("", ""), str(why)

    def _inside(self) -> list[Observed]:
        """Ask what shows inside; little where all outputs are those of the right version."""
        try:
            self.evidence.of(looks.free)
        except NotAsked as why:
            self._left.setdefault(str(why), []).append("inside")
            return []
        if self.agreement.version == "right":
            return [*self._turns(), *self.first("returned", "inside")]
        found = [*self.every("numbers", "inside"), *self.first("returned", "inside")]
        more = self.first("axis", "inside")
        if any(x.severity == WRONG and x.question not in CONDUCT for x in self.outside):
            # Which scores a mask hides can be told once it is clear which axis counts the keys.
            more = more or self.first("hidden inside", "inside")
        found += more or self._turns()
        if not self.agreement.version:
            self.results["inside"] = _worst(found)
        return found

    def _turns(self) -> list[Observed]:
        sides = ("values turn", "one side turns", "places")
        return [x for side in sides for x in self.first(side, "inside")]


def _worst(observed: Sequence[Observed]) -> str:
    order = (FINE, CONVENTION, WRONG)
    return max((x.severity for x in observed), key=order.index, default=FINE)

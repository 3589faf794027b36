"""What an examination found: as text, and as JSON of a stable form, with the exit code."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attention_doctor.call.places import Where
from attention_doctor.rules.questions import FINE, UNASKED, WRONG

_PARTS = ("where", "symptom", "evidence", "cause", "remedy", "explains")
_WIDTH = 92


@dataclass(frozen=True)
class Finding:
    """One result of an examination: a mistake, a convention, or a call that failed.

    Attributes:
        code: a stable name; for an entry of ``attention_doctor.mistakes``, the code there.
        severity: ``"wrong"``; ``"convention"`` for what respectable code does in another way;
            or ``"unasked"`` where the implementation could not be called at all.
        symptom: what the tests saw, in one sentence.
        evidence: the numbers behind the symptom, or how it was measured.
        cause: the probable cause.
        remedy: what to change.
        test: the test that found it.
        where: the line of the examined code that it is about; None where that is unknown.
        explains: the codes of other findings that follow from this one, and are not listed apart.

    Examples:
        >>> from attention_doctor import Finding, adapters, examine
        >>> from attention_doctor.mistakes.scores import ScaleInverted
        >>> module = ScaleInverted(24, 4, batch_first=True)
        >>> report = examine(adapters.torch_like(module), embed_dim=24, num_heads=4)
        >>> finding, *_ = report.findings
        >>> isinstance(finding, Finding), finding.code, finding.severity
        (True, 'scale-inverted', 'wrong')
        >>> print(finding.remedy)
        Write `scores = q @ k.mT / math.sqrt(d)` in place of `scores = q @ k.mT * math.sqrt(d)`...
        >>> finding.where.text
        'return (query * scale) @ key.mT  # (..., n, d) x (..., d, m) -> (..., n, m)'
    """

    code: str
    severity: str
    symptom: str
    evidence: str = ""
    cause: str = ""
    remedy: str = ""
    test: str = ""
    where: Where | None = None
    explains: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The result of an examination.

    A report prints as text, in a notebook, too.

    Attributes:
        name: the name of the examined class or function.
        findings: all findings, those that are wrong first.
        not_examined: the tests that could not run, and why.
        results: for each test that ran ``"fine"``, ``"fails"`` if the call raised an error, or the
            worst severity among its findings, before those of one cause were merged.
        agreement: a sentence: which version gives the same outputs, and with which weights; or "".
        version: that version's name alone: ``"right"``, the code of a mistake, or "" for neither.
        inside: scale, softmax and lines of the attention as it ran; "" where nothing was seen.
        called: how it was built and called, where names said it.
        inferred: what nobody has said about its mask, and how it is understood.
        adapter: for what could not be called, an adapter to complete.

    Examples:
        >>> from annotated_attention import MultiheadAttention
        >>> from attention_doctor import Report, adapters, examine
        >>> module = MultiheadAttention(24, 4, batch_first=True)
        >>> report = examine(adapters.torch_like(module), embed_dim=24, num_heads=4)
        >>> isinstance(report, Report), report.asked, report.ok, report.codes
        (True, True, True, ())
        >>> print(report.verdict)
        ✓ MultiheadAttention: nothing wrong, 18 tests, 3 not examined
    """

    name: str
    findings: tuple[Finding, ...] = ()
    not_examined: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    agreement: str = ""
    version: str = ""
    inside: str = ""
    called: tuple[str, ...] = ()
    inferred: str = ""
    adapter: str = ""

    @property
    def ok(self) -> bool:
        """Whether the examination ran and found nothing wrong; conventions do not count."""
        return self.asked and all(finding.severity != WRONG for finding in self.findings)

    @property
    def asked(self) -> bool:
        """Whether the implementation could be called at all."""
        return all(finding.severity != UNASKED for finding in self.findings)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all findings."""
        return tuple(finding.code for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if not self.asked:
            return f"✗ {self.name}: it could not be asked"
        wrong = sum(finding.severity == WRONG for finding in self.findings)
        conventions = len(self.findings) - wrong
        parts = [f"{wrong} wrong" if wrong else "nothing wrong"]
        parts += [f"{conventions} by convention"] if conventions else []
        parts += [f"{len(self.results)} tests"]
        left = sum(len(reason.partition(": ")[0].split(", ")) for reason in self.not_examined)
        parts += [f"{left} not examined"] if left else []
        return f"{'✓' if self.ok else '✗'} {self.name}: {', '.join(parts)}"

    def __str__(self) -> str:
        """Show the report as text."""
        lines = [*textwrap.wrap(self.inferred, _WIDTH), self.verdict]
        for finding in self.findings:
            texts = vars(finding) | {"explains": ", ".join(finding.explains)}
            lines += ["", f"{finding.severity}: {finding.code}"]
            for part in filter(texts.get, _PARTS):
                lines += _wrapped(f"  {part:<9}", str(texts[part]))
        others = [f"{name} ({result})" for name, result in self.results.items() if result != FINE]
        rest = f"all fine but {', '.join(others)}" if others else "all fine"
        asked = f"{len(self.results)} tests, {rest}" if self.results else ""
        rows = [("inside", self.inside), ("agrees", self.agreement), ("asked", asked)]
        rows += [("by names", text) for text in self.called]
        more = [x for label, text in rows if text for x in _wrapped(f"  {label:<9}", text)]
        lines += ["", *more] if more else []
        lines += _left(self.not_examined)
        return "\n".join([*lines, *(["", self.adapter] if self.adapter else [])])

    __repr__ = __str__


class ModelReport(dict[str, Report]):
    """The reports on all attentions of a model, by their paths in it.

    Attentions that differ in nothing but their weights share one report.

    Attributes:
        name: the model's class.
        not_examined: what could not be examined, and why.

    Examples:
        >>> import torch
        >>> from attention_doctor import ModelReport, examine_model
        >>> layer = torch.nn.TransformerEncoderLayer(24, 4, 32, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        >>> report = examine_model(model, torch.randn(2, 5, 24), attention="MultiheadAttention")
        >>> isinstance(report, ModelReport), list(report)[0], len(report), len(report.examined)
        (True, 'layers.0.self_attn', 3, 1)
        >>> report.asked, report.ok
        (True, True)
        >>> print(report.verdict)
        ✓ TransformerEncoder: 3 attentions, 1 kind, nothing wrong
    """

    def __init__(
        self, name: str, reports: Mapping[str, Report], not_examined: tuple[str, ...] = ()
    ) -> None:
        """Keep the reports, by their paths in the order in which the model calls them."""
        super().__init__(reports)
        self.name, self.not_examined = name, not_examined

    @property
    def examined(self) -> tuple[Report, ...]:
        """Each report once."""
        return tuple({id(report): report for report in self.values()}.values())

    @property
    def ok(self) -> bool:
        """Whether there is an attention, all could be called, and nothing is wrong."""
        return self.asked and all(report.ok for report in self.examined)

    @property
    def asked(self) -> bool:
        """Whether there is an attention, and all could be called."""
        return bool(self) and all(report.asked for report in self.examined)

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if not self:
            return f"✗ {self.name}: no attention is found in it"
        wrong = sum(report.asked and not report.ok for report in self.examined)
        unasked = sum(not report.asked for report in self.examined)
        numbers = {"attention": len(self), "kind": len(self.examined)}
        parts = [f"{count} {name}{'s' * (count > 1)}" for name, count in numbers.items()]
        parts += [f"{wrong} wrong"] if wrong else []
        parts += [f"{unasked} could not be asked"] if unasked else []
        parts += ["nothing wrong"] if self.ok else []
        return f"{'✓' if self.ok else '✗'} {self.name}: {', '.join(parts)}"

    def __str__(self) -> str:
        """Show all reports as text."""
        left = "\n".join(_left(self.not_examined))
        return "\n\n".join([self.verdict, *map(str, self.examined)]) + f"\n{left}" * bool(left)

    __repr__ = __str__


def _left(reasons: Sequence[str]) -> list[str]:
    """Write what was not examined as the lines of a list."""
    items = [line for reason in reasons for line in _wrapped("  - ", reason)]
    return ["", "not examined", *items] if items else []


def _wrapped(first: str, text: str) -> list[str]:
    wrapper = textwrap.TextWrapper(_WIDTH, first, " " * len(first))
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.wrap(text)


def refused(
    name: str,
    code: str,
    texts: tuple[str, str, str, str, str],
    left: str,
    place: Where | None = None,
) -> Report:
    """Report what could not be asked: the texts of the finding, and what is left out therefore."""
    found = Finding(code, UNASKED, *texts, where=place)
    return Report(name, (found,), (left,), {texts[-1]: UNASKED})


def exit_code(*reports: Report | ModelReport) -> int:
    """Give 1 if something is wrong, else 2 if something could not be called, else 0."""
    if any(x.asked and not x.ok for report in reports for x in parts(report)):
        return 1
    return 0 if all(report.ok for report in reports) else 2


def parts(report: Report | ModelReport) -> Sequence[Report]:
    """Give each report of a model once, or the one that it is."""
    return report.examined if isinstance(report, ModelReport) else (report,)


def as_data(report: Report | ModelReport) -> dict[str, Any]:
    """Give a report as what JSON can hold."""
    names = ("name", "verdict", "ok", "asked", "not_examined")
    data = {name: getattr(report, name) for name in names} | {"exit_code": exit_code(report)}
    if isinstance(report, ModelReport):
        return data | {"reports": {path: as_data(x) for path, x in report.items()}}
    asked = [(x, x.where and x.where._asdict()) for x in report.findings]
    data["findings"] = [vars(x) | {"where": place} for x, place in asked]
    more = ("results", "agreement", "inferred", "adapter")
    return data | {name: getattr(report, name) for name in more}

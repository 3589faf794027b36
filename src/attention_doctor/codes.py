"""Every code that a finding may have: what it means, and which of them count.

A comment ``# attention-doctor: ignore[no-scale]`` ignores a finding on the line that it names.
"""

import linecache
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from attention_doctor.call.places import Where
from attention_doctor.mistakes import MISTAKES
from attention_doctor.report import Finding, ModelReport, Report
from attention_doctor.rules.catalogue import BY_CODE, FAMILIES
from attention_doctor.rules.questions import CONVENTION, UNASKED, WRONG

CODES = {code: rule.cause for code, rule in BY_CODE.items()}
_WIDTH = 92
_COMMENT = re.compile(r"#\s*attention-doctor:\s*ignore(?:\[([^]]*)\])?")


def check(codes: Iterable[str]) -> None:
    """Refuse codes that do not exist, with a ValueError."""
    if unknown := [code for code in codes if code not in CODES]:
        raise ValueError(
            f"there is no code {', '.join(unknown)}; codes: {', '.join(sorted(CODES))}"
        )


def chosen(
    report: Report | ModelReport,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    wrong: Sequence[str] = (),
) -> Report | ModelReport:
    """Leave findings out of a report; what could not be asked stays.

    Codes in ``select`` count, none means all; those in ``ignore`` do not, nor what a comment on its
    line ignores. Conventions in ``wrong`` are wrong.
    """
    if isinstance(report, ModelReport):
        once: dict[int, Any] = {id(x): chosen(x, select, ignore, wrong) for x in report.examined}
        reports = {path: once[id(x)] for path, x in report.items()}
        return ModelReport(report.name, reports, report.not_examined)
    kept: list[Finding] = []
    left: dict[str, None] = {}  # each once, in their order
    for finding in report.findings:
        worse = finding.severity == CONVENTION and finding.code in wrong
        counts = finding.code in (select or [finding.code]) and finding.code not in ignore
        if (counts and not ignored(finding)) or finding.severity == UNASKED:
            kept.append(replace(finding, severity=WRONG) if worse else finding)
        else:
            left[finding.code] = None
    kept.sort(key=lambda x: x.severity != WRONG)
    said = [f"left out as asked for: {', '.join(left)}"] if left else []
    return replace(report, findings=tuple(kept), not_examined=(*report.not_examined, *said))


def ignored(finding: Finding) -> bool:
    """Tell whether the line that a finding names has a comment with its code."""
    return finding.where is not None and finding.code in _named(finding.where.text)


def unused(files: Iterable[str], findings: Iterable[Finding]) -> list[tuple[Where, str]]:
    """Give the places of comments that ignore none of the findings, and what each says."""
    found = {(str(Path(x.where.file).resolve()), x.where.line, x.code) for x in findings if x.where}
    paths = {str(Path(file).resolve()) for file in files} | {file for file, *_ in found}
    linecache.checkcache()
    return [
        (Where(file, line), f"ignore[{code}] ignores nothing that was found")
        for file in sorted(paths)
        for line, text in enumerate(linecache.getlines(file), 1)
        for code in _named(text)
        if (file, line, code) not in found
    ]


def _named(text: str) -> list[str]:
    """Give the codes of a comment; "" where it has none, which ignores nothing."""
    found = _COMMENT.search(text)
    return [code.strip() for code in (found[1] or "").split(",")] if found else []


def explain(code: str) -> str:
    """Say what a code means: the cause, what follows, the lines, and what it is not.

    Raises:
        ValueError: there is no such code.
    """
    check([code])
    said = about(code)
    parts = [textwrap.fill(text, _WIDTH) for text in said.texts]
    lines = [f"- {said.wrong}\n+ {said.right}"] if said.right else []
    return "\n\n".join([f"{code} ({said.severity})", *parts[:1], *lines, *parts[1:]])


def listed() -> str:
    """List all codes by their families, with their causes; conventions are marked."""
    lines = []
    for family, rules in FAMILIES.items():
        lines += ["", family]
        marks = {x.code: " (convention)" * (x.severity == CONVENTION) for x in rules}
        lines += [f"  {x.code}{marks[x.code]}: {x.cause}" for x in rules]
    return "\n".join(lines[1:])


class About(NamedTuple):
    """What there is to say about a code."""

    severity: str
    texts: Sequence[str]  # what it is; what to do, and what it is not
    wrong: str  # line as people write it; "" where there is no single one
    right: str
    codes: Sequence[str]  # that the texts name


def about(code: str) -> About:
    """Give what a rule says about its code, for a page or a terminal."""
    rule = BY_CODE[code]
    texts = [
        f"{rule.cause}. {rule.explanation}",
        "" if code in MISTAKES else rule.remedy,  # whose lines say it
        f"Not to be confused with {_listed(rule.neighbours)}." * bool(rule.neighbours),
        f"Where it holds, it accounts for {_listed(rule.excuses)}." * bool(rule.excuses),
        f"Ignore it if {rule.ignore}." * bool(rule.ignore),
    ]
    texts = [text.strip() for text in texts if text]
    said = [text[:1].upper() + text[1:] for text in texts]
    codes = (*rule.neighbours, *rule.excuses)
    return About(rule.severity, said, rule.wrong, rule.right, codes)


def _listed(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)

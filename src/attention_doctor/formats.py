"""All reports of a run as JSON, as annotations of GitHub, and as SARIF 2.1.0."""

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from annotated_attention import __version__
from attention_doctor.call.places import Where
from attention_doctor.codes import CODES, about, chosen, explain, unused
from attention_doctor.report import Finding, ModelReport, Report, as_data, exit_code, parts
from attention_doctor.rules.questions import CONVENTION, UNASKED

VERSION = 1  # of the JSON: it rises when a key goes or changes its meaning, not for a new one
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {CONVENTION: "note"}  # all others are errors


class Run:
    """What the command has examined.

    Attributes:
        project: the name of the project whose targets these are; "" for none.
        reports: by their targets, ``path/to/file.py:Name``.
    """

    def __init__(self, project: str = "") -> None:
        """Begin without a report."""
        self.project = project
        self.reports: dict[str, Report | ModelReport] = {}
        self._found: list[Finding] = []  # what is ignored among them

    def add(
        self, options: argparse.Namespace, report: Report | ModelReport
    ) -> tuple[str, Report | ModelReport]:
        """Keep a report, as far as its findings count; give its target, and what is kept."""
        target = options.model or options.target
        while target in self.reports:
            target += "'"
        self._found += [x for one in parts(report) for x in one.findings]
        self.reports[target] = chosen(report, options.select, options.ignore, options.wrong)
        return target, self.reports[target]

    @property
    def exit_code(self) -> int:
        """1 if something is wrong, else 2 if something could not be asked, else 0."""
        return exit_code(*self.reports.values())

    @property
    def verdict(self) -> str:
        """The result in one line."""
        codes = [exit_code(report) for report in self.reports.values()]
        said = {1: "wrong", 2: "could not be asked"}
        counts = [f"{codes.count(code)} {text}" for code, text in said.items() if code in codes]
        total = f"{len(codes)} target{'s' * (len(codes) > 1)}"
        text = ", ".join([total, *(counts or ["nothing wrong"])])
        return f"{'✗' if counts else '✓'} {self.project}: {text}"

    def findings(self) -> Iterator[tuple[Finding, Where, str]]:
        """Yield each finding once, its place, and all that there is to say about it."""
        seen = set()
        for target, report in self.reports.items():
            for one, x in ((part, x) for part in parts(report) for x in part.findings):
                known = x.where if x.where and Path(x.where.file).is_file() else None
                place = known or Where(_file(target), 0)
                adapter = one.adapter if x.severity == UNASKED else ""
                said = (x.symptom, x.evidence, x.cause, x.remedy, adapter)
                if (x.code, place, said) not in seen:  # as by a class and a model that has it
                    seen.add((x.code, place, said))
                    yield x, place, "\n".join(filter(None, said))

    def unused(self) -> list[tuple[Where, str]]:
        """Give the comments that ignore nothing."""
        return unused(map(_file, self.reports), self._found)

    def below(self) -> list[str]:
        """Write what stands below the reports."""
        lines = [f"{place}: {said}" for place, said in self.unused()]
        return [*lines, *[self.verdict] * bool(self.project)]


def _file(target: str) -> str:
    return target.rpartition(":")[0]


def as_json(run: Run) -> str:
    """Write the report, or for a project all of them by their targets."""
    data = {target: as_data(report) for target, report in run.reports.items()}
    (first, *_), code = data.values(), run.exit_code
    if run.project:
        first = {"name": run.project, "verdict": run.verdict, "ok": code == 0, "exit_code": code}
        first["asked"] = all(report["asked"] for report in data.values())
        first |= {"not_examined": [], "reports": data}
    versions = {"annotated_attention": __version__, "torch": torch.__version__}
    return json.dumps({"version": VERSION, **first, "versions": versions}, indent=2)


def as_github(run: Run) -> str:
    """Write workflow commands, which GitHub shows beside the lines, and each verdict."""
    lines = [f"{target}: {report.verdict}" for target, report in run.reports.items()]
    for finding, place, said in run.findings():
        level = "notice" if finding.severity == CONVENTION else "error"
        lines.append(_command(level, place, finding.code, said))
    lines += [_command("notice", place, "unused ignore", said) for place, said in run.unused()]
    return "\n".join(lines)


def _command(level: str, place: Where, title: str, text: str) -> str:
    said = {"file": _path(place.file), "line": place.line, "title": f"attention-doctor: {title}"}
    escaped = [(name, _escaped(str(x), ":,")) for name, x in said.items() if x]
    return f"::{level} {','.join(f'{name}={x}' for name, x in escaped)}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    return re.sub(f"[%\\r\\n{more}]", lambda x: f"%{ord(x[0]):02X}", text)


def _path(file: str) -> str:
    """Give the path below the checkout of a workflow, or below the working directory."""
    path, top = Path(file).resolve(), Path(os.environ.get("GITHUB_WORKSPACE", "")).resolve()
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else path.as_posix()


def as_sarif(run: Run) -> str:
    """Write SARIF 2.1.0, which code scanning and editors read."""
    found = [*run.findings()]
    codes = {finding.code: finding for finding, *_ in found}
    results = [
        {
            "ruleId": finding.code,
            "ruleIndex": [*codes].index(finding.code),
            "level": _LEVELS.get(finding.severity, "error"),
            "message": {"text": said},
            "locations": [_location(place)],
        }
        for finding, place, said in found
    ]
    notes = [
        {"level": "note", "message": {"text": said}, "locations": [_location(place)]}
        for place, said in run.unused()
    ]
    driver = {
        "name": "attention-doctor",
        "version": __version__,
        "rules": [_rule(code, finding) for code, finding in codes.items()],
    }
    invocation = {
        "executionSuccessful": all(report.asked for report in run.reports.values()),
        "exitCode": run.exit_code,
        "toolExecutionNotifications": notes,
    }
    one = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [one]}
    return json.dumps(log, indent=2)


def _location(place: Where) -> dict[str, Any]:
    path = _path(place.file)
    known = not Path(path).is_absolute()
    uri = {"uri": quote(path), "uriBaseId": "%SRCROOT%"} if known else {"uri": Path(path).as_uri()}
    region = {"region": {"startLine": place.line}} if place.line else {}
    return {"physicalLocation": {"artifactLocation": uri, **region}}


def _rule(code: str, finding: Finding) -> dict[str, Any]:
    """Give what SARIF says of a code, here by its rule; a step that failed has none."""
    known = code in CODES
    texts = {
        "shortDescription": CODES[code] if known else finding.symptom,
        "fullDescription": about(code).texts[0] if known else finding.symptom,
        "help": explain(code) if known else finding.remedy,
    }
    return {"id": code, **{name: {"text": text} for name, text in texts.items()}}


WRITE = {"json": as_json, "github": as_github, "sarif": as_sarif}

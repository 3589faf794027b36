"""A verdict that a machine can use: JSON of a stable form, and the exit code."""

from typing import Any

import torch

from annotated_attention import __version__
from attention_doctor.report import ModelReport, Report

VERSION = 1  # of the form: it rises when a key goes or changes its meaning, not when one is added


def exit_code(report: Report | ModelReport) -> int:
    """Give 1 if something is wrong, else 2 if something could not be called, else 0."""
    reports = report.examined if isinstance(report, ModelReport) else (report,)
    if any(x.asked and not x.ok for x in reports):
        return 1
    return 0 if report.ok else 2


def as_data(report: Report | ModelReport) -> dict[str, Any]:
    """Give a report as what JSON can hold."""
    versions = {"annotated_attention": __version__, "torch": torch.__version__}
    return {"version": VERSION, **_verdict(report), "versions": versions}


def _verdict(report: Report | ModelReport) -> dict[str, Any]:
    names = ("name", "verdict", "ok", "asked")
    data = {name: getattr(report, name) for name in names}
    data |= {"exit_code": exit_code(report), "not_examined": list(report.not_examined)}
    if isinstance(report, ModelReport):
        return data | {"reports": {path: _verdict(x) for path, x in report.items()}}
    findings = [
        vars(x) | {"where": x.where and x.where._asdict(), "explains": list(x.explains)}
        for x in report.findings
    ]
    more = {name: getattr(report, name) for name in ("agreement", "inferred", "adapter")}
    return data | {"findings": findings, "results": dict(report.results), **more}

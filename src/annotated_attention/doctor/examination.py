"""The examination: both stages, one after the other, made into one report."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from annotated_attention.doctor import conduct, symptoms
from annotated_attention.doctor.diagnosis import Diagnosis, diagnose
from annotated_attention.doctor.patient import Failed, NotAsked, Patient
from annotated_attention.doctor.report import CONVENTION, FINE, WRONG, Finding, Report
from annotated_attention.mistakes import MISTAKES

KINDS = ("cross", "self", "causal")
SYMPTOMS: dict[str, Callable[[Patient], Iterator[Finding]]] = {
    "key order": symptoms.key_order,
    "query order": symptoms.query_order,
    "queries apart": symptoms.queries_apart,
    "samples apart": symptoms.samples_apart,
    "equal values": symptoms.equal_values,
    "blocked": symptoms.blocked_keys,
    "future": symptoms.future,
    "prefix": symptoms.prefix,
    "padding": symptoms.padding,
    "alone": symptoms.alone,
    "nothing left": symptoms.nothing_left,
    "evaluation": conduct.evaluation,
    "dropout": conduct.dropout,
    "weights": conduct.weights,
    "registration": conduct.registration,
    "gradients": conduct.gradients,
    "hooks": conduct.hooks,
    "half precision": conduct.half_precision,
    "inputs": conduct.inputs_untouched,  # last: about all calls before
}


def examine(
    attend: Callable[..., Any],
    *,
    embed_dim: int,
    num_heads: int,
    kind: str = "cross",
    module: nn.Module | None = None,
    max_length: int = 16,
) -> Report:
    """Examine an attention, and report what is wrong with it.

    It is asked some hundred questions with small inputs, on the device that tensors are made on.
    Nothing of it is changed: weights, buffers, modes and random numbers are afterwards as before.

    Args:
        attend: takes batch-first tensors, by ``kind``: ``attend(query, key, value, blocked)`` with
            (b, n, e), (b, m, e), (b, m, e) and ``blocked`` None or boolean (b, n, m), True =
            blocked; ``attend(x, blocked)``; or ``attend(x)``, which hides the future by itself. It
            returns (b, n, e), or a tuple with that first, and perhaps the weights second. For
            other arguments, layouts and masks see ``adapters``.
        embed_dim: e.
        num_heads: h.
        kind: ``"cross"``, ``"self"`` or ``"causal"``.
        module: where parameters, hooks and modes are; None means ``attend``, or the module that an
            adapter was put around.
        max_length: of the longest sequence that it takes.

    Returns:
        What was found, and what could not be examined.

    Raises:
        ValueError: ``kind`` is none of the three, ``embed_dim`` is not divisible by ``num_heads``,
            or a size is below 1.
        TypeError: ``attend`` cannot be called.
    """
    _check(attend, embed_dim, num_heads, kind, max_length)
    patient = Patient(attend, embed_dim, num_heads, kind, module, max_length)
    with patient.admitted():
        try:
            output = patient.ask(patient.draw(0))
        except Failed as failure:
            return _refused(patient, failure)
        if not output.isfinite().all():
            return _not_finite(patient)
        findings, not_examined, results = _symptoms(patient)
        diagnosis = diagnose(patient)
    if diagnosis.reason:
        not_examined.append(f"reference: {diagnosis.reason}")
    else:
        results["reference"] = diagnosis.finding.severity if diagnosis.finding else FINE
    findings = _merged(findings, diagnosis)
    order = sorted(findings, key=lambda finding: finding.severity != WRONG)
    return Report(patient.name, tuple(order), tuple(not_examined), results, diagnosis.agreement)


def _check(attend: object, embed_dim: int, num_heads: int, kind: str, max_length: int) -> None:
    if not callable(attend) or inspect.isclass(attend):
        raise TypeError(f"attend must be a function or a module, got {attend!r}")
    if kind not in KINDS:
        raise ValueError(f'kind ({kind!r}) must be "cross", "self" or "causal"')
    for name, size in (("embed_dim", embed_dim), ("num_heads", num_heads)):
        if size < 1:
            raise ValueError(f"{name} ({size}) must be at least 1")
    if embed_dim % num_heads:
        raise ValueError(f"embed_dim ({embed_dim}) must be divisible by num_heads ({num_heads})")
    if max_length < 2:
        raise ValueError(f"max_length ({max_length}) must be at least 2")


def _refused(patient: Patient, failure: Failed) -> Report:
    """Report that there is nothing to examine."""
    shape = "it returns" in str(failure)
    remedy = "Give the kind that fits, or put an adapter around it."
    if "NotImplementedError" in str(failure):
        remedy = "Write what is missing; then ask again."
    finding = Finding(
        "wrong-result" if shape else "fails",
        WRONG,
        "what it returns is no output" if shape else "it raises an error",
        str(failure),
        f'it is asked as kind "{patient.kind}" with tensors of ({patient.b}, {patient.n}, '
        f"{patient.embed_dim})",
        remedy,
        "answers",
    )
    return Report(
        patient.name, (finding,), ("everything else: it does not answer",), {"answers": WRONG}
    )


def _not_finite(patient: Patient) -> Report:
    """Report that there are no numbers to compare."""
    named = [] if patient.module is None else list(patient.module.named_parameters())
    bad = [name for name, x in named if not x.isfinite().all() or x.abs().max() > 1e6]
    finding = Finding(
        "output-not-finite",
        WRONG,
        "standard normal inputs give NaN or infinity",
        f"parameters that are NaN, infinite or huge: {', '.join(bad) or 'none'}",
        "parameters made with `torch.empty` and never filled" if bad else "",
        "Initialise every parameter in the constructor." if bad else "",
        "answers",
    )
    return Report(
        patient.name, (finding,), ("everything else: there are no numbers",), {"answers": WRONG}
    )


def _symptoms(patient: Patient) -> tuple[list[Finding], list[str], dict[str, str]]:
    """Run stage one."""
    findings: list[Finding] = []
    not_asked: dict[str, list[str]] = {}
    failed: dict[str, list[str]] = {}
    results = {"answers": FINE}
    for name, test in SYMPTOMS.items():
        try:
            found = [replace(finding, test=name) for finding in test(patient)]
        except NotAsked as reason:
            not_asked.setdefault(str(reason), []).append(name)
        except Failed as failure:
            failed.setdefault(str(failure), []).append(name)
            results[name] = "fails"
        else:
            findings += found
            severities = {finding.severity for finding in found}
            results[name] = max(severities, key=(FINE, CONVENTION, WRONG).index, default=FINE)
    for message, names in failed.items():
        symptom = f"it raises an error when asked about {', '.join(names)}"
        findings.append(Finding("fails", WRONG, symptom, message, test=names[0]))
    not_examined = [f"{', '.join(names)}: {reason}" for reason, names in not_asked.items()]
    return findings, not_examined, results


def _merged(findings: list[Finding], diagnosis: Diagnosis) -> list[Finding]:
    """Let the diagnosis speak for the symptoms that it explains, and say what to do."""
    if diagnosis.appended:
        findings = [_by_design(finding) for finding in findings]
    named = diagnosis.finding
    if named is not None:
        explained = [f for f in findings if f.test not in _CONDUCT or f.code == named.code]
        shown = [f.symptom for f in explained if f.severity == WRONG and f.symptom]
        symptom = "; ".join(dict.fromkeys(shown)) or named.symptom
        symptom = symptom or "nothing shows from outside; only the outputs differ"
        rest = [f for f in findings if f not in explained]
        findings = [replace(named, symptom=symptom, test="reference"), *rest]
    return [_with_remedy(finding) for finding in findings]


# What a mistake in the computation does not explain.
_CONDUCT = ("evaluation", "dropout", "registration", "hooks", "half precision", "inputs")


def _by_design(finding: Finding) -> Finding:
    if finding.code != "weights-do-not-sum-to-one":
        return finding
    cause = "keys are appended, and take a part of the weight"
    return replace(finding, code="keys-appended", severity=CONVENTION, cause=cause, remedy="")


def _with_remedy(finding: Finding) -> Finding:
    """Take cause and remedy from the list of mistakes."""
    mistake = MISTAKES.get(finding.code)
    if mistake is None:
        return finding
    return replace(
        finding,
        cause=finding.cause or f"{mistake.title}. {mistake.explanation}",
        remedy=finding.remedy or mistake.remedy,
    )

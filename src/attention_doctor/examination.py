"""The examination: both stages, one after the other, made into one report."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from annotated_attention.checks import check_settings
from attention_doctor import (
    ask_conduct,
    ask_masks,
    ask_order,
    ask_today,
    ask_weights,
)
from attention_doctor.call.patient import Failed, NotAsked, Patient
from attention_doctor.call.places import raised_in
from attention_doctor.call.roles import KINDS, Sizes
from attention_doctor.compare_reference import TRUSTED, compare
from attention_doctor.compare_versions import Diagnosis, diagnose
from attention_doctor.look_inside import Inside, cleared, located, named, summary
from attention_doctor.report import CONVENTION, FINE, UNASKED, WRONG, Finding, Report, wrong
from attention_doctor.report_causes import CONDUCT, OF_SCALES, merged

Test = Callable[[Patient], Iterator[Finding]]
SYMPTOMS: dict[str, Test] = {
    # What is wrong in these two would show in every other answer: it is said once, and allowed for.
    "evaluation": ask_conduct.evaluation,
    "precision": ask_conduct.precision,
    "attention": ask_weights.attention,
    "visible": ask_masks.visible,
    "order": ask_order.order,
    "samples apart": ask_order.samples_apart,
    "equal values": ask_order.equal_values,
    "blocked": ask_masks.blocked_keys,
    "future": ask_masks.future,
    "fully masked rows": ask_masks.fully_masked_rows,
    "dropout": ask_conduct.dropout,
    "training": ask_conduct.training,
    "weights": ask_conduct.weights,
    "registration": ask_conduct.registration,
    "gradients": ask_conduct.gradients,
    "rotation": ask_today.rotation,
    "cache": ask_today.cache,
    "hooks": ask_conduct.hooks,
    "half precision": ask_conduct.half_precision,
    "inputs": ask_conduct.inputs_untouched,  # last: about all calls before
}


def examine(
    attend: Callable[..., Any],
    *,
    embed_dim: int,
    num_heads: int,
    kind: str = "cross",
    module: nn.Module | None = None,
    max_length: int = 16,
    reference: Callable[..., Any] | None = None,
    context_dim: int | None = None,
) -> Report:
    """Examine an attention, and report what is wrong with it.

    The examination calls ``attend`` some hundred times with small inputs, on the default device.
    Weights, buffers, modes and the random state are the same afterwards as before.

    Args:
        attend: takes batch-first tensors, by ``kind``: ``attend(query, key, value, blocked)`` with
            (b, n, e), (b, m, e), (b, m, e) and ``blocked`` None or boolean (b, n, m), True =
            blocked; ``attend(x, blocked)``; ``attend(x)``, which hides the future by itself; or
            ``attend(x, context, blocked)``, with keys and values made from (b, m, c). It
            returns (b, n, e), alone or among other tensors, as the weights. For other arguments,
            layouts and masks see ``adapters``.
        embed_dim: e, the model width.
        num_heads: h, the number of heads; must divide ``embed_dim``.
        kind: ``"cross"``, ``"self"``, ``"causal"`` or ``"memory"``.
        module: holds the parameters, hooks and modes; None means ``attend`` or, for an adapter, the
            module inside it.
        max_length: length of the longest sequence that ``attend`` accepts, at least 2.
        reference: another implementation, which is trusted, called in the same way. It is given the
            parameters of ``attend``, and outputs are compared.
        context_dim: c, the width of the context of kind ``"memory"``; None means e.

    Returns:
        All findings, and what could not be examined.

    Raises:
        ValueError: ``kind`` is none of the four, ``embed_dim`` is not divisible by ``num_heads``,
            a size is below 1, or ``max_length`` is below 2.
        TypeError: ``attend`` or ``reference`` cannot be called, or a size is no integer.

    Examples:
        A self-attention with a mistake and a habit that published code often has:

        >>> import torch
        >>> from attention_doctor import examine
        >>> class Attention(torch.nn.Module):
        ...     def __init__(self, e, h):
        ...         super().__init__()
        ...         self.h, self.qkv, self.out = h, torch.nn.Linear(e, 3 * e), torch.nn.Linear(e, e)
        ...
        ...     def forward(self, x, blocked=None):
        ...         b, n, e = x.shape
        ...         q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        ...         scores = q @ k.mT / (e // self.h) ** 0.5
        ...         if blocked is not None:
        ...             scores = scores.masked_fill(blocked[:, None], -1e9)
        ...         return self.out((scores.softmax(-1) @ v).reshape(b, n, e))
        >>> report = examine(Attention(24, 4), embed_dim=24, num_heads=4, kind="self")
        >>> report.ok, report.codes
        (False, ('merge-without-transpose', 'finite-fill-in-half'))
        >>> report.findings[0].where.text
        'return self.out((scores.softmax(-1) @ v).reshape(b, n, e))'
    """
    sizes = Sizes(embed_dim, num_heads, context_dim or embed_dim, max_length)
    for one in (attend,) if reference is None else (attend, reference):
        check_arguments(one, sizes, kind)
    return examine_patient(Patient(attend, sizes, kind, module), reference)


def examine_patient(patient: Patient, reference: Callable[..., Any] | None = None) -> Report:
    """Examine what may be called in a way of its own."""
    tests, diagnosis, inside = _Tests(patient, reference), Diagnosis(), Inside(patient)
    with contextlib.ExitStack() as until:
        try:
            until.enter_context(patient.admitted())
            patient.ask(patient.draw(0))
        except Failed as failure:
            return _refused(patient, failure)
        if tests.run("answers"):
            diagnosis.reason = "there are no numbers to compare"
        elif tests.run("evaluation") and not _is_calm(patient, until):
            diagnosis.reason = "the same input gives a different result each time"
        else:
            tests.run(*(name for name in tests.known if name not in ("answers", "evaluation")))
            diagnosis = diagnose(patient)
        tests.look(inside, diagnosis)
        tests.end(diagnosis)
        findings = located(inside, merged(tests.findings, tests.seen, diagnosis, patient.kind))
        findings.sort(key=lambda finding: finding.severity != WRONG)
        return Report(
            patient.name,
            tuple(findings),
            tuple(tests.not_examined),
            tests.results,
            diagnosis.agreement,
            diagnosis.version,
            summary(inside),
        )


def check_arguments(attend: object, sizes: Sizes, kind: str) -> None:
    """Refuse what cannot be examined, with the errors of ``examine``."""
    embed_dim, num_heads, _, max_length = sizes
    if not callable(attend) or inspect.isclass(attend):
        raise TypeError(f"attend must be a function or a module, got {attend!r}")
    if kind not in KINDS:
        raise ValueError(f"kind ({kind!r}) must be one of {', '.join(KINDS)}")
    check_settings({"embed_dim": embed_dim, "num_heads": num_heads})
    if max_length < 2:
        raise ValueError(f"max_length ({max_length}) must be at least 2")


def _refused(patient: Patient, failure: Failed) -> Report:
    """Report that there is nothing to examine: it raised, or what it returned is no output."""
    inputs = f"tensors of ({patient.b}, {patient.n}, {patient.embed_dim})"
    asked = f'it is called as kind "{patient.called_as}" with {inputs}'
    remedy = "Give the kind that fits, or put an adapter around it."
    code, symptom = "wrong-result", "it returns something of the wrong type or shape"
    if failure.error is not None:
        code, symptom = "fails", "it raises an error when it is called"
        if isinstance(failure.error, NotImplementedError):
            remedy = "Write what is missing; then ask again."
        elif raised_in(failure.error) is not None:
            remedy = f"Mend that line if it should take {inputs}. If it takes other arguments, "
            remedy += "give the kind that fits, or put an adapter around it."
    finding = Finding(code, UNASKED, symptom, str(failure), asked, remedy, "answers")
    reason = "everything else: there is no output to compare"
    return Report(patient.name, (finding,), (reason,), {"answers": UNASKED})


def _answers(patient: Patient) -> Iterator[Finding]:
    """The output is finite; what is not leaves no numbers to compare."""
    inputs = patient.draw(0)
    finite = patient.ask(inputs).isfinite().all(-1)  # (b, n)
    if finite.all():
        return
    everything = torch.ones(*inputs.query.shape[:2], inputs.key.size(1), dtype=torch.bool)
    if patient.masks != "none" and patient.ask(inputs, everything).isfinite().all():
        symptom = "results are NaN or infinite, unless a mask blocks every key"
        yield wrong("mask-inverted", symptom, "there is none with a mask that blocks every key")
        return
    bad = [
        name for name, x in patient.named.items() if not x.isfinite().all() or x.abs().max() > 1e6
    ]
    places = {} if bad or patient.kind != "causal" else {"first": 0, "last": patient.n - 1}
    for name, place in places.items():
        if torch.equal(~finite, (torch.arange(patient.n) == place).expand_as(finite)):
            code = "mask-inverted" if place else "causal-hides-itself"
            symptom = "the mask hides every token from one query, even the query's own"
            evidence = f"the result of the {name} token is NaN in every sample"
            yield wrong(code, symptom, evidence)
            return
    evidence = f"in {int((~finite).sum())} of {finite.numel()} rows; parameters that are NaN, "
    evidence += f"infinite or huge: {', '.join(bad) or 'none'}"
    symptom = "standard normal inputs give NaN or infinity"
    remedy = "Initialise every parameter in the constructor." if bad else ""
    yield wrong("output-not-finite", symptom, evidence, remedy)


def _is_calm(patient: Patient, until: contextlib.ExitStack) -> bool:
    """Tell whether the same input gives the same result, if need be without dropout."""
    inputs = patient.draw(1)
    if ask_conduct.variation(patient, inputs) > patient.tolerance:
        until.enter_context(patient.dropping(0.0))
    return ask_conduct.variation(patient, inputs) <= patient.tolerance


def _worst(findings: list[Finding]) -> str:
    order = (FINE, CONVENTION, WRONG)
    return max((finding.severity for finding in findings), key=order.index, default=FINE)


class _Tests:
    """Runs tests, and collects for a ``Report`` what they find, and what is seen inside."""

    def __init__(self, patient: Patient, reference: Callable[..., Any] | None) -> None:
        self.patient = patient
        self.known = {"answers": _answers, **SYMPTOMS}
        if reference is not None:
            self.known[TRUSTED] = functools.partial(compare, reference=reference)
        self.findings: list[Finding] = []
        self.seen: list[Finding] = []
        self.results: dict[str, str] = {}
        self.not_examined: list[str] = []
        self._left: dict[str, list[str]] = {}  # names of tests, by the reason
        self._failed: dict[str, list[str]] = {}

    def run(self, *names: str) -> bool:
        """Run tests by their names; gives whether there is something wrong."""
        count = len(self.findings)
        for name in names:
            try:
                found = [replace(x, test=name) for x in self.known[name](self.patient)]
            except NotAsked as reason:
                self._left.setdefault(str(reason), []).append(name)
            except Failed as failure:
                self._failed.setdefault(str(failure), []).append(name)
                self.results[name] = "fails"
            else:
                self.findings += found
                self.results[name] = _worst(found)
        return len(self.findings) > count

    def look(self, inside: Inside, diagnosis: Diagnosis) -> None:
        """Look inside; where the weights could be compared, only for the lines."""
        complaints = [x for x in self.findings if x.test not in CONDUCT]
        self.seen = named(inside, complaints, diagnosis.version == "right")
        grave = [x for x in self.seen if x.severity == WRONG and not x.code.startswith(OF_SCALES)]
        if diagnosis.version in ("", "right") and not grave:
            self.findings = cleared(inside, self.findings)
        if inside.first is None:
            self._left.setdefault(inside.reason or "the call fails", []).append("inside")
        elif not diagnosis.version:
            self.results["inside"] = _worst(self.seen)

    def end(self, diagnosis: Diagnosis) -> None:
        """Add the errors on the way, what the weights said, and what did not come to be asked."""
        for message, names in self._failed.items():
            symptom = f"it raises an error when asked about {', '.join(names)}"
            self.findings.append(Finding("fails", WRONG, symptom, message, test=names[0]))
        if diagnosis.reason:
            self._left.setdefault(diagnosis.reason, []).append("reference")
        else:
            self.results["reference"] = diagnosis.finding.severity if diagnosis.finding else FINE
        asked = {*self.results, *(name for names in self._left.values() for name in names)}
        if left := [name for name in SYMPTOMS if name not in asked]:
            self._left[diagnosis.reason] = [*left, "reference"]
        self.not_examined = [f"{', '.join(names)}: {why}" for why, names in self._left.items()]

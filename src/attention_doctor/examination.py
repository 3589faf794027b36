"""The examination: evidence is gathered, rules are asked once, and a report is written."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from annotated_attention.checks import check_settings
from attention_doctor.answers import Answers, first
from attention_doctor.call.calls import called
from attention_doctor.call.fitting import fitting
from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.masks import Called
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import raised_at
from attention_doctor.call.roles import KINDS, Sizes, Unasked, meaning_of, taken
from attention_doctor.evidence.conditions import settled
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.report import Report, refused
from attention_doctor.rules.questions import WRONG
from attention_doctor.verdict import excused, finding, findings, summary

_OTHER = {"blocked": "allowed", "allowed": "blocked"}


def examine(
    attend: Callable[..., Any],
    *,
    embed_dim: int,
    num_heads: int,
    kind: str = "cross",
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
    patient = Patient(attend, sizes, kind)
    if reference is not None:
        patient.reference = Patient(reference, sizes, kind)
    return examine_patient(patient)


def examine_called(
    attend: Any,
    sizes: Sizes,
    kind: str,
    layout: str = "",
    mask: str = "",
    call: Mapping[str, Any] | None = None,
    window: int = 0,
    reference: Any = None,
) -> Report:
    """Examine what is called by the names of its arguments, as ``assert_attention`` has them.

    Raises:
        Unasked: an argument is not known, or no mask fits.
    """

    def patient_of(sizes: Sizes, mask: str = mask) -> tuple[Patient, Called]:
        further = dict(call or {})
        asked = called(attend, kind, sizes, layout, mask, further)
        asked.attend.window = window or asked.attend.window
        patient = Patient(asked.attend, sizes, kind)
        patient.guessed = asked.guessed
        if reference is not None:
            further = taken(getattr(reference, "forward", reference), further)
            trusted = called(reference, kind, sizes, layout, mask, further)
            patient.reference = Patient(trusted.attend, sizes, kind)
        return patient, asked

    def runs(sizes: Sizes) -> bool:
        with contextlib.suppress(Unasked, Failed, NotAsked):
            patient = patient_of(sizes)[0]
            with patient.admitted():
                patient.ask(patient.draw(0))
                return True
        return False

    def with_mask(report: Report, name: str) -> Report:
        """Ask what another mask hides, if its name says what True means; or leave it out.

        A name is a guess: what would be right with the other meaning is not called wrong.
        """
        left = f"{name}: another mask is asked; this one with `--mask {name}`"
        if name == how.left:
            left = f"`{name}`: no call shows what it hides; say what it is, as in `--mask "
            left += f"'{name} bm allowed'`"
        with contextlib.suppress(Unasked, Failed, NotAsked):
            meaning = meaning_of(name)
            other, said = patient_of(patient.sizes, f"{name} {meaning}")
            if meaning and other.masks != "none" and other.mask_error is None:
                found = _with_findings(report, other, said.how)
                new = {*found.codes} - {*report.codes}
                certain = "masks-joined-by-or" in new or not (new or name == how.left)
                if not certain and name != how.left:
                    true = _OTHER.get(meaning, meaning)
                    turned, _ = patient_of(patient.sizes, f"{name} {true}")
                    certain = _with_findings(report, turned, "").codes != report.codes
                    left = f"`{name}`: right if True = {true}, and wrong if True = {meaning}, as "
                    left += f"its name may say; say which: `--mask '{name} …'`"
                if certain:
                    return found
        return replace(report, not_examined=(*report.not_examined, left))

    patient, how = patient_of(sizes)
    report = examine_patient(patient)
    failed, *_ = (*report.findings, None)
    if failed is not None and failed.code == "fails" and not report.asked:
        other = fitting(attend, kind, sizes, (failed.evidence, failed.where), runs)
        if other is not None:
            patient, how = patient_of(other)
            report = examine_patient(patient)
    tokens = patient.sizes.tokens
    why = ", the number that its error names" * (patient.sizes.only[0] in ("", "length-fixed"))
    said = f"{tokens} tokens{why}" * bool(tokens)
    said = ", ".join(filter(None, [how.how, said]))
    report = replace(report, called=(f"called with {said}",) * bool(said), inferred=how.inferred)
    others = (*how.others, *[how.left] * bool(how.left))
    return functools.reduce(with_mask, others if report.asked else (), report)


def _with_findings(report: Report, patient: Patient, said: str) -> Report:
    """Add what is wrong with another mask of the same."""
    evidence = Evidence(patient)
    with patient.admitted(), settled(evidence) as reason:
        if reason:
            raise NotAsked(reason)
        found = first(evidence, "blocked", "blocked")
        if patient.kind == "causal":
            found = found or first(evidence, "future", "future")
        more = [
            finding(evidence, x)
            for x in excused(evidence, found)
            if x.rule.code not in report.codes
        ]
    grave = [x for x in more if x.severity == WRONG]
    return replace(
        report,
        findings=(*grave, *report.findings),
        results={**report.results, **{x.test: WRONG for x in grave}},
        called=(*report.called, f"called with {said}, too"),
    )


def examine_patient(patient: Patient) -> Report:
    """Examine what may be called in a way of its own."""
    with patient.admitted():
        try:
            patient.ask(patient.draw(0))
        except Failed as failure:
            return _refused(patient, failure)
        evidence = Evidence(patient)
        with settled(evidence) as reason:
            answers = Answers(evidence, reason)
            return Report(
                patient.name,
                tuple(findings(evidence, answers)),
                tuple(answers.not_examined),
                answers.results,
                answers.agreement.said,
                answers.agreement.version,
                summary(evidence),
            )


def check_arguments(attend: object, sizes: Sizes, kind: str) -> None:
    """Refuse what cannot be examined, with the errors of ``examine``."""
    embed_dim, num_heads, _, max_length, *_ = sizes
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
        elif raised_at(failure.error):
            remedy = f"Mend that line if it should take {inputs}. If it takes other arguments, "
            remedy += "give the kind that fits, or put an adapter around it."
    left = "everything else: there is no output to compare"
    place = None if failure.error is None else raised_at(failure.error)
    texts = (symptom, str(failure), asked, remedy, "answers")
    return refused(patient.name, code, texts, left, place)

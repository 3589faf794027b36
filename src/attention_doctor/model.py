"""Examine the attentions inside a model, each with the arguments that the model gives it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from annotated_attention.mistakes import MISTAKES
from annotated_attention.multihead import MultiheadAttention
from attention_doctor import adapters
from attention_doctor.examination import examine_patient
from attention_doctor.influence import counts, reactions
from attention_doctor.patient import Failed, Patient
from attention_doctor.recording import Call, record
from attention_doctor.replay import Replay, Replayed
from attention_doctor.report import CONVENTION, FINE, UNASKED, WRONG, Finding, Report

Sizes = tuple[int, int, int]
_MOST_TOKENS = 32  # in all samples together: each of them is asked about by itself
_FEWER = (2, 6)  # the samples and tokens that are kept of more


@dataclass(frozen=True, repr=False)
class ModelReport(Mapping[str, Report]):
    """The reports on all attentions of a model, by their paths in it.

    Attentions that differ in nothing but their weights share one report.

    Attributes:
        name: the model's class.
        reports: path to report.
        not_examined: what looks like attention and could not be examined, and why.

    Examples:
        >>> import torch
        >>> from attention_doctor import ModelReport, examine_model
        >>> layer = torch.nn.TransformerEncoderLayer(24, 4, 32, batch_first=True)
        >>> model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        >>> report = examine_model(model, torch.randn(2, 5, 24))
        >>> isinstance(report, ModelReport), list(report)[0], len(report), len(report.examined)
        (True, 'layers.0.self_attn', 3, 1)
        >>> report.asked, report.ok
        (True, True)
        >>> print(report.verdict)
        ✓ TransformerEncoder: 3 attentions, 1 kind, nothing wrong
    """

    name: str
    reports: Mapping[str, Report]
    not_examined: tuple[str, ...] = ()

    def __getitem__(self, path: str) -> Report:
        """Give the report on the attention at a path."""
        return self.reports[path]

    def __iter__(self) -> Iterator[str]:
        """Go through the paths, in the order in which the model calls them."""
        return iter(self.reports)

    def __len__(self) -> int:
        """Count the attentions."""
        return len(self.reports)

    @property
    def examined(self) -> tuple[Report, ...]:
        """Each report once."""
        return tuple({id(report): report for report in self.reports.values()}.values())

    @property
    def ok(self) -> bool:
        """Whether there is an attention, all could be called, and nothing is wrong."""
        return self.asked and all(report.ok for report in self.examined)

    @property
    def asked(self) -> bool:
        """Whether there is an attention, and all could be called."""
        return bool(self.reports) and all(report.asked for report in self.examined)

    @property
    def verdict(self) -> str:
        """The result in one line."""
        if not self.reports:
            return f"✗ {self.name}: no attention is found in it"
        wrong = sum(report.asked and not report.ok for report in self.examined)
        unasked = sum(not report.asked for report in self.examined)
        counts = {"attention": len(self), "kind": len(self.examined)}
        parts = [f"{count} {name}{'s' * (count > 1)}" for name, count in counts.items()]
        parts += [f"{wrong} wrong"] if wrong else []
        parts += [f"{unasked} could not be asked"] if unasked else []
        parts += ["nothing wrong"] if self.ok else []
        return f"{'✓' if self.ok else '✗'} {self.name}: {', '.join(parts)}"

    def __str__(self) -> str:
        """Show all reports as text."""
        left = "\n".join(["not examined", *(f"  - {reason}" for reason in self.not_examined)])
        parts = [self.verdict, *map(str, self.examined), *([left] if self.not_examined else [])]
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show all reports as HTML."""
        return "".join(report._repr_html_() for report in self.examined)


def examine_model(model: nn.Module, *inputs: Any, **options: Any) -> ModelReport:
    """Run a model once, and examine each attention inside it with the model's own arguments.

    Attentions are found by what they compute. Each is called again with the rotations, caches and
    settings that the model gave it; the hidden states are drawn, and so is the mask where it has
    one. Batch and length are the model's, so short inputs with sizes that differ from each other
    and from the number of heads show most; of more than 32 tokens a few are kept.

    Args:
        model: any module; its weights, modes and buffers are the same afterwards as before.
        *inputs: what the model is called with.
        **options: what the model is called with by name.

    Returns:
        A mapping from the path of each attention to its report. Attentions that differ in nothing
        but their weights are examined once, with the weights of the first.

    Raises:
        Exception: whatever the model raises when it is called.

    Examples:
        >>> import torch
        >>> from annotated_attention import TransformerDecoderLayer
        >>> from attention_doctor import examine_model
        >>> layer = TransformerDecoderLayer(24, 4, 32, batch_first=True)
        >>> reports = examine_model(layer, torch.randn(2, 5, 24), torch.randn(2, 7, 24))
        >>> for path, report in reports.items():
        ...     print(path, report.ok)
        self_attn True
        multihead_attn True
    """
    calls, homeless = record(model, inputs, options)
    groups: list[list[Call]] = []
    for call in calls:
        alike = next((group for group in groups if group[0].likeness == call.likeness), [])
        alike.append(call)
        groups += [alike] if len(alike) == 1 else []
    found: dict[str, Report] = {}
    for group in groups:
        times = f" × {len(group)}" if len(group) > 1 else ""
        name = f"{type(group[0].module).__name__} at {group[0].path or 'the top'}{times}"
        report = replace(_examined(group[0]), name=name)
        found |= {call.path: report for call in group}
    found = _agreed(found, {call.path: type(call.module) for call in calls})
    reason = "a softmax runs in it, and nothing around it takes hidden states of (b, n, e)"
    left = tuple(f"{path or 'the model'}: {reason}" for path in homeless)
    reports = {call.path: found[call.path] for call in calls}
    return ModelReport(type(model).__name__, reports, left)


def _agreed(reports: dict[str, Report], classes: dict[str, type]) -> dict[str, Report]:
    """Take for a convention what another attention of the same class shows to be one.

    Where some layers use their positions, the others go without on purpose.
    """
    shown = {classes[path] for path, x in reports.items() if x.results.get("rotation") == FINE}
    cause = "another attention of this class in the model shows that it is meant so"
    changed = {
        id(report): _excused(report, "positions-ignored", cause)
        for path, report in reports.items()
        if classes[path] in shown
    }
    return {path: changed.get(id(report), report) for path, report in reports.items()}


def _excused(report: Report, code: str, cause: str) -> Report:
    """Take what has this code for a convention."""
    found = [
        replace(x, severity=CONVENTION, cause=cause, remedy="") if x.code == code else x
        for x in report.findings
    ]
    return replace(report, findings=tuple(found))


def _examined(call: Call) -> Report:
    """Examine one attention, in the way in which the model calls it."""
    shape = call.arguments[call.states[0]].shape
    if call.output != shape:
        output = None if call.output is None else tuple(call.output)
        return _unasked(call, f"it takes {tuple(shape)} and returns {output}")
    replay = Replay(call)
    torch_like = isinstance(call.module, nn.MultiheadAttention | MultiheadAttention)
    if torch_like and call.states == ("query", "key", "value"):
        known = type(call.module) in (nn.MultiheadAttention, MultiheadAttention)
        kind = "self" if replay.kind == "self" and not known else "cross"
        return examine_patient(_patient(call, adapters.torch_like(call.module, kind), kind, None))
    if not replay.kind:
        return _unasked(call, f"it takes {len(call.states)} hidden states")
    free = replay.attend(masked=False)
    try:
        sizes = _sizes(call, free, replay)
    except Failed as failure:
        return _unasked(call, str(failure))
    alone = replay.kind == "self"
    if alone and _hides_the_future(_patient(call, free, "causal", sizes)):
        return examine_patient(_patient(call, free, "causal", sizes))
    masked = replay.mask_name is not None
    report = examine_patient(_patient(call, replay.attend(masked), replay.kind, sizes))
    if replay.hiding:  # beside the mask, such as the lengths of the sequences
        names = ", ".join(f"`{name}`" for name in replay.hiding)
        cause = f"the model gives it {names}, which may hide them"
        report = _excused(report, "visible-unseen", cause)
    own = _own_mask(replay) if alone else None
    return replace(report, findings=(own, *report.findings)) if own else report


def _own_mask(replay: Replay) -> Finding | None:
    """Find a causal mask that is off by one, as the model made it."""
    blocked = replay.blocked()
    n = 0 if blocked is None else blocked.size(-1)
    if blocked is None or n < 4:
        return None
    ahead, next_but_one = (torch.ones(n, n, dtype=torch.bool).triu(x) for x in (1, 2))
    if blocked[:, next_but_one].all() and not blocked[:, ahead].all():
        code, does = "causal-off-by-one", "shows the next token"
    elif blocked[:, ahead].all() and blocked.diagonal(dim1=1, dim2=2).all() and not blocked.all():
        code, does = "causal-hides-itself", "hides each token itself"
    else:
        return None
    entry, symptom = MISTAKES[code], f"the mask that the model makes {does}"
    return Finding(code, WRONG, symptom, "", entry.title, entry.remedy, "blocked")


def _unasked(call: Call, why: str) -> Report:
    remedy = "Write an adapter for it, and give that to `examine`."
    finding = Finding("fails", UNASKED, "it cannot be called again", why, "", remedy, "answers")
    return Report(call.path, (finding,), ("everything else",), {"answers": UNASKED})


def _patient(call: Call, attend: Callable[..., Any], kind: str, sizes: Sizes | None) -> Patient:
    width, other = (call.arguments[call.states[i]].size(-1) for i in (0, -1))
    heads = 1 if width % call.num_heads else call.num_heads  # only the weights depend on it
    if sizes is None:
        return Patient(attend, width, heads, kind, call.module)
    length = max(2, *sizes[1:])
    patient = Replayed(attend, width, heads, kind, call.module, length, other)
    patient.b, patient.n, patient.m = sizes
    return patient


def _sizes(call: Call, attend: Callable[..., Any], replay: Replay) -> Sizes:
    """Choose the model's own sizes, or fewer samples and tokens where that works.

    Raises:
        Failed: it works with neither.
    """
    b, n, m = recorded = replay.sizes
    fewer = min(b, _FEWER[0]), min(n, _FEWER[1]), min(m, _FEWER[1])
    many = b * max(n, m) > _MOST_TOKENS
    for sizes in (fewer, recorded) if many else (recorded,):
        patient = _patient(call, attend, replay.kind, sizes)
        with patient.admitted():
            try:
                patient.ask(patient.draw(0))
            except Failed:
                if sizes == recorded:
                    raise
            else:
                return sizes
    return recorded


def _hides_the_future(patient: Patient) -> bool:
    """Tell whether fewer later tokens matter than earlier ones; a mistake may show some of them."""
    with patient.admitted():
        inputs = patient.draw(1)
        own = torch.arange(patient.b)
        seen = counts(reactions(patient, inputs)["query"][own, :, own])  # (b, n, n)
    others = seen & ~torch.eye(patient.n, dtype=torch.bool)
    seen_by_some = others.any(1, keepdim=True).expand_as(seen)  # which padding is not
    future, past = (
        float(seen[pairs].double().mean()) if pairs.any() else 0.0
        for pairs in (seen_by_some.triu(1), seen_by_some.tril(-1))
    )
    return future < past

"""How an implementation behaves as a module: modes, dropout, gradients, half precision."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attention_doctor.call.inputs import Failed, Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import describe
from attention_doctor.evidence import parameters, situations
from attention_doctor.evidence.conditions import DROPOUT, needs_full_precision, variation
from attention_doctor.evidence.influence import across, influence
from attention_doctor.evidence.situations import Situation

_FAR = 0.3  # what half precision may be off by: this looks for overflow, not for rounding


def dropped_scores(patient: Patient) -> float | None:
    """Measure how much results vary with a dropout that leaves weights whose sum is one.

    One dropout at a time is in force; None if none is of this kind.
    """
    patient.needed_module()
    with patient.trained(DROPOUT) as count:
        if not count:
            raise NotAsked("no dropout setting is found")
    moving = []
    inputs = patient.draw(1)
    flat = inputs.map(lambda x: x[:, :1].expand_as(x))
    if patient.kind == "cross" and not patient.memory:
        flat = Inputs(inputs.query, inputs.key, flat.value)
    for which in range(count):
        with patient.trained(DROPOUT, which):
            if (varied := variation(patient, inputs)) > patient.tolerance:
                moving.append((variation(patient, flat), varied))
    if not moving:
        raise NotAsked("its dropout has no effect in training")
    return next((varied for constant, varied in moving if constant <= patient.tolerance), None)


def not_finite_in_training(patient: Patient) -> str:
    """Say where training gives NaN and evaluation does not; "" for nowhere."""
    patient.needed_module()
    for case in situations.cases(patient):
        calm = patient.ask(case.inputs, case.blocked).isfinite().all(-1)
        with patient.trained(DROPOUT):
            bad = calm & ~patient.ask(case.inputs, case.blocked).isfinite().all(-1)
        if bad.any():
            return f"with {case.name}, {int(bad.sum())} of {int(calm.sum())} rows"
    return ""


@dataclass(frozen=True)
class Modes:
    """Pairs that are seen in one mode, and hidden in the other."""

    mode: str  # in which they are seen
    case: Situation
    pairs: int
    hidden: int


def training(patient: Patient) -> Modes | None:
    """Compare what training and evaluation hide."""
    patient.needed_module()
    for case in situations.cases(patient):
        calm = patient.ask(case.inputs, case.blocked)
        with patient.trained(0.0):
            output = patient.ask(case.inputs, case.blocked)
            if not output.isfinite().all() or patient.same(output, calm):
                continue
            if not patient.same(output, patient.ask(case.inputs, case.blocked)):
                raise NotAsked("in training mode, and without dropout, it is still random")
            now = influence(patient, case.inputs, case.blocked)[0]
            mixed = across(patient, case.inputs, case.blocked)
        seen = influence(patient, case.inputs, case.blocked)[0]
        ahead = torch.ones_like(seen).triu(1) & (patient.kind == "causal")
        to_hide = ahead if case.blocked is None else ahead | case.blocked
        mode, pairs, hidden = "training", now & ~seen, ~seen
        if not pairs.any():
            mode, hidden = "evaluation", to_hide & ~now
            pairs = seen & hidden
        if not pairs.any() or mixed:
            raise NotAsked("training mode differs by no mask, such as by a norm over the batch")
        return Modes(mode, case, int(pairs.sum()), int(hidden.sum()))
    return None


def sums_of_weights(patient: Patient) -> tuple[Tensor, Tensor | None]:
    """Add up the weights that are returned, in evaluation and, with dropout, in training."""
    inputs = patient.draw(1)
    if (calm := _sums(patient, inputs)) is None:
        raise NotAsked("it returns no weights of shape (b, n, m) or (b, h, n, m)")
    if patient.module is None or (calm - 1).abs().max().item() > 100 * patient.tolerance:
        return calm, None
    with patient.trained(DROPOUT):
        return calm, _sums(patient, inputs)


def _sums(patient: Patient, inputs: Inputs) -> Tensor | None:
    found = patient.answer(inputs).weights
    b, n, m = *inputs.query.shape[:2], inputs.key.size(1)
    if found is None or found.shape not in ((b, n, m), (b, patient.num_heads, n, m)):
        return None
    return found.double().sum(-1)


def unregistered(patient: Patient) -> Mapping[str, Tensor]:
    """Find the parameters that the module does not know."""
    return parameters.unregistered(patient.needed_module())


@dataclass(frozen=True)
class Gradients:
    """Where gradients go."""

    graph: bool = True  # whether the output has one
    dead: tuple[str, ...] = ()  # parameters that none reaches
    used: bool = False  # whether the output depends on one of those
    count: int = 0  # of all parameters
    dead_thirds: tuple[tuple[str, str], ...] = ()  # of packed projections: which third, and whose
    finite: bool = True


def gradients(patient: Patient) -> Gradients:
    """Follow gradients to the inputs and to every parameter."""
    inputs = patient.draw(1).map(lambda x: x.requires_grad_())
    named = {name: x for name, x in patient.named.items() if x.requires_grad}
    if not patient.ask(inputs, gradient=True).requires_grad:
        return Gradients(graph=False)
    dead, used = _dead(patient, inputs, named), False
    if dead:  # what is made from parameters for evaluation alone has no graph there
        with patient.trained(0.0):
            dead = [name for name in _dead(patient, inputs, named) if name in dead]
            used = any(_matters(patient, inputs, named[name]) for name in dead)
        _dead(patient, inputs, named)
    reached = [x.grad for x in (inputs.query, *named.values()) if x.grad is not None]
    finite = all(bool(grad.isfinite().all()) for grad in reached)
    thirds = tuple(_dead_thirds(patient, named))
    return Gradients(True, tuple(dead), used, len(named), thirds, finite)


def _dead(patient: Patient, inputs: Inputs, named: Mapping[str, Tensor]) -> list[str]:
    """Give the parameters that no gradient reaches, and leave the gradients of all others."""
    for x in named.values():
        x.grad = None
    answer = patient.answer(inputs, gradient=True)
    source = torch.Generator().manual_seed(19)
    numbers = [
        (y * torch.randn(y.shape, generator=source).to(y)).sum()
        for y in (answer.output, *answer.rest)
        if y.requires_grad
    ]
    try:
        torch.stack(numbers).sum().backward(retain_graph=True)
    except NotImplementedError as error:  # the machine cannot, which says nothing of the code
        raise NotAsked(f"in the backward pass: {describe(error)}") from error
    except Exception as error:
        raise Failed(f"in the backward pass: {describe(error)}", error) from error
    return [
        name
        for name, x in named.items()
        # The bias of the keys moves all scores of a query alike: its gradient is zero.
        if x.grad is None or (x.dim() > 1 and not x.grad.any())
    ]


def _dead_thirds(patient: Patient, named: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Find packed projections of which no gradient reaches the rows of queries, keys or values."""
    e = patient.embed_dim
    for name, x in named.items():
        if x.shape[:1] == (3 * e,) and x.dim() == 2 and parameters.role_of(name) == "qkv":
            if x.grad is None or not x.grad.any():
                continue
            for role, rows in zip(("queries", "keys", "values"), x.grad.chunk(3), strict=True):
                if not rows.any():
                    yield role, name


def _matters(patient: Patient, inputs: Inputs, x: Tensor) -> bool:
    """Tell whether the output changes with a parameter."""
    before, (output, rest, _) = x.data, patient.answer(inputs)
    x.data = before + 1
    changed = patient.answer(inputs)
    x.data = before
    pairs = zip((changed.output, *changed.rest), (output, *rest), strict=False)
    return not all(patient.same(new, old) for new, old in pairs)


def hook_runs(patient: Patient) -> bool:
    """Tell whether a hook on the module runs."""
    module = patient.needed_module()
    ran: list[bool] = []
    try:
        handle = module.register_forward_hook(lambda *_: ran.append(True))
    except RuntimeError as error:  # a scripted module
        raise NotAsked(str(error)) from error
    try:
        patient.ask(patient.draw(1))
    finally:
        handle.remove()
    if not ran and type(module).__call__ is nn.Module.__call__:
        raise NotAsked("the module's own call is bypassed, so hooks cannot run")
    return bool(ran)


@dataclass(frozen=True)
class Half:
    """What goes wrong in float16, in the first case where something does."""

    case: Situation
    error: str = ""
    finite: bool = True
    gap: float = 0.0


def half_precision(patient: Patient) -> Half | None:
    """Compare results in float16 with precise ones."""
    needs_full_precision(patient)
    for case in situations.cases(patient):
        expected = patient.ask(case.inputs, case.blocked)
        try:
            with patient.converted(torch.float16):
                half = case.inputs.map(lambda x: x.to(torch.float16))
                result = patient.ask(half, case.blocked)
        except Failed as failure:
            if "overflow" not in str(failure):
                raise NotAsked(f"in float16: {failure}") from failure
            return Half(case, str(failure))
        gap = patient.gap(result, expected)
        if gap > _FAR and expected.isfinite().all():
            return Half(case, "", bool(result.isfinite().all()), gap)
    return None


def changed_arguments(patient: Patient) -> tuple[str, ...]:
    """Name the arguments that have changed after a call, with any mask and in either mode."""
    changed: set[str] = set()

    def call(case: Situation) -> None:
        with contextlib.suppress(Failed, NotAsked):  # other measurements say so
            changed.update(patient.answer(case.inputs, case.blocked).changed)

    cases = [*situations.cases(patient)]
    for case in cases:
        call(case)
    with patient.trained(0.0):
        for case in cases:
            call(case)
    return tuple(sorted(changed))

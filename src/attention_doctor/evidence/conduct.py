"""How an implementation behaves as a module: modes, dropout, gradients, half precision."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attention_doctor.call.inputs import Failed, Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import describe
from attention_doctor.call.state import dropouts
from attention_doctor.evidence import parameters, situations
from attention_doctor.evidence.conditions import DROPOUT, needs_full_precision, variation
from attention_doctor.evidence.influence import across, influence

_FAR = 0.3  # what half precision may be off by: this looks for overflow, not for rounding


def dropped_scores(patient: Patient) -> str:
    """Say how much results vary with a dropout that leaves weights whose sum is one.

    One dropout at a time is in force; "" if none is of this kind.
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
        if not _meets_keys(patient, inputs, which):
            continue
        with patient.trained(DROPOUT, which):
            if (varied := variation(patient, inputs)) > patient.tolerance:
                moving.append((variation(patient, flat), varied))
    if not moving:
        raise NotAsked("its dropout has no effect in training")
    steady = (varied for constant, varied in moving if constant <= patient.tolerance)
    said = "in training results vary by {:.0%}, and not at all where all values are equal"
    return next((said.format(varied) for varied in steady), "")


def _meets_keys(patient: Patient, inputs: Inputs, which: int) -> bool:
    """Tell whether a dropout gets tensors with an axis of the keys, as far as it is called."""
    part, shapes = dropouts(patient.module)[which][0], list[torch.Size]()
    if not isinstance(part, nn.modules.dropout._DropoutNd):
        return True  # a number of the class's own
    with part.register_forward_pre_hook(lambda _, x: shapes.extend(y.shape for y in x[:1])):
        patient.ask(inputs)
    return not shapes or any(inputs.key.size(1) in shape for shape in shapes)


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
    """Pairs that are seen in one mode, and hidden in the other, as a text of the first."""

    training: str = ""
    evaluation: str = ""


def training(patient: Patient) -> Modes:
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
        for mode, pairs in {"training": now & ~seen, "evaluation": seen & ~now}.items():
            if pairs.any() and not mixed:
                said = f"with {case.name} and without dropout, {int(pairs.sum())} pairs react"
                return Modes(**{mode: said})
        raise NotAsked("training mode differs by no mask, such as by a norm over the batch")
    return Modes()


def unregistered(patient: Patient) -> str:
    """Name the parameters that the module does not know."""
    lost = parameters.unregistered(patient.needed_module())
    names = f"{', '.join([*lost][:4])}{' …' if len(lost) > 4 else ''}"
    return f"{sum(x.numel() for x in lost.values())} numbers in {names}" * bool(lost)


@dataclass(frozen=True)
class Gradients:
    """Where gradients go, as texts."""

    stopped: str = ""  # parameters that none reaches, if the output depends on one of them
    unused: str = ""  # those, if it does not
    keys: str = ""  # the packed projection in which none reaches the rows of the keys
    values: str = ""
    wild: str = ""  # those that are NaN or infinite


def gradients(patient: Patient) -> Gradients:
    """Follow gradients to the inputs and to every parameter."""
    inputs = patient.draw(1).map(lambda x: x.requires_grad_())
    named = {name: x for name, x in patient.named.items() if x.requires_grad}
    if not patient.ask(inputs, gradient=True).requires_grad:
        return Gradients(stopped="the output has no graph")
    dead, used = _dead(patient, inputs, named), False
    if dead:  # what is made from parameters for evaluation alone has no graph there
        with patient.trained(0.0):
            dead = [name for name in _dead(patient, inputs, named) if name in dead]
            used = any(_matters(patient, inputs, named[name]) for name in dead)
        _dead(patient, inputs, named)
    reached = {"the input": inputs.query, **named}
    grads = {name: x.grad for name, x in reached.items() if x.grad is not None}
    wild = [name for name, x in grads.items() if not x.isfinite().all()]
    said = f"{len(dead)} of {len(named)}: {', '.join(dead[:5])}{' …' * (len(dead) > 5)}"
    return Gradients(
        wild=", ".join(wild),
        **({"stopped" if used else "unused": said} if dead else {}),
        **_dead_thirds(patient, grads),
    )


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


def _dead_thirds(patient: Patient, grads: Mapping[str, Tensor]) -> dict[str, str]:
    """Find packed projections of which no gradient reaches the rows of keys, or of values."""
    size = (3 * patient.embed_dim,)
    packed = [x for x in grads if grads[x].dim() == 2 and grads[x].shape[:1] == size]
    thirds = {x: grads[x].chunk(3) for x in packed if parameters.role_of(x) == "qkv"}
    return {
        role: f"a third of {name} changes nothing"
        for name, rows in thirds.items()
        for role, mine in zip(("keys", "values"), rows[1:], strict=True)
        if grads[name].any() and not mine.any()
    }


def _matters(patient: Patient, inputs: Inputs, x: Tensor) -> bool:
    """Tell whether the output changes with a parameter."""
    before, (output, rest, _) = x.data, patient.answer(inputs)
    x.data = before + 1
    changed = patient.answer(inputs)
    x.data = before
    pairs = zip((changed.output, *changed.rest), (output, *rest), strict=False)
    return not all(patient.same(new, old) for new, old in pairs)


def deaf_to_hooks(patient: Patient) -> str:
    """Say why no hook on the module runs; "" if one does."""
    module = patient.needed_module()
    ran: list[bool] = []
    try:
        handle = module.register_forward_hook(lambda *_: ran.append(True))
    except RuntimeError as error:  # a scripted module
        raise NotAsked(str(error)) from error
    with handle:
        patient.ask(patient.draw(1))
    if not ran and type(module).__call__ is nn.Module.__call__:
        raise NotAsked("the module's own call is bypassed, so hooks cannot run")
    return "" if ran else f"{type(module).__name__} defines `__call__`"


@dataclass(frozen=True)
class Half:
    """What goes wrong in float16, in the first case where something does, as a text."""

    refused: str = ""
    differs: str = ""


def half_precision(patient: Patient) -> Half:
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
            return Half(refused=f"with {case.name}: {failure}")
        gap = patient.gap(result, expected)
        if gap > _FAR and expected.isfinite().all():
            said = f"it differs by up to {min(gap, 9.99):.0%} of its size"
            said = said if result.isfinite().all() else "the result has NaN or infinity in it"
            return Half(differs=f"with {case.name}, {said}")
    return Half()


def changed(patient: Patient) -> str:
    """Name the arguments that have changed after a call, with any mask and in either mode."""
    names: set[str] = set()
    cases = situations.cases(patient)
    for mode in (contextlib.nullcontext(), patient.trained(0.0)):
        with mode:
            for case in cases:
                with contextlib.suppress(Failed, NotAsked):  # other measurements say so
                    names |= patient.answer(case.inputs, case.blocked).changed
    return f"changed: {', '.join(sorted(names))}" * bool(names)

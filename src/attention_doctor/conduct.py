"""Stage one, continued: how an implementation behaves as a module."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from attention_doctor import situations
from attention_doctor.influence import number
from attention_doctor.parameters import unregistered, unused_rows
from attention_doctor.patient import Failed, Inputs, NotAsked, Patient
from attention_doctor.report import CONVENTION, WRONG, Finding

_DROPOUT = 0.5
_TRIES = 6
_STEP = 1e-4
_SMOOTH = 1e-4  # a fourth difference that the rounding of float32 does not explain
_COARSE = 0.02  # what one step in bfloat16 may be off by
_FAR = 0.3  # what half precision may be off by: this looks for overflow, not for rounding


def evaluation(patient: Patient) -> Iterator[Finding]:
    """In evaluation mode, the same input gives the same result."""
    inputs = patient.draw(1)
    with patient.dropping(_DROPOUT):
        gap = variation(patient, inputs)
        first, graph = patient.ask(inputs), patient.ask(inputs, gradient=True)
    if gap > patient.tolerance:
        yield Finding(
            "dropout-in-evaluation",
            WRONG,
            "in evaluation mode the same input gives a different result each time",
            f"{_TRIES} calls differ by up to {gap:.0%} of their size, with dropout at {_DROPOUT}",
        )
    elif not patient.same(graph, first):
        yield Finding(
            "gradient-mode-matters",
            WRONG,
            "the result changes when gradients are recorded",
            f"it differs by {patient.gap(graph, first):.0%} of its size",
        )


def _needs_full_precision(patient: Patient) -> None:
    if patient.dtype not in (torch.float32, torch.float64):
        raise NotAsked(f"it computes in {patient.dtype}")


def precision(patient: Patient) -> Iterator[Finding]:
    """The output is as precise as the inputs; if not, later tests tolerate the difference."""
    _needs_full_precision(patient)
    limit = max(_SMOOTH, 3 * patient.tolerance)
    rough = []
    for seed in range(31, 34):
        rough.append(_roughness(patient, seed))
        if not rough[-1] > limit:
            return
    patient.rounding = _COARSE
    name = str(patient.dtype).removeprefix("torch.")
    yield Finding(
        "computed-in-low-precision",
        WRONG,
        "the result is coarser than the inputs",
        f"{name} goes in; moved by {_STEP}, the inputs move the output in steps of up to "
        f"{min(rough):.0e} of its size",
        remedy="Compute the softmax in the dtype of the scores, or in float32.",
    )


def _roughness(patient: Patient, seed: int) -> float:
    """Measure by how much the output is not smooth: its fourth difference along a line."""
    start, along = patient.draw(seed), patient.draw(seed + 10)

    def at(step: int) -> Inputs:
        if start.query is start.key:
            return start.map(lambda x: x + _STEP * step * along.query)
        moved = zip(vars(start).values(), vars(along).values(), strict=True)
        return Inputs(*(x + _STEP * step * y for x, y in moved))

    outputs = [patient.ask(at(step)) for step in range(5)]
    weights = (1, -4, 6, -4, 1)
    rest = sum(weight * x.double() for weight, x in zip(weights, outputs, strict=True))
    assert isinstance(rest, Tensor)
    return float(rest.abs().max() / outputs[0].abs().max().clamp(min=1e-30))


def dropout(patient: Patient) -> Iterator[Finding]:
    """In training mode, dropout drops weights, not scores."""
    patient.needed_module()
    with patient.trained(_DROPOUT) as count:
        if not count:
            raise NotAsked("no dropout setting is found")
        inputs = patient.draw(1)
        varied = variation(patient, inputs)
        flat = inputs.map(lambda x: x[:, :1].expand_as(x))
        if patient.kind == "cross" and not patient.memory:
            flat = Inputs(inputs.query, inputs.key, flat.value)
        constant = variation(patient, flat)
    if varied <= patient.tolerance:
        module = patient.needed_module()
        switches = (pair for part in module.modules() for pair in vars(part).items())
        if any("drop" in name and on is False for name, on in switches):
            raise NotAsked("its dropout is switched off")
        yield Finding(
            "dropout-without-effect",
            CONVENTION,
            "there is a setting for dropout, and nothing is random in training",
            f"{_TRIES} calls agree, with dropout at {_DROPOUT}",
            "the setting is stored and not used",
            "Apply dropout to the weights, after the softmax, or leave the setting out.",
        )
    elif constant <= patient.tolerance:
        yield Finding(
            "dropout-before-softmax",
            WRONG,
            "with dropout, the weights still sum to one",
            f"in training results vary by {varied:.0%}, and not at all where all values are equal",
        )


def variation(patient: Patient, inputs: Inputs) -> float:
    """Measure how far the answers to one question are apart, relative to their size."""
    first, *more = (patient.ask(inputs) for _ in range(_TRIES))
    return max(patient.gap(x, first) for x in more)


def weights(patient: Patient) -> Iterator[Finding]:
    """Weights that are returned sum to one over the keys."""
    inputs = patient.draw(1)
    sums = _sums(patient, inputs)
    if sums is None:
        raise NotAsked("it returns no weights of shape (b, n, m) or (b, h, n, m)")
    gap = (sums - 1).abs().max().item()
    if gap > 100 * patient.tolerance:
        yield Finding(
            "weights-are-no-weights",
            CONVENTION,
            "the returned weights do not sum to one over the keys",
            f"a row of weights sums to {sums.min():.2f} … {sums.max():.2f}",
        )
        return
    if patient.module is None:
        return
    with patient.trained(_DROPOUT):
        sums = _sums(patient, inputs)
    if sums is not None and (sums - 1).abs().max() > 0.01:
        yield Finding(
            "weights-after-dropout",
            CONVENTION,
            "in training, the returned weights are those after dropout",
            f"with dropout at {_DROPOUT}, a row of weights sums to {sums.min():.2f} … "
            f"{sums.max():.2f}",
        )


def _sums(patient: Patient, inputs: Inputs) -> Tensor | None:
    patient.ask(inputs)
    found = patient.weights
    b, n, m = inputs.query.size(0), inputs.query.size(1), inputs.key.size(1)
    if found is None or found.shape not in ((b, n, m), (b, patient.num_heads, n, m)):
        return None
    return found.double().sum(-1)


def registration(patient: Patient) -> Iterator[Finding]:
    """Every parameter is registered."""
    module = patient.needed_module()
    lost = unregistered(module)
    if lost:
        count = sum(x.numel() for x in lost.values())
        yield Finding(
            "heads-in-a-plain-list",
            WRONG,
            "some parameters are not registered with the module",
            f"{count} numbers in {', '.join(list(lost)[:4])}{' …' if len(lost) > 4 else ''}",
        )


def gradients(patient: Patient) -> Iterator[Finding]:
    """Gradients reach the inputs and every parameter, and are finite."""
    inputs = patient.draw(1).map(lambda x: x.requires_grad_())
    named = {} if patient.module is None else dict(patient.module.named_parameters())
    named = {name: x for name, x in named.items() if x.requires_grad}
    output = patient.ask(inputs, gradient=True)
    if not output.requires_grad:
        yield Finding(
            "no-gradient",
            WRONG,
            "no gradient flows",
            "the output has no graph",
            remedy="Compute with tensors from end to end.",
        )
        return
    dead = _dead(patient, inputs, named)
    if dead:  # what is made from parameters for evaluation alone has no graph there
        with patient.trained(0.0):
            dead = [name for name in _dead(patient, inputs, named) if name in dead]
        _dead(patient, inputs, named)
    if dead:
        yield Finding(
            "parameters-without-gradient",
            WRONG,
            "no gradient reaches some parameters",
            f"{len(dead)} of {len(named)}: {', '.join(dead[:5])}{' …' if len(dead) > 5 else ''}",
            remedy="Use them, or do not create them.",
        )
    if patient.module is not None and (rows := unused_rows(patient.module)):
        name, which = next(iter(rows.items()))
        yield Finding(
            "rows-without-gradient",
            WRONG,
            "no gradient reaches a part of a projection",
            f"{len(which)} of {len(named[name])} rows of {name}, from {which[0]} to {which[-1]}",
            remedy="Give every head rows of its own, and use them.",
        )
    reached = [x.grad for x in (inputs.query, *named.values()) if x.grad is not None]
    if not all(grad.isfinite().all() for grad in reached):
        yield Finding("gradient-not-finite", WRONG, "gradients are NaN or infinite")


def _dead(patient: Patient, inputs: Inputs, named: Mapping[str, Tensor]) -> list[str]:
    """Give the parameters that no gradient reaches, and leave the gradients of all others."""
    for x in named.values():
        x.grad = None
    output = patient.ask(inputs, gradient=True)
    patient.differentiate(number(output))
    return [
        name
        for name, x in named.items()
        # The bias of the keys moves all scores of a query alike: its gradient is zero.
        if x.grad is None or (x.dim() > 1 and not x.grad.any())
    ]


def hooks(patient: Patient) -> Iterator[Finding]:
    """Hooks on the module run."""
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
    if ran:
        return
    if type(module).__call__ is nn.Module.__call__:
        raise NotAsked("the module's own call is bypassed, so hooks cannot run")
    yield Finding(
        "call-instead-of-forward",
        WRONG,
        "hooks on the module never run",
        f"{type(module).__name__} defines `__call__`",
    )


def half_precision(patient: Patient) -> Iterator[Finding]:
    """In float16 and bfloat16 the result is about the same, with and without a mask."""
    _needs_full_precision(patient)
    if patient.module is not None and unregistered(patient.module):
        raise NotAsked("parameters that are not registered stay in their dtype")
    cases = situations.cases(patient)
    for dtype in (torch.float16, torch.bfloat16):
        for case in cases:
            finding = _in_half(patient, case, dtype)
            if finding is not None:
                yield finding
                return


def _ask_in(patient: Patient, case: situations.Situation, dtype: torch.dtype) -> Tensor | Failed:
    try:
        with patient.converted(dtype):
            return patient.ask(case.inputs.map(lambda x: x.to(dtype)), case.blocked)
    except Failed as failure:
        return failure


def _in_half(patient: Patient, case: situations.Situation, dtype: torch.dtype) -> Finding | None:
    name = str(dtype).removeprefix("torch.")
    try:
        expected = patient.answer(case.inputs, case.blocked)
    except Failed:
        return None  # not for its precision
    found = _ask_in(patient, case, dtype)
    if isinstance(found, Failed):
        if isinstance(found.error, NotImplementedError):
            raise NotAsked(f"in {name}: {found}")
        symptom = f"with {case.name}, it fails in {name}"
        # The two differ in their range: what bfloat16 holds, and float16 does not.
        if dtype is torch.float16 and isinstance(_ask_in(patient, case, torch.bfloat16), Tensor):
            return Finding("finite-fill-in-half", CONVENTION, symptom, str(found))
        return Finding(
            "fails-in-half",
            CONVENTION,
            symptom,
            str(found),
            remedy="Make new tensors with the dtype of an input; autocast may help.",
        )
    gap = patient.gap(found, expected)
    if gap <= _FAR or not expected.isfinite().all():
        return None
    return Finding(
        "half-differs",
        WRONG,
        f"with {case.name}, the result in {name} is far from the precise one",
        f"the result has NaN or infinity in it: {not found.isfinite().all()}; else it differs by "
        f"up to {min(gap, 9.99):.0%} of its size",
        remedy="Fill with minus infinity, or with `torch.finfo(scores.dtype).min`.",
    )


def inputs_untouched(patient: Patient) -> Iterator[Finding]:
    """No call changed its arguments; this runs last, so that all calls count."""
    if patient.changed:
        names = ", ".join(sorted(patient.changed))
        yield Finding(
            "input-changed-in-place",
            WRONG,
            "an argument has changed after the call",
            f"changed: {names}",
        )

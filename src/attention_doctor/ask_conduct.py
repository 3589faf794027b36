"""Ask how an implementation behaves as a module: modes, dropout, gradients, half precision."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from attention_doctor.call.patient import Failed, Inputs, NotAsked, Patient
from attention_doctor.call.places import describe
from attention_doctor.evidence import situations
from attention_doctor.evidence.influence import across, influence
from attention_doctor.evidence.parameters import unregistered
from attention_doctor.report import Finding, convention, wrong

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
    if gap > patient.tolerance:
        yield wrong(
            "dropout-in-evaluation",
            "in evaluation mode the same input gives a different result each time",
            f"{_TRIES} calls differ by up to {gap:.0%} of their size, with dropout at {_DROPOUT}",
        )


def variation(patient: Patient, inputs: Inputs) -> float:
    """Measure how far the answers to one question are apart, relative to their size."""
    first, *more = (patient.ask(inputs) for _ in range(_TRIES))
    return max(patient.gap(x, first) for x in more)


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
    yield wrong(
        "computed-in-low-precision",
        "the result is coarser than the inputs",
        f"{name} goes in; moved by {_STEP}, the inputs move the output in steps of up to "
        f"{min(rough):.0e} of its size",
        "Compute the softmax in the dtype of the scores, or in float32.",
    )


def _roughness(patient: Patient, seed: int) -> float:
    """Measure by how much the output is not smooth: its fourth difference as inputs grow."""
    start = patient.draw(seed)

    def at(step: int) -> Tensor:
        return patient.ask(start.map(lambda x: x * (1 + _STEP * step))).double()

    outputs = torch.stack([at(step) for step in range(5)])
    return float(outputs.diff(4, 0).abs().max() / outputs[0].abs().max().clamp(min=1e-30))


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
        raise NotAsked("its dropout has no effect in training")
    if constant <= patient.tolerance:
        yield wrong(
            "dropout-before-softmax",
            "with dropout, the weights still sum to one",
            f"in training results vary by {varied:.0%}, and not at all where all values are equal",
        )


def training(patient: Patient) -> Iterator[Finding]:
    """Training hides what evaluation hides, and the other way round."""
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
        code, mode, pairs, hidden = "mask-missing-in-training", "training", now & ~seen, ~seen
        if not pairs.any():
            code, mode, hidden = "mask-missing-in-evaluation", "evaluation", to_hide & ~now
            pairs = seen & hidden
        if not pairs.any() or mixed:
            raise NotAsked("training mode differs by no mask, such as by a norm over the batch")
        yield wrong(
            code,
            f"in {mode} mode tokens see what is hidden in the other",
            f"with {case.name} and without dropout, {int(pairs.sum())} of {int(hidden.sum())} "
            "hidden pairs have influence",
            "Apply the mask in both modes.",
        )
        return


def weights(patient: Patient) -> Iterator[Finding]:
    """Weights that are returned sum to one over the keys."""
    inputs = patient.draw(1)
    sums = _sums(patient, inputs)
    if sums is None:
        raise NotAsked("it returns no weights of shape (b, n, m) or (b, h, n, m)")
    if (sums - 1).abs().max().item() > 100 * patient.tolerance:
        yield convention(
            "weights-are-no-weights",
            "the returned weights do not sum to one over the keys",
            f"a row of weights sums to {sums.min():.2f} … {sums.max():.2f}",
        )
    elif patient.module is not None:
        with patient.trained(_DROPOUT):
            sums = _sums(patient, inputs)
        if sums is not None and (sums - 1).abs().max() > 0.01:
            yield convention(
                "weights-after-dropout",
                "in training, the returned weights are those after dropout",
                f"with dropout at {_DROPOUT}, a row of weights sums to {sums.min():.2f} … "
                f"{sums.max():.2f}",
            )


def _sums(patient: Patient, inputs: Inputs) -> Tensor | None:
    patient.ask(inputs)
    b, n, m = *inputs.query.shape[:2], inputs.key.size(1)
    if patient.weights is None or patient.weights.shape not in (
        (b, n, m),
        (b, patient.num_heads, n, m),
    ):
        return None
    return patient.weights.double().sum(-1)


def registration(patient: Patient) -> Iterator[Finding]:
    """Every parameter is registered."""
    if lost := unregistered(patient.needed_module()):
        count = sum(x.numel() for x in lost.values())
        yield wrong(
            "heads-in-a-plain-list",
            "some parameters are not registered with the module",
            f"{count} numbers in {', '.join(list(lost)[:4])}{' …' if len(lost) > 4 else ''}",
        )


def gradients(patient: Patient) -> Iterator[Finding]:
    """Gradients reach the inputs and every parameter, and are finite."""
    inputs = patient.draw(1).map(lambda x: x.requires_grad_())
    named = {name: x for name, x in patient.named.items() if x.requires_grad}
    remedy = "Compute with tensors from end to end."
    if not patient.ask(inputs, gradient=True).requires_grad:
        yield wrong("no-gradient", "no gradient flows", "the output has no graph", remedy)
        return
    dead = _dead(patient, inputs, named)
    if dead:  # what is made from parameters for evaluation alone has no graph there
        with patient.trained(0.0):
            dead = [name for name in _dead(patient, inputs, named) if name in dead]
            used = any(_matters(patient, inputs, named[name]) for name in dead)
        _dead(patient, inputs, named)
    if dead:
        count, more = f"{len(dead)} of {len(named)}", " …" if len(dead) > 5 else ""
        code, symptom = "no-gradient", "no gradient reaches parameters on which the output depends"
        if not used:
            code, symptom = "parameters-without-gradient", "no gradient reaches some parameters"
            remedy = "Use them, or do not create them."
        yield wrong(code, symptom, f"{count}: {', '.join(dead[:5])}{more}", remedy)
    reached = [x.grad for x in (inputs.query, *named.values()) if x.grad is not None]
    if not all(grad.isfinite().all() for grad in reached):
        yield wrong("gradient-not-finite", "gradients are NaN or infinite")


def _dead(patient: Patient, inputs: Inputs, named: Mapping[str, Tensor]) -> list[str]:
    """Give the parameters that no gradient reaches, and leave the gradients of all others."""
    for x in named.values():
        x.grad = None
    output = patient.ask(inputs, gradient=True)
    source = torch.Generator().manual_seed(19)
    number = (output * torch.randn(output.shape, generator=source).to(output)).sum()
    try:
        number.backward(retain_graph=True)
    except Exception as error:
        raise Failed(f"in the backward pass: {describe(error)}", error) from error
    return [
        name
        for name, x in named.items()
        # The bias of the keys moves all scores of a query alike: its gradient is zero.
        if x.grad is None or (x.dim() > 1 and not x.grad.any())
    ]


def _matters(patient: Patient, inputs: Inputs, x: Tensor) -> bool:
    """Tell whether the output changes with a parameter."""
    before, output = x.data, patient.ask(inputs)
    x.data = before + 1
    changed = patient.ask(inputs)
    x.data = before
    return not patient.same(changed, output)


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
    if not ran and type(module).__call__ is nn.Module.__call__:
        raise NotAsked("the module's own call is bypassed, so hooks cannot run")
    if not ran:
        evidence = f"{type(module).__name__} defines `__call__`"
        yield wrong("call-instead-of-forward", "hooks on the module never run", evidence)


def half_precision(patient: Patient) -> Iterator[Finding]:
    """In float16 the result is about the same, with and without a mask."""
    _needs_full_precision(patient)
    for case in situations.cases(patient):
        expected = patient.ask(case.inputs, case.blocked)
        try:
            with patient.converted(torch.float16):
                half = case.inputs.map(lambda x: x.to(torch.float16))
                result = patient.ask(half, case.blocked)
        except Failed as failure:
            if "overflow" not in str(failure):
                raise NotAsked(f"in float16: {failure}") from failure
            symptom = f"with {case.name}, it fails in float16"
            yield convention("finite-fill-in-half", symptom, str(failure))
            return
        gap = patient.gap(result, expected)
        if gap > _FAR and expected.isfinite().all():
            yield wrong(
                "half-differs",
                f"with {case.name}, the result in float16 is far from the precise one",
                f"the result has NaN or infinity in it: {not result.isfinite().all()}; else it "
                f"differs by up to {min(gap, 9.99):.0%} of its size",
                "Fill with minus infinity, or with `torch.finfo(scores.dtype).min`.",
            )
            return


def inputs_untouched(patient: Patient) -> Iterator[Finding]:
    """No call changed its arguments; this runs last, so that all calls count."""
    if patient.changed:
        evidence = f"changed: {', '.join(sorted(patient.changed))}"
        yield wrong("input-changed-in-place", "an argument has changed after the call", evidence)

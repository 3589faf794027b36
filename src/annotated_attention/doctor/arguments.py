"""Match the arguments of a call, and put the adapters around it that they need."""

import argparse
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from annotated_attention.doctor import adapters, situations
from annotated_attention.doctor.influence import counts, reactions
from annotated_attention.doctor.names import NAMES, Unasked, named_parameters, refuse, takes_any
from annotated_attention.doctor.patient import Failed, Patient

SHAPES: dict[str, Callable[[Any, int], Any]] = {
    "bnm": lambda attend, heads: attend,
    "b1nm": lambda attend, heads: adapters.for_each_head(attend),
    "bhnm": adapters.folded,
    "nm": lambda attend, heads: adapters.for_all_samples(attend),
    "bm": lambda attend, heads: adapters.for_all_queries(attend),
    "b11m": lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask[:, None, None, 0], "padding"
    ),
}
MEANINGS = {"blocked": lambda attend: attend, "allowed": adapters.allowed,
             "additive": adapters.additive}  # fmt: skip


def adapt(attend: Any, options: argparse.Namespace) -> Any:
    """Put the adapters around it that the options ask for, and those that its arguments need."""
    function = attend.forward if isinstance(attend, nn.Module) else attend
    if not callable(function):
        text = f"an object of type {type(attend).__name__} cannot be called"
        raise Unasked("call", text, "Name a class whose objects can be called, or a function.")
    parameters, further = named_parameters(function), dict(options.call)
    if not takes_any(function):
        asked = [*further, *([options.mask_name] if options.mask_name else [])]
        refuse("call", asked, parameters, "its call")
    causal = next((name for name in ("is_causal", "causal") if name in parameters), None)
    if {"query", "key", "value", "key_padding_mask", "attn_mask"} <= {*parameters} and hasattr(
        attend, "num_heads"
    ):
        layout = False if options.sequence_first else True if options.batch_first else None
        return adapters.torch_like(attend, options.kind, batch_first=layout, **further)
    if options.kind == "causal" and causal:
        further.setdefault(causal, True)
    named = options.mask_name or next((name for name in parameters if name in NAMES["mask"]), None)
    mask_name = None if options.mask == "none" else named
    inputs = 3 if options.kind == "cross" else 1
    call = _caller(attend, inputs, parameters, mask_name, further)
    adapted = adapters.Adapted(call, attend)
    adapted = adapters.sequence_first(adapted) if options.sequence_first else adapted
    if options.kind == "causal":
        alone = mask_name is None or _hides_something(adapted, options)
        masked = None if alone else _shaped(adapted, options)
        return adapted if masked is None else adapters.causal(masked, 1)
    return adapters.without_mask(adapted) if mask_name is None else _shaped(adapted, options)


def _caller(
    attend: Any,
    inputs: int,
    parameters: dict[str, inspect.Parameter],
    mask_name: str | None,
    further: dict[str, Any],
) -> Callable[..., Any]:
    """Call with as many tensors as the implementation takes, by name where names are known."""
    names = [
        name
        for role in ("query", "key", "value")
        for name in [x for x in parameters if x.lower() in NAMES[role]][:1]
    ]
    unnamed = [x for x, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and x in names]

    def call(*given: Any) -> Any:
        options = dict(further)
        if mask_name and len(given) > inputs and given[inputs] is not None:
            options[mask_name] = given[inputs]
        if len(names) < 3:
            return attend(*given[:inputs], **options)
        tokens = given[:3] if inputs == 3 else given[:1] * 3
        named = dict(zip(names, tokens, strict=True))
        first = [named.pop(name) for name in unnamed]
        return attend(*first, **named, **options)

    return call


def _hides_something(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether some tokens do not see each other although there is no mask."""
    e, h, length = options.embed_dim, options.num_heads, options.max_length
    patient = Patient(attend, e, h, "causal", None, length)
    with patient.admitted():
        try:
            inputs = patient.draw(1)
            own = torch.arange(len(inputs.query))
            return not counts(reactions(patient, inputs)["query"])[own, :, own].all()
        except Failed:
            return False


def _shaped(attend: Any, options: argparse.Namespace) -> Any:
    """Adapt the mask to the form that the implementation takes; try what no option says."""
    given, h = options.mask_shape, options.num_heads
    shapes = [SHAPES[given]] if given != "auto" else list(SHAPES.values())
    forms = [MEANINGS[options.mask](attend)]
    if options.mask != "additive":
        forms.append(MEANINGS[options.mask](adapters.numbers(attend)))
    candidates = [shape(form, h) for form in forms for shape in shapes]
    if options.kind == "causal":  # which padding cannot express
        candidates = [x for x in candidates if adapters.masks_of(x) != "padding"]
    for adapted in (*candidates, *map(adapters.always_masked, candidates)):
        if _answers(adapted, options):
            return adapted
    return None if options.kind == "causal" else candidates[0]


def _answers(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether calls with and without such masks work, at sizes that do not fit by chance."""
    kind = "self" if options.kind == "causal" else options.kind
    patient = Patient(attend, options.embed_dim, options.num_heads, kind, None, options.max_length)
    with patient.admitted():
        try:
            for case in (situations.free(patient), *situations.masked(patient)):
                patient.ask(case.inputs, case.blocked)
        except Failed:
            return False
    return True

"""Examine the attentions inside a model, each with the arguments that the model gives it."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.multihead import MultiheadAttention
from attention_doctor.adapters import Adapted, torch_like
from attention_doctor.call.inputs import Failed
from attention_doctor.call.patient import Patient
from attention_doctor.call.roles import Sizes, size_of
from attention_doctor.call.trace import tensors
from attention_doctor.evidence.influence import influence
from attention_doctor.examination import examine_patient
from attention_doctor.report import ModelReport, Report, refused

# What belongs to positions and masks is no hidden state, though its shape may be that of one.
_NO_STATE = ("mask", "bias", "pos", "cos", "sin", "rot", "freq", "alibi", "residual")
_PLAIN = (Tensor, tuple, list, bool, int, float, str)  # anything else may change in the call
_BY_LAYER = ("layer_idx", "layer_id", "layer_index", "layer_number", "training")


def examine_model(
    model: nn.Module, *inputs: Any, attention: str | type[nn.Module], **options: Any
) -> ModelReport:
    """Run a model once, and examine each attention inside it with the model's own arguments.

    One call of each module of the named class is recorded, and made again with hidden states that
    are drawn; masks, rotations and settings stay as the model gave them. Sizes are the model's, so
    short inputs without padding, whose sizes differ from each other and from the number of heads,
    show most, and take the least time.

    Args:
        model: any module; its weights, modes and buffers are the same afterwards as before.
        *inputs: what the model is called with.
        attention: the class of the attentions, or its name.
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
        >>> reports = examine_model(
        ...     layer, torch.randn(2, 5, 24), torch.randn(2, 7, 24), attention="MultiheadAttention"
        ... )
        >>> for path, report in reports.items():
        ...     print(path, report.ok)
        self_attn True
        multihead_attn True
    """
    name = attention if isinstance(attention, str) else attention.__name__
    calls = _recorded(model, name, inputs, options)
    groups: dict[str, list[_Call]] = {}
    for call in calls:
        groups.setdefault(call.likeness, []).append(call)
    examined = {}
    for likeness, (first, *others) in groups.items():
        times = f" × {1 + len(others)}" if others else ""
        title = f"{type(first.module).__name__} at {first.path or 'the top'}{times}"
        examined[likeness] = replace(_examined(first), name=title)
    classes = ", ".join(dict.fromkeys(type(x).__name__ for x in model.modules()))
    left = () if calls else (f"no {name} is called; name one of these: `--attention` {classes}",)
    reports = {call.path: examined[call.likeness] for call in calls}
    return ModelReport(type(model).__name__, reports, left)


@dataclass(frozen=True)
class _Call:
    """One call of an attention, as the model made it."""

    path: str
    module: nn.Module
    arguments: dict[str, Any]

    @property
    def batch(self) -> int:
        """The axis of the samples."""
        return 1 if getattr(self.module, "batch_first", True) is False else 0

    @property
    def states(self) -> list[str]:
        """The arguments that are hidden states, (b, n, e), of the same batch; queries first."""
        names = [
            name
            for name, x in self.arguments.items()
            if isinstance(x, Tensor)
            and x.dim() == 3
            and x.is_floating_point()
            and not any(part in name.lower() for part in _NO_STATE)
        ]
        size = self.arguments[names[0]].size(self.batch) if names else 0
        return [name for name in names if self.arguments[name].size(self.batch) == size]

    @property
    def num_heads(self) -> int:
        """The number of heads, by the names of attributes; 1 if none is."""
        holders = [vars(self.module), vars(getattr(self.module, "config", object)), {}]
        named = (
            x
            for holder in holders
            for name, x in holder.items()
            if size_of(name) == "heads" and isinstance(x, int)
        )
        return next(named, 1)

    @property
    def likeness(self) -> str:
        """What is the same in two attentions that compute the same with other weights."""
        settings = [
            (type(part), name, x)
            for part in self.module.modules()
            for name, x in vars(part).items()
            if isinstance(x, bool | int | float | str) and name not in _BY_LAYER
        ]
        shapes = [(name, [x.shape for x in tensors(x)]) for name, x in self.arguments.items()]
        return str((settings, [x.shape for x in self.module.parameters()], shapes))


def _recorded(
    model: nn.Module, name: str, inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> list[_Call]:
    """Run a model once, and give the first call of each module of a class."""
    chosen = {x: path for path, x in model.named_modules() if type(x).__name__ == name}
    calls: dict[nn.Module, _Call] = {}

    def begins(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if module not in calls:
            named = _named(module, args, kwargs).items()
            arguments = {key: x if isinstance(x, _PLAIN) else copy.deepcopy(x) for key, x in named}
            calls[module] = _Call(chosen[module], module, arguments)

    handles = [part.register_forward_pre_hook(begins, with_kwargs=True) for part in chosen]
    try:
        with torch.no_grad():
            model(*inputs, **options)
    finally:
        for handle in handles:
            handle.remove()
    return [*calls.values()]


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Give arguments their names."""
    signature = inspect.signature(module.forward)
    bound = dict(signature.bind(*args, **kwargs).arguments)
    further = {x.kind: name for name, x in signature.parameters.items()}
    return bound | bound.pop(further.get(inspect.Parameter.VAR_KEYWORD, ""), {})


def _examined(call: _Call) -> Report:
    """Examine one attention, in the way in which the model calls it."""
    states = [call.arguments[name] for name in call.states]
    distinct = len({id(x) for x in states})
    if not 0 < distinct < 4:
        shapes = [tuple(x.shape) for x in states]
        return _unasked(call, f"it takes hidden states of {shapes}")
    kind = ("self", "memory", "cross")[distinct - 1]
    if type(call.module) in (nn.MultiheadAttention, MultiheadAttention):
        like, width = torch_like(call.module, "cross"), states[0].size(-1)
        return examine_patient(Patient(like, Sizes(width, call.num_heads, width), "cross"))
    masks = [name for name, x in call.arguments.items() if "mask" in name and x is not None]
    patient = _patient(call, kind)
    if patient is None:
        return _unasked(call, "it works in the model alone, or returns no hidden states")
    if kind == "self" and _hides_the_future(patient):
        patient = _patient(call, "causal") or patient
    elif masks:
        bare = replace(call, arguments=call.arguments | dict.fromkeys(masks))
        patient = _patient(bare, kind) or patient
    patient.given_masks = tuple(masks)
    return examine_patient(patient)


def _patient(call: _Call, kind: str) -> Patient | None:
    """Make a patient of the model's own sizes; None if it cannot be called again."""
    query, key = (call.arguments[call.states[i]] for i in (0, -1))
    b, n, m = query.size(call.batch), query.size(1 - call.batch), key.size(1 - call.batch)
    width, heads = query.size(-1), 1 if query.size(-1) % call.num_heads else call.num_heads
    attend = Adapted(_again(call, (b, n, m)), call.module, "none")
    patient = Patient(attend, Sizes(width, heads, key.size(-1), max(2, n, m)), kind)
    patient.b, patient.n, patient.m = b, n, m
    with patient.admitted():
        try:
            patient.ask(patient.draw(0))
        except Failed:
            return None
    return patient


def _again(call: _Call, sizes: tuple[int, int, int]) -> Callable[..., Tensor]:
    """Call again as the model did, with other hidden states.

    Fewer samples or tokens get the first parts of all arguments of the model's sizes.
    """
    places: dict[int, int] = {}
    for name in call.states:
        places.setdefault(id(call.arguments[name]), len(places))

    def again(*states: Tensor) -> Any:
        states = tuple(x for x in states if x is not None)
        now = *states[0].shape[:2], states[-1].size(1)
        fewer, dtype = [*zip(sizes, now, strict=True)], states[0].dtype
        given = {name: _fitted(x, fewer, call.batch, dtype) for name, x in call.arguments.items()}
        given |= {name: 0 * x for name, x in given.items() if "residual" in name}
        for name in call.states:
            given[name] = states[places[id(call.arguments[name])]].transpose(0, call.batch)
        return next(tensors(call.module(**given))).transpose(0, call.batch)

    return again


def _fitted(value: Any, fewer: list[tuple[int, int]], batch: int, dtype: torch.dtype) -> Any:
    """Cut an argument to the samples and tokens that there are, and give it their dtype."""
    if isinstance(value, tuple | list):
        return type(value)(_fitted(part, fewer, batch, dtype) for part in value)
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)  # a call changes its cache
    samples, *tokens = fewer
    for axis, size in enumerate(value.shape):
        sizes = dict([samples] if axis in (0, batch) and size == samples[0] else tokens)
        value = value.narrow(axis, 0, sizes.get(size, size))
    if value.is_complex():
        return value.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
    if not value.is_floating_point():
        return value
    low = torch.finfo(dtype).min  # which a finite number does not go below
    return value.to(dtype).masked_fill(value.isfinite() & (value < low), low)


def _hides_the_future(patient: Patient) -> bool:
    """Tell whether fewer later tokens matter than earlier ones; a mistake may show some of them."""
    with patient.admitted():
        seen = influence(patient, patient.draw(1))[0]  # (b, n, n)
    others = seen & ~torch.eye(patient.n, dtype=torch.bool)
    not_padding = others.any(1, keepdim=True).expand_as(seen)  # seen by some query
    future, past = (
        float(seen[pairs].double().mean()) if pairs.any() else 0.0
        for pairs in (not_padding.triu(1), not_padding.tril(-1))
    )
    return future < past


def _unasked(call: _Call, why: str) -> Report:
    remedy = "Examine the class by itself: `attention-doctor file.py:Class`."
    texts = ("it cannot be called again", why, "", remedy, "answers")
    return refused(call.path, "fails", texts, "everything else")

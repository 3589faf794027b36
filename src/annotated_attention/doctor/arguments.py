"""Find a call that an implementation answers, and put the adapters around it that it needs."""

import argparse
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from annotated_attention.doctor import adapters, extras, situations
from annotated_attention.doctor.adapted import masks_of, module_of, output_of
from annotated_attention.doctor.construction import attempt
from annotated_attention.doctor.influence import counts, moves, reactions
from annotated_attention.doctor.matching import COUNTS, Plan, mask_names, plans
from annotated_attention.doctor.names import (
    Unasked,
    named_parameters,
    plain_name,
    refuse,
    takes_any,
)
from annotated_attention.doctor.patient import Failed, NotAsked, Patient

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
MEANINGS: dict[str, Callable[[Any], Any]] = {
    "blocked": lambda attend: attend,
    "allowed": adapters.allowed,
    "additive": adapters.additive,
}
_LAYOUTS: dict[str, Callable[[Any, int], Any]] = {
    "": lambda attend, heads: attend,
    "(b, e, n)": lambda attend, heads: adapters.channel_first(attend),
    "(b, e, n, 1)": lambda attend, heads: adapters.channel_first(attend, image=True),
    "(n, e), one sample after the other": lambda attend, heads: adapters.one_by_one(attend),
    "heads, (b, h, n, d)": adapters.heads_apart,
}
_TRIES, _FEW = 1500, 20  # ways to call; plans with a layout or a length that is not the usual one
_TIME = (
    r"seq|seq_?len\w*|seq_?length|t|l|tgt_?len|src_?len|q_?len|length|time|n_?tokens|target_len\w*"
)
_BATCH = r"b|bs|bsz|batch|batch_?size|bz|n_?batch\w*|B"


def adapt(attend: Any, options: argparse.Namespace, notes: list[str]) -> Any:
    """Put the adapters around it that it needs, as ``answered`` does, whether it answers or not."""
    return answered(attend, options, notes)[0]


def answered(attend: Any, options: argparse.Namespace, notes: list[str]) -> tuple[Any, bool]:
    """Put the adapters around it that the options ask for, and those that its arguments need.

    Args:
        attend: a module or a function.
        options: the sizes, the kind, and what is said about masks, layouts and arguments.
        notes: gets a sentence on each thing that was found out by trying.

    Returns:
        What ``examine`` can call, and whether it is answered.

    Raises:
        Unasked: it cannot be called, or has no such arguments.
    """
    if isinstance(attend, adapters.Adapted):
        return attend, True
    function = attend.forward if isinstance(attend, nn.Module) else attend
    if not callable(function):
        text = f"an object of type {type(attend).__name__} cannot be called"
        raise Unasked("call", text, "Name a class whose objects can be called, or a function.")
    parameters, further = named_parameters(function), dict(options.call)
    if not takes_any(function):
        asked = [*further, *([options.mask_name] if options.mask_name else [])]
        refuse("call", asked, parameters, "its call")
    if {"query", "key", "value", "key_padding_mask", "attn_mask"} <= {*parameters} and hasattr(
        attend, "num_heads"
    ):
        layout = False if options.sequence_first else True if options.batch_first else None
        if layout is None and not hasattr(attend, "batch_first") and _time_first(function):
            layout = False
            notes.append("it takes (n, b, e), as its code says")
        kind = "cross" if options.kind == "memory" else options.kind
        adapted = adapters.torch_like(attend, kind, batch_first=layout, **further)
        return _with_one_memory(adapted) if options.kind == "memory" else adapted, True
    if options.kind == "causal":
        causal = next((name for name in ("is_causal", "causal") if name in parameters), None)
        further = {causal: True, **further} if causal else further
    options.rotated = _rotated(attend)
    search = _Search(attend, function, further, options, notes)
    return search.found(), search.answered


def _rotated(attend: Any) -> int:
    """Return the width that an implementation says it rotates; 0 if it does not say."""
    parts = vars(attend) if hasattr(attend, "__dict__") else {}
    says = [x for name, x in parts.items() if re.search(r"(rope|rot\w*)_(\w*_)?(n?dims?)$", name)]
    says += [x for name, x in parts.items() if name in ("head_dim", "dim_head", "d_k")]
    return next((x for x in says if isinstance(x, int) and x > 1), 0)


def _with_one_memory(attend: Any) -> Any:
    return adapters.Adapted(
        lambda x, context, blocked: attend(x, context, context, blocked), attend
    )


@dataclass(frozen=True)
class _Way:
    """A plan, and the layout and the length that it is tried with."""

    plan: Plan
    layout: str
    wrap: Callable[[Any, int], Any]
    length: int | None


class _Search:
    """Tries calls, one after the other, until one is answered."""

    def __init__(
        self,
        attend: Any,
        function: Any,
        further: dict[str, Any],
        options: argparse.Namespace,
        notes: list[str],
    ) -> None:
        self.attend, self.function, self.further = attend, function, further
        self.options, self.notes = options, notes
        self.answered = True
        self.parameters = named_parameters(function)
        self.positional = [x for x, p in self.parameters.items() if p.kind is p.POSITIONAL_ONLY]
        names = [options.mask_name] if options.mask_name else []
        self.masks = names or mask_names(self.parameters, options.kind)
        if options.mask == "none":
            self.masks = []

    def found(self) -> Any:
        """Return the first way to call that is answered; the likeliest if none is."""
        first: tuple[Any, Plan] | None = None
        for always, way in itertools.islice(self._ways(), _TRIES):
            adapted = self._adapted(way)
            first = first or (adapted, way.plan)
            if always:
                if masked := self._masked(adapted, way.plan, always=True):
                    self._note(way)
                    causal = self.options.kind == "causal"
                    return adapters.causal(masked, 1) if causal else masked
                continue
            error = _error(adapted, self.options)
            if error is None:
                return self._finished(adapted, way)
            if isinstance(error, NotImplementedError):
                break
        if first is None:
            kind = self.options.kind
            text = f'its arguments, {", ".join(self.parameters)}, do not fit kind "{kind}"'
            raise Unasked("call", text, f"Give the kind that fits: {_kind_for(self.parameters)}.")
        return self._unanswered(*first)

    def _ways(self) -> Iterator[tuple[bool, "_Way"]]:
        """Give ways to call, and whether a mask has to be given: first without any."""
        for always in (False, True):
            for length in self._lengths():
                for i, (layout, wrap) in enumerate(self._layouts()):
                    usual = i == 0 and length is None
                    for plan in itertools.islice(self._plans(), _TRIES if usual else _FEW):
                        if plan.needs_mask or not always:
                            yield always, _Way(plan, layout, wrap, length)

    def _plans(self) -> Iterator[Plan]:
        """Give plans with each argument that may take a mask; a few hundred at most."""
        mask = self.masks[0] if self.masks else None
        yield from plans(self.function, self.options.kind, mask, self.further, self.options)

    def _layouts(self) -> Iterator[tuple[str, Callable[[Any, int], Any]]]:
        options = self.options
        if options.sequence_first or (not options.batch_first and _time_first(self.function)):
            said = "" if options.sequence_first else "(n, b, e), as its code says"
            yield said, lambda attend, heads: adapters.sequence_first(attend)
            return
        if options.channel_first:
            names = [name for name in _LAYOUTS if name.startswith("(b, e")]
        elif options.batch_first:
            names = [""]
        else:
            module = module_of(self.attend)
            plain = module is None or not [*module.parameters()]
            apart = plain and options.num_heads > 1 and options.kind == "cross"
            heads = "heads, (b, h, n, d)"
            names = [x for x in _LAYOUTS if x != heads]
            knows = any("head" in name for name in self.parameters)
            knows = knows or any("head" in name for name in vars(self.attend))
            names = [heads, *names] if apart and not knows else names
        for name in names:
            yield name, _LAYOUTS[name]

    def _lengths(self) -> Iterator[int | None]:
        """Give any length, and then those that the implementation may be made for."""
        yield None
        found = []
        for name, value in vars(self.attend).items() if hasattr(self.attend, "__dict__") else ():
            if re.search(r"window|patch|length|len$|block|ctx|resolution|tokens", name):
                numbers = value if isinstance(value, tuple | list) else (value,)
                if all(isinstance(x, int) and 0 < x <= 8 for x in numbers) and numbers:
                    found += [numbers[0] * numbers[-1]]
                if len(numbers) == 1 and isinstance(value, int):
                    found += [value]
        yield from (x for x in dict.fromkeys([*found, self.options.max_length, 4]) if 2 <= x <= 50)

    def _adapted(self, way: "_Way") -> Any:
        call = way.plan.caller(self.attend, self.options.kind, self.positional)

        def settled(*given: Any, **options: Any) -> Any:
            return attempt(functools.partial(call, *given, **options))

        inner = way.wrap(adapters.Adapted(settled, self.attend), self.options.num_heads)
        adapted = adapters.Adapted(inner, inner)
        adapted.length = way.length
        return adapted

    def _finished(self, adapted: Any, way: "_Way") -> Any:
        """Put the mask that it takes around a call that is answered."""
        plan = way.plan
        self._note(way)
        self._give_abilities(adapted, way)
        if self.options.kind == "causal":
            alone = plan.mask is None or _hides_something(adapted, self.options)
            masked = None if alone else self._masked(adapted, plan)
            return adapted if masked is None else adapters.causal(masked, 1)
        if plan.mask is None:
            return adapters.without_mask(adapted)
        for name in self.masks:
            other = replace(plan, mask=name)
            masked = self._masked(self._adapted(replace(way, plan=other)), other)
            if masked is not None:
                self._give_abilities(masked, way)
                return masked
        return next(self._forms(adapted, plan))[1]

    def _give_abilities(self, adapted: Any, way: "_Way") -> None:
        """Let it be called with its tokens at any positions, where it is told where they stand."""
        further = way.plan.further.values()
        turned = [x for x in further if isinstance(x, extras.Made) and x.turns]
        if not turned or way.layout:
            return
        call = way.plan.caller(self.attend, self.options.kind, self.positional)
        count = COUNTS[self.options.kind]

        def at_positions(x: torch.Tensor, positions: torch.Tensor) -> Any:
            return output_of(call(*(x,) * count, positions=positions), x.shape)[0]

        adapted.at_positions = at_positions

    def _note(self, way: "_Way") -> None:
        said = f"called with {way.plan}"
        said += f", each {way.layout}" if way.layout else ""
        self.notes.append(said + (f", always of {way.length} tokens" if way.length else ""))

    def _unanswered(self, adapted: Any, plan: Plan) -> Any:
        """Return a call that is not answered: the examination says what it raises."""
        self.answered = False
        self.notes.append(f"called with {plan}")
        return adapted if self.options.kind == "causal" else adapters.without_mask(adapted)

    def _forms(self, adapted: Any, plan: Plan) -> Iterator[tuple[tuple[str, str], Any]]:
        """Give the forms of a mask, shape by shape, and within a shape meaning by meaning."""
        given, h, name = self.options.mask_shape, self.options.num_heads, plan.mask or ""
        shapes = list(SHAPES) if given == "auto" else [given]
        meanings = [self.options.mask]
        if self.options.mask == "auto":
            meanings = _meanings(name)
            if given == "auto" and meanings[0] == "additive":
                shapes = ["b1nm", *(x for x in shapes if x != "b1nm")]
        for shape in shapes:
            for numbers in (False, True):
                for meaning in meanings:
                    if numbers and meaning == "additive":
                        continue
                    form = adapters.numbers(adapted) if numbers else adapted
                    if meaning == "additive" and "attention_mask" in name:
                        form = adapters.additive(form, finite=True)
                    else:
                        form = MEANINGS[meaning](form)
                    yield (shape, meaning), SHAPES[shape](form, h)

    def _masked(self, adapted: Any, plan: Plan, always: bool = False) -> Any:
        """Adapt the mask to the form that it takes; try what no option says. None: it takes none.

        Among the meanings of the first shape that works, that which hides what is blocked counts.
        """
        causal = self.options.kind == "causal"
        for needed in (True,) if always else (False, True):
            works: dict[tuple[str, str], Any] = {}
            for form, candidate in self._forms(adapted, plan):
                if works and next(iter(works))[0] != form[0]:
                    break
                if causal and masks_of(candidate) == "padding":
                    continue
                made = adapters.always_masked(candidate) if needed else candidate
                if form not in works and _answers(made, self.options):
                    works[form] = made
            if works:
                hides = [form for form in works if _hides(works[form], self.options)]
                chosen = (hides or [*works])[0]
                if hides and self.options.mask == "auto":
                    axes = _AXES[chosen[0]]
                    self.notes.append(f"`{plan.mask}` is {axes}, {_MEANS[chosen[1]]}")
                return works[chosen]
        return None


_AXES = {"bnm": "(b, n, m)", "b1nm": "(b, 1, n, m)", "bhnm": "(b * h, n, m)", "nm": "(n, m)",
         "bm": "(b, m)", "b11m": "(b, 1, 1, m)"}  # fmt: skip
_MEANS = {
    "blocked": "True = blocked",
    "allowed": "True = allowed (`--mask blocked` says otherwise)",
    "additive": "added to the scores",
}


def _meanings(name: str) -> list[str]:
    """Return what True in a mask of this name may mean, the likeliest first."""
    plain = plain_name(name)
    if re.search("block|padding|pad_mask|is_pad|future|look_ahead", plain):
        return ["blocked"]
    if re.search("allow|valid|keep|visible", plain):
        return ["allowed"]
    if plain == "attention_mask" or "bias" in plain:
        return ["additive", "blocked", "allowed"]
    return ["blocked", "allowed", "additive"]


def _kind_for(parameters: dict[str, inspect.Parameter]) -> str:
    fits = [kind for kind, count in COUNTS.items() if count <= len(parameters)]
    return " or ".join(f"`--kind {kind}`" for kind in fits)


def _time_first(function: Any) -> bool:
    """Tell whether the code says that its axes are (n, b, e), where it takes a shape apart."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return False
    found = re.search(r"(\w+), *(\w+), *\w+ *= *\w+\.(?:shape|size\(\))", source)
    return bool(
        found
        and re.fullmatch(_TIME, found[1], re.IGNORECASE)
        and re.fullmatch(_BATCH, found[2], re.IGNORECASE)
    )


def _patient(attend: Any, kind: str, options: argparse.Namespace) -> Patient:
    e, h = options.embed_dim, options.num_heads
    return Patient(attend, e, h, kind, None, options.max_length, options.context_dim)


def _error(attend: Any, options: argparse.Namespace) -> BaseException | None:
    """Return what a call without a mask raises; None if it is answered."""
    kind = options.kind
    patient = _patient(attend if kind == "causal" else _bare(attend), kind, options)
    with patient.admitted(as_it_is=True):
        try:
            patient.ask(patient.draw(1))
        except Failed as failure:
            return failure.error or failure
        except NotAsked as reason:
            return reason
    return None


def _bare(attend: Any) -> Any:
    """Leave out the mask, and so keep the length."""
    return adapters.without_mask(attend)


def _hides_something(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether some tokens do not see each other although there is no mask."""
    patient = _patient(attend, "causal", options)
    with patient.admitted():
        try:
            inputs = patient.draw(1)
            own = torch.arange(len(inputs.query))
            return not counts(reactions(patient, inputs)["query"])[own, :, own].all()
        except Failed:
            return False


def _kind(options: argparse.Namespace) -> str:
    return "self" if options.kind == "causal" else str(options.kind)


def _answers(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether calls with and without such masks work, at sizes that do not fit by chance."""
    patient = _patient(attend, _kind(options), options)
    with patient.admitted(as_it_is=True):
        try:
            for case in (situations.free(patient), *situations.masked(patient)):
                patient.ask(case.inputs, case.blocked)
        except Failed:
            return False
    return True


def _hides(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether exactly the keys that are blocked have no influence."""
    patient = _patient(attend, _kind(options), options)
    with patient.admitted():
        for case in situations.masked(patient):
            assert case.blocked is not None
            try:
                moved = moves(patient, case.inputs, case.blocked) > 100 * patient.tolerance
            except Failed:
                return False
            apart = torch.ones_like(case.blocked)
            if patient.kind != "cross":
                apart &= ~torch.eye(patient.n, dtype=torch.bool)
            if ((moved == case.blocked) & apart).any():
                return False
    return True

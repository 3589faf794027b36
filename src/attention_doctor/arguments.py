"""Find a call that an implementation answers, and put the adapters around it that it needs."""

import argparse
import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from attention_doctor import adapters, extras, layouts, steps
from attention_doctor.adapted import ABILITIES, masks_of, module_of, output_of
from attention_doctor.construction import attempt
from attention_doctor.expressions import computed
from attention_doctor.forms import (
    Masked,
    across_samples,
    answers,
    bare,
    error_of,
    hides,
    hides_something,
    masked,
    passes_through,
    patient_of,
    plausible,
)  # fmt: skip
from attention_doctor.matching import COUNTS, Plan, is_bias, is_packed, mask_names, plans
from attention_doctor.names import (
    GRID,
    INPUTS,
    Unasked,
    named_parameters,
    plain_name,
    refuse,
    takes_any,
)  # fmt: skip
from attention_doctor.options import Expression
from attention_doctor.patient import Failed, Pooled
from attention_doctor.state import settable

_FIRST = "with another token in front, which asks"
_ONE_BY_ONE = "(n, e), one sample after the other"
# How its axes are made of the usual ones and the number of heads, and the way back.
_LAYOUTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "": (lambda x, h: x, lambda x: x),
    "(b, e, n)": (lambda x, h: x.mT, lambda x: x.mT),
    "(b, e, n, 1)": (lambda x, h: x.mT.unsqueeze(-1), lambda x: x.flatten(2).mT),
    "(b, e, 2, n / 2)": (lambda x, h: x.mT.unflatten(-1, (2, -1)), lambda x: x.flatten(2).mT),
    "(n, b, e)": (lambda x, h: x.transpose(0, 1), lambda x: x.transpose(0, 1)),
    "(b, 1, n, e)": (lambda x, h: x.unsqueeze(1), lambda x: x.flatten(1, -2)),
    "(1, n, b, e)": (lambda x, h: x.transpose(0, 1)[None],
                     lambda x: x.flatten(0, 1).transpose(0, 1)),
    "(n, 1, b, e)": (lambda x, h: x.transpose(0, 1)[:, None],
                     lambda x: x.flatten(0, 1).transpose(0, 1)),
    _ONE_BY_ONE: (lambda x, h: x, lambda x: x),
    _FIRST: (lambda x, h: x, lambda x: x),
    "heads, (b, h, n, d)": (lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 2),
                            lambda x: x.transpose(1, 2).flatten(2)),
    "heads, (b, n, h, d)": (lambda x, h: x.unflatten(-1, (h, -1)), lambda x: x.flatten(2)),
}  # fmt: skip
_PLACES = ("(1, n, b, e)", "(n, 1, b, e)")  # samples are places there, and masks others' than these
_TURNED = (
    "it takes (n, b, e), as `--sequence-first` says: read as (b, n, e), it fails, or its tokens "
    "see those of other samples alone; `--batch-first` examines it so"
)
_OF_POOLS = (
    "It pools: it gives fewer results than there are tokens. Examine what it computes for each of "
    "its queries: a function of queries and tokens, as kind memory, around the attention inside it."
)
_TRIES, _FEW = 1500, 20  # ways to call; plans with a layout or a length that is not the usual one
_ENOUGH = 40  # answers that no attention gives
_CLOSE = 1e-4


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
    if isinstance(inner := getattr(attend, "_orig_mod", None), nn.Module):
        attend = inner
        notes.append("what was compiled is examined as it was before")
    function = attend.forward if isinstance(attend, nn.Module) else attend
    if not callable(function):
        text = f"an object of type {type(attend).__name__} cannot be called"
        raise Unasked("call", text, "Name a class whose objects can be called, or a function.")
    parameters, further = named_parameters(function), dict(options.call)
    if not takes_any(function):
        asked = [*further, *([options.mask_name] if options.mask_name else [])]
        refuse("call", asked, parameters, "its call")
    e, h, n = options.embed_dim, options.num_heads, min(5, options.max_length)
    computed(further.items(), "call", b=2, n=n, m=n, e=e, h=h, d=e // h)
    said = any(isinstance(x, Expression) for x in further.values())
    torchs = {"query", "key", "value", "key_padding_mask", "attn_mask"}
    needed = {name for name, x in parameters.items() if x.default is x.empty} - {*further}
    if not said and needed <= torchs <= {*parameters} and hasattr(attend, "num_heads"):
        taken, fits = _torch_like(attend, options, further, notes)
        if fits:
            return taken, True
        tried: list[str] = []
        found, called = _Search(attend, function, further, options, tried).found()
        if called and masks_of(found) != "none":
            notes += tried
            return found, True
        return taken, True
    return _Search(attend, function, further, options, notes).found()


def _torch_like(
    attend: Any, options: argparse.Namespace, further: dict[str, Any], notes: list[str]
) -> tuple[Any, bool]:
    """Adapt what has PyTorch's arguments; tells also whether it takes masks as PyTorch does."""
    layout = False if options.sequence_first else True if options.batch_first else None
    kind = "cross" if options.kind == "memory" else options.kind
    if layout is None and not hasattr(attend, "batch_first") and _takes_turned(
        [adapters.torch_like(attend, kind, batch_first=x, **further) for x in (True, False)],
        argparse.Namespace(**{**vars(options), "kind": kind}),
    ):  # fmt: skip
        layout = False
        notes.append(_TURNED)

    def like(masks: str | None, added: bool) -> Any:
        call = adapters.torch_like(attend, kind, batch_first=layout, added=added, **further)
        if options.kind != "memory":
            return adapters.Adapted(call, call, masks)
        return adapters.Adapted(lambda x, y, mask: call(x, y, y, mask), call, masks)

    first = like(None, False)
    if kind == "causal":
        both = (first, like(None, True))
        return next((x for x in both if hides_something(x, options)), first), True
    ways = {
        (masks, added): way
        for added in (False, True)
        for masks in (None, "apart")
        if answers(way := like(masks, added), options)
    }
    hiding = (pair for pair, way in ways.items() if hides(way, options))
    some = (x for x, way in ways.items() if hides(adapters.Adapted(way, way, "shared"), options))
    fits = next(itertools.chain(hiding, some, ways), (None, False))
    masks, added = fits
    if masks or added:
        notes.append(
            "its `attn_mask` is "
            + "(n, m), the same for all samples" * bool(masks)
            + " and " * bool(masks and added)
            + "added to the scores" * added
        )
    return ways.get(fits, first), bool(ways)


def _takes_turned(ways: list[Any], options: argparse.Namespace) -> bool:
    """Tell whether (n, b, e) is taken, and not (b, n, e), by how both are answered."""
    if options.kind != "cross":
        return across_samples(ways[0], options)
    usual, turned = (error_of(way, options) for way in ways)
    return usual is not None and turned is None


def _rotated(attend: Any, parameters: dict[str, inspect.Parameter], options: Any) -> int:
    """Return how many features of each head are rotated, as the implementation says.

    Raises:
        Unasked: it has to be given a rotation, and these features are no pairs.
    """
    holders = settable(attend) if isinstance(attend, nn.Module) else [attend]
    parts = [pair for x in holders for pair in _attributes(x).items() if type(pair[1]) is int]
    says = [x for name, x in parts if re.search(r"(rope|rot\w*)_(\w*_)?(n?dims?|n_elem)$", name)]
    says += [x for name, x in parts if name in ("head_dim", "dim_head", "d_k") and x > 0]
    width = next(iter(says), options.embed_dim // options.num_heads)
    needed = (x for x, p in parameters.items() if p.default is p.empty and extras.turning(x))
    if width % 2 and (name := next(needed, "")) and name not in dict(options.call):
        text = f"`{name}` turns pairs of features, and in each head it would be {width} of them"
        raise Unasked("call", text, "Give a larger `--embed-dim`, so that this number is even.")
    return width - width % 2


def _attributes(attend: Any) -> dict[str, Any]:
    return getattr(attend, "__dict__", {})


@dataclass(frozen=True)
class _Way:
    """A plan, and the layout and the length that it is tried with; "" is the usual layout."""

    plan: Plan
    layout: str
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
        self.attend, self.function, self.options, self.notes = attend, function, options, notes
        self.parameters = named_parameters(function)
        if options.kind == "causal":
            causal = [name for name in ("is_causal", "causal") if name in self.parameters]
            further = dict.fromkeys(causal[:1], True) | further
        options.rotated = _rotated(attend, self.parameters, options)
        self.further = extras.given(further, options)
        self.tokens: tuple[torch.Tensor, torch.Tensor]  # of the call under way
        # A module, a plan and positions that take the place of the usual ones.
        self.instead: tuple[Any, Plan, torch.Tensor] | None = None
        self.positional = [x for x, p in self.parameters.items() if p.kind is p.POSITIONAL_ONLY]
        names = [options.mask_name] if options.mask_name else None
        names = names or mask_names(self.parameters, options.kind)
        self.masks = [] if options.mask == "none" else names

    def found(self) -> tuple[Any, bool]:
        """Return the first way to call that is answered, or the likeliest; and whether it is."""
        first: tuple[Any, Plan] | None = None
        by_chance: _Way | None = None
        pooled: Pooled | None = None
        layout: str | None = None  # the only one, once it has returned something of another shape
        implausible = 0
        for always, way in itertools.islice(self._ways(), _TRIES):
            if layout not in (None, way.layout) and way.layout != _FIRST:
                continue
            adapted = self._adapted(way)
            first = first or (adapted, way.plan)
            if always:
                if mask := masked(adapted, str(way.plan.mask), self.options, always=True):
                    way, hidden = self._understood(way, {str(way.plan.mask): mask})
                    taken = self._alone(hidden) if hidden else self._never_masked(mask.attend)
                    taken.at_positions = self._turned(way, taken)[1]
                    if hidden:
                        self._find_steps(way, taken, hidden)
                    return taken, True
                continue
            error = error_of(adapted, self.options)
            packed = any(role.startswith("packed") for role in way.plan.tokens.values())
            unsure = way.layout or packed or way.plan.tried
            if error is None and (
                not unsure or plausible(adapted, self.options, any_order=way.layout == _FIRST)
            ):
                if not way.layout and passes_through(adapted, self.options):
                    way = replace(way, layout=_FIRST)
                return self._finished(self._of_its_length(self._upright(way))), True
            if error is None and way.layout != _FIRST and not way.plan.tried:
                by_chance = by_chance or way  # tokens that lie elsewhere do not see each other
            implausible += error is None
            if implausible > _ENOUGH:
                break
            if isinstance(error, NotImplementedError):
                break
            if isinstance(error, Failed):
                layout = way.layout
            pooled = error if isinstance(error, Pooled) else pooled
        if by_chance is not None:
            return self._finished(by_chance), True
        if pooled is not None:
            raise Unasked("call", str(pooled), _OF_POOLS)
        if first is None:
            kind, given = self.options.kind, len(self.parameters)
            text = f'its arguments, {", ".join(self.parameters)}, do not fit kind "{kind}"'
            fits = [f"`--kind {kind}`" for kind, count in COUNTS.items() if count <= given]
            raise Unasked("call", text, f"Give the kind that fits: {' or '.join(fits)}.")
        adapted, plan = first  # the examination says what it raises
        self.notes.append(f"called with {plan}")
        return bare(adapted, self.options), False

    def _ways(self) -> Iterator[tuple[bool, _Way]]:
        """Give ways to call, and whether a mask has to be given: first without any."""
        for always in (False, True):
            for length in self._lengths():
                for i, layout in enumerate(self._layouts()):
                    usual = i == 0 and length is None
                    found = itertools.islice(self._plans(), _TRIES if usual else _FEW)
                    for j, plan in enumerate(found):
                        needed = usual and j < 2 and plan.mask  # although it has a default
                        if not always or plan.needs_mask or needed:
                            yield always, _Way(plan, layout, length)
        if any(map(is_bias, self.masks)):
            self.masks = []  # a bias that hides nothing
            yield from self._ways()

    def _plans(self) -> Iterator[Plan]:
        """Give plans with the argument that is the likeliest to take a mask."""
        name = self.masks[0] if self.masks else None
        return plans(self.function, self.options.kind, name, self.further, self.options)

    def _layouts(self) -> list[str]:
        options = self.options
        if options.channel_first:
            return [name for name in _LAYOUTS if name.startswith("(b, e")]
        if options.sequence_first or options.batch_first:
            return [""]
        module, own = module_of(self.attend), [*_attributes(self.attend)]
        plain = module is None or not [*module.parameters()]
        packed = any(map(is_packed, self.parameters))
        three = sum(x.default is x.empty for x in self.parameters.values()) >= COUNTS["cross"]
        apart = plain and options.num_heads > 1 and (packed or three or options.kind == "cross")
        heads = [x for x in _LAYOUTS if x.startswith("heads")][:: -1 if packed else 1]
        grid = any(re.search(GRID, name) for name in own)
        left = heads if grid else [*heads, "(b, e, 2, n / 2)"]
        left += [_FIRST] if options.kind != "self" else []
        names = [x for x in _LAYOUTS if x not in left]
        knows = any("head" in name for name in (*self.parameters, *own))
        return [*heads, *names] if apart and not knows else names

    def _lengths(self) -> Iterator[int | None]:
        """Give any length, and then those that the implementation may be made for."""
        yield None
        found = []
        for name, value in _attributes(self.attend).items():
            if re.search(rf"window|patch|length|len$|block|ctx|tokens|{GRID}", name):
                numbers = value if isinstance(value, tuple | list) else (value,)
                if all(isinstance(x, int) and 0 < x <= 8 for x in numbers) and numbers:
                    found += [numbers[0] * numbers[-1]]
                found += [value] if isinstance(value, int) else []
        if (module := module_of(self.attend)) is not None:  # a number for each pair of places
            tensors = (*module.buffers(), *module.parameters())
            square = (x.size(-1) for x in tensors if x.dim() > 1 and x.size(-1) == x.size(-2))
            found += [size for size in square if size != self.options.embed_dim]
        yield from (x for x in dict.fromkeys([*found, self.options.max_length, 4]) if 2 <= x <= 50)

    def _adapted(self, way: _Way) -> Any:
        call = way.plan.caller(self.attend, self.options.kind, self.positional)

        def settled(*given: Any, **options: Any) -> Any:
            if self.instead is not None:
                attend, plan, positions = self.instead
                other = plan.caller(attend, self.options.kind, self.positional)
                return other(self.tokens, *given, positions=positions, **options)
            return attempt(functools.partial(call, self.tokens, *given, **options))

        adapted = adapters.Adapted(settled, self.attend)
        layout = way.layout or ("(n, b, e)" if self.options.sequence_first else "")
        if layout in (_FIRST, _ONE_BY_ONE):
            adapted = (
                layouts.first_asks(adapted) if layout == _FIRST else layouts.one_by_one(adapted)
            )
        elif layout:
            into, back = _LAYOUTS[layout]
            adapted = layouts.laid_out(adapted, lambda x: into(x, self.options.num_heads), back)
        count = COUNTS[self.options.kind]

        def noted(*given: Any) -> Any:
            self.tokens = given[0], given[count - 1]
            return adapted(*given)

        found = adapters.Adapted(noted, adapted)
        found.length = way.length
        return found

    def _upright(self, way: _Way) -> _Way:
        """Exchange samples and tokens, where tokens see those of other samples alone."""
        if (
            self.options.batch_first
            or self.options.kind not in ("self", "causal")
            or way.layout
            or not across_samples(self._adapted(way), self.options)
        ):
            return way
        self.notes.append(_TURNED)
        return replace(way, layout="(n, b, e)")

    def _of_its_length(self, way: _Way) -> _Way:
        """Take the only length of self-attention, where it fails with fewer tokens."""
        patient = patient_of(self.attend, self.options.kind, self.options)
        few = argparse.Namespace(**{**vars(self.options), "max_length": patient.n - 1})
        if patient.kind == "cross" or way.length or patient.n < 3:
            return way
        fewer = error_of(self._adapted(way), few)
        return replace(way, length=patient.n) if fewer is not None else way

    def _finished(self, way: _Way) -> Any:
        """Put the mask that it takes around a call that is answered."""
        way, at_positions = self._turned(way, self._adapted(way))
        adapted, causal, hidden = self._adapted(way), self.options.kind == "causal", None
        own = causal and hides_something(adapted, self.options)
        if way.plan.mask is None:
            self._note(way)
        else:
            found: dict[str, Masked | None] = {}
            for name in self.masks[:1] if causal and not own else self.masks:
                named = self._adapted(replace(way, plan=replace(way.plan, mask=name)))
                named.own_future = own
                found[name] = masked(named, name, self.options)
            way, hidden = self._understood(way, found, own)
        with_mask, hidden = (hidden, None) if own else (None, hidden)
        taken = bare(adapted, self.options) if hidden is None else self._alone(hidden)
        taken.with_mask = with_mask
        for ability in ABILITIES:  # of a module its methods: it may call something else so
            if inspect.ismethod(method := getattr(self.attend, ability, None)):
                setattr(taken, ability, method)
        taken.at_positions = at_positions or getattr(taken, "at_positions", None)
        if not hasattr(taken, "step"):
            self._find_steps(way, taken, hidden)
        return taken

    def _alone(self, hidden: Any) -> Any:
        """Block the future of kind causal, whose mask is not given from outside."""
        return adapters.causal(hidden, 1) if self.options.kind == "causal" else hidden

    @contextlib.contextmanager
    def _called(self, attend: Any, plan: Plan, positions: torch.Tensor) -> Iterator[None]:
        """Call another module, with other arguments, while the block runs."""
        self.instead = attend, plan, positions
        try:
            yield
        finally:
            self.instead = None

    def _find_steps(self, way: _Way, taken: Any, hidden: Any) -> None:
        """Find out how it is given a cache, where nothing else depends on what went before.

        Args:
            way: how it is called.
            taken: what will be examined; gets ``in_steps``.
            hidden: takes tokens and ``blocked``; None if it takes no mask.
        """
        further, causal = way.plan.further, self.options.kind == "causal"
        made = {x: y for x, y in further.items() if isinstance(y, extras.Made | extras.Unturned)}
        turning = {x for x, y in made.items() if isinstance(y, extras.Made) and y.turns}
        unknown = [x for x in {*made} - turning if not steps.names_a_cache(x)]
        if way.layout or way.length or unknown or {"is_causal", "causal"} & {*further}:
            return
        if hidden is None and not causal:
            return
        if hidden is not None and (COUNTS[self.options.kind] > 1 or masks_of(hidden) == "padding"):
            return
        adapted = self._adapted(way)

        def call(
            own: Any, x: torch.Tensor, given: dict[str, Any], before: int, always: bool = False
        ) -> Any:
            n = x.size(1)
            plan = replace(way.plan, further=further | given)
            blocked = torch.ones(n, before + n, dtype=torch.bool).triu(before + 1)
            mask = blocked.expand(x.size(0), -1, -1) if n > 1 or always else None
            with self._called(own or self.attend, plan, torch.arange(before, before + n)):
                return adapted(x) if hidden is None else hidden(x, mask)

        calls: list[steps.Call] = [call]
        calls += [] if hidden is None else [functools.partial(call, always=True)]
        found = adapters.Adapted(lambda x: call(None, x, {}, 0), self.attend, "none")
        names = {*self.parameters} - {*way.plan.tokens, *self.masks, *turning}
        patient = patient_of(found, "causal", self.options)
        if said := steps.tried(found, calls, names, patient, hidden is None and not turning):
            taken.in_steps = found
            self.notes.append(f"asked with a cache as well, given by {said}")

    def _never_masked(self, attend: Any) -> Any:
        """Leave out a mask that has to be given: all calls give it one that blocks nothing."""
        count = COUNTS[self.options.kind]
        return adapters.Adapted(lambda *given: attend(*given[:count], None), attend, "none")

    def _understood(
        self, way: _Way, found: dict[str, Masked | None], own_future: bool = False
    ) -> tuple[_Way, Any]:
        """Choose a mask, and say what it means; None where no argument hides keys for certain.

        Returns:
            The way with its name, and what takes tokens and ``blocked``.

        A name that is a mask's is believed, whatever it does; a name that only has the word in it
        is believed where exactly the blocked keys are hidden. Of several masks of one sequence the
        first that does something else is examined. What hides the future by itself may well take
        another mask and leave it, if its name does not speak of padding.
        """
        options = self.options
        roles = () if getattr(options, "unmasked", False) else ("mask", "memory mask", "bias")
        known = {x for role in roles for x in INPUTS[role]}
        said = options.mask_name or options.mask != "auto" or options.mask_shape != "auto"
        own = INPUTS["mask"] if options.kind != "memory" else ()

        def place(pair: tuple[str, Masked | None]) -> int:
            name, tried = pair
            if tried is None or tried.hides:
                return 1 if tried else 2
            return 0 if plain_name(name) in own else 2

        for name, tried in sorted(found.items(), key=place):
            named = plain_name(name) in known and way.layout not in _PLACES
            named &= not own_future or "pad" in name
            if tried and (tried.hides or said or named):
                way = replace(way, plan=replace(way.plan, mask=name))
                self._note(way)
                if options.mask == "auto":
                    self.notes.append(tried.says)
                return way, tried.attend
        names = ", ".join(f"`{name}`" for name in found)
        if said and not own_future:
            text = f"{names} takes no mask of the form that is asked for"
            remedy = "Give another `--mask-shape` or `--mask`; `--mask none` gives it none."
            raise Unasked("call", text, remedy)
        way = replace(way, plan=replace(way.plan, mask=None))
        self._note(way)
        self.notes.append(
            f"{names} was not understood as a mask over keys, and is left out of all calls; "
            "`--mask-name`, `--mask` and `--mask-shape` say what it is"
        )
        return way, None

    def _turned(self, way: _Way, adapted: Any) -> tuple[_Way, Callable[..., Any] | None]:
        """Choose the layout of rotations in which they count by differences, or leave it.

        Returns:
            Also a call with tokens at any positions; None where it is not told where they are.
        """
        made = {x: y for x, y in way.plan.further.items() if isinstance(y, extras.Made)}
        turns = any(x.turns for x in made.values()) and self.options.rotated and not way.layout
        if self.options.kind not in ("self", "causal") or not turns:
            return way, None

        def at(plan: Plan) -> Callable[..., Any]:
            def at_positions(x: torch.Tensor, positions: torch.Tensor) -> Any:
                given = (x,) if self.options.kind == "causal" else (x, None)
                with self._called(self.attend, plan, positions):
                    return output_of(adapted(*given), x.shape)[0]

            return adapters.Adapted(at_positions, self.attend)

        for plan in (way.plan, *itertools.islice(self._plans(), _FEW)):
            same = {x: y for x, y in plan.further.items() if not isinstance(y, extras.Made)}
            alike = all(way.plan.further.get(x, y) is y for x, y in same.items())
            if alike and _is_relative(call := at(plan), self.options):
                return replace(way, plan=plan), call
        return way, at(way.plan)

    def _note(self, way: _Way) -> None:
        said = f"called with {way.plan}"
        said += f", each {way.layout}" if way.layout else ""
        self.notes.append(said + (f", always of {way.length} tokens" if way.length else ""))


def _is_relative(at_positions: Callable[..., Any], options: argparse.Namespace) -> bool:
    """Tell whether positions count, by their differences alone."""
    patient = patient_of(at_positions, "causal", options)
    with patient.admitted(as_it_is=True):
        x, places = patient.draw(1).query, torch.arange(patient.n)
        try:
            near, moved, far = (
                patient.ask_for(at_positions, x, at) for at in (places, places + 7, 3 * places)
            )
        except Failed:
            return False
        return patient.gap(moved, near) < _CLOSE < patient.gap(far, near)

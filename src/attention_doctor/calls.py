"""Call what is examined as its arguments ask for it; find the form of its mask."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attention_doctor.adapters import Adapted, adapt, torch_like
from attention_doctor.forms import MEANINGS, MaskForm, is_shape
from attention_doctor.inputs import Failed, NotAsked
from attention_doctor.matching import Plan, fitting_kinds, matched
from attention_doctor.patient import Patient
from attention_doctor.roles import (
    Sizes,
    Unasked,
    is_usual,
    meaning_of,
    named_parameters,
    plain_name,
    required,
    signature,
)

_TORCHS = {"query", "key", "value", "key_padding_mask", "attn_mask"}
_SHAPES = ("bnm", "b1nm", "(bh)nm", "bm", "b11m", "b1m", "nm")
_HIDES, _TURNED = (True, False), (False, True)  # which of two keys count, if one is hidden
Rotate = Callable[[Tensor, torch.dtype], dict[str, Any]]


class Called(NamedTuple):
    """What can be examined, and how it is called.

    Attributes:
        attend: what ``examine`` calls.
        how: the arguments that are passed, as a text.
        inferred: what nobody has said about its mask, and how it is understood; "" for nothing.
    """

    attend: Adapted
    how: str = ""
    inferred: str = ""


def called(
    attend: Any, kind: str, sizes: Sizes, layout: str, mask: str, further: Mapping[str, Any]
) -> Called:
    """Match the arguments of a call, by their names, with what the doctor gives.

    Args:
        attend: a module or a function.
        kind: as in ``examine``.
        sizes: those that it was built with.
        layout: as in ``adapt``; "" means what its ``batch_first`` says.
        mask: as in ``adapt``, and the name of the argument that takes it; what is not said is told
            by that name, or is inferred.
        further: other arguments, which are the same in each call.

    Raises:
        Unasked: an argument is not known, or no mask fits.
    """
    if isinstance(attend, Adapted):
        return Called(attend)
    function = attend.forward if isinstance(attend, nn.Module) else attend
    if not callable(function):
        text = f"an object of type {type(attend).__name__} cannot be called"
        raise Unasked("call", text, "Name a class whose objects can be called, or a function.")
    parameters = named_parameters(function)
    takes_any = any(x.kind is x.VAR_KEYWORD for x in signature(function).values())
    if (extra := [name for name in further if name not in parameters]) and not takes_any:
        text = f"its call has no {', '.join(extra)} (`--call`)"
        raise Unasked("call", text, f"It has: {', '.join(parameters)}.")
    needed = {*required(parameters)} - {*further}
    words = {*mask.split()}
    if needed <= _TORCHS <= {*parameters} and hasattr(attend, "num_heads") and not words & _TORCHS:
        masks = "none" if "none" in words else ""
        return Called(_pytorchs(attend, kind, sizes, layout, masks, further))
    plan = matched(function, kind, mask, further)
    if not plan.fits:
        raise _unfit(plan, kind, function)
    layout = layout or ("nbe" if getattr(attend, "batch_first", True) is False else "bne")
    return _Search(attend, plan, kind, sizes, layout).found(mask)


def _unfit(plan: Plan, kind: str, function: Any) -> Unasked:
    parameters = named_parameters(function)
    if kinds := fitting_kinds(function, plan.further):
        text = f"its arguments, {', '.join(parameters)}, do not fit kind {kind}"
        others = " or ".join(f"`--kind {x}`" for x in kinds)
        return Unasked("call", text, f"Give the kind that fits: {others}.")
    text = f"the call's {', '.join(plan.unknown or parameters)} cannot be filled in"
    values = " ".join(f"{name}=…" for name in plan.unknown)
    remedy = f"Say it: `--call {values}`, or complete the adapter." if values else ""
    return Unasked("call", text, remedy or "Complete the adapter.")


def _pytorchs(
    attend: Any, kind: str, sizes: Sizes, layout: str, masks: str, further: Mapping[str, Any]
) -> Adapted:
    """Adapt what has PyTorch's arguments; some take masks (n, m) alone."""
    first = {"nbe": False, "bne": True}.get(layout)
    usual, apart = (
        torch_like(attend, kind, batch_first=first, masks=x, **further) for x in (masks, "apart")
    )
    if kind == "causal" or masks:
        return usual
    patient = Patient(usual, *sizes[:2], kind, None, sizes.max_length)
    blocked = torch.zeros(patient.b, patient.n, patient.m, dtype=torch.bool)
    blocked[0, 0, 1] = True
    return usual if reacting(usual, kind, sizes, blocked) else apart


def reacting(
    attend: Adapted, kind: str, sizes: Sizes, blocked: Tensor | None = None
) -> tuple[bool, ...]:
    """Tell whether the last queries react to key 0, and to key 1; empty if a call fails."""
    patient = Patient(attend, *sizes[:2], kind, None, sizes.max_length, sizes.context_dim)
    reacts: list[bool] = []
    with patient.admitted(as_it_is=True):
        inputs, other = patient.draw(1), patient.draw(2)
        try:
            before = patient.ask(inputs, blocked)[:, 2:]
            for place in (0, 1):
                changed = inputs.map(torch.clone)
                for name in ("key", "value"):
                    getattr(changed, name)[:, place] = 3 * getattr(other, name)[:, place]
                after = patient.ask(changed, blocked)[:, 2:]
                reacts.append(not patient.same(after, before))
        except (Failed, NotAsked):
            return ()
    return tuple(reacts)


class _Search:
    """Calls by a plan, and finds out what it does not say: a rotation's axes, a mask's form."""

    def __init__(self, attend: Any, plan: Plan, kind: str, sizes: Sizes, layout: str) -> None:
        self.attend, self.plan, self.kind, self.sizes = attend, plan, kind, sizes
        self.layout = layout
        self.module = attend if isinstance(attend, nn.Module) else None
        self.positions: Tensor | None = None  # of the tokens, where they are not the usual ones
        self.rotate: Rotate | None = None

    def _call(self, *inputs: Any) -> Any:
        """Call with the arguments of the plan."""
        wanted = dict.fromkeys(self.plan.tokens.values())
        tensors = dict(zip(wanted, inputs, strict=False))
        named = {name: tensors[role] for name, role in self.plan.tokens.items()}
        named |= self.plan.further
        if self.rotate is not None:
            n = inputs[0].size(self.layout.index("n"))
            positions = torch.arange(n) if self.positions is None else self.positions
            named |= self.rotate(positions, inputs[0].dtype)
        rest = inputs[len(wanted) :]
        if self.plan.mask and (self.plan.needs_mask or (rest and rest[0] is not None)):
            named[self.plan.mask] = rest[0] if rest else None
        first = [named.pop(name) for name in [*named] if name.isdigit()]
        return self.attend(*first, **named)

    def _at_positions(self, x: Tensor, positions: Tensor) -> Any:
        self.positions = positions
        try:
            return self._adapted("none")(x)
        finally:
            self.positions = None

    def _adapted(self, mask: str) -> Adapted:
        adapted = adapt(self._call, self.layout, mask, module=self.module,
                        num_heads=self.sizes.num_heads)  # fmt: skip
        adapted.name = getattr(self.attend, "__name__", type(self.attend).__name__)
        if self.rotate is not None and self.kind in ("self", "causal"):
            setattr(adapted, "at_positions", self._at_positions)  # noqa: B010
        return adapted

    def found(self, mask: str) -> Called:
        """Give what can be examined."""
        for rotate in self._rotations() if self.plan.rotation else ():
            self.rotate = rotate
            if reacting(self._adapted("none"), self.kind, self.sizes):
                break
        words = [word for word in mask.split() if word != self.plan.mask]
        if not self.plan.mask or "none" in words:
            return Called(self._adapted("none"), str(self.plan))
        return self._masked(words)

    def _rotations(self) -> Iterator[Rotate]:
        """Give ways to make cosines and sines for the positions of the tokens."""
        d, names = self.sizes.embed_dim // self.sizes.num_heads, sorted(self.plan.rotation)

        def make(positions: Tensor, dtype: torch.dtype, whole: bool, axes: int) -> dict[str, Any]:
            angle = positions[:, None] * 100.0 ** -torch.arange(0, d // 2 * 2, 2).to(dtype).div(d)
            if plain_name(names[0]) == "freqs_cis":
                return {names[0]: torch.polar(torch.ones_like(angle), angle)}
            angle = torch.cat([angle, angle], -1) if whole else angle
            pair = [x.view([1] * axes + [*x.shape]) for x in (angle.cos(), angle.sin())]
            return {names[0]: tuple(pair)} if len(names) == 1 else dict(zip(names, pair))  # noqa: B905

        for whole, axes in ((True, 1), (True, 0), (False, 0), (True, 2), (False, 2)):
            yield functools.partial(make, whole=whole, axes=axes)

    def _masked(self, words: list[str]) -> Called:
        """Find the form of a mask as far as nobody says it: its axes, and what True means.

        One call that hides one key tells which keys are hidden then. This is no verdict: whether
        that meaning is the intended one nobody but the user knows.
        """
        said = MaskForm.read(" ".join(words))
        shapes = [said.shape] if any(map(is_shape, words)) else [*_SHAPES]
        spoken = next((x for x in MEANINGS if x in words), "") or meaning_of(self.plan.mask)
        bare = self._adapted("none")
        if not self.plan.needs_mask and not reacting(bare, self.kind, self.sizes):
            return Called(bare, str(self.plan))  # the examination says what it raises
        patient = Patient(bare, *self.sizes[:2], self.kind, None, self.sizes.max_length)
        blocked = torch.zeros(patient.b, patient.n, patient.m, dtype=torch.bool)
        blocked[..., 1] = True
        taken: MaskForm | None = None
        acts = False
        for form in (x for shape in shapes for x in self._forms(said, shape, spoken)):
            reacts = reacting(self._adapted(str(form)), self.kind, self.sizes, blocked)
            if reacts and taken is None:
                taken = form
            if reacts in (_HIDES, _TURNED):
                turned = not spoken and reacts == _TURNED
                taken, acts = form._replace(meaning="allowed") if turned else form, True
                break
        return self._understood(taken, acts or bool(words), spoken, shapes)

    def _understood(
        self, form: MaskForm | None, acts: bool, spoken: str, shapes: list[str]
    ) -> Called:
        """Say how the mask is taken, or why it is left out."""
        name, how = self.plan.mask, str(self.plan)
        if form is None and (acts or self.plan.needs_mask or is_usual(name)):
            text = f"no mask of {', '.join(shapes)} fits its {name}"
            remedy = "Say its axes, as in `--mask 'b1nm allowed'`; `--mask none` leaves it out."
            raise Unasked("call", text, remedy)
        if form is None or (self.kind == "causal" and not acts and not self.plan.needs_mask):
            why = "no form of it is taken" if form is None else "it has no effect"
            return Called(self._adapted("none"), f"{how}; `{name}` is left out: {why}")
        what = "added to the scores" if form.meaning == "additive" else f"True = {form.meaning}"
        other = "blocked" if form.meaning == "allowed" else "allowed"
        inferred = (
            f"`{name}` is {form.shape}, {what}: inferred from one call, since neither you nor its "
            f"name says so. If you mean the other, say `--mask {other}`"
        )
        return Called(self._adapted(str(form)), f"{how}, {name}={form}", "" if spoken else inferred)

    def _forms(self, said: MaskForm, shape: str, spoken: str) -> Iterator[MaskForm]:
        """Give the forms to try: truth values first, then numbers."""
        form = said._replace(shape=shape, required=said.required or self.plan.needs_mask)
        form = form._replace(meaning=spoken or "blocked")
        yield form
        if not spoken:
            yield form._replace(meaning="additive")
        if form.dtype == "bool" and form.meaning != "additive":
            yield form._replace(dtype="float")
            yield form._replace(dtype="int")

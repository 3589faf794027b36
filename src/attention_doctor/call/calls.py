"""Call what is examined as its arguments ask for it; find the form of its mask."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attention_doctor.adapters import Adapted, adapt, name_of, torch_like
from attention_doctor.call.forms import MEANINGS, MaskForm, is_shape
from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.matching import TENSORS, Plan, fitting_kinds, matched
from attention_doctor.call.patient import Patient
from attention_doctor.call.roles import (
    Sizes,
    Unasked,
    meaning_of,
    named_parameters,
    required,
    signature,
)

_TORCHS = {"query", "key", "value", "key_padding_mask", "attn_mask"}
_SHAPES = ("bnm", "b1nm", "(bh)nm", "bm", "b11m", "nm")
_ANGLES = ((2, 1), (2, 0), (1, 0))  # how often an angle stands there; axes in front
_SLIPS = ("NameError", "UnboundLocalError", "ModuleNotFoundError", "ImportError")
_HIDES, _TURNED = (True, False), (False, True)  # which of two keys count, if one is hidden


class Called(NamedTuple):
    """What can be examined, and how it is called."""

    attend: Adapted
    how: str = ""  # the arguments that are passed
    inferred: str = ""  # what nobody has said about its mask, and how it is understood


def called(
    attend: Any, kind: str, sizes: Sizes, layout: str, mask: str, further: Mapping[str, Any]
) -> Called:
    """Match the arguments of a call, by their names, with what the doctor gives.

    What ``layout`` does not say, as in ``adapt``, ``batch_first`` does. ``mask`` may have the name
    of the argument that takes it, too; what it does not say is told by that name, or is inferred.
    ``further`` arguments are the same in each call.

    Raises:
        Unasked: an argument is not known, or no mask fits.
    """
    if isinstance(attend, Adapted):
        return _of_adapter(attend, kind, sizes, mask)
    function = attend.forward if isinstance(attend, nn.Module) else attend
    if not callable(function):
        text = f"an object of type {type(attend).__name__} cannot be called"
        raise Unasked("call", text, "Name a class whose objects can be called, or a function.")
    parameters = named_parameters(function)
    takes_any = any(x.kind is x.VAR_KEYWORD for x in signature(function).values())
    if (extra := [name for name in further if name not in parameters]) and not takes_any:
        text = f"its call has no {', '.join(extra)} (`--call`)"
        raise Unasked("call", text, f"It has: {', '.join(parameters)}.")
    layout = layout or ("nbe" if getattr(attend, "batch_first", True) is False else "bne")
    words = mask.split()
    others = {*required(parameters)} - {*further} - _TORCHS
    torchs = {*parameters} >= _TORCHS and not others and not _TORCHS & {*words}
    if torchs and layout in ("nbe", "bne") and hasattr(attend, "num_heads"):
        options = {"batch_first": layout == "bne", **further}
        return Called(_pytorchs(attend, kind, sizes, "none" * ("none" in words), options))
    plan = matched(function, kind, mask, further)
    if not plan.fits:
        raise _unfit(plan, kind, function)
    words = [word for word in words if word != plan.mask]
    made = _Attention(attend, plan, kind, sizes, layout).adapted
    if not plan.mask or "none" in words:
        return Called(made("none"), str(plan))
    return _masked(made, made("none"), kind, sizes, plan, words)


def _of_adapter(attend: Adapted, kind: str, sizes: Sizes, mask: str) -> Called:
    """Infer the form of an adapter's mask where that is asked for, or where the usual one fails."""
    masked = attend.masked
    if masked is None:
        return Called(attend)
    asked = "inferred" in attend.said
    if not asked and reacting(attend, kind, sizes):
        return Called(attend)
    words = [*mask.split(), *(x for x in attend.said.split() if x != "inferred")]
    try:
        heads = sizes.num_heads
        return _masked(lambda form: masked(form, heads), None, kind, sizes, Plan(), words)
    except Unasked:
        if asked:
            raise
        return Called(attend)


def _unfit(plan: Plan, kind: str, function: Any) -> Unasked:
    names = named_parameters(function)
    if kinds := fitting_kinds(function, plan.further):
        text = f"its arguments, {', '.join(names)}, do not fit kind {kind}"
        others = " or ".join(f"`--kind {x}`" for x in kinds)
        return Unasked("call", text, f"Give the kind that fits: {others}.")
    text = f"the call's {', '.join(plan.unknown or names or ['arguments'])} cannot be filled in"
    return Unasked("call", text, "Complete the adapter, or say what is missing: `--call name=…`.")


def _pytorchs(
    attend: Any, kind: str, sizes: Sizes, masks: str, options: Mapping[str, Any]
) -> Adapted:
    """Adapt what has PyTorch's arguments; some take masks (n, m) alone."""
    usual = torch_like(attend, kind, masks=masks, **options)
    if kind == "causal" or masks or reacting(usual, kind, sizes, every_query=False):
        return usual
    return torch_like(attend, kind, masks="apart", **options)


def reacting(
    attend: Adapted,
    kind: str,
    sizes: Sizes,
    every_query: bool = True,
    errors: list[str] | None = None,
) -> tuple[bool, ...]:
    """Tell whether the last queries react to key 0 and to key 1, with key 1 blocked.

    It is blocked for every query, or for the first one of the first sample. If a call fails, the
    result is empty, and ``errors`` takes what it raises.
    """
    patient = Patient(attend, sizes, kind)
    blocked = torch.zeros(patient.b, patient.n, patient.m, dtype=torch.bool)
    (blocked if every_query else blocked[:1, :1])[..., 1] = True
    with patient.admitted(), patient.dropping(0.0):
        inputs, other = patient.draw(1), patient.draw(11).map(lambda x: 3 * x)
        try:
            before = patient.ask(inputs, blocked)
            after = [patient.ask(inputs.replaced(other, slice(None), j), blocked) for j in (0, 1)]
        except (Failed, NotAsked) as error:
            if errors is not None:
                errors.append(str(error))
            return ()
        return tuple(not patient.same(x[:, 2:], before[:, 2:]) for x in after)


class _Attention:
    """Calls by a plan, and finds out what it does not say: a rotation's axes, a mask's form."""

    def __init__(self, attend: Any, plan: Plan, kind: str, sizes: Sizes, layout: str) -> None:
        self.attend, self.plan, self.kind, self.sizes = attend, plan, kind, sizes
        self.layout = layout
        for self.angles in _ANGLES if plan.rotation else ():
            if reacting(self.adapted("none"), kind, sizes):
                break

    def _call(self, positions: Tensor | None, documents: Tensor | None, *inputs: Any) -> Any:
        """Call with the arguments of the plan; positions are the usual, documents one, by None."""
        plan, roles = self.plan, TENSORS[self.kind]
        tensors = dict(zip(roles, inputs, strict=False))
        given = {name: tensors[role] for name, role in plan.tokens.items()}
        blocked = inputs[len(roles)] if len(inputs) > len(roles) else None
        if plan.mask and (plan.needs_mask or blocked is not None):
            given[plan.mask] = blocked
        b, n = (inputs[0].size(self.layout.index(axis)) for axis in "bn")
        if plan.rotation:
            usual = torch.arange(n)
            given |= self._rotation(usual if positions is None else positions, inputs[0].dtype)
        if plan.documents:
            one = torch.zeros(b, n, dtype=torch.long)
            given[plan.documents] = one if documents is None else documents
        return self.attend(**given, **plan.further)

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> dict[str, Any]:
        """Make cosines and sines for the positions of the tokens."""
        twice, axes = self.angles
        d, names = self.sizes.embed_dim // self.sizes.num_heads, sorted(self.plan.rotation)
        angle = positions[:, None] * 100.0 ** -torch.arange(0, d // 2 * 2, 2).to(dtype).div(d)
        angle = torch.cat([angle] * twice, -1).view(*[1] * axes, len(positions), -1)
        pair = (angle.cos(), angle.sin())
        return {names[0]: pair} if len(names) == 1 else dict(zip(names, pair, strict=True))

    def adapted(
        self, mask: str, positions: Tensor | None = None, documents: Tensor | None = None
    ) -> Adapted:
        module = self.attend if isinstance(self.attend, nn.Module) else None
        abilities: dict[str, Any] = {}
        if self.plan.rotation and self.kind in ("self", "causal"):
            abilities["at_positions"] = lambda x, places: self.adapted("none", places)(x)
        if self.plan.documents and self.kind in ("self", "causal"):
            abilities["packed"] = lambda x, rows: self.adapted("none", documents=rows)(x)
        adapted = adapt(
            functools.partial(self._call, positions, documents),
            self.layout,
            mask,
            module=module,
            num_heads=self.sizes.num_heads,
            **abilities,
        )
        adapted.name = name_of(self.attend)
        return adapted


def _masked(
    made: Callable[[str], Adapted],
    bare: Adapted | None,
    kind: str,
    sizes: Sizes,
    plan: Plan,
    words: list[str],
) -> Called:
    """Find the form of a mask as far as nobody says it: its axes, and what True means.

    One call that hides one key tells which keys are hidden then. This is no verdict: whether
    that meaning is the intended one nobody but the user knows.
    """
    said, how, name = MaskForm.read(" ".join(words)), str(plan), plan.mask
    always = said.required or plan.needs_mask
    if bare is not None and not always and not reacting(bare, kind, sizes):
        return Called(bare, how)  # the examination says what it raises
    shapes = [said.shape] if any(map(is_shape, words)) else [*_SHAPES]
    spoken = next((x for x in MEANINGS if x in words), "") or meaning_of(name)
    said = said._replace(required=always)
    hides = (_HIDES, _TURNED) if spoken else (_HIDES,)  # a meaning that is said may be wrong
    errors: list[str] = []
    seen = {
        form: reacting(made(str(form)), kind, sizes, errors=errors)
        for shape in shapes
        for meaning in ([spoken] if spoken else MEANINGS)
        for form in [said._replace(shape=shape, meaning=meaning)]
    }
    hiding = [form for form, reacts in seen.items() if reacts in hides]
    form = next(iter(hiding), None) or next((form for form in seen if seen[form]), None)
    slip = next((x for x in errors if x.startswith(_SLIPS)), "")
    if form is None and bare is not None and not always and slip:
        bare.mask_error = slip  # no mask would help: the code behind it does not run
        return Called(bare, how)
    if form is None:
        text = f"no mask of {', '.join(shapes)} fits its {name}; the first raises {errors[0]}"
        remedy = "Say what it is, as in `--mask 'b1nm allowed'`; `--mask none` leaves it out."
        raise Unasked("call", text, remedy)
    if bare is not None and not hiding and kind == "causal" and not words:
        return Called(bare, f"{how}; `{name}` is left out: it hides no key")
    what = "added to the scores" if form.meaning == "additive" else f"True = {form.meaning}"
    other = "blocked" if form.meaning == "allowed" else "allowed"
    guess = "inferred from one call" if hiding else "guessed, as no call hides a key"
    inferred = (
        f"`{name}` is {form.shape}, {what}: {guess}, since neither you nor its name "
        f"says so. If you mean the other, say `--mask {other}`"
    )
    how = ", ".join(filter(None, [how, f"{name}={form}"]))
    return Called(made(str(form)), how, "" if spoken else inferred)

"""Call what is examined as its arguments ask for it."""

import functools
import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attention_doctor.adapters import Adapted, adapt, module_of, name_of, torch_like
from attention_doctor.call.build import PerCall
from attention_doctor.call.forms import MaskForm
from attention_doctor.call.masks import Called, axes, forms, masked, reaction
from attention_doctor.call.matching import TENSORS, Plan, matched
from attention_doctor.call.roles import (
    KINDS,
    Sizes,
    Unasked,
    meaning_of,
    named_parameters,
    required,
    signature,
    taken,
)

_TORCHS = {"query", "key", "value", "key_padding_mask", "attn_mask"}
_AXES = 4  # which scores have
_ANGLES = ((2, 0), (2, 1), (1, 0), (1, 1))  # how often an angle stands there; axes in front


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
        asked = _of_adapter(attend, kind, sizes, mask)
        form = mask if attend.masked is None and mask != "none" else ""
        said = {"layout": layout, "call": further, "mask": form}
        unused = ", ".join(f"`--{name}`" for name, x in said.items() if x)
        why = f"{unused}: not used, as it is an adapter, which says so itself" * bool(unused)
        return asked._replace(inferred=". ".join(filter(None, [why, asked.inferred])))
    function = attend.forward if isinstance(attend, nn.Module) else attend
    if not callable(function):
        text = f"an object of type {type(attend).__name__} cannot be called"
        raise Unasked("call", text, "Name a class whose objects can be called, or a function.")
    parameters = named_parameters(function)
    if extra := [name for name in further if name not in taken(function, further)]:
        text = f"its call has no {', '.join(extra)} (`--call`)"
        raise Unasked("call", text, f"It has: {', '.join(parameters)}.")
    layout = layout or ("nbe" if getattr(attend, "batch_first", True) is False else "bne")
    words = mask.split()
    others = {*required(parameters)} - {*further} - _TORCHS
    torchs = {*parameters} >= _TORCHS and not others and not _TORCHS & {*words}
    if torchs and layout in ("nbe", "bne") and hasattr(attend, "num_heads"):
        options = {"batch_first": layout == "bne", **further}
        why = f"`--mask {mask}` is not used: its masks are PyTorch's, True = blocked"
        adapted = _pytorchs(attend, kind, sizes, "none" * ("none" in words), options)
        return Called(adapted, inferred=why * bool({*words} - {"none", "blocked"}))
    plan = matched(function, kind, mask, further)
    if not plan.fits:
        raise _unfit(plan, kind, function)
    words = [word for word in words if word != plan.mask]
    made = _Attention(attend, plan, kind, sizes, layout).adapted
    if not plan.mask and {*words} - {"none"} and len(parameters) < len(signature(function)):
        text = "it takes arguments of any name, and none is a mask by its name"
        raise Unasked("call", text, "Complete the adapter: say which argument takes the mask.")
    if not plan.mask or "none" in words:
        why = f"`--mask {mask}` is not used: its call takes no mask"
        return Called(made("none"), str(plan), why * bool({*words} - {"none"}))
    return masked(made, made("none"), kind, sizes, plan, words)._replace(others=plan.others)


def _of_adapter(attend: Adapted, kind: str, sizes: Sizes, mask: str) -> Called:
    """Infer the form of an adapter's mask where that is asked for, or where the usual one fails."""
    words = [*mask.split(), *(x for x in attend.said.split() if x != "inferred")]
    if "none" in words:
        attend.masks = "none"
    make, asked, heads = attend.masked, "inferred" in attend.said, sizes.num_heads
    if make is None or "none" in words or not (asked or reaction(attend, kind, sizes) is None):
        return Called(attend)
    bare = make("", heads)
    bare.masks = "none"  # it is given None
    return masked(lambda form: make(form, heads), bare, kind, sizes, Plan(), words)


def _unfit(plan: Plan, kind: str, function: Any) -> Unasked:
    names = named_parameters(function)
    if kinds := [x for x in KINDS if matched(function, x, "", plan.further, False).fits]:
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
    if kind == "causal" or masks or reaction(usual, kind, sizes, every_query=False):
        return usual
    return torch_like(attend, kind, masks="apart", **options)


def _module(attend: Any) -> nn.Module | None:
    """Give the module that is called: itself, or what a function was put around."""
    held = inspect.getclosurevars(attend).nonlocals.values() if inspect.isfunction(attend) else ()
    return module_of(attend) or next((x for x in held if isinstance(x, nn.Module)), None)


class _Attention:
    """Calls by a plan, and finds out what it does not say: a rotation's axes, a mask's form."""

    def __init__(self, attend: Any, plan: Plan, kind: str, sizes: Sizes, layout: str) -> None:
        self.attend, self.plan = attend, plan
        self.kind, self.sizes, self.layout = kind, sizes, layout
        tries = _ANGLES if plan.rotation else ()
        sure = next((x for x in tries if self._doubt(x) <= _AXES), None)
        self.angles = sure or min(tries, key=self._doubt, default=(0, 0))

    def _doubt(self, angles: tuple[int, int]) -> float:
        """Count the axes of the scores with angles of this form: as many as they have, and no more.

        There are more tokens than heads, so that neither is taken for the other.
        """
        self.angles, (_, h, _, longest, tokens, _) = angles, self.sizes
        sizes = self.sizes._replace(tokens=tokens or min(h + 3, longest))
        given = forms(MaskForm(required=True), [], meaning_of(self.plan.mask))
        for form in given if self.plan.needs_mask else ["none"]:
            attend = self.adapted(str(form))
            if reaction(attend, self.kind, sizes):
                return axes(attend, self.kind, sizes)
        return math.inf

    def _call(self, documents: Tensor | None, *inputs: Any) -> Any:
        """Call with the arguments of the plan; the document is one, by None."""
        plan, roles = self.plan, TENSORS[self.kind]
        tensors = dict(zip(roles, inputs, strict=False))
        given = {name: tensors[role] for name, role in plan.tokens.items()}
        blocked = inputs[len(roles)] if len(inputs) > len(roles) else None
        if plan.mask and (plan.needs_mask or blocked is not None):
            given[plan.mask] = blocked
        b, n = (inputs[0].size(self.layout.index(axis)) for axis in "bn")
        if plan.rotation:
            given |= self._rotation(n, inputs[0].dtype)
        if plan.documents:
            one = torch.zeros(b, n, dtype=torch.long)
            given[plan.documents] = one if documents is None else documents
        said = plan.further.items()
        further = {name: x.of(n) if isinstance(x, PerCall) else x for name, x in said}
        return self.attend(**given, **further)

    def _rotation(self, n: int, dtype: torch.dtype) -> dict[str, Any]:
        """Make cosines and sines for the positions of the tokens."""
        twice, axes = self.angles
        d, names = self.sizes.embed_dim // self.sizes.num_heads, sorted(self.plan.rotation)
        angle = torch.arange(n)[:, None] * 100.0 ** -torch.arange(0, d // 2 * 2, 2).to(dtype).div(d)
        angle = torch.cat([angle] * twice, -1).view(*[1] * axes, n, -1)
        pair = (angle.cos(), angle.sin())
        return {names[0]: pair} if len(names) == 1 else dict(zip(names, pair, strict=True))

    def adapted(self, mask: str, documents: Tensor | None = None) -> Adapted:
        abilities: dict[str, Any] = {}
        if self.plan.documents and self.kind in ("self", "causal"):
            abilities["packed"] = lambda x, rows: self.adapted("none", rows)(x)
        adapted = adapt(
            functools.partial(self._call, documents),
            self.layout,
            mask,
            module=_module(self.attend),
            num_heads=self.sizes.num_heads,
            **abilities,
        )
        adapted.name, adapted.rotation = name_of(self.attend), self.plan.rotation
        return adapted

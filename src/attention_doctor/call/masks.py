"""Find the form of a mask, as far as nobody says it: its axes, what True means, its numbers.

One call that hides one key tells which keys are hidden then. This is no verdict: whether that
meaning is the intended one nobody but the user knows.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from attention_doctor.adapters import Adapted
from attention_doctor.call.forms import MEANINGS, MaskForm, is_shape
from attention_doctor.call.inputs import Failed
from attention_doctor.call.matching import Plan
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import raised_at
from attention_doctor.call.roles import Sizes, Unasked, meaning_of
from attention_doctor.call.trace import Trace

_SHAPES = ("bnm", "b1nm", "(bh)nm", "bm", "b11m", "nm")
# What is added comes last: minus infinity hides a key in most code for ones and zeros, too.
_READINGS = (
    ("blocked", "bool"),
    ("allowed", "bool"),
    ("allowed", "float"),
    ("blocked", "float"),
    ("additive", "bool"),
)
_SLIPS = (NameError, ImportError)
_LESS = 0.1  # of its influence is left to a key that is hidden, if badly


class Called(NamedTuple):
    """What can be examined, and how it is called."""

    attend: Adapted
    how: str = ""  # the arguments that are passed
    inferred: str = ""  # what nobody has said about its mask, and how it is understood
    others: tuple[str, ...] = ()  # masks that are left out
    guessed: str = ""  # the mask that must be given, if no call tells its meaning
    left: str = ""  # the one of them that hides no key beside the future


class Reaction(NamedTuple):
    """How far the last queries move with two keys, of which the second is hidden."""

    other: float
    hidden: float

    @property
    def hides(self) -> bool:
        """Whether the hidden key alone has no influence."""
        return self.other > 0 == self.hidden

    @property
    def shows(self) -> bool:
        """Whether the hidden key alone has influence."""
        return self.hidden > 0 == self.other

    @property
    def left(self) -> float:
        """How much of its influence is left to the hidden key."""
        return self.hidden / self.other if self.other else 1.0


def reaction(
    attend: Adapted,
    kind: str,
    sizes: Sizes,
    every_query: bool = True,
    errors: list[Failed] | None = None,
) -> Reaction | None:
    """Measure how the last queries react to key 0 and to key 1, with key 1 blocked,
    where a mask is taken.

    It is blocked for every query, or for the first one of the first sample. If a call fails, the
    result is None, and ``errors`` takes what it raises.
    """
    patient = Patient(attend, sizes, kind)
    hidden = torch.zeros(patient.b, patient.n, patient.m, dtype=torch.bool)
    (hidden if every_query else hidden[:1, :1])[..., 1] = True
    blocked = None if attend.masks == "none" else hidden
    with patient.admitted(), patient.dropping(0.0):
        inputs, other = patient.draw(1), patient.draw(11).map(lambda x: 3 * x)
        try:
            before = patient.ask(inputs, blocked)
            after = [patient.ask(inputs.replaced(other, slice(None), j), blocked) for j in (0, 1)]
        except Failed as error:
            if errors is not None:
                errors.append(error)
            return None
        gaps = [patient.gap(x[:, 2:], before[:, 2:]) for x in after]
        return Reaction(*(gap if gap > patient.tolerance else 0.0 for gap in gaps))


def masked(
    made: Callable[[str], Adapted],
    bare: Adapted,
    kind: str,
    sizes: Sizes,
    plan: Plan,
    words: list[str],
) -> Called:
    """Choose the form of a mask; ``bare`` is called without one.

    Raises:
        Unasked: no mask of the form that is said fits, or none that must be given.
    """
    said, how, name = MaskForm.read(" ".join(words)), str(plan), plan.mask
    alone: list[Failed] = []
    works = reaction(bare, kind, sizes, errors=alone) is not None
    needed = said.required or plan.needs_mask
    said = said._replace(required=needed or not works)
    spoken = next((x for x in MEANINGS if x in words), "") or meaning_of(plan.mask)
    errors: list[Failed] = []
    seen: dict[MaskForm, Reaction] = {}
    wide: dict[MaskForm, Reaction] = {}  # scores get more axes than they have
    for form in forms(said, words, spoken):
        if (found := reaction(made(str(form)), kind, sizes, errors=errors)) is None:
            continue
        tells = found.hides or (found.shows and spoken)  # a meaning that is said may be wrong
        gains = tells and axes(made(str(form)), kind, sizes) > max(4, axes(bare, kind, sizes))
        (wide if gains else seen)[form] = found
        if tells and not gains:
            break
    else:
        seen |= [*wide.items()][:1]
    if not seen:
        if alone and (not needed or len({*map(str, errors)}) == 1 < len(errors)):
            # the examination says what it raises, which is no matter of masks
            return Called(made("always") if needed else bare, how)
        return _without(bare, errors, bool(alone), plan, words)
    last, instead = [*seen][-1], ""
    if last.meaning == "additive" and not spoken and seen[last].hides:
        finite = reaction(made(str(last._replace(dtype="int"))), kind, sizes)
        doubted = last.shape == "bm" or finite is None or not finite.hides
        instead = plan.says or "allowed" * doubted
    form, hides = _chosen(seen, instead)
    if works and not needed and not hides and kind == "causal" and not words:
        return Called(bare, f"{how}; `{name}` is left out: it hides no key", left=name)
    how = ", ".join(filter(None, [how, f"{name}={form}"]))
    inferred = "" if spoken else _inferred(plan, form, hides, seen)
    told = hides or spoken or plan.says or not said.required
    return Called(made(str(form)), how, inferred, guessed="" if told else name)


def forms(said: MaskForm, words: list[str], spoken: str) -> Iterator[MaskForm]:
    """Give the forms that a mask may have, the likeliest first."""
    shapes = [said.shape] if any(map(is_shape, words)) else _SHAPES
    for shape, (meaning, dtype) in itertools.product(shapes, _READINGS):
        if spoken in ("", meaning):
            known = said.dtype if {"int", "float"} & {*words} else dtype
            yield said._replace(shape=shape, meaning=meaning, dtype=known)


def axes(attend: Adapted, kind: str, sizes: Sizes) -> int:
    """Count the axes of the scores, and of whatever else ends with the keys; 0 if unseen."""
    patient = Patient(attend, sizes, kind)
    blocked = torch.zeros(patient.b, patient.n, patient.m, dtype=torch.bool)
    with contextlib.suppress(Exception), patient.admitted():
        x = patient.draw(1)
        with Trace(query=x.query, key=x.key, value=x.value) as trace:
            patient.ask(x, None if attend.masks == "none" else blocked)
        return max(y.value.dim() for y in trace.steps if y.value.shape[-1:] == (patient.m,))
    return 0


def _chosen(seen: Mapping[MaskForm, Reaction], instead: str) -> tuple[MaskForm, bool]:
    """Choose a form, and tell whether it hides a key.

    Where none does, it is the one that leaves a key least, or the first. ``instead`` is the meaning
    that a mask has which only minus infinity makes hide, or of which the docstring says it; and
    padding that is added: hardly anybody has it as minus infinity.
    """
    last, reacts = [*seen.items()][-1]
    if reacts.hides or reacts.shows:
        usual = [x for x in seen if (x.shape, x.meaning) == (last.shape, instead)]
        return (usual[0], False) if usual else (last, True)
    first = next(iter(seen))
    least = min(seen, key=lambda form: seen[form].left)
    return (least if seen[least].left < _LESS * seen[first].left else first), False


def _inferred(plan: Plan, form: MaskForm, hides: bool, seen: Mapping[MaskForm, Reaction]) -> str:
    """Say how a mask is understood that nobody has explained."""
    what = f"{'1' if form.dtype != 'bool' else 'True'} = {form.meaning}"
    other = "blocked" if form.meaning == "allowed" else "allowed"
    if form.meaning == "additive":
        what = "added to the scores"
    why = "since neither you nor its name says so"
    guess = "inferred from one call" if hides else "guessed, as no call hides a key"
    if not hides and any(x.hides for x in seen.values()):  # as minus infinity, which is added
        guess, other = "guessed, though 0 and −∞ would hide", "additive"
        why = "as its docstring says" if plan.says else why
    switch = "" if any(x.hides for x in seen.values()) else "; if it only switches, `--mask none`"
    return (
        f"`{plan.mask}` is {form.shape}, {what}: {guess}, {why}. "
        f"If you mean the other, say `--mask {other}`{switch}"
    )


def _without(
    bare: Adapted, errors: list[Failed], never: bool, plan: Plan, words: list[str]
) -> Called:
    """Say what fails where no mask fits: every mask, or those that were tried.

    ``never`` says that it fails without one, too.
    """
    shapes = next(([x] for x in words if is_shape(x)), _SHAPES)
    slip = next((x for x in errors if isinstance(x.error, _SLIPS)), None)
    if not never and (slip or len(shapes) > 1):
        bare.mask_error = slip or max(errors, key=_line)
        return Called(bare, str(plan))
    text = f"no mask of {', '.join(shapes)} fits its {plan.mask}; the first raises {errors[0]}"
    remedy = "Say what it is, as in `--mask 'b1nm allowed'`; `--mask none` leaves it out."
    raise Unasked("call", text, remedy)


def _line(error: Failed) -> int:
    """Give the line that raised an error: the farthest says most."""
    place = None if error.error is None else raised_at(error.error)
    return 0 if place is None else place.line

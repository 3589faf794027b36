"""Find out which form of a mask an implementation takes: its axes, and what True means."""

import argparse
import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from attention_doctor import adapters, flow, hiding, situations
from attention_doctor.adapted import masks_of
from attention_doctor.influence import counts, exchanged, moves, reactions
from attention_doctor.inside import Inside
from attention_doctor.names import SHAPES, plain_name
from attention_doctor.patient import Failed, NotAsked, Patient

# The axes of each shape, and the adapter for it, which takes the number of heads as well.
_SHAPED: dict[str, tuple[str, Callable[[Any, int], Any]]] = {
    "bnm": ("(b, n, m)", lambda attend, heads: attend),
    "b1nm": ("(b, 1, n, m)", lambda attend, heads: adapters.for_each_head(attend)),
    "bhnm": ("(b * h, n, m)", adapters.folded),
    "nm": ("(n, m)", lambda attend, heads: adapters.for_all_samples(attend)),
    "bm": ("(b, m)", lambda attend, heads: adapters.for_all_queries(attend)),
    "b11m": ("(b, 1, 1, m)", lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask[:, None, None, 0], "padding")),
    "b1m": ("(b, 1, m)", lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask[:, :1], "padding")),
    "bm1": ("(b, m, 1)", lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask[:, :1].mT, "padding")),
    "b,h,n,m": ("(b, h, n, m)", lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask[:, None].expand(-1, heads, -1, -1))),
    "nmb": ("(n, m, b)", lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask.permute(1, 2, 0))),
    "nm1": ("(n, m, 1)", lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask[0, ..., None], "shared")),
}  # fmt: skip
_MEANT: dict[str, Callable[[Any], Any]] = {
    "blocked": lambda attend: attend,
    "allowed": adapters.allowed,
    "additive": adapters.additive,
}


def forms(
    adapted: Any, name: str, options: argparse.Namespace
) -> Iterator[tuple[tuple[str, str], Any]]:
    """Give the forms of a mask, shape by shape, and within a shape meaning by meaning."""
    given, h = options.mask_shape, options.num_heads
    shapes = list(SHAPES) if given == "auto" else [given]
    shapes += ["b,h,n,m"] if "bhnm" in shapes else []
    meanings = [options.mask]
    if options.mask == "auto":
        meanings = _meanings(name)
        if given == "auto" and meanings[0] == "additive":
            shapes = ["b1nm", *(x for x in shapes if x != "b1nm")]
    for shape in shapes:
        for fractional in (None, False, True):
            for meaning in meanings:
                form = adapted
                if fractional is not None:
                    if meaning == "additive":
                        continue
                    form = adapters.numbers(adapted, fractional)
                if meaning == "additive" and "attention_mask" in name:
                    form = adapters.additive(form, finite=True)
                else:
                    form = _MEANT[meaning](form)
                yield (shape, meaning), _SHAPED[shape][1](form, h)


@dataclass(frozen=True)
class Masked:
    """A mask that is taken.

    Attributes:
        attend: takes tensors and ``blocked``.
        hides: whether exactly the keys that are blocked have no influence.
        says: its axes, and what True means.
    """

    attend: Any
    hides: bool
    says: str


def masked(
    adapted: Any, name: str, options: argparse.Namespace, always: bool = False
) -> Masked | None:
    """Adapt the mask to the form that it takes; try what no option says. None: it takes none.

    Among the meanings of the first shape in which a mask changes anything, that which hides what is
    blocked counts.

    Args:
        adapted: takes tensors and the mask, as they are.
        name: the argument that takes the mask.
        options: what is said about masks, and the sizes.
        always: whether a mask has to be given.
    """
    without_effect: Masked | None = None
    for needed in (True,) if always else (False, True):
        given = forms(adapted, name, options)
        for _, shaped in itertools.groupby(given, key=lambda pair: pair[0][0]):
            works: dict[tuple[str, str], Any] = {}
            fits: dict[tuple[str, str], bool] = {}  # whether those hide what is blocked
            for form, candidate in shaped:
                padding = masks_of(candidate) == "padding"
                if options.kind == "causal" and padding and not candidate.own_future:
                    continue
                made = adapters.always_masked(candidate) if needed else candidate
                if not fits.get(form) and answers(made, options):
                    fits[form] = hides(made, options)
                    works[form] = made if fits[form] else works.get(form, made)
            if works:
                found = _meaning(works, [x for x in works if fits[x]], name, options)
                if found.hides or any(_acts(attend, options) for attend in works.values()):
                    return found
                without_effect = without_effect or found
        if without_effect is not None:
            break
    return without_effect


def _meaning(
    works: dict[tuple[str, str], Any],
    fits: list[tuple[str, str]],
    name: str,
    options: argparse.Namespace,
) -> Masked:
    """Choose among the meanings in which a mask of one shape is taken, and among those that fit."""
    fits.sort(key=lambda form: form[1] == "additive")  # added numbers may be truths, too
    chosen = (fits or [*works])[0]
    other = (chosen[0], "allowed")
    if not fits and other in works:
        one, turned = (_named(works[form], options) for form in (chosen, other))
        named = not one and turned and "mask-inverted" not in turned
        if named or "mask-inverted" in one:
            chosen = other  # what else is wrong does not turn its meaning
    says = f"`{name}` is {_SHAPED[chosen[0]][0]}, {_meant(chosen[1], name)}"
    return Masked(works[chosen], bool(fits), says)


def _meant(meaning: str, name: str) -> str:
    """Say which meaning was chosen, and why."""
    if meaning == "additive":
        return "added to the scores"
    if len(_meanings(name)) == 1:
        return f"True = {meaning}, as its name says"
    other = "allowed" if meaning == "blocked" else "blocked"
    return (
        f"True = {meaning}, by what it hides; its name fits either: `--mask {other}` asks for the "
        "other"
    )


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


def patient_of(attend: Any, kind: str, options: argparse.Namespace) -> Patient:
    """Return something that can be asked, of the sizes in the options."""
    e, h = options.embed_dim, options.num_heads
    return Patient(attend, e, h, kind, None, options.max_length, options.context_dim)


def bare(attend: Any, options: argparse.Namespace) -> Any:
    """Adapt what is called without a mask; kind ``"causal"`` is called so as it is."""
    return attend if options.kind == "causal" else adapters.without_mask(attend)


def error_of(attend: Any, options: argparse.Namespace) -> BaseException | None:
    """Return what a call without a mask raises; None if it is answered."""
    patient = patient_of(bare(attend, options), options.kind, options)
    with patient.admitted(as_it_is=True):
        try:
            patient.ask(patient.draw(1))
        except Failed as failure:
            return failure.error or failure
        except NotAsked as reason:
            return reason
    return None


@contextlib.contextmanager
def _asking(
    attend: Any, options: argparse.Namespace, kind: str, as_it_is: bool = False
) -> Iterator[Patient]:
    """Ask something; the block ends where a call fails."""
    patient = patient_of(attend, kind, options)
    with contextlib.suppress(Failed), patient.admitted(as_it_is):
        yield patient


def hides_something(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether some tokens do not see each other although there is no mask."""
    with _asking(attend, options, "causal") as patient:
        own = torch.arange(patient.b)
        return not counts(reactions(patient, patient.draw(1))["query"])[own, :, own].all()
    return False


def across_samples(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether tokens see those in their place in other samples, and none of their own."""
    with _asking(attend, options, options.kind) as patient:
        seen = counts(reactions(patient, patient.draw(1))["query"])  # (b, n, b, n)
        sample, place = (torch.eye(size, dtype=torch.bool) for size in seen.shape[:2])
        there = sample[:, None, :, None], place[None, :, None, :]
        own, across = ((x & ~y & seen).any() for x, y in (there, there[::-1]))
        return bool(across and not own)
    return False


def passes_through(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether all tokens but the first come out as they went in, and the first does not."""
    with _asking(bare(attend, options), options, options.kind) as patient:
        given = patient.draw(1).query
        output = patient.ask(patient.draw(1))
        others = patient.same(output[:, 1:], given[:, 1:])
        return others and not patient.same(output[:, 0], given[:, 0])
    return False


def plausible(attend: Any, options: argparse.Namespace, any_order: bool = False) -> bool:
    """Tell whether queries see several keys and get results of their own, so a layout may fit.

    With ``any_order``, it may not matter in which order all other tokens stand.
    """
    with _asking(bare(attend, options), options, options.kind) as patient:
        inputs = patient.draw(1)
        output, moved = patient.ask(inputs), moves(patient, inputs).amax(0)
        own = not patient.same(output, output[:, :1].expand_as(output))
        if patient.kind == "cross":  # and no other query's
            query = exchanged(inputs.query, 0, 3 * inputs.query[:, 1:2])
            other = patient.ask(replace(inputs, query=query))
            own &= patient.same(other[:, 1:], output[:, 1:])
        if any_order:
            turned = inputs.map(lambda x: torch.cat([x[:, :1], x[:, 1:].flip(1)], 1))
            own &= patient.same(patient.ask(turned)[:, 0], output[:, 0])
        return own and bool((moved > patient.tolerance).sum(-1).amax() > 1)
    return False


def _with_masks(options: argparse.Namespace) -> str:
    """Give the kind that is asked with masks: a causal one is one for self-attention."""
    return "self" if options.kind == "causal" else str(options.kind)


def answers(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether calls with and without such masks work, at sizes that do not fit by chance."""
    with _asking(attend, options, _with_masks(options), as_it_is=True) as patient:
        for case in situations.cases(patient):
            patient.ask(case.inputs, case.blocked)
        return True
    return False


def _named(attend: Any, options: argparse.Namespace) -> list[str]:
    """Give the mistakes that show in which scores are hidden."""
    with _asking(attend, options, _with_masks(options)) as patient:
        inside = Inside(patient)
        first = flow.heads_first(inside.watch(situations.free(patient), gradient=True))
        return [x.code for x in hiding.masks(patient, [*inside.masked()], first)]
    return []


def _acts(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether a mask changes anything."""
    with _asking(attend, options, _with_masks(options)) as patient:
        return any(
            not patient.same(patient.ask(x.inputs, x.blocked), patient.ask(x.inputs))
            for x in situations.masked(patient)
        )
    return True


def hides(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether exactly the keys that are blocked have no influence."""
    with _asking(attend, options, _with_masks(options)) as patient:
        for case in situations.masked(patient):
            assert case.blocked is not None
            moved = moves(patient, case.inputs, case.blocked)
            leaks = (moved > 100 * patient.tolerance) & case.blocked
            missing = (moved <= patient.tolerance) & ~case.blocked  # some weights are small
            if ((leaks | missing | moved.isnan()) & situations.judged(patient, case)).any():
                return False
        return True
    return False

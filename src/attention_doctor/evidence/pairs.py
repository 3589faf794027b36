"""Which token moves which result: with masks and without, under a causal mask, in hidden rows."""

import contextlib
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.evidence import situations
from attention_doctor.evidence.conditions import unfilled
from attention_doctor.evidence.influence import across, influence
from attention_doctor.evidence.situations import Situation

_SHORT = 3  # tokens, fewer than a window has


def free(patient: Patient) -> tuple[Tensor, Tensor]:
    """Measure without a mask which pairs have influence, and which have none, as ``influence``."""
    return influence(patient, patient.draw(1))


def needs_masks(patient: Patient) -> None:
    """Leave a measurement out where no mask can be given."""
    if not patient.own_future:
        situations.only_for(patient, "cross", "self")
    if patient.masks == "none":
        raise NotAsked("it takes no mask")


def failing_mask(patient: Patient) -> tuple[str, Failed] | None:
    """Give the first kind of mask that cannot be given, and the error."""
    if patient.mask_error:
        return "any mask", patient.mask_error
    needs_masks(patient)
    for case in situations.all_masked(patient):
        try:
            patient.ask(case.inputs, case.blocked)
        except NotAsked:
            continue  # not of this length
        except Failed as failure:
            return case.name, failure
    return None


@dataclass(frozen=True)
class Leak:
    """The first case in which a mask hides something else than it should."""

    case: Situation
    blocked: Tensor
    judged: Tensor  # pairs that say something
    seen: Tensor
    text: str  # the numbers
    finite: bool  # whether any row that is judged is
    moves: bool  # whether the mask changes anything
    mixed: int  # pairs of different samples
    hides_queries: bool  # whether it changes the padding's own results, and no others

    def is_mask(self, *masks: Tensor) -> bool:
        """Tell whether exactly what one of these hides has no influence."""
        return any(bool(((self.seen == ~mask) | ~self.judged).all()) for mask in masks)


def leak(patient: Patient) -> Leak | None:
    """Compare what has influence with what may have, with one mask behind the other."""
    needs_masks(patient)
    for case in situations.all_masked(patient):
        try:
            if (found := _leak(patient, case)) is not None:
                return found
        except (Failed, NotAsked):
            continue  # which ``failing_mask`` says
    return None


def _leak(patient: Patient, case: Situation) -> Leak | None:
    blocked = case.blocked
    assert blocked is not None
    seen, deaf = influence(patient, case.inputs, blocked)
    judged = situations.judged(patient, case)
    leaks, missing = seen & blocked & judged, deaf & ~blocked & judged
    if missing.any():  # what no mask brings back is not the mask's fault
        missing &= ~influence(patient, case.inputs)[1]
    if not leaks.any() and not missing.any():
        return None
    hidden, allowed = (int((x & judged).sum()) for x in (blocked, ~blocked))
    output, bare = patient.ask(case.inputs, blocked), patient.ask(case.inputs)
    padding = blocked[:, 0]
    on_queries = case.varies == "padding" and padding.shape == case.inputs.query.shape[:2]
    return Leak(
        case,
        blocked,
        judged,
        seen,
        text=f"with {case.name}, {int(leaks.sum())} of {hidden} blocked pairs have influence, "
        f"{int(missing.sum())} of {allowed} allowed ones have none",
        finite=bool(output[judged.any(-1)].isfinite().all(-1).any()),
        moves=not patient.same(output, bare),
        mixed=across(patient, case.inputs, blocked),
        hides_queries=on_queries and patient.same(output[~padding], bare[~padding]),
    )


@dataclass(frozen=True)
class Unseen:
    """What is not seen where nothing hides it: (b, n, m) twice, and (n, m)."""

    seen: Tensor
    deaf: Tensor
    may: Tensor  # what no causal mask hides
    causal: bool

    @property
    def itself(self) -> bool:
        """Whether a token does not see itself."""
        return bool(self.deaf.any(0).diagonal().any())

    @property
    def chosen(self) -> bool:
        """Whether other pairs are not seen in another sample."""
        return bool((self.deaf.any(0) & ~self.deaf.all(0)).any())

    @property
    def text(self) -> str:
        """The numbers."""
        return f"{int(self.deaf.any(0).sum())} of {int(self.may.sum())} pairs are not seen"


def unseen(patient: Patient) -> Unseen | None:
    """Measure which keys matter to no query; None where all matter, or no other token does."""
    (seen, deaf), causal = free(patient), patient.kind == "causal"
    may = torch.ones_like(seen[0])
    may = may.tril() if causal else may
    others = may & ~torch.eye(*may.shape, dtype=torch.bool)
    if not (deaf & may).any() or not (seen & others).any():
        return None
    return Unseen(seen, deaf & may, may, causal)


@dataclass(frozen=True)
class Future:
    """What tokens see of their future, (n, n)."""

    leaks: Tensor
    turned: bool  # whether all of it is seen, and nothing of the past
    inverted: bool  # nor a token itself; the last, to which all is hidden, may see everything

    @property
    def next_alone(self) -> bool:
        """Whether each token sees the one after it, and no later one."""
        return self.leaks.equal(torch.ones_like(self.leaks).triu(1).tril(1))

    @property
    def text(self) -> str:
        """How much is seen; "" for nothing."""
        count, most = int(self.leaks.sum()), int(torch.ones_like(self.leaks).triu(1).sum())
        among = f", among {len(self.leaks)} tokens" * (len(self.leaks) <= _SHORT)
        return f"{count} of {most} pairs with a later token react{among}" * bool(count)


def future(patient: Patient) -> Future:
    """Measure which pairs react under the causal mask; and in a short text, if none does."""
    situations.only_for(patient, "causal")
    found = _future(patient, patient.n)
    with contextlib.suppress(NotAsked):
        if not found.leaks.any():
            short = _future(patient, min(patient.n, patient.window or _SHORT, _SHORT))
            return short if short.leaks.any() else found
    return found


def _future(patient: Patient, n: int) -> Future:
    seen, deaf = influence(patient, patient.draw(1, n=n, m=n))
    if patient.given_masks:  # a token that the last one does not see may be padding
        seen = seen & seen[:, -1, :, None]
    seen, deaf = seen.any(0), deaf.any(0)
    leaks = seen.triu(1)
    if deaf.diagonal().any() and not leaks[1:].any():
        leaks[0] = False  # with nothing left to see, it sees everything alike
    future, past = (torch.ones_like(seen).triu(1), torch.ones_like(seen).tril(-1))
    turned = leaks.equal(future) and deaf.tril().equal(past)
    past[-2, -2] = True  # with one key alone, it does not matter who asks
    return Future(leaks, turned, leaks.equal(future) and deaf.tril()[:-1].equal(past[:-1]))


def brought_back(patient: Patient) -> Tensor:
    """Tell which pairs react as soon as padding is hidden, and not at all without a mask, (n, n).

    Where a window is said, the text is longer; a row in which padding hides all of it says nothing.
    """
    situations.only_for(patient, "causal")
    n = min(max(patient.n, patient.window + 3), patient.max_length)
    back = torch.zeros(n, n, dtype=torch.bool)
    for case in situations.masked(patient, n=n) if patient.masks == "padding" else ():
        unseen = influence(patient, case.inputs)[1]
        unseen &= patient.ask(case.inputs, case.blocked).isfinite().all(-1)[..., None]
        back |= (influence(patient, case.inputs, case.blocked)[0] & unseen).any(0)
    return back


def behind(patient: Patient) -> tuple[Tensor, Tensor]:
    """Tell what each token sees in a text longer than its window, and what it may, (n, n)."""
    situations.only_for(patient, "causal")
    n = patient.window + 3
    if n > patient.max_length:
        raise NotAsked(f"no text of {n} tokens fits")
    seen = influence(patient, patient.draw(1, n=n, m=n))[0].any(0).fill_diagonal_(True)
    return seen, torch.ones_like(seen).tril().triu(1 - patient.window)


@dataclass(frozen=True)
class Rows:
    """What happens where a row is fully masked, each as a text; "" where it does not."""

    spreads: str = ""
    nan: str = ""


def fully_masked(patient: Patient) -> Rows:
    """Measure which rows are NaN where some see nothing."""
    situations.only_for(patient, "cross", "self")
    needs_masks(patient)
    without = ""
    for case in situations.masked(patient):
        assert case.blocked is not None
        blocked, padding = case.blocked.clone(), case.varies == "padding"
        blocked[: 1 if padding else None, : None if padding else 1] = True
        rows = blocked.all(-1)  # (b, n)
        bad = ~patient.ask(case.inputs, blocked).isfinite().all(-1)
        if (others := bad & ~rows).any():
            said = f"{int(others.sum())} of {int((~rows).sum())} other rows, with {case.name}"
            return Rows(spreads=said)
        if bad.any() and not without:
            without = f"{int(bad.sum())} of {int(rows.sum())} such rows, with {case.name}"
    return Rows(nan=without)


def finite_once_all_is_hidden(patient: Patient) -> bool:
    """Tell whether results are finite with a mask that blocks every key."""
    if patient.masks == "none":
        return False
    x = patient.draw(0)
    everything = torch.ones(*x.query.shape[:2], x.key.size(1), dtype=torch.bool)
    return bool(patient.ask(x, everything).isfinite().all())


def row_without_keys(patient: Patient) -> str:
    """Say which token alone has no finite result, if it is the first, or the last."""
    bad = ~patient.ask(patient.draw(0)).isfinite().all(-1)
    if patient.kind == "causal" and not unfilled(patient):
        for name, place in {"first": 0, "last": patient.n - 1}.items():
            if torch.equal(bad, (torch.arange(patient.n) == place).expand_as(bad)):
                return f"{name} token alone gets NaN, in every sample"
    return ""

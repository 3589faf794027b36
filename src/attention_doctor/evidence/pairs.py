"""Which token moves which result: with masks and without, under a causal mask, in hidden rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.evidence import situations
from attention_doctor.evidence.influence import across, influence
from attention_doctor.evidence.situations import Situation


@dataclass(frozen=True)
class Pairs:
    """Of (b, n, m): pairs with an influence, and pairs with none at all."""

    seen: Tensor
    deaf: Tensor

    @property
    def text(self) -> str:
        """The number of those with none, in any sample."""
        deaf = self.deaf.any(0)
        return f"{int(deaf.sum())} of {deaf.numel()} pairs of a query and a key"


def free(patient: Patient) -> Pairs:
    """Measure without a mask."""
    return Pairs(*influence(patient, patient.draw(1)))


def needs_masks(patient: Patient) -> None:
    """Leave a measurement out where no mask can be given."""
    if not patient.own_future:
        situations.only_for(patient, "cross", "self")
    if patient.masks == "none":
        raise NotAsked("it takes no mask")


def failing_masks(patient: Patient) -> Mapping[str, Failed]:
    """Give the errors of calls with a mask, by their cases."""
    if patient.mask_error:
        return {"any mask": patient.mask_error}
    needs_masks(patient)
    failures = {}
    for case in situations.all_masked(patient):
        try:
            patient.ask(case.inputs, case.blocked)
        except NotAsked:
            continue  # not of this length
        except Failed as failure:
            failures[case.name] = failure
    return failures


@dataclass(frozen=True)
class Leak:
    """The first case in which a mask hides something else than it should."""

    case: Situation
    blocked: Tensor
    judged: Tensor  # pairs that say something
    seen: Tensor
    leaks: Tensor
    missing: Tensor
    finite: bool  # whether any row that is judged is
    moves: bool  # whether the mask changes anything
    mixed: int  # pairs of different samples
    hides_queries: bool  # whether it changes the padding's own results, and no others

    def is_mask(self, *masks: Tensor) -> bool:
        """Tell whether exactly what one of these hides has no influence."""
        return any(bool(((self.seen == ~mask) | ~self.judged).all()) for mask in masks)

    @property
    def is_square(self) -> bool:
        """Whether there are as many queries as keys."""
        return self.blocked.size(1) == self.blocked.size(2)

    @property
    def text(self) -> str:
        """The numbers."""
        blocked, allowed = self.blocked & self.judged, ~self.blocked & self.judged
        return (
            f"with {self.case.name}, {int(self.leaks.sum())} of {int(blocked.sum())} blocked pairs "
            f"have influence, {int(self.missing.sum())} of {int(allowed.sum())} allowed ones "
            "have none"
        )


def leak(patient: Patient) -> Leak | None:
    """Compare what has influence with what may have, with one mask behind the other."""
    needs_masks(patient)
    for case in situations.all_masked(patient):
        try:
            if (found := _leak(patient, case)) is not None:
                return found
        except (Failed, NotAsked):
            continue  # which ``failing_masks`` says
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
    output, bare = patient.ask(case.inputs, blocked), patient.ask(case.inputs)
    padding = blocked[:, 0]
    on_queries = case.varies == "padding" and padding.shape == case.inputs.query.shape[:2]
    return Leak(
        case=case,
        blocked=blocked,
        judged=judged,
        seen=seen,
        leaks=leaks,
        missing=missing,
        finite=bool(output[judged.any(-1)].isfinite().all(-1).any()),
        moves=not patient.same(output, bare),
        mixed=across(patient, case.inputs, blocked),
        hides_queries=on_queries and patient.same(output[~padding], bare[~padding]),
    )


def read_in_the_wrong_order(blocked: Tensor, h: int) -> Iterator[Tensor]:
    """Give what is hidden from all heads of a sample where each may have another sample's mask."""
    b = len(blocked)
    sample, head = torch.arange(b)[:, None], torch.arange(h)
    for whose in ((sample * h + head) % b, (head * b + sample) // h):
        hidden = blocked[whose].all(1)
        if not torch.equal(hidden, blocked):
            yield hidden


def visible(patient: Patient) -> Pairs | None:
    """Measure which keys matter to no query; None where all matter, or no other token does."""
    situations.only_for(patient, "cross", "self")
    found = free(patient)
    seen = found.seen.any(0)
    others = ~torch.eye(*seen.shape, dtype=torch.bool)
    return found if found.deaf.any() and (seen & others).any() else None


@dataclass(frozen=True)
class Order:
    """What tokens see under a causal mask, (n, n); ``ahead`` and ``others`` are what they may not
    and what they may, but for themselves."""

    every: Pairs
    leaks: Tensor
    behind: Tensor  # not seen, though it may be
    ahead: Tensor
    others: Tensor

    @property
    def is_turned(self) -> bool:
        """Whether all of the future is seen, and nothing of the past."""
        return self.leaks.equal(self.ahead) and self.behind.equal(self.others)

    @property
    def next_alone(self) -> bool:
        """Whether each token sees the one after it, and no later one."""
        return torch.equal(self.leaks, self.ahead & ~self.ahead.roll(1, 1).triu(2))

    @property
    def misses(self) -> bool:
        """Whether something is not seen; where nothing else is, it is no matter of masks."""
        return bool(self.behind.any()) and not self.behind.equal(self.others)


def future(patient: Patient) -> Order:
    """Measure which pairs react under the causal mask."""
    situations.only_for(patient, "causal")
    every = free(patient)
    n = patient.n
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
    leaks, behind = (every.seen & ahead).any(0), (every.deaf & ~ahead).any(0)
    if behind.diagonal().any() and not leaks[1:].any():
        leaks[0] = False  # with nothing left to see, it sees everything alike
    return Order(every, leaks, behind, ahead, torch.ones(n, n, dtype=torch.bool).tril(-1))


def brought_back(patient: Patient) -> Tensor:
    """Tell which pairs react as soon as padding is hidden, and not at all without a mask, (n, n).

    Where a window is said, the text is longer.
    """
    situations.only_for(patient, "causal")
    n = min(max(patient.n, patient.window + 3), patient.max_length)
    back = torch.zeros(n, n, dtype=torch.bool)
    for case in situations.masked(patient, n=n) if patient.masks == "padding" else ():
        unseen = influence(patient, case.inputs)[1]
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
    """Say which token alone has no finite result, "first" or "last"; "" if it is another case."""
    finite = patient.ask(patient.draw(0)).isfinite().all(-1)
    if patient.kind == "causal" and not unfilled(patient):
        for name, place in {"first": 0, "last": patient.n - 1}.items():
            if torch.equal(~finite, (torch.arange(patient.n) == place).expand_as(finite)):
                return name
    return ""


def unfilled(patient: Patient) -> tuple[str, ...]:
    """Name the parameters that are NaN, infinite or huge."""
    return tuple(
        name for name, x in patient.named.items() if not x.isfinite().all() or x.abs().max() > 1e6
    )

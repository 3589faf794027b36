"""Between tokens and the rows of queries, keys and values; between rows of the mix and the output.

A token is replaced, and the rows that move are seen; a row of the mix is moved during the call, and
the results that move are seen. So tokens that are mixed before the attention, behind it or beside
it show, whatever mixes them: a convolution, a shift, a reshape.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attention_doctor.call.inputs import Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.trace import Step, Trace
from attention_doctor.evidence.looks import in_sight
from attention_doctor.evidence.sight import Seen, attentions

MOVED = 1e-9  # in float64; a number that is copied does not move at all


@dataclass(frozen=True)
class Inner:
    """What moves what in some head, each a boolean tensor."""

    query: Tensor  # [row, token]
    key: Tensor
    value: Tensor
    behind: Tensor  # [output, row of the mix]
    beside: Tensor  # [output, token], past the attention

    def seen(self, visible: Tensor) -> Tensor:
        """Predict which token moves which output where these rows are mixed, (b, n, m)."""

        def through(pairs: Tensor, rows: Tensor) -> Tensor:
            return (pairs.double() @ rows.double()) > 0

        chooses = visible.sum(-1, keepdim=True) > 1  # one key alone has weight 1, whoever asks
        asked = (self.query & chooses) | through(visible & chooses, self.key)
        return through(self.behind, asked | through(visible, self.value)) | self.beside

    @property
    def rows_are_tokens(self) -> bool:
        """Whether each row is made from its own token, and each result from its own rows."""
        rows = [self.key, self.value, self.behind]
        rows += [self.query] if self.query.any() else []  # no key moves a query in another text
        return all(x.equal(torch.eye(*x.shape, dtype=torch.bool)) for x in rows)

    @property
    def near(self) -> set[int]:
        """How far away the tokens are that move a row, or a result; the same for all rows.

        It is empty where they are not.
        """
        found: set[int] = set()
        for x in (self.query, self.key, self.value, self.behind, self.beside):
            if (distances := by_distance(x)) is None:
                return set()
            found |= distances
        return found


def by_distance(moved: Tensor) -> set[int] | None:
    """Give how far away the tokens are that move a row; None where rows differ in that."""
    found = {d for d in range(1 - len(moved), len(moved)) if moved.diagonal(d).any()}
    alike = len(moved) == moved.size(1) and all(moved.diagonal(d).all() for d in found)
    return found if alike else None


class _Nudged(Trace):
    """Traces a call in which the result of one step is changed as soon as it is there."""

    def __init__(self, x: Inputs, at: int, change: Callable[[Tensor], Any]) -> None:
        self.at, self.change = at, change
        super().__init__(query=x.query, key=x.key, value=x.value)

    def _enter(self, step: Step) -> None:
        if len(self.steps) == self.at:
            self.change(step.tensor)
        super()._enter(step)


@in_sight()
def inner(patient: Patient) -> Inner:
    """Measure without a mask.

    Raises:
        NotAsked: not just one attention is seen, or it is not clear which axis is which.
    """
    x = patient.draw(1)
    steps, output = _watched(patient, x)
    found = [*attentions(steps)]
    if len(found) != 1:
        raise NotAsked(f"{len(found)} attentions are seen, and not one")
    first, place = found[0], steps.index(found[0].steps["mix"])
    b, n, m = *x.query.shape[:2], x.key.size(1)
    rows, mixed, other = _rows(first, n, m), first.steps["mix"].value, patient.draw(11, b, n, m)
    moved, beside = [], []
    for j in range(m):
        changed = x.replaced(other, slice(None), j)
        seen, *_ = attentions(_watched(patient, changed)[0])
        moved.append([_far(*both) for both in zip(rows, _rows(seen, n, m), strict=True)])
        pinned = _watched(patient, changed, place, lambda y: y.copy_(mixed))[1]
        beside.append(_far(output, pinned))
    behind = [_far(output, _watched(patient, x, place, _nudge(first, row))[1]) for row in range(n)]
    query, key, value = (torch.stack(columns, -1) for columns in zip(*moved, strict=True))
    return Inner(query, key, value, torch.stack(behind, -1), torch.stack(beside, -1))


def _rows(seen: Seen, n: int, m: int) -> list[Tensor]:
    """Give queries, keys and values, each (..., rows, features)."""
    found = [*seen.rows.values()]
    if [x.size(-2) for x in found[:2]] != [n, m] or len(found) < 3:
        raise NotAsked("axes are not clear, or there are other rows than tokens")
    return found


def _nudge(seen: Seen, row: int) -> Callable[[Tensor], Any]:
    """Move a row of the mix, in all heads."""
    axis, features = seen.mixed.kept, seen.value.kept
    assert axis is not None
    assert features is not None

    def change(y: Tensor) -> None:
        y.movedim((axis, features), (-2, -1))[..., row, :] += torch.arange(y.size(features))

    return change


def _far(old: Tensor, new: Tensor) -> Tensor:
    """Tell which rows differ in some sample and head."""
    moved = (old - new).abs().amax(-1) > MOVED
    return moved.flatten(0, -2).any(0)


def _watched(
    patient: Patient, x: Inputs, at: int = -1, change: Callable[[Tensor], Any] = id
) -> tuple[list[Step], Tensor]:
    with _Nudged(x, at, change) as trace:
        output = patient.ask(x)
    return trace.steps, output

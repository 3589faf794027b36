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
from attention_doctor.evidence.looks import in_sight
from attention_doctor.evidence.sight import Seen, attentions
from attention_doctor.evidence.trace import Step, Trace

_MOVED = 1e-9  # in float64; a number that is copied does not move at all


@dataclass(frozen=True)
class Inner:
    """What moves what, each a boolean tensor."""

    query: Tensor  # [head, row, token]
    key: Tensor
    value: Tensor
    behind: Tensor  # [head, row of the mix, output]
    beside: Tensor  # [output, token], past the attention

    def seen(self, visible: Tensor) -> Tensor:
        """Predict which token moves which output where these rows are mixed, (b, n, m)."""
        chooses = visible.sum(-1, keepdim=True) > 1  # one key alone has weight 1, whoever asks
        weighed = torch.einsum("bnr,hrj->bhnj", (visible & chooses).double(), self.key.double()) > 0
        mixed = torch.einsum("bnr,hrj->bhnj", visible.double(), self.value.double()) > 0
        asked = mixed | weighed | (self.query & chooses[:, None])
        return (
            torch.einsum("bhrj,hri->bij", asked.double(), self.behind.double()).gt(0) | self.beside
        )

    @property
    def rows_are_tokens(self) -> bool:
        """Whether each row is made from its own token, and each result from its own rows."""
        rows = (*self.key, *self.value, *self.behind)
        rows += (*self.query,) if self.query.any() else ()  # no key moves a query in another text
        return all(torch.equal(x, torch.eye(*x.shape, dtype=torch.bool)) for x in rows)

    @property
    def near(self) -> set[int]:
        """How far away the tokens are that move a row, or a result; the same for all rows.

        It is empty where they are not.
        """
        found: set[int] = set()
        for x in (*self.query, *self.key, *self.value, *self.behind.mT, self.beside):
            if len(x) != x.size(1):
                return set()
            mine = {d for d in range(1 - len(x), len(x)) if x.diagonal(d).any()}
            if any(not x.diagonal(d).all() for d in mine):
                return set()
            found |= mine
        return found


class _Nudged(Trace):
    """Traces a call in which the result of one step is changed as soon as it is there."""

    def __init__(self, x: Inputs, at: int, change: Callable[[Tensor], Any]) -> None:
        self.at, self.change = at, change
        super().__init__(query=x.query, key=x.key, value=x.value)

    def _enter(self, step: Step) -> None:
        if len(self.steps) == self.at:
            self.change(step.tensor)
        super()._enter(step)


def inner(patient: Patient) -> Inner:
    """Measure at the usual sizes, without a mask."""
    return at_size(patient, patient.draw(1))


def square(patient: Patient) -> Inner:
    """Measure with as many keys, queries and samples as the square masks have."""
    size = min(3, patient.max_length)
    return at_size(patient, patient.draw(1, size, size, size))


@in_sight()
def at_size(patient: Patient, x: Inputs) -> Inner:
    """Measure with these inputs.

    Raises:
        NotAsked: not just one attention is seen, or it is not clear which axis is which.
    """
    steps, output = _watched(patient, x)
    found = [*attentions(steps)]
    if len(found) != 1:
        raise NotAsked(f"{len(found)} attentions are seen, and not one")
    place = steps.index(found[0].steps["mix"])
    before, b, n, m = _rows(found[0], patient, x), *x.query.shape[:2], x.key.size(1)
    h, other = max(len(y[0]) for y in before), patient.draw(11, b, n, m)
    moved = [torch.zeros(h, y.size(2), m, dtype=torch.bool) for y in before]
    beside = torch.zeros(n, m, dtype=torch.bool)
    mixed = found[0].steps["mix"].value
    for j in range(m):
        changed = x.replaced(other, slice(None), j)
        seen = next(iter(attentions(_watched(patient, changed)[0])), None)
        if seen is None:
            raise NotAsked("with another token, no attention is seen")
        for rows, old, new in zip(moved, before, _rows(seen, patient, changed), strict=True):
            rows[:, :, j] = _far(old, new).any(0)
        pinned = _watched(patient, changed, place, lambda y: y.copy_(mixed))[1]
        beside[:, j] = _far(pinned, output).any(0)
    query, key, value = moved
    behind = _behind(patient, x, found[0], place, output, h)
    return Inner(query, key, value, behind, beside)


def _far(old: Tensor, new: Tensor) -> Tensor:
    return (old - new).abs().amax(-1) > _MOVED


def _watched(
    patient: Patient, x: Inputs, at: int = -1, change: Callable[[Tensor], Any] = id
) -> tuple[list[Step], Tensor]:
    with _Nudged(x, at, change) as trace:
        output = patient.ask(x)
    return trace.steps, output


def _rows(seen: Seen, patient: Patient, x: Inputs) -> list[Tensor]:
    """Give queries, keys and values, each (b, h, rows, features)."""
    b, rows = len(x.query), [*seen.rows.values()]
    if len(rows) < 3:
        raise NotAsked("axes of queries, keys or values are not clear")
    if any(y.shape[:-2].numel() % b for y in rows):
        raise NotAsked("samples are not in front of the heads")
    found = [y.reshape(b, -1, *y.shape[-2:]) for y in rows]
    if (found[0].size(2), found[1].size(2)) != (x.query.size(1), x.key.size(1)):
        raise NotAsked("there are other rows than tokens")
    return found


def _behind(patient: Patient, x: Inputs, seen: Seen, place: int, output: Tensor, h: int) -> Tensor:
    """Move each row of the mix, and see which results move."""
    b, n = x.query.shape[:2]
    axis, features = seen.mixed.kept, seen.value.kept
    if axis is None or features is None:
        raise NotAsked("axes of the mix are not clear")
    behind = torch.zeros(h, n, n, dtype=torch.bool)
    for head in range(h):
        for row in range(n):

            def change(y: Tensor, head: int = head, row: int = row) -> None:
                rows = y.movedim((axis, features), (-2, -1))  # a view: what is written stays
                every = torch.zeros(rows.shape[:-2].numel(), dtype=torch.bool)
                every.view(b, -1)[:, head] = True
                rows[every.view(rows.shape[:-2])] += torch.arange(n).eq(row)[:, None].to(rows)

            behind[head, row] = _far(_watched(patient, x, place, change)[1], output).any(0)
    return behind

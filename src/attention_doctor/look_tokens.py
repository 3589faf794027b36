"""Follow tokens into the heads and out of them: gradients say which number belongs to which."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attention_doctor.compare_parameters import role_of
from attention_doctor.influence import each
from attention_doctor.look_attention import Look, Seen, split
from attention_doctor.look_scores import seen_inside
from attention_doctor.look_steps import before, is_projection
from attention_doctor.look_trace import Step, tensors
from attention_doctor.patient import Patient
from attention_doctor.report import Finding


@dataclass(frozen=True)
class Origin:
    """Which tokens the numbers of a tensor belong to.

    Attributes:
        place: for each number, the place of its token; −1 where it belongs to none.
        sample: for each number, the sample of its token.
        several: for each number, whether it belongs to more than one token.
    """

    place: Tensor
    sample: Tensor
    several: Tensor

    @property
    def clear(self) -> bool:
        """Whether each number belongs to one token."""
        return not (self.several.any() or (self.place < 0).any())

    def rows(self, x: Tensor) -> Tensor | None:
        """Put numbers by their tokens, (n, b, ...); None if tokens have not as many."""
        own, b = self.place >= 0, 1 + int(self.sample.max())
        token = (self.place * b + self.sample)[own]
        sizes = token.bincount()
        if self.several.any() or not own.any() or (sizes != sizes[0]).any():
            return None
        return x[own][token.argsort(stable=True)].view(-1, b, int(sizes[0]))


def _origin(rows: Tensor, source: Tensor, leaf: Tensor) -> Origin:
    """Tell which rows, (b, n, e), depend on which numbers of what they are made from."""
    weights = torch.randn(rows.shape[2:], generator=torch.Generator().manual_seed(19)).to(rows)
    token = torch.full_like(source, -1, dtype=torch.long)
    count = torch.zeros_like(token)
    for i, (grad,) in enumerate(each((rows * weights).sum(-1).flatten(), [source])):
        if grad is not None:
            token[grad != 0] = i
            count += grad != 0
    n = leaf.size(1)
    return Origin((token % n).masked_fill(token < 0, -1), token // n, count > 1)


def made_from(made: Step, leaf: Tensor) -> Origin | None:
    """Tell which token each number of a result is made from; None if gradients do not say it."""
    try:
        probe = torch.ones_like(made.tensor, requires_grad=True)
        (way_back,) = torch.autograd.grad(made.tensor, leaf, probe, create_graph=True)
        return _origin(way_back, probe, leaf)
    except Exception:  # no graph, or none for a second derivative
        return None


def _taken_by(mix: Step, output: Tensor) -> Origin | None:
    """Tell which token of the output takes each number of a result."""
    try:
        return _origin(output, mix.tensor, output)
    except Exception:  # no graph, or what the way back needs was written over
        return None


def heads(look: Look | None) -> Iterator[Finding]:
    """Find rows of heads, and of what they are merged into, that are made of other tokens."""
    if look is None:
        return
    seen, last, leaves = look.found[0], look.found[-1], look.leaves
    parts = {
        "query": (seen.query.step, seen.query.own, leaves.query),
        "key": (seen.key.step, seen.key.own, leaves.key),
        "value": (seen.value.step, seen.value.summed, leaves.value),
    }
    origins = {name: made_from(step, leaf) for name, (step, _, leaf) in parts.items()}
    splits = {
        name: mixed
        for name, (_, axis, leaf) in parts.items()
        if (mixed := _mixed(origins[name], axis, leaf.size(1)))
    }
    name, mixed = next(iter(splits.items()), ("", ""))
    taken, n = _taken_by(last.mix.step, look.output), look.output.size(1)
    merge = _mixed(taken, last.mixed.kept, n, origins["query"])
    both = "split-and-merge-without-transpose" if mixed == merge == "tokens" else ""
    of_splits = {"tokens": "split-without-transpose", "samples": "batch-mixed-into-sequence"}
    of_merges = {"tokens": "merge-without-transpose", "samples": "heads-of-other-samples"}
    if mixed:
        step = split(parts[name][0])
        place = None if step is None else step.where
        symptom = f"what stands in a {name}'s place in a head is made of others"
        evidence = "by the gradients of the split tokens"
        yield seen_inside(both or of_splits[mixed], symptom, evidence, place)
    if merge and not both:
        symptom = "a row of the merged heads is made of others"
        evidence = "by the gradients of the output with respect to the heads"
        yield seen_inside(of_merges[merge], symptom, evidence, last.where("merge", "mix"))


def _mixed(origin: Origin | None, axis: int | None, n: int, before: Origin | None = None) -> str:
    """Say what is out of its place in a tensor, if an axis of it counts all tokens of a sample.

    Returns:
        ``"samples"``, also where they stand in another order than before; ``"tokens"``; or "",
        also where the axis counts those of windows, or of padding.
    """
    if origin is None or not origin.clear or axis is None or origin.place.size(axis) != n:
        return ""
    axes = range(-origin.sample.dim(), 0)
    samples = _order(origin.sample, axes)
    were = samples if before is None or not before.clear else _order(before.sample, axes)
    alike = were is None or len(were) == len(samples or ())
    if samples is None or samples != (were if alike else sorted(samples)):
        return "samples"
    return "tokens" if _order(origin.place, [axis]) is None else ""


def _order(labels: Tensor, axes: Sequence[int]) -> list[int] | None:
    """Give labels along the one of these axes along which they change; None if there is none."""
    for axis in axes:
        last = labels.movedim(axis, -1)
        row = last.flatten(0, -2)[0]
        if (last == row).all():
            return row.tolist()
    return None


def placed_values(look: Look | None) -> str:
    """Tell whether values of equal tokens differ by their places: "added" or "turned"; "" if not.

    What is added is the same in all samples; what turns a token leaves its products with the tokens
    of other samples in the same place.
    """
    rows = None if look is None else _rows(look.found[0].value.step, look.leaves.value)
    if rows is None or rows.size(1) < 2 or _is_even(rows, 0):
        return ""
    if _is_even(rows - rows[:1], 1):
        return "added"
    return "turned" if _is_even(rows @ rows.mT, 0) else ""


def turned(look: Look | None) -> Iterator[Finding]:
    """Find queries or keys that positions inside turn alone, or both in different ways.

    What turns a token leaves its products with the tokens of other samples in the same place.
    """
    if look is None:
        return
    seen, leaves = look.found[0], look.leaves
    if placed_values(look) == "turned":
        evidence = "values of equal tokens differ by a turn"
        symptom = "equal tokens have different values"
        yield seen_inside("values-rotated", symptom, evidence, seen.where("mix"))
    queries, keys = _rows(seen.query.step, leaves.query), _rows(seen.key.step, leaves.key)
    if queries is None or keys is None:
        return
    still = [_is_even(x, 0) for x in (queries, keys)]
    if all(still) or not all(_is_even(x @ x.mT, 0) for x in (queries, keys)):
        return
    if any(still):
        one, other = ("keys", "queries") if still[0] else ("queries", "keys")
        symptom = f"positions turn the {one} alone"
        evidence = f"with equal tokens, {one} differ by a turn, and {other} are the same"
        found = seen_inside("rotates-one-side", symptom, evidence, seen.where("product"))
        yield replace(found, cause=f"the {other} are not rotated")
    elif queries.shape == keys.shape and not _is_even((queries * keys).sum(-1), 0):
        symptom = "the score of a token with itself depends on where it stands"
        evidence = "with equal tokens, queries and keys are turned, and not by the same angles"
        yield seen_inside("positions-not-relative", symptom, evidence, seen.where("product"))


def _rows(made: Step, leaf: Tensor) -> Tensor | None:
    """Put the numbers of a result by the tokens that they are made from, (n, b, ...)."""
    origin = made_from(made, leaf)
    return None if origin is None else origin.rows(made.value)


def _is_even(x: Tensor, axis: int) -> bool:
    """Tell whether the numbers are the same all along an axis."""
    return torch.allclose(x, x.narrow(axis, 0, 1).expand_as(x), atol=1e-6)


def projected(patient: Patient, look: Look | None) -> bool:
    """Tell whether keys and values are made along the tokens' axis, by a parameter."""
    if look is None or patient.module is None:
        return False
    seen, shapes = look.found[0], [x.shape for x in patient.module.parameters()]
    made = [made_from(x.step, look.leaves.key) for x in (seen.key, seen.value)]
    of_several = all(x is not None and x.several.all() for x in made)
    return of_several and any(seen.scores.size(seen.axis) in shape for shape in shapes)


def swapped(patient: Patient, found: Sequence[Seen]) -> Iterator[Finding]:
    """Find what is made by parameters that are named after something else."""
    named = () if patient.module is None else patient.module.named_parameters()
    roles = {x.data_ptr(): role_of(name) for name, x in named}
    if not {"q", "k", "v"} <= {*roles.values()}:
        return  # what is shared by design has no parameters of its own

    def role(made: Step) -> str:
        projections = [step for step in before(made) if is_projection(step)]
        taken = [x for step in projections for x in tensors([step.arguments, step.options])]
        own = {id(x.tensor) for step in projections for x in step.parents}
        names = {roles.get(x.data_ptr(), "") for x in taken if id(x) not in own}
        return names.pop() if len(names) == 1 else ""

    for seen in found:
        query, key, value = made_by = [role(x.step) for x in (seen.query, seen.key, seen.value)]
        code = {"q": "keys-from-queries", "v": "keys-and-values-swapped"}.get(key, "")
        code = code or ("values-from-keys" if value == "k" else "")
        if sorted(made_by) == ["k", "q", "v"] and query != "q":
            code = "chunks-in-the-wrong-order"
        if code:
            symptom = "queries, keys and values are made by projections that are named after "
            yield seen_inside(code, symptom + ", ".join(x or "nothing" for x in made_by), "", None)
            return

"""What order, samples and equal values change: properties of attention, whatever its weights."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attention_doctor.call.inputs import Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.evidence import pairs, situations
from attention_doctor.evidence.influence import across, moves
from attention_doctor.evidence.parameters import role_of
from attention_doctor.evidence.situations import Situation

_MUCH = 0.02
_SMALL = 1e-3  # what a number beside a denominator may take, so that nothing is divided by zero


@dataclass(frozen=True)
class Gap:
    """By how much results are not what they should be, in the first case where they are not."""

    case: Situation
    size: float
    pairs: int = 0  # of tokens from different samples

    @property
    def text(self) -> str:
        """The numbers."""
        more = f", and {self.pairs} pairs of tokens from different samples react" * bool(self.pairs)
        return f"with {self.case.name}, results differ by {self.size:.0%} of their size{more}"


def moved(patient: Patient) -> Gap | None:
    """Move queries, and keys together with values: by how much results do not move with them."""
    situations.only_for(patient, "cross", "self")
    source = torch.Generator().manual_seed(10)
    queries, keys = (torch.randperm(size, generator=source) for size in (patient.n, patient.m))
    keys = queries if patient.kind == "self" else keys
    for case in situations.cases(patient):
        x, blocked = case.inputs, case.blocked
        moved = Inputs(x.query[:, queries], x.key[:, keys], x.value[:, keys])
        if patient.kind == "self":
            moved = x.map(lambda tokens: tokens[:, queries])
        turned = None if blocked is None else blocked[:, queries][..., keys]
        gap = patient.gap(patient.ask(moved, turned), patient.ask(x, blocked)[:, queries])
        if gap > patient.tolerance:
            return Gap(case, gap)
    return None


def has_positions(patient: Patient) -> bool:
    """Tell whether order counts but for equal tokens, and in cross-attention that of queries."""
    if patient.kind != "self":
        x = patient.draw(1)
        moved = Inputs(x.query.flip(1), x.key, x.value)
        fixed = patient.same(patient.ask(moved).flip(1), patient.ask(x))
        if fixed or pairs.free(patient)[1].any():  # what hides some keys is no position
            return False
    output = patient.ask(patient.draw(12).map(lambda tokens: tokens[:, :1].expand_as(tokens)))
    return patient.same(output, output[:, :1].expand_as(output))


def samples_apart(patient: Patient) -> Gap | None:
    """Measure by how much samples of a batch influence each other."""
    for case in situations.cases(patient):
        x, blocked = case.inputs, case.blocked
        mixed = across(patient, x, blocked)
        one = x.map(lambda tokens: tokens[:1])
        single = patient.ask(one, None if blocked is None else blocked[:1])
        gap = patient.gap(patient.ask(x, blocked)[:1], single)
        if mixed or gap > patient.tolerance:
            return Gap(case, gap, mixed)
    return None


def samples_for_tokens(patient: Patient) -> str:
    """Say that a token moves its own place in all samples, and nothing else."""
    if patient.kind == "cross":
        return ""
    moved = moves(patient, patient.draw(1)) > patient.tolerance  # [sample, query, sample, token]
    same = torch.eye(patient.n, dtype=torch.bool)[None, :, None].expand_as(moved)
    return "a token moves its own place in all of them" * torch.equal(moved, same)


def equal_values(patient: Patient) -> Gap | None:
    """Measure by how much the result of equal values is not that of a single key."""

    def flat(length: int, seed: int) -> Inputs:
        one, other = patient.draw(12, n=1, m=1), patient.draw(seed, m=length)
        many = one.map(lambda x: x.expand(-1, length, -1))
        if many.query is many.key:
            return many
        query = one.query.expand(-1, patient.n, -1)
        return Inputs(query, many.value if patient.memory else other.key, many.value)

    short = patient.ask(flat(1, 13))[:, :1]
    for case in situations.cases(patient):
        blocked = case.blocked
        inputs = flat(patient.m if blocked is None else case.inputs.key.size(1), 14)
        output = patient.ask(inputs, blocked)
        expected = short.expand_as(output)
        if blocked is not None and patient.kind == "self" and case.varies == "padding":
            tokens = ~blocked[:, 0]  # what padding gets is nobody's concern
            output, expected = output[tokens], expected[tokens]
        gap = patient.gap(output, expected)
        if gap > max(patient.tolerance, _SMALL):
            return Gap(case, gap)
    return None


def unequal_keys(patient: Patient) -> str:
    """Say by how much equal values count otherwise for the last token with another first one.

    The values are what their projection returns. Results must be linear in them, which those of
    queries or keys are not.
    """
    layers = patient.needed_module().named_modules()
    roles = [(x, role_of(name)) for name, x in layers if isinstance(x, nn.Linear)]
    made = [(x, len(role)) for x, role in roles if role in ("v", "kv", "qkv")]
    if len(made) != 1 or patient.called_as == "cross":
        raise NotAsked("not one layer is known to make the values")
    ((layer, count),) = made
    one, far = patient.draw(1), patient.draw(11).map(lambda x: 3 * x)

    def added(inputs: Inputs, size: float = 1.0) -> Tensor:
        """Give what equal values of this size add to the results."""

        def given(size: float) -> Tensor:
            def change(_: nn.Module, __: object, y: Tensor) -> None:
                y.chunk(count, -1)[-1][:] = size * torch.arange(y.size(-1) // count).to(y).cos()

            with layer.register_forward_hook(change):
                return patient.ask(inputs)

        return given(size) - given(0.0)

    usual, twice, other = added(one), added(one, 2.0), added(one.replaced(far, slice(None), 0))
    if not usual.any() or patient.gap(twice, 2 * usual) > _SMALL:
        raise NotAsked("results are no linear function of the values")
    moved, size = (x[:, -1].abs().amax(-1) for x in (other - usual, usual))
    gap = (moved / size).nan_to_num(0.0).min().item()  # a query may score no key at all
    said = f"with equal values, another first token changes the last result by {gap:.0%}"
    return said * (gap > _MUCH)

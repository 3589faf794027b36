"""What the projections tell when some of their numbers are taken away.

Which heads share a key and a value shows in which rows move which head; what goes past the heads
shows when nothing comes out of them.
"""

import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attention_doctor.influence import number
from attention_doctor.parameters import output_projection, projection_rows
from attention_doctor.patient import NotAsked, Patient
from attention_doctor.report import CONVENTION, WRONG, Finding

# The names in checkpoints of grouped heads, which all repeat each key for neighbouring heads.
_CHECKPOINT = r"(^|.*\.)([kv]_proj|w[kv]|in_proj)([._]weight)?"


def groups(patient: Patient) -> Iterator[Finding]:
    """Heads that share a key and a value are neighbours."""
    module = patient.needed_module()
    h, d = patient.num_heads, patient.embed_dim // patient.num_heads
    found = {name: _groups(blocks, h) for name, blocks in _moved(patient, module, d).items()}
    orders = {name: {_order(heads, h) for heads in shared} for name, shared in found.items()}
    if "" in set().union(*orders.values()):
        raise NotAsked("which heads share keys and values cannot be told apart")
    tiled = next((name for name, order in orders.items() if "tiled" in order), "")
    if tiled:
        heads = next(x for x in found[tiled] if _order(x, h) == "tiled")
        mixed = len(set().union(*orders.values())) > 1
        yield Finding(
            "groups-tiled",
            WRONG if mixed or re.fullmatch(_CHECKPOINT, tiled) else CONVENTION,
            "keys and values are repeated for different heads"
            if mixed
            else "the heads that share a key and a value are not neighbours",
            f"{tiled}: heads {' and '.join(map(str, heads))} share the first of "
            f"{h // len(heads)}, counted from 0",
        )


def _order(heads: list[int], h: int) -> str:
    """Say in which order a key is repeated for these heads; "" if in none."""
    first, size = heads[0], len(heads)
    if heads == [*range(first, first + size)]:
        return "neighbours"
    return "tiled" if heads == [*range(first, h, h // size)] else ""


def _groups(moved: Tensor, h: int) -> list[list[int]]:
    """Give the heads that each block of rows moves, where it moves some but not one or all.

    Args:
        moved: (h, blocks), whether a block of rows moves a head.
        h: the number of heads.
    """
    count = moved.sum(0)
    some = moved[:, (count > 1) & (count < h)]
    found = [block.nonzero().flatten().tolist() for block in some.mT]
    sizes = {len(heads) for heads in found}
    whole = len(sizes) == 1 and not h % next(iter(sizes))
    return found if whole else []


def _moved(patient: Patient, module: nn.Module, d: int) -> dict[str, Tensor]:
    """Find which rows of the projections of keys and values move which head's output.

    Returns:
        By name, (h, blocks): whether a block of d rows has influence on what a head gives.
    """
    rows = {
        name: (x, axis)
        for role, kinds in {"k": 1, "v": 1, "kv": 2, "qkv": 3}.items()
        for name, (x, axis) in projection_rows(module, role, d).items()
        if x.size(axis) < kinds * patient.num_heads * d  # else every head has rows of its own
    }
    if not rows:
        return {}
    last = output_projection(module, patient.embed_dim)
    inputs = patient.draw(1)
    found: dict[str, list[Tensor]] = {name: [] for name in rows}
    with patient.converted(patient.dtype):
        weight = None if last is None else last[0].detach().clone()
        for head in range(patient.num_heads):
            part = slice(head * d, head * d + d)
            if last is not None and weight is not None:
                kept = torch.zeros_like(weight)
                kept.narrow(last[1], head * d, d).copy_(weight.narrow(last[1], head * d, d))
                last[0].data = kept
            output = patient.ask(inputs, gradient=True)
            if not output.requires_grad:
                return {}
            chosen = output[..., part] if last is None else output
            for x, _ in rows.values():
                x.grad = None
            patient.differentiate(number(chosen))
            for name, (x, axis) in rows.items():
                grad = torch.zeros_like(x) if x.grad is None else x.grad
                blocks = grad.movedim(axis, 0).unflatten(0, (-1, d)).flatten(1)
                found[name].append((blocks != 0).any(1))
    return {name: torch.stack(moved) for name, moved in found.items()}


def residual(patient: Patient) -> Iterator[Finding]:
    """The output holds what the heads give; an input that is added to it is reported."""
    last = output_projection(patient.needed_module(), patient.embed_dim)
    if last is None:
        raise NotAsked("no output projection is found")
    inputs = patient.draw(1)
    with patient.converted(patient.dtype):
        last[0].data = torch.zeros_like(last[0].data)
        output = patient.ask(inputs)
    rest = output - inputs.query
    if patient.same(rest, rest[:1, :1].expand_as(rest)):
        yield Finding(
            "residual-inside",
            CONVENTION,
            "the input is added to the output",
            "with an output projection of zeros, the output is the input",
            "the residual connection stands inside; a block around it must not add another",
        )

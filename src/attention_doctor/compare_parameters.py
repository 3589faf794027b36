"""Find the projections of an unknown module by the names and shapes of its parameters."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

_ROLES = {
    "qkv": r"qkv|c_attn|in_proj|query_key_value|w?pack|to_qkv",
    "kv": r"kv|key_value",
    "q": r"q|wq|q_?w|quer(y|ie|ies)",
    "k": r"k|wk|k_?w|keys?",
    "v": r"v|wv|v_?w|values?",
    "o": r"o|wo|o_?w|out|output|out_?put|c|fc|dense|final|unify_?heads|merge|proj|concat",
}
_BEFORE = r"^(to_*|(w|b|lin|linear|proj|fc|attn|self|heads?)_+)"
_BEHIND = r"_*(s|projs?|projections?|lin|linears?|layer|net|weights?|w|bias|b)$"
Pair = tuple[Tensor, Tensor]  # a weight, and its bias


@dataclass(frozen=True)
class Projections:
    """The four matrices, each (e, e) as in ``nn.Linear``, and their biases.

    Attributes:
        weights: W_Q, W_K, W_V and W_O.
        biases: the biases of these projections; zeros for a missing bias.
        how: where the projections were found.
        code: the code of the mistake that this order would be; "" for the usual order.
        packed: whether one packed matrix, of no known name, was recognised by its shape.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    how: str
    code: str = ""
    packed: bool = False


@dataclass(frozen=True)
class _Matrix:
    """A parameter; ``linear`` if it is laid out (out, in), as in ``nn.Linear``.

    A matrix of no known layer is taken to stand on the right of a product, ``x @ w``.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    linear: bool

    def bias_of(self, size: int) -> Tensor:
        """Give the bias; zeros where there is none."""
        return self.weight.new_zeros(size) if self.bias is None else self.bias.reshape(-1)


Groups = dict[str, list[_Matrix]]  # matrices by their role


def unregistered(module: nn.Module) -> dict[str, Tensor]:
    """Find parameters in lists, dictionaries and attributes where a module does not look."""
    known = {id(x) for x in module.parameters()}
    registered = ("_parameters", "_buffers", "_modules")
    waiting = [
        (f"{path}.{name}".lstrip("."), value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if name not in registered
    ]
    lost: dict[str, Tensor] = {}
    for name, value in waiting:  # which grows
        inside: Any = value
        if isinstance(value, nn.Module):
            inside = dict(value.named_parameters())
        elif isinstance(value, list | tuple):
            inside = dict(enumerate(value))
        if isinstance(inside, dict):
            waiting += [(f"{name}.{key}", x) for key, x in inside.items()]
        elif isinstance(value, Tensor) and value.is_leaf and value.requires_grad:
            lost |= {} if id(value) in known else {name: value}
    return lost


def unused_rows(module: nn.Module) -> dict[str, list[int]]:
    """Find rows of projections that get no gradient, in those that get one at all.

    Returns:
        By the name of the parameter: the rows, columns or heads, counted from 0.
    """
    rows: dict[str, list[int]] = {}
    for name, x in (dict(module.named_parameters()) | unregistered(module)).items():
        if x.grad is None or not x.grad.any() or x.dim() < 2 or role_of(name) in ("", "o"):
            continue
        for axis in range(x.dim()):
            dead = (x.grad.movedim(axis, 0).flatten(1) == 0).all(1)
            if dead.any():
                rows[name] = dead.nonzero().flatten().tolist()
    return rows


def of_role(module: nn.Module, role: str) -> dict[str, tuple[Tensor, int]]:
    """Find the matrices of a role, by name: each parameter, and the axis of its outputs."""
    named = dict(module.named_parameters())
    return {
        matrix.name: (named[matrix.name], 0 if matrix.linear else 1)
        for matrix in _matrices(module)
        if matrix.weight.dim() == 2 and matrix.name in named and role_of(matrix.name) == role
    }


def _matrices(module: nn.Module) -> Iterator[_Matrix]:
    """Give every parameter with two axes or three, with the bias that belongs to it."""
    named = {**dict(module.named_parameters()), **unregistered(module)}
    owners = {f"{path}.weight".lstrip("."): part for path, part in module.named_modules()}
    for name, x in named.items():
        if x.dim() not in (2, 3):
            continue
        linear = bool(re.search(r"_proj_weight$|\.weight$", name))
        linear &= type(owners.get(name)).__name__ != "Conv1D"
        bias = named.get(re.sub(r"weight(?!.*weight)", "bias", name)) if "weight" in name else None
        yield _Matrix(name, x.detach(), None if bias is None else bias.detach(), linear)


def role_of(name: str) -> str:
    """Say which projection the name of a parameter means; "" if it does not say."""
    parts = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", part).lower() for part in name.split(".")]
    parts = [part for part in parts if not part.isdigit() and part not in ("weight", "bias")]
    for part in reversed(parts):
        bare = part
        for _ in range(3):
            for role, pattern in _ROLES.items():
                if re.fullmatch(pattern, bare):
                    return role
            bare = re.sub(_BEHIND, "", re.sub(_BEFORE, "", bare))
    return ""


def find(module: nn.Module, embed_dim: int, num_heads: int) -> Iterator[Projections]:
    """Give readings of the module's parameters as projections, the likeliest first."""
    groups: Groups = {}
    for matrix in _matrices(module):
        groups.setdefault(role_of(matrix.name), []).append(matrix)
    yield from _packed(groups, embed_dim, num_heads)
    yield from _separate(groups, embed_dim, num_heads)


def _packed(groups: Groups, e: int, h: int) -> Iterator[Projections]:
    """Read one matrix as all three projections, in PyTorch's order and in others."""
    every = [x for group in groups.values() for x in group]
    packed = [x for x in every if {*x.weight.shape} == {e, 3 * e} and x.weight.dim() == 2]
    if len(packed) != 1:
        return
    (matrix,) = packed
    weight = matrix.weight if len(matrix.weight) == 3 * e else matrix.weight.mT
    bias = matrix.bias_of(3 * e)
    out = _out(groups.get("o", []) or [x for x in every if x is not matrix], e)
    if bias.numel() != 3 * e or out is None:
        return
    rows = torch.arange(3 * e)
    for by_head, order in itertools.product((False, True), itertools.permutations(range(3))):
        blocks = rows.view(h, 3, -1).transpose(0, 1) if by_head else rows.view(3, h, -1)
        names = ", ".join("QKV"[order.index(i)] for i in range(3))
        code = "" if order == (0, 1, 2) else "chunks-in-the-wrong-order"
        chosen = [blocks[i].flatten() for i in order]
        yield Projections(
            weights=(*(weight[x] for x in chosen), out[0]),
            biases=(*(bias[x] for x in chosen), out[1]),
            how=f"{matrix.name}, {'packed head by head' if by_head else f'as {names}'}",
            code="interleaved-per-head" if by_head else code,
            packed="in_proj_weight" not in matrix.name,
        )


def _separate(groups: Groups, e: int, h: int) -> Iterator[Projections]:
    """Read a matrix, or one for each head, as each projection."""
    groups = dict(groups)
    if "kv" in groups and "k" not in groups:
        groups["k"], groups["v"] = ([_half(x, e, i) for x in groups["kv"]] for i in range(2))
    if not all(groups.get(role) for role in "qkv"):
        return
    outs = groups.get("o", [])
    pairs = [*(_join(groups[role], e, h) for role in "qkv"), _out(outs, e)]
    found = [pair for pair in pairs if pair is not None]
    if len(found) < len(pairs):
        return
    weights, biases = zip(*found, strict=True)
    names = ", ".join([*(groups[role][0].name for role in "qkv"),
                       *(x.name for x in _fitting(outs, e)[-1:])])  # fmt: skip
    usual = Projections(weights, biases, f"{names}, by their names")
    yield usual
    for order in itertools.permutations(range(3)):
        if order != (0, 1, 2):
            code = "keys-and-values-swapped" if order == (0, 2, 1) else "chunks-in-the-wrong-order"
            yield replace(
                usual,
                weights=(*(weights[i] for i in order), weights[3]),
                biases=(*(biases[i] for i in order), biases[3]),
                how=f"{names}, used as {', '.join('QKV'[i] for i in order)}",
                code=code,
            )


def _half(matrix: _Matrix, e: int, i: int) -> _Matrix:
    axis = 1 if not matrix.linear or matrix.weight.size(-1) != e else 0
    bias = None if matrix.bias is None else matrix.bias.chunk(2)[i]
    return replace(matrix, weight=matrix.weight.chunk(2, axis)[i], bias=bias)


def _join(group: list[_Matrix], e: int, h: int) -> Pair | None:
    """Make one (e, e) matrix of what belongs to one role."""
    weights = []
    for matrix in group:
        weight = matrix.weight if matrix.linear else matrix.weight.mT
        weights.append(weight.flatten(0, 1) if weight.dim() == 3 else weight)  # one for each head
    if len({weight.size(-1) for weight in weights}) != 1:
        return None  # not all of them are projections
    biases = [x.bias_of(len(weight)) for x, weight in zip(group, weights, strict=True)]
    weight, bias, d = torch.cat(weights), torch.cat(biases), e // h
    if weight.shape == (d, d) and h > 1:  # one small projection of every head's own slice
        weight, bias = torch.block_diag(*[weight] * h), bias.repeat(h)
    if weight.size(1) != e or len(weight) % d or len(bias) != len(weight) or e % len(weight):
        return None
    shared, repeats = weight.unflatten(0, (-1, d)), e // len(weight)  # heads that share keys
    return (
        shared.repeat_interleave(repeats, 0).flatten(0, 1),
        bias.unflatten(0, (-1, d)).repeat_interleave(repeats, 0).flatten(),
    )


def _out(group: list[_Matrix], e: int) -> Pair | None:
    """Take the output projection; the identity where there is none."""
    fits = _fitting(group, e)
    if not fits:
        like = group[0].weight if group else torch.zeros(0)
        eye = torch.eye(e, dtype=like.dtype, device=like.device)
        return eye, eye.new_zeros(e)
    matrix = fits[-1]
    weight = matrix.weight
    if weight.dim() == 3:  # one for each head
        weight = weight.flatten(0, 1).mT if weight.size(-1) == e else weight.flatten(1)
    elif not matrix.linear:
        weight = weight.mT
    bias = matrix.bias_of(e)
    return (weight, bias) if bias.numel() == e else None


def _fitting(group: list[_Matrix], e: int) -> list[_Matrix]:
    """Choose what has the numbers and an axis of an (e, e) matrix."""
    return [
        x for x in group if x.weight.numel() == e * e and e in (x.weight.size(-1), len(x.weight))
    ]

"""Find the projections of an unknown module by the names and shapes of its parameters."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
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
Matrices = dict[str, list[tuple[str, Tensor]]]  # by their role: names, and (out, in + 1)


@dataclass(frozen=True)
class Projections:
    """The four projections, each (e, e + 1): as in ``nn.Linear``, with the bias as last column."""

    matrices: tuple[Tensor, ...]  # of queries, keys, values and the output
    how: str  # where they were found
    code: str = ""  # of the mistake that this order would be; "" for the usual order
    packed: bool = False  # one packed matrix, of no known name, was recognised by its shape


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


def _matrices(module: nn.Module, e: int) -> Matrices:
    """Give every parameter with two axes, or three for heads, with the bias that belongs to it.

    A weight is laid out (out, in), as in ``nn.Linear``; what has another name stands on the right
    of a product, ``x @ w``, and so does that of a ``Conv1D``.
    """
    named = {**dict(module.named_parameters()), **unregistered(module)}
    turned = {path for path, part in module.named_modules() if type(part).__name__ == "Conv1D"}
    found: Matrices = {}
    for name, x in named.items():
        if x.dim() == 3:  # one for each head, and of the output one that ends with e
            weight = x.flatten(0, 1).mT if x.size(-1) == e else x.mT.flatten(0, 1)
        elif x.dim() == 2:
            linear = bool(re.search(r"_proj_weight$|\.weight$", name))
            linear &= name.removesuffix(".weight") not in turned
            weight = x if linear or len(x) != e else x.mT
        else:
            continue
        bias = named.get(re.sub(r"weight(?!.*weight)", "bias", name)) if "weight" in name else None
        fits = bias is not None and bias.shape == weight.shape[:1]
        bias = bias if fits and bias is not None else weight.new_zeros(len(weight))
        matrix = torch.cat([weight, bias[:, None]], 1).detach()
        found.setdefault(role_of(name), []).append((name, matrix))
    return found


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
    found = _matrices(module, embed_dim)
    yield from _packed(found, embed_dim, num_heads)
    yield from _separate(found, embed_dim, num_heads)


def _packed(found: Matrices, e: int, h: int) -> Iterator[Projections]:
    """Read one matrix as all three projections, in PyTorch's order and in others."""
    every = [x for group in found.values() for x in group]
    packed = [x for x in every if x[1].shape == (3 * e, e + 1)]
    if len(packed) != 1:
        return
    ((name, matrix),) = packed
    _, out = _out(found.get("o", []) or every, e, matrix)
    for by_head, order in itertools.product((False, True), itertools.permutations(range(3))):
        blocks = matrix.unflatten(0, (h, 3, -1) if by_head else (3, h, -1))
        blocks = blocks.movedim(1, 0) if by_head else blocks
        names = ", ".join("QKV"[order.index(i)] for i in range(3))
        code = "" if order == (0, 1, 2) else "chunks-in-the-wrong-order"
        yield Projections(
            matrices=(*(blocks[i].flatten(0, 1) for i in order), out),
            how=f"{name}, {'packed head by head' if by_head else f'as {names}'}",
            code="interleaved-per-head" if by_head else code,
            packed="in_proj_weight" not in name,
        )


def _separate(found: Matrices, e: int, h: int) -> Iterator[Projections]:
    """Read a matrix, or one for each head, as each projection."""
    found = dict(found)
    if "kv" in found and "k" not in found:
        halves = [[(name, half) for half in x.chunk(2)] for name, x in found["kv"]]
        found["k"], found["v"] = ([*each] for each in zip(*halves, strict=True))
    joined = [_join([x for _, x in found.get(role, [])], e, h) for role in "qkv"]
    qkv = [x for x in joined if x is not None]
    if len(qkv) < 3:
        return
    name, out = _out(found.get("o", []), e, qkv[0])
    names = ", ".join([*(found[role][0][0] for role in "qkv"), *([name] if name else [])])
    yield Projections((*qkv, out), f"{names}, by their names")


def _join(group: list[Tensor], e: int, h: int) -> Tensor | None:
    """Make one matrix, (e, e + 1), of what belongs to one role."""
    d = e // h
    if len({x.size(1) for x in group}) != 1:
        return None  # not all of them are projections
    matrix = torch.cat(group)
    if matrix.shape == (d, d + 1) and h > 1:  # one small projection of every head's own slice
        weight, bias = torch.block_diag(*[matrix[:, :-1]] * h), matrix[:, -1:].repeat(h, 1)
        matrix = torch.cat([weight, bias], 1)
    if matrix.size(1) != e + 1 or len(matrix) % d or e % len(matrix):
        return None
    shared = matrix.unflatten(0, (-1, d))  # heads may share keys
    return shared.repeat_interleave(e // len(matrix), 0).flatten(0, 1)


def _out(group: list[tuple[str, Tensor]], e: int, like: Tensor) -> tuple[str, Tensor]:
    """Take the output projection, and its name; the identity where there is none."""
    fitting = [x for x in group if x[1].shape == (e, e + 1)]
    return fitting[-1] if fitting else ("", torch.eye(e, e + 1).to(like))

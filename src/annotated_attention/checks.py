"""Checks of arguments, made once, where a call enters the package.

Every message names the argument, what was given and what fits. Only shapes, dtypes, devices and
settings are looked at, never values: that would break ``torch.compile``, export and ``vmap``.
"""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def check_settings(
    sizes: dict[str, int], dropout: float = 0.0, dtype: torch.dtype | None = None
) -> None:
    """Refuse settings from which no module can be built.

    Of the sizes, by name, the first must be divisible by the second: a width by the number of
    heads, or the heads of the queries by those of the keys.
    """
    check_sizes(sizes)
    (whole, size), (parts, count), *_ = sizes.items()
    if size % count:
        raise ValueError(f"{whole} ({size}) must be divisible by {parts} ({count})")
    check_dropout(dropout)
    check_dtype(dtype)


def check_sizes(sizes: dict[str, int], least: int = 1) -> None:
    """Refuse sizes, given by name, that are not integers or too small."""
    for name, size in sizes.items():
        if not isinstance(size, Integral) or isinstance(size, bool):  # NumPy's are integers, too
            raise TypeError(f"{name} ({size!r}) must be an integer")
        if size < least:
            raise ValueError(f"{name} ({size}) must be at least {least}")


def check_dropout(dropout: float, name: str = "dropout") -> None:
    """Refuse a probability that is not a number or outside [0, 1]."""
    check_number(name, dropout)
    if not 0 <= dropout <= 1:
        raise ValueError(f"{name} ({dropout}) must be between 0 and 1")


def check_number(name: str, given: Any, above: float | None = None) -> None:
    """Refuse what is not a number, or not above a bound; a truth value is no number."""
    if not isinstance(given, Real) or isinstance(given, bool):
        raise TypeError(f"{name} ({given!r}) must be a number")
    if above is not None and not float(given) > above:
        raise ValueError(f"{name} ({given}) must be above {above}")


def check_dtype(dtype: torch.dtype | None) -> None:
    """Refuse a dtype that is not floating point; None means torch's default."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype ({dtype!r}) must be a floating-point dtype")


def check_tensors(**given: object) -> None:
    """Refuse what is not a tensor."""
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")


def check_integers(*, indices: bool = False, **given: Tensor) -> None:
    """Refuse what is not a tensor of integers, or of those that PyTorch takes for indices."""
    check_tensors(**given)
    for name, x in given.items():
        if indices and x.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"{name} must be int64 or int32, got {x.dtype}")
        if x.dtype == torch.bool or x.is_floating_point() or x.is_complex():
            raise TypeError(f"{name} must hold integers, got {x.dtype}")


def check_nothing_appended(add_bias_kv: bool, add_zero_attn: bool) -> None:
    """Refuse appended keys, for an attention in which every key has a position."""
    for name, given in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
        if given:
            raise ValueError(f"{name} must be False: an appended key has no position")


def check_sequences(
    given: dict[str, Tensor],
    widths: Sequence[int],
    batch_first: bool,
    parameter: Tensor | None = None,
) -> None:
    """Refuse sequences that do not fit the module, or do not belong to one batch.

    They have three axes, or two without a batch. Where ``key`` and ``value`` are among them, these
    must be equally long. A parameter of the module says which dtype and device fit.
    """
    for name, x in given.items():
        _check_tensor(name, x, parameter)
    names = " and ".join(given)
    axes = {x.dim() for x in given.values()}
    if axes not in ({2}, {3}):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in given.items())
        raise ValueError(f"{names} must have three axes, or two without a batch, got {shapes}")
    for (name, x), width in zip(given.items(), widths, strict=True):
        if x.size(-1) != width:
            raise ValueError(f"{name}'s width ({x.size(-1)}) must be {width}")
    batch = 0 if batch_first else 1
    sizes = [x.size(batch) for x in given.values()]
    if axes == {3} and any(size != sizes[0] for size in sizes):
        raise ValueError(
            f"{names} must have the same batch size, got {', '.join(map(str, sizes))} on "
            f"axis {batch}, which is the batch with batch_first={batch_first}"
        )
    if "value" in given:
        _check_lengths(given["key"], given["value"], 0 if axes == {2} else 1 - batch)


def _check_lengths(key: Tensor, value: Tensor, axis: int) -> None:
    """Refuse values that are not as many as the keys."""
    if key.size(axis) != value.size(axis):
        raise ValueError(
            f"value's length ({value.size(axis)}) must equal key's length ({key.size(axis)})"
        )


def _check_tensor(
    name: str, x: Tensor, like: Tensor | None, whose: str = "the parameters'"
) -> None:
    """Refuse a value that cannot be multiplied with ``like``, if that is given."""
    check_tensors(**{name: x})
    if x.is_nested:
        raise TypeError(
            f"{name} must be a dense tensor, got a nested one; inside torch.nn.TransformerEncoder, "
            f"set use_nested_tensor = False"
        )
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {x.dtype}")
    if like is None:
        return
    _check_device(name, x, like, whose)
    # Autocast brings dtypes together; PyTorch refuses to say whether it does on meta tensors.
    autocasts = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    if x.dtype != like.dtype and not autocasts:
        raise TypeError(f"{name} ({x.dtype}) must have {whose} dtype ({like.dtype})")


def _check_device(name: str, x: Tensor, like: Tensor, whose: str = "query's") -> None:
    """Refuse what is on another device than ``like``."""
    if x.device != like.device:
        raise ValueError(f"{name} must be on {whose} device ({like.device}), got {x.device}")


def check_masks(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    query: Tensor,
    key: Tensor,
    num_heads: int,
    batch_first: bool,
    part: str | None = None,
) -> None:
    """Refuse masks that do not fit the query and the key, which fit each other.

    The masks are those of ``torch.nn.MultiheadAttention``; in a layer, which has some for each
    ``part`` of its call, their names begin with it.
    """
    names = ("attn_mask", "key_padding_mask")
    if part is not None:
        names = (f"{part}_mask", f"{part}_key_padding_mask")
    h, length = num_heads, -2 if batch_first or query.dim() == 2 else 0
    n, m = query.size(length), key.size(length)
    attention = {"(n, m)": (n, m), "(h, n, m)": (h, n, m)}
    padding: dict[str, tuple[int, ...]] = {"(m,)": (m,)}
    if query.dim() == 3:
        b = query.size(0 if batch_first else 1)
        attention = {"(n, m)": (n, m), "(b * h, n, m)": (b * h, n, m)}
        padding = {"(b, m)": (b, m)}
    masks = (attn_mask, key_padding_mask)
    for name, mask, shapes in zip(names, masks, (attention, padding), strict=True):
        if mask is None:
            continue
        check_tensors(**{name: mask})
        if mask.dtype != torch.bool and not mask.is_floating_point():
            raise TypeError(
                f"{name} must be boolean (True = blocked) or floating point (added), "
                f"got {mask.dtype}"
            )
        if tuple(mask.shape) not in list(shapes.values()):
            fits = " or ".join(f"{letters} = {shape}" for letters, shape in shapes.items())
            raise ValueError(f"{name} {tuple(mask.shape)} must have shape {fits}")
        _check_device(name, mask, query)


def check_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocked: Tensor | None,
    bias: Tensor | None,
    dropout_p: float,
) -> torch.Size:
    """Refuse arguments of ``scaled_dot_product_attention``; give its leading axes if they fit."""
    given = {"query": query, "key": key, "value": value}
    for name, x in given.items():
        _check_tensor(name, x, None if x is query else query, "query's")
        if x.dim() < 2:
            raise ValueError(f"{name} must have at least two axes, got shape {tuple(x.shape)}")
    check_sizes({"query's width": query.size(-1)})
    if key.size(-1) != query.size(-1):
        raise ValueError(
            f"key's width ({key.size(-1)}) must equal query's width ({query.size(-1)})"
        )
    _check_lengths(key, value, -2)
    check_dropout(dropout_p, "dropout_p")
    masks = {name: x for name, x in (("blocked", blocked), ("bias", bias)) if x is not None}
    check_tensors(**masks)
    if blocked is not None and blocked.dtype != torch.bool:
        raise TypeError(f"blocked must be boolean, got {blocked.dtype}; floats go in bias")
    if bias is not None and bias.dtype != query.dtype:
        raise TypeError(f"bias ({bias.dtype}) must have query's dtype ({query.dtype})")
    leading = [x[..., :0, :0] for x in given.values()]
    try:  # torch.broadcast_shapes imports sympy first, which nobody should wait for
        of_scores = torch.broadcast_tensors(*leading[:2])[0].shape[:-2]
        batch = torch.broadcast_tensors(*leading)[0].shape[:-2]
    except RuntimeError:
        raise ValueError(
            f"the leading axes of query {tuple(query.shape)}, key {tuple(key.shape)} and value "
            f"{tuple(value.shape)} must broadcast"
        ) from None
    fits = (*of_scores, query.size(-2), key.size(-2))
    for name, mask in masks.items():
        _check_device(name, mask, query)
        if not expands(mask.shape, fits):
            raise ValueError(f"{name} {tuple(mask.shape)} must broadcast to (..., n, m) = {fits}")
    return batch


def check_attended(attended: Any, q: Tensor) -> tuple[Tensor, Tensor | None]:
    """Give what ``attend``, which can be overridden, made of ``q``, (b, h, n, d), or refuse it."""
    if not isinstance(attended, (tuple, list)) or len(attended) != 2:
        raise TypeError(
            f"attend must return two things, the heads' outputs and the weights or None, "
            f"got {type(attended).__name__}"
        )
    heads, weights = attended
    if heads.shape[:-1] != q.shape[:-1]:
        raise ValueError(
            f"attend must return (b, h, n, ...), with (b, h, n) = {tuple(q.shape[:-1])}, "
            f"got {tuple(heads.shape)}"
        )
    return heads, weights


def expands(shape: torch.Size, target: tuple[int, ...]) -> bool:
    """Tell whether a tensor of ``shape`` can be expanded to ``target``."""
    if len(shape) > len(target):
        return False
    ends = zip(shape, target[len(target) - len(shape) :], strict=True)
    return all(have in (1, want) for have, want in ends)

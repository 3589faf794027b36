"""Checks of arguments, with messages that name the argument.

Every message names the argument, what was given and what fits. Only shapes, dtypes, devices and
settings are looked at, never values: that would break ``torch.compile``, export and ``vmap``.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Shapes = dict[str, tuple[int, ...]]  # by the letters in which they are written


def check_settings(sizes: dict[str, int], dropout: float, dtype: torch.dtype | None) -> None:
    """Refuse settings from which no module can be built.

    Args:
        sizes: by name; the first is the width of the model, the second the number of heads.
        dropout: probability of zeroing a weight.
        dtype: Dtype of the parameters; None means torch's default.

    Raises:
        TypeError: a size is not an integer, ``dropout`` is not a number, or ``dtype`` is not
            floating point.
        ValueError: a size is below 1, the first is not divisible by the second, or ``dropout``
            lies outside [0, 1].

    Examples:
        >>> from annotated_attention.checks import check_settings
        >>> check_settings({"embed_dim": 10, "num_heads": 4}, dropout=0.1, dtype=None)
        Traceback (most recent call last):
            ...
        ValueError: embed_dim (10) must be divisible by num_heads (4)
    """
    check_sizes(sizes)
    (width, e), (heads, h), *_ = sizes.items()
    if e % h:
        raise ValueError(f"{width} ({e}) must be divisible by {heads} ({h})")
    check_dropout(dropout)
    check_dtype(dtype)


def check_sizes(sizes: dict[str, int]) -> None:
    """Refuse sizes, given by name, that are not integers (TypeError) or below 1 (ValueError).

    Examples:
        >>> from annotated_attention.checks import check_sizes
        >>> check_sizes({"src_vocab": 11, "tgt_vocab": 0})
        Traceback (most recent call last):
            ...
        ValueError: tgt_vocab (0) must be at least 1
    """
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"{name} ({size!r}) must be an integer")
        if size < 1:
            raise ValueError(f"{name} ({size}) must be at least 1")


def check_dropout(dropout: float) -> None:
    """Refuse a probability that is not a number (TypeError) or outside [0, 1] (ValueError).

    Examples:
        >>> from annotated_attention.checks import check_dropout
        >>> check_dropout(1.5)
        Traceback (most recent call last):
            ...
        ValueError: dropout (1.5) must be between 0 and 1
    """
    if not isinstance(dropout, int | float) or isinstance(dropout, bool):
        raise TypeError(f"dropout ({dropout!r}) must be a number")
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout ({dropout}) must be between 0 and 1")


def check_dtype(dtype: torch.dtype | None) -> None:
    """Refuse a dtype that is not floating point (TypeError); None means torch's default.

    Examples:
        >>> import torch
        >>> from annotated_attention.checks import check_dtype
        >>> check_dtype(torch.int64)
        Traceback (most recent call last):
            ...
        TypeError: dtype (torch.int64) must be a floating-point dtype
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype ({dtype!r}) must be a floating-point dtype")


def check_tensors(**given: object) -> None:
    """Refuse what is not a tensor (TypeError).

    Examples:
        >>> import torch
        >>> from annotated_attention.checks import check_tensors
        >>> check_tensors(x=torch.zeros(2, 5, 24), positions=[0, 1, 2, 3, 4])
        Traceback (most recent call last):
            ...
        TypeError: positions must be a tensor, got list
    """
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")


def check_nothing_appended(add_bias_kv: bool, add_zero_attn: bool) -> None:
    """Refuse appended keys (ValueError), for an attention in which every key has a position.

    Examples:
        >>> from annotated_attention.checks import check_nothing_appended
        >>> check_nothing_appended(add_bias_kv=False, add_zero_attn=True)
        Traceback (most recent call last):
            ...
        ValueError: add_zero_attn must be False: an appended key has no position
    """
    for name, given in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
        if given:
            raise ValueError(f"{name} must be False: an appended key has no position")


def check_inputs(
    query: Tensor, key: Tensor, value: Tensor,
    widths: Sequence[int], batch_first: bool, parameter: Tensor,
) -> None:
    """Refuse a query, key and value that do not fit the module or each other.

    Args:
        query: three axes, or two without a batch.
        key: as many axes as ``query``.
        value: as many axes as ``query``.
        widths: the widths that ``query``, ``key`` and ``value`` must have.
        batch_first: whether the batch is axis 0 or axis 1 of three.
        parameter: a parameter of the module, for its dtype and device.

    Raises:
        TypeError: not a dense tensor, or not of the parameters' dtype (outside autocast).
        ValueError: axes, widths, lengths, batch sizes or devices that do not fit.

    Examples:
        >>> import torch
        >>> from annotated_attention.checks import check_inputs
        >>> query, key, value = (torch.zeros(2, length, 24) for length in (3, 5, 6))
        >>> check_inputs(query, key, value, (24, 24, 24), True, parameter=torch.zeros(24))
        Traceback (most recent call last):
            ...
        ValueError: value's length (6) must equal key's length (5)
    """
    given = {"query": query, "key": key, "value": value}
    check_sequences(given, widths, batch_first, parameter)
    length = -2 if batch_first or query.dim() == 2 else 0
    if key.size(length) != value.size(length):
        raise ValueError(
            f"value's length ({value.size(length)}) must equal key's length ({key.size(length)})"
        )


def check_sequences(
    given: dict[str, Tensor], widths: Sequence[int], batch_first: bool,
    parameter: Tensor | None = None,
) -> None:
    """Refuse sequences that do not fit the module, or do not belong to one batch.

    Args:
        given: the sequences by name: three axes, or two without a batch.
        widths: the width that each sequence must have.
        batch_first: whether the batch is axis 0 or axis 1 of three.
        parameter: a parameter of the module, for its dtype and device; None checks neither.

    Raises:
        TypeError: not a dense tensor, or not of the parameters' dtype (outside autocast).
        ValueError: axes, widths, batch sizes or devices that do not fit.

    Examples:
        >>> import torch
        >>> from annotated_attention.checks import check_sequences
        >>> check_sequences({"src": torch.zeros(2, 5, 24)}, [12], batch_first=True)
        Traceback (most recent call last):
            ...
        ValueError: src's width (24) must be 12
    """
    for name, x in given.items():
        _check_tensor(name, x, parameter)
    axes = {x.dim() for x in given.values()}
    if axes not in ({2}, {3}):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in given.items())
        raise ValueError(
            f"{_all(given)} must have three axes, or two without a batch, got {shapes}"
        )
    for (name, x), width in zip(given.items(), widths, strict=True):
        if x.size(-1) != width:
            raise ValueError(f"{name}'s width ({x.size(-1)}) must be {width}")
    batch = 0 if batch_first else 1
    sizes = [x.size(batch) for x in given.values()]
    if axes == {3} and any(size != sizes[0] for size in sizes):
        raise ValueError(
            f"{_all(given)} must have the same batch size, got {', '.join(map(str, sizes))} on "
            f"axis {batch}, which is the batch with batch_first={batch_first}"
        )


def _all(given: dict[str, Tensor]) -> str:
    """Name all the sequences."""
    *others, last = given
    return f"{', '.join(others)} and {last}" if others else last


def _check_tensor(name: str, x: Tensor, parameter: Tensor | None) -> None:
    """Refuse a value that the parameters cannot be multiplied with."""
    check_tensors(**{name: x})
    if x.is_nested:
        raise TypeError(
            f"{name} must be a dense tensor, got a nested one; inside torch.nn.TransformerEncoder, "
            f"set use_nested_tensor = False"
        )
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {x.dtype}")
    if parameter is None:
        return
    if x.device != parameter.device:
        raise ValueError(f"{name} is on {x.device}, the parameters are on {parameter.device}")
    if x.dtype != parameter.dtype and not _autocasts(x.device):
        raise TypeError(f"{name} ({x.dtype}) must have the parameters' dtype ({parameter.dtype})")


def _autocasts(device: torch.device) -> bool:
    """Tell whether autocast will bring the dtypes together."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def check_masks(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    query: Tensor,
    key: Tensor,
    num_heads: int,
    batch_first: bool,
    names: tuple[str, str] = ("attn_mask", "key_padding_mask"),
) -> None:
    """Refuse masks that do not fit the query and the key, which fit each other.

    Args:
        attn_mask: as in ``torch.nn.MultiheadAttention``.
        key_padding_mask: as in ``torch.nn.MultiheadAttention``.
        query: three axes, or two without a batch.
        key: as many axes as ``query``.
        num_heads: h, the number of heads.
        batch_first: whether the batch is axis 0 or axis 1 of three.
        names: the names of the two masks in messages.

    Raises:
        TypeError: a mask is not a tensor, or neither boolean nor floating point.
        ValueError: shapes or devices that do not fit.

    Examples:
        >>> import torch
        >>> from annotated_attention.checks import check_masks
        >>> query, key = torch.zeros(2, 3, 24), torch.zeros(2, 5, 24)
        >>> check_masks(torch.zeros(5, 3), None, query, key, num_heads=4, batch_first=True)
        Traceback (most recent call last):
            ...
        ValueError: attn_mask (5, 3) must have shape (n, m) = (3, 5) or (b * h, n, m) = (8, 3, 5)
    """
    h, length = num_heads, -2 if batch_first or query.dim() == 2 else 0
    n, m = query.size(length), key.size(length)
    attention: Shapes = {"(n, m)": (n, m)}
    if query.dim() == 2:
        attention["(h, n, m)"] = (h, n, m)
        padding: Shapes = {"(m,)": (m,)}
    else:
        b = query.size(0 if batch_first else 1)
        attention["(b * h, n, m)"] = (b * h, n, m)
        padding = {"(b, m)": (b, m)}
    _check_mask(names[0], attn_mask, attention, query.device)
    _check_mask(names[1], key_padding_mask, padding, query.device)


def _check_mask(name: str, mask: Tensor | None, shapes: Shapes, device: torch.device) -> None:
    """Refuse one mask that has none of these shapes."""
    if mask is None:
        return
    check_tensors(**{name: mask})
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"{name} must be boolean (True = blocked) or floating point (added), got {mask.dtype}"
        )
    if tuple(mask.shape) not in shapes.values():
        fits = " or ".join(f"{letters} = {shape}" for letters, shape in shapes.items())
        raise ValueError(f"{name} {tuple(mask.shape)} must have shape {fits}")
    if mask.device != device:
        raise ValueError(f"{name} is on {mask.device}, query is on {device}")

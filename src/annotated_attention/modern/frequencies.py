"""How fast each pair of a rotary embedding turns, also where it is scaled for long sequences."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from annotated_attention.checks import check_number, check_sizes

_ORIGINAL = "original_max_position_embeddings"
# What each type needs, and what it may have besides; the names are those of checkpoints.
_NEEDS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": (_ORIGINAL,),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
}
_YARN = ("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
_MAY_HAVE = {"yarn": (*_YARN, "truncate")}


def rotary_frequencies(
    head_dim: int,
    *,
    base: float | None = None,
    scaling: Mapping[str, Any] | None = None,
    max_length: int | None = None,
    length: int | Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> tuple[Tensor, float]:
    """Say by what angle each pair of features turns per position.

    Without ``scaling``, pair i turns by base^(-2i / d). ``scaling`` is a dictionary with a
    ``rope_type`` and the settings of that type, as a checkpoint's ``config.json`` has it, under
    ``rope_parameters`` or ``rope_scaling``. Older ones say ``type``; newer ones hold the base, too,
    as ``rope_theta``.

    - ``"default"``: every angle stays as it is.
    - ``"linear"``: every angle is divided by ``factor``.
    - ``"dynamic"``: the base grows with the length of the sequence, from ``max_length`` on.
    - ``"yarn"``: pairs that turn many times within the trained length stay as they are, slow
      ones are divided by ``factor``, and those between are mixed. Cosines and sines get a factor.
    - ``"llama3"``: as YaRN, with wavelengths as bounds, mixed in another way, without that factor.

    Args:
        head_dim: d, the width of one head; even.
        base: the first pair turns by 1, the others ever less, the last by base ** (2 / d - 1);
            None means ``rope_theta`` of ``scaling``, or 10000 where there is none.
        scaling: how the frequencies change for long sequences; None means not at all.
        max_length: the length that the model was trained for. ``"dynamic"`` needs it, and
            ``"yarn"`` without ``factor``.
        length: the length of the sequence, which only ``"dynamic"`` asks for; None means
            ``max_length``.
        dtype: Dtype of the frequencies.
        device: Device of the frequencies.

    Returns:
        The frequencies, one for each of the d / 2 pairs, and the factor for cosines and sines,
        which is 1 in all types but YaRN.

    Examples:
        >>> from annotated_attention.modern import rotary_frequencies
        >>> rotary_frequencies(6, base=1000.0)
        (tensor([1.0000, 0.1000, 0.0100]), 1.0)
        >>> rotary_frequencies(6, base=1000.0, scaling={"rope_type": "linear", "factor": 4})
        (tensor([0.2500, 0.0250, 0.0025]), 1.0)

    Source: Su et al. (2021), section 3.2.2; for the types Chen et al. (2023); Peng et al. (2023),
    section 3; the function ``apply_scaling`` in Meta's code for Llama 3.1.
    """
    base, settings = read_scaling(head_dim, base, scaling, max_length)
    kind = settings.pop("rope_type")
    from_base: float | Tensor = base
    if kind == "dynamic":
        assert max_length is not None  # or it would have been refused
        longest = torch.as_tensor(max_length if length is None else length, device=device)
        growth = settings["factor"] * (longest.clamp(min=max_length) / max_length - 1) + 1  # ()
        from_base = base * growth.to(dtype) ** (head_dim / (head_dim - 2))                  # ()
    feature = torch.arange(0, head_dim, 2, device=device).to(dtype)                         # (r,)
    frequencies = 1 / from_base ** (feature / head_dim)                                     # (r,)
    if kind == "linear":
        return frequencies / settings["factor"], 1.0
    if kind == "llama3":
        return _llama3(frequencies, settings), 1.0
    if kind == "yarn":
        if settings.get("factor") is None:
            assert max_length is not None
            settings["factor"] = max_length / settings[_ORIGINAL]
        return _yarn(frequencies, base, settings), _yarn_factor(settings)
    return frequencies, 1.0


def _llama3(frequencies: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Divide the slow frequencies by ``factor``; see how often each turns in the trained length."""
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    turns = settings[_ORIGINAL] * frequencies / (2 * math.pi)      # (r,)
    kept = ((turns - low) / (high - low)).clamp(0, 1)              # (r,)
    return frequencies * (kept + (1 - kept) / settings["factor"])  # (r,)


def _yarn(frequencies: Tensor, base: float, settings: Mapping[str, Any]) -> Tensor:
    """Divide the slow frequencies by ``factor``, with a ramp over the numbers of the pairs."""
    d = 2 * frequencies.size(0)

    def pair_that_turns(times: float) -> float:
        """Solve base^(-2i / d) · length = 2π · times for i."""
        return d * math.log(settings[_ORIGINAL] / (times * 2 * math.pi)) / (2 * math.log(base))

    first = pair_that_turns(settings.get("beta_fast") or 32)
    last = pair_that_turns(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, d - 1)
    last += 0.001 if first == last else 0
    pair = torch.arange(d // 2, device=frequencies.device).to(frequencies.dtype)  # (r,)
    kept = 1 - ((pair - first) / (last - first)).clamp(0, 1)                      # (r,)
    return frequencies * (kept + (1 - kept) / settings["factor"])                 # (r,)


def _yarn_factor(settings: Mapping[str, Any]) -> float:
    """Give the factor for cosines and sines; the scores grow by its square."""
    if settings.get("attention_factor") is not None:
        return float(settings["attention_factor"])

    def growth(slope: float) -> float:
        return 0.1 * slope * math.log(settings["factor"]) + 1 if settings["factor"] > 1 else 1.0

    above, below = settings.get("mscale"), settings.get("mscale_all_dim")
    return growth(above) / growth(below) if above and below else growth(1)


def read_scaling(
    head_dim: int, base: float | None, scaling: Mapping[str, Any] | None, max_length: int | None
) -> tuple[float, dict[str, Any]]:
    """Give the base, and the settings of ``scaling`` without it, under today's names.

    The arguments are those of ``rotary_frequencies``. Without ``scaling``, the type is "default".
    """
    check_sizes({"head_dim": head_dim} | ({} if max_length is None else {"max_length": max_length}))
    if head_dim % 2:
        raise ValueError(f"head_dim ({head_dim}) must be even: each pair has two features")
    if scaling is not None and not isinstance(scaling, Mapping):
        raise TypeError(f"scaling ({scaling!r}) must be a dictionary")
    settings: dict[str, Any] = dict({"rope_type": "default"} if scaling is None else scaling)
    older, theta = settings.pop("type", None), settings.pop("rope_theta", None)
    settings.setdefault("rope_type", older)
    if None not in (base, theta) and base != theta:
        raise ValueError(f"base ({base}) must be None, or scaling's rope_theta ({theta})")
    for name, given in (("base", base), ("scaling's rope_theta", theta)):
        if given is not None:
            check_number(name, given, above=1)
    _check_scaling(dict(settings), head_dim, max_length)
    if base is None:
        base = 10000.0 if theta is None else theta
    return base, settings


def _check_scaling(settings: dict[str, Any], head_dim: int, max_length: int | None) -> None:
    """Refuse a type that is not known, and settings that it lacks or does not know."""
    kind = settings.pop("rope_type")
    if kind not in _NEEDS:
        raise ValueError(f"scaling's rope_type ({kind!r}) must be one of {', '.join(_NEEDS)}")
    if settings.get("partial_rotary_factor") == 1:
        del settings["partial_rotary_factor"]
    needs, given = _NEEDS[kind], {name for name, x in settings.items() if x is not None}
    if missing := [name for name in needs if name not in given]:
        raise ValueError(f"scaling of rope_type {kind!r} must have {', '.join(missing)}")
    if unknown := sorted(given - {*needs, *_MAY_HAVE.get(kind, ())}):
        raise ValueError(f"scaling of rope_type {kind!r} must not have {', '.join(unknown)}")
    for name in sorted(given - {"truncate"}):
        check_number(
            f"scaling's {name}", settings[name], 0 if name in ("factor", _ORIGINAL) else None
        )
    if max_length is None and (kind == "dynamic" or (kind == "yarn" and "factor" not in given)):
        raise ValueError(f"max_length (None) must be given for scaling {settings!r} of {kind!r}")
    if kind == "dynamic" and head_dim < 4:
        raise ValueError(f"head_dim ({head_dim}) must be at least 4 for rope_type 'dynamic'")

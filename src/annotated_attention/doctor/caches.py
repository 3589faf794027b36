"""A cache gives what no cache gives; what is wrong with it shows in which tokens are seen."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from annotated_attention.doctor import situations
from annotated_attention.doctor.influence import exchanged
from annotated_attention.doctor.patient import Failed, Inputs, Patient, describe
from annotated_attention.doctor.protocols import claim
from annotated_attention.doctor.report import WRONG, Finding

_CHUNKS = (5, 4, 3)


def cache(patient: Patient) -> Iterator[Finding]:
    """A cache gives what no cache gives, in chunks of any size."""
    start, step = claim(patient, "start", "step")
    situations.only_for(patient, "causal")
    n = min(sum(_CHUNKS), patient.max_length)
    x = patient.draw(52, n=n).query

    def run(*chunks: int, tokens: Tensor = x) -> Tensor:
        kept = _started(start)
        parts = tokens[:, : sum(chunks)].split(list(chunks), 1)
        return torch.cat([patient.ask_for(step, part, kept) for part in parts], 1)

    whole = patient.ask(Inputs(x, x, x))
    ways = [(1,) * n, _fitting(n), (n,)]
    gaps = {chunks: patient.gap(run(*chunks), whole) for chunks in ways}
    bad = [chunks for chunks, gap in gaps.items() if gap > patient.tolerance]
    if bad:
        code, symptom, cause, remedy = _cached(patient, run, whole, x, bad)
        said = "; ".join(
            f"{' + '.join(map(str, chunks))} differs by {gaps[chunks]:.0%}"
            for chunks in sorted(bad, key=len)
        )
        yield Finding(code, WRONG, symptom, said, cause, remedy)


def _fitting(n: int) -> tuple[int, ...]:
    """Cut a sequence into unequal chunks."""
    if n >= sum(_CHUNKS):
        return _CHUNKS
    return (n - n // 2, n // 2)


Named = tuple[str, str, str, str]  # code, symptom, cause, remedy
_UNLIKE = "with a cache, results differ from those without"


def _cached(
    patient: Patient,
    run: Callable[..., Tensor],
    whole: Tensor,
    x: Tensor,
    bad: Sequence[tuple[int, ...]],
) -> Named:
    """Name what is wrong with a cache: each has its own effect."""
    n = x.size(1)
    first = patient.gap(run(1), whole[:, :1])
    if not patient.same(run(1), run(1)):
        cause = "`start` gives a cache that is not empty"
        return "cache-not-empty", _UNLIKE, cause, "Make a new cache for each sequence."
    if first > patient.tolerance:
        return (
            "cache-zeros-attended",
            "with a cache, the first token alone gets another result",
            "places of a static cache that hold no token yet are attended to",
            "Block every key from the cache's length on.",
        )
    for chunks in bad:
        if named := _wrong_view(_seen(patient, run, x, chunks), chunks):
            return named
    swapped, ones = x[:, [1, 0, *range(2, n)]], (1,) * n
    if not patient.same(patient.ask(Inputs(swapped, swapped, swapped))[:, -1], whole[:, -1]):
        if patient.same(run(*ones, tokens=swapped)[:, -1], run(*ones)[:, -1]):
            return _without_places(patient, run, x)
        if _keeps_the_same(patient, x[:, :2]):
            return _unrotated("by the positions of the newest tokens")
    return (
        "cache-differs",
        _UNLIKE,
        "positions, a mask or a scale that differ from step to step",
        "Compare one step with the same row of the whole.",
    )


def _seen(patient: Patient, run: Callable[..., Tensor], x: Tensor, chunks: Sequence[int]) -> Tensor:
    """Tell which token, in chunks, has influence on which result, (n, n)."""
    before, other = run(*chunks), 3 * patient.draw(53, n=x.size(1)).query
    columns = []
    for j in range(x.size(1)):
        changed = exchanged(x, j, other[:, j : j + 1])
        moved = (run(*chunks, tokens=changed) - before).abs().amax((0, 2))
        columns.append(moved > patient.tolerance * before.abs().max())
    return torch.stack(columns, -1)


def _wrong_view(seen: Tensor, chunks: Sequence[int]) -> Named | None:
    """Name a mask that is wrong in chunks, or a past that is lost.

    Args:
        seen: (n, n), which token has influence on which result.
        chunks: their lengths.
    """
    starts = torch.tensor([sum(chunks[:i]) for i, size in enumerate(chunks) for _ in range(size)])
    query, key = torch.arange(len(seen))[:, None], torch.arange(len(seen))
    within = key <= query
    own = (key >= starts[:, None]) & within
    corner = key <= query - starts[:, None]
    if torch.equal(seen, within):
        return None
    others = query != key  # a token reacts to itself by its query
    if torch.equal(seen & others, corner & others):
        return (
            "causal-at-the-wrong-corner",
            "with a cache, a chunk's first query sees the first key alone",
            "the causal mask is aligned at the upper left of (n, m), as by `is_causal=True`",
            "Align it at the lower right: block with `triu(diagonal=1 + m - n)`.",
        )
    if (seen & ~within).any():
        return (
            "future-leaks-in-a-chunk",
            "with a cache, tokens of a chunk see later ones of it",
            "no causal mask within a chunk",
            "Block the future among the tokens of a chunk: `triu(diagonal=1 + m - n)`.",
        )
    if torch.equal(seen, own):
        return (
            "cache-ignored",
            "with a cache, tokens see their own chunk alone",
            "keys and values are kept and never read, or `append` gives back what it was given",
            "Attend to all keys in the cache.",
        )
    return (
        "cache-loses-tokens",
        "with a cache, some earlier tokens have no influence",
        "keys or values are written over, or a mask hides a part of the cache",
        "Write each chunk behind those before it.",
    )


def _without_places(patient: Patient, run: Callable[..., Tensor], x: Tensor) -> Named:
    """Tell a position that starts anew at each step from keys that are never rotated."""
    at_positions: Any = getattr(patient.attend, "at_positions", None)
    n = x.size(1)
    if at_positions is not None:
        nowhere = patient.ask_for(at_positions, x, torch.zeros(n, dtype=torch.long))
        if not patient.same(run(*(1,) * n)[:, -1], nowhere[:, -1]):
            return _unrotated("not at all")
    return (
        "positions-restart",
        "one by one, it makes no difference in which order earlier tokens came",
        "the position starts at 0 again in each step"
        + ("" if at_positions is not None else ", or keys are kept that were not rotated"),
        "Count positions on from the cache's length.",
    )


def _unrotated(later: str) -> Named:
    return (
        "keys-cached-unrotated",
        "what the cache holds of a token does not depend on where the token stands",
        f"keys are put into the cache before they are rotated, and rotated later {later}",
        "Rotate each key by its position, then put it into the cache.",
    )


def _keeps_the_same(patient: Patient, pair: Tensor) -> bool:
    """Tell whether a cache holds the same numbers after two tokens in either order."""
    kept = []
    for tokens in (pair, pair.flip(1)):
        kept.append(_started(patient.attend.start))  # type: ignore[attr-defined]
        patient.ask_for(patient.attend.step, tokens, kept[-1])  # type: ignore[attr-defined]
    one, other = ([x.flatten().sort().values for x in _tensors(cache)] for cache in kept)
    return bool(one) and all(map(patient.same, one, other))


def _tensors(kept: object, depth: int = 3) -> Iterator[Tensor]:
    """Find the tensors of numbers in a cache, whatever holds them."""
    if isinstance(kept, Tensor):
        yield from [kept] if kept.is_floating_point() else []
    elif depth:
        inside: Any = getattr(kept, "__dict__", kept)
        inside = inside.values() if isinstance(inside, dict) else inside
        for part in inside if isinstance(inside, Iterable) and not isinstance(inside, str) else ():
            yield from _tensors(part, depth - 1)


def _started(start: Callable[[], Any]) -> Any:
    """Make an empty cache; an error of the implementation is raised as ``Failed``."""
    try:
        return start()
    except Exception as error:
        raise Failed(describe(error), error) from error

"""What attention of today can do besides, where it says so: positions, a cache, windows, packing.

The callable that is examined says so by attributes of these names:

- ``at_positions(x, positions)``: attend with rotary positions (n,), whole numbers; x is (b, n, e).
- ``start()`` makes an empty cache, and ``step(x, cache)`` attends from the next tokens, (b, n, e),
  to all that went before and among themselves, and puts them into the cache; causal.
- ``window``: how many tokens a token sees, itself included; within one sequence without a causal
  mask, before and behind it together.
- ``packed(x, lengths)``: attend within documents of these lengths, one behind the other in x.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.doctor import situations
from annotated_attention.doctor.influence import influence
from annotated_attention.doctor.patient import Failed, Inputs, NotAsked, Patient, describe
from annotated_attention.doctor.report import WRONG, Finding

_CHUNKS = (5, 4, 3)
_SHIFT = 7


def _claim(patient: Patient, *names: str) -> list[Any]:
    """Give what the callable says that it can do besides, by the names of its attributes.

    Raises:
        NotAsked: it does not say so.
    """
    found = [getattr(patient.attend, name, None) for name in names]
    # A module may have an attribute of this name that means something else.
    number = not isinstance(patient.attend, nn.Module)
    if not all(callable(x) or (number and type(x) is int) for x in found):
        raise NotAsked("the callable does not say that it has them")
    return found


def rotation(patient: Patient) -> Iterator[Finding]:
    """Rotary positions count by their differences alone, in queries and in keys."""
    (at_positions,) = _claim(patient, "at_positions")
    situations.only_for(patient, "self", "causal")
    x = patient.draw(51).query
    n = x.size(1)

    def at(*places: int, tokens: Tensor = x) -> Tensor:
        return patient.ask_for(at_positions, tokens, torch.tensor(places))

    places = [*range(n)]
    here = at(*places)
    shifted = patient.gap(at(*(place + _SHIFT for place in places)), here)
    single = patient.gap(at(_SHIFT, tokens=x[:, :1]), at(0, tokens=x[:, :1]))
    if patient.same(at(*(3 * place for place in places)), here):
        yield Finding(
            "positions-ignored",
            WRONG,
            "positions change nothing",
            "three times as far apart, the same output",
            "the rotation is made and not used, or all angles are zero",
            "Rotate queries and keys by their positions before the scores.",
        )
    elif shifted > patient.tolerance:
        said = f"moved by {_SHIFT} together, positions change the output by {shifted:.0%}"
        yield _not_relative(said, _turned(patient, at, x), single > patient.tolerance)


def _turned(patient: Patient, at: Callable[..., Tensor], x: Tensor) -> str:
    """Say whose positions have no effect: "keys", "queries", or "" where both have one.

    Two equal tokens stand last. Exchanged, they ask from another place; the keys are the same.
    """
    n = x.size(1)
    twins = torch.cat([x[:, :-1], x[:, -2:-1]], 1)
    *rest, one, two = range(n)
    before = at(*rest, one, two, tokens=twins)[:, -1]
    if patient.same(at(*rest, two, one, tokens=twins)[:, -1], before):
        return "queries"
    others = [place + 3 * i for i, place in enumerate((*rest, one))]
    return "keys" if patient.same(at(*others, two, tokens=twins)[:, -1], before) else ""


def _not_relative(evidence: str, still: str, values: bool) -> Finding:
    """Name what makes positions count by more than their differences."""
    symptom = "the result depends on more than the differences of positions"
    if values:
        evidence += "; so does the result of a single token, whose only weight is 1"
        cause = "the values are rotated, too, or a position is added to them"
        return Finding(
            "values-rotated", WRONG, symptom, evidence, cause, "Rotate queries and keys alone."
        )
    if still:
        return Finding(
            "rotates-one-side",
            WRONG,
            symptom,
            f"{evidence}; where the {still} stand has no effect",
            f"the {still} are not rotated",
            "Rotate queries and keys, each by its own position.",
        )
    return Finding(
        "positions-not-relative",
        WRONG,
        symptom,
        evidence,
        "queries and keys are turned in opposite senses or by different angles, or pairs of "
        "features are turned by the angles of another layout (halves, or neighbours)",
        "Turn both by the same function, with angles laid out as it pairs the features.",
    )


def cache(patient: Patient) -> Iterator[Finding]:
    """A cache gives what no cache gives, in chunks of any size."""
    start, step = _claim(patient, "start", "step")
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
    swapped, ones = _swapped(x), (1,) * n
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


def _swapped(x: Tensor) -> Tensor:
    return torch.cat([x[:, 1:2], x[:, :1], x[:, 2:]], 1)


def _seen(patient: Patient, run: Callable[..., Tensor], x: Tensor, chunks: Sequence[int]) -> Tensor:
    """Tell which token, in chunks, has influence on which result, (n, n)."""
    before, other = run(*chunks), 3 * patient.draw(53, n=x.size(1)).query
    columns = []
    for j in range(x.size(1)):
        changed = torch.cat([x[:, :j], other[:, j : j + 1], x[:, j + 1 :]], 1)
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
    if torch.equal(_others(seen), _others(corner)):
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


def _others(seen: Tensor) -> Tensor:
    """Leave out the diagonal: a token reacts to itself by its query."""
    return seen & ~torch.eye(len(seen), dtype=torch.bool)


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
    """Make an empty cache.

    Raises:
        Failed: the implementation raised an error.
    """
    try:
        return start()
    except Exception as error:
        raise Failed(describe(error), error) from error


def window(patient: Patient) -> Iterator[Finding]:
    """A window has the width that it claims."""
    (width,) = _claim(patient, "window")
    situations.only_for(patient, "self", "causal")
    n = width + 2
    if n > patient.max_length:
        raise NotAsked(
            f"a window of {width} takes sequences of {n}, and the longest has {patient.max_length}"
        )
    seen = influence(patient, patient.draw(54, n=n))[0].any(0) | torch.eye(n, dtype=torch.bool)
    found = int(seen[-1 if patient.kind == "causal" else n // 2].sum())
    if found == width:
        return
    near = abs(found - width) == 1
    yield Finding(
        "window-off-by-one" if near else "window-of-another-width",
        WRONG,
        f"the window is {found} wide, itself included, and it is said to be {width}",
        f"of {n} tokens, {found} have influence",
        "`<` in place of `<=`, or a token that is not counted itself" if near else "",
        "Let query i see the keys j with 0 <= i - j < window.",
    )


def packing(patient: Patient) -> Iterator[Finding]:
    """Packed documents do not see each other."""
    (packed,) = _claim(patient, "packed")
    situations.only_for(patient, "self", "causal")
    n = min(7, patient.max_length)
    lengths = [n - n // 2, n // 2]
    x = patient.draw(55, n=n).query
    documents = x.split(lengths, 1)
    together = patient.ask_for(packed, x, lengths)
    alone = torch.cat([patient.ask(Inputs(one, one, one)) for one in documents], 1)
    gap = patient.gap(together, alone)
    if gap <= patient.tolerance:
        return
    other = torch.cat([3 * patient.draw(56).query[:, :1], x[:, 1:]], 1)
    moved = patient.gap(patient.ask_for(packed, other, lengths)[:, lengths[0] :],
                        together[:, lengths[0] :])  # fmt: skip
    leaks = moved > patient.tolerance
    yield Finding(
        "documents-see-each-other" if leaks else "packed-differs",
        WRONG,
        "packed documents see each other"
        if leaks
        else "a packed document gets another result than alone",
        f"documents of {lengths[0]} and {lengths[1]} tokens: results differ by {gap:.0%} from "
        "those of each alone",
        "the mask hides the future alone; positions that begin anew do not keep documents apart"
        if leaks
        else "positions that count on over the border of documents, or a mask that hides too much",
        "Block every key of another document.",
    )

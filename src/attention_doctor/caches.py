"""A cache gives what no cache gives; what is wrong with it shows in which tokens are seen."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attention_doctor import situations
from attention_doctor.influence import exchanged
from attention_doctor.patient import Failed, Inputs, Patient
from attention_doctor.places import describe
from attention_doctor.protocols import claim
from attention_doctor.report import WRONG, Finding
from attention_doctor.seen import Seen
from attention_doctor.sight import attentions
from attention_doctor.traced import Trace

_CHUNKS = (5, 4, 3)


def cache(patient: Patient) -> Iterator[Finding]:
    """A cache gives what no cache gives, in chunks of any size."""
    start, step = claim(patient, "start", "step")
    situations.only_for(patient, "causal")
    n = min(sum(_CHUNKS), patient.max_length)
    x = patient.draw(52, n=n).query

    def run(*chunks: int, tokens: Tensor = x) -> Tensor:
        kept, outputs = _started(start), []
        for part in tokens[:, : sum(chunks)].split(list(chunks), 1):
            output, kept = _stepped(patient, step, part, kept)
            outputs.append(output)
        return torch.cat(outputs, 1)

    def whole(*chunks: int) -> Tensor:
        """Give the results without a cache, each of the text up to the end of its chunk."""
        ends = itertools.accumulate(chunks)
        parts = [_plain(patient, x[:, :end]) for end in ends]
        return torch.cat([y[:, -size:] for y, size in zip(parts, chunks, strict=True)], 1)

    uneven = _CHUNKS if n == sum(_CHUNKS) else (n - n // 2, n // 2)
    written = (uneven[0], *(1,) * (n - uneven[0]))  # a text is given, and goes on by single tokens
    ways = [(1,) * n, written, uneven, (n,)]
    gaps = {chunks: patient.gap(run(*chunks), whole(*chunks)) for chunks in ways}
    bad = [chunks for chunks, gap in gaps.items() if gap > patient.tolerance]
    if bad:
        code, symptom, remedy = _cached(patient, run, x, bad)
        said = "; ".join(
            f"{' + '.join(map(str, chunks))} differs by {gaps[chunks]:.0%}"
            for chunks in sorted(bad, key=len)
        )
        yield Finding(code, WRONG, f"{_UNLIKE}; {symptom}", said, remedy=remedy)


Named = tuple[str, str, str]  # code, what shows besides, and the remedy if no list has it
_UNLIKE = "with a cache, results differ from those without"


def _cached(
    patient: Patient, run: Callable[..., Tensor], x: Tensor, bad: Sequence[tuple[int, ...]]
) -> Named:
    """Name what is wrong with a cache: each has its own effect."""
    n, whole = x.size(1), _plain(patient, x)
    first = patient.gap(run(1), _plain(patient, x[:, :1]))
    if not patient.same(run(1), run(1)):
        remedy = "Make a new cache for each sequence."
        return "cache-not-empty", "the same tokens get other results in a second one", remedy
    if first > patient.tolerance:
        return "cache-zeros-attended", "so does the first token alone", ""
    for chunks in bad:
        seen = _seen(patient, run, x, chunks)
        if named := _wrong_view(seen, chunks):
            return named
        if len(chunks) == n and _same_weights(patient, run, x):
            remedy = "Write values where their keys are written."
            return "cached-values-misplaced", "the weights are those without a cache", remedy
    short = patient.same(_plain(patient, x[:, :3])[:, :2], _plain(patient, x[:, :2]))
    if short and not patient.same(_plain(patient, x[:, :-1]), whole[:, :-1]):
        return "cached-keys-not-rescaled", "without a cache, they change with the length", ""
    if _biased_otherwise(patient, run, x):
        return "distances-restart", "the bias of a new query is not that of the whole text", ""
    swapped, ones = x[:, [1, 0, *range(2, n)]], (1,) * n
    if not patient.same(_plain(patient, swapped)[:, -1], whole[:, -1]):
        unordered = patient.same(run(*ones, tokens=swapped)[:, -1], run(*ones)[:, -1])
        if named := _absorbed(patient, run, x, unordered):
            return named
        if unordered:
            return _without_places(patient, run, x)
        if _keeps_the_same(patient, x[:, :2]):
            return "keys-cached-unrotated", "what is kept of a token knows no position", ""
    remedy = "Compare one step with the same row of the whole."
    return "cache-differs", "every token sees what it should", remedy


def _plain(patient: Patient, x: Tensor) -> Tensor:
    return patient.ask(Inputs(x, x, x))


def _inside(call: Callable[[Tensor], Tensor], x: Tensor) -> Seen | None:
    """Give the last attention that is seen in a call; None if none is."""
    with contextlib.suppress(Exception), Trace(query=x) as trace:
        call(x)
        return [*attentions(trace.steps)][-1]
    return None


def _same_weights(patient: Patient, run: Callable[..., Tensor], x: Tensor) -> bool:
    """Tell whether the last token, alone, has the weights that it has in the whole text."""
    n, weights = x.size(1), []
    for call in (functools.partial(_plain, patient), lambda y: run(n - 1, 1, tokens=y)):
        if (seen := _inside(call, x)) is None:
            return False
        weights.append(seen.weights.movedim(seen.axis, -1)[..., -1, :n])
    return weights[0].shape == weights[1].shape and patient.same(*weights)


def _biased_otherwise(patient: Patient, run: Callable[..., Tensor], x: Tensor) -> bool:
    """Tell whether a bias by distance is another for the last query when it comes alone."""
    n = x.size(1)
    rows = []
    for token in (x[:, :1], x[:, 1:2]):  # equal tokens: scores differ by the bias, or by rotation
        equal = token.expand_as(x)
        for call in (functools.partial(_plain, patient), lambda y: run(n - 1, 1, tokens=y)):
            if (seen := _inside(call, equal)) is None:
                return False
            scores, hidden = (y.movedim(seen.axis, -1)[..., :n] for y in (seen.scores, seen.mask))
            last = scores[~hidden.any(-1)]
            rows.append(last - last[..., :1])
    if len({row.shape for row in rows}) > 1 or not rows[0].any():
        return False
    whole, alone, *others = rows
    return patient.same(whole, others[0]) and not patient.same(whole, alone)


def _absorbed(
    patient: Patient, run: Callable[..., Tensor], x: Tensor, unordered: bool
) -> Named | None:
    """Tell a rotation that is absorbed, and lost, from positions that are left out."""

    def at(*chunks: int) -> Seen | None:
        equal = x[:, :1].expand(-1, sum(chunks), -1)
        return _inside(lambda y: run(*chunks, tokens=y), equal)

    plain, first = _inside(functools.partial(_plain, patient), x[:, :1]), at(1)
    near, far = at(1, 1), at(2, 1)
    if not (plain and first and near and far) or plain.width == first.width:
        return None
    scores, of_step = (seen.scores[~seen.mask] for seen in (plain, first))
    if near.query.shape != far.query.shape or scores.shape != of_step.shape:
        return None
    if not patient.same(near.query, far.query):
        if patient.same(scores, of_step):
            return "rotation-absorbed", "a query turns with its position, and no key does", ""
    elif unordered:
        return "latent-positions-missing", "the order of the past makes no difference", ""
    return None


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
        return "causal-at-the-wrong-corner", "a chunk's first query sees the first key alone", ""
    if (seen & ~within).any():
        remedy = "Block the future among the tokens of a chunk: `triu(diagonal=1 + m - n)`."
        return "future-leaks-in-a-chunk", "tokens of a chunk see later ones of it", remedy
    if torch.equal(seen, own):
        remedy = "Attend to all keys in the cache."
        return "cache-ignored", "tokens see their own chunk alone", remedy
    remedy = "Write each chunk behind those before it."
    return "cache-loses-tokens", "some earlier tokens have no influence", remedy


def _without_places(patient: Patient, run: Callable[..., Tensor], x: Tensor) -> Named:
    """Tell a position that starts anew at each step from keys that are never rotated."""
    at_positions: Any = getattr(patient.attend, "at_positions", None)
    n = x.size(1)
    symptom = "one by one, the order of earlier tokens makes no difference"
    if at_positions is None:
        return "positions-restart", f"{symptom}; or keys are kept that were not rotated", ""
    nowhere = patient.ask_for(at_positions, x, torch.zeros(n, dtype=torch.long))
    starts = patient.same(run(*(1,) * n)[:, -1], nowhere[:, -1])
    return "positions-restart" if starts else "keys-cached-unrotated", symptom, ""


def _keeps_the_same(patient: Patient, pair: Tensor) -> bool:
    """Tell whether a cache holds the same numbers after two tokens in either order."""
    kept = []
    for tokens in (pair, pair.flip(1)):
        start, step = claim(patient, "start", "step")
        kept.append(_stepped(patient, step, tokens, _started(start))[1])
    one, other = ([x.flatten().sort().values for x in held(cache)] for cache in kept)
    return bool(one) and all(map(patient.same, one, other))


def held(kept: object, depth: int = 3) -> Iterator[Tensor]:
    """Find the tensors of numbers in a cache, whatever holds them."""
    if isinstance(kept, Tensor):
        yield from [kept] if kept.is_floating_point() else []
    elif depth:
        inside: Any = getattr(kept, "__dict__", kept)
        inside = inside.values() if isinstance(inside, dict) else inside
        for part in inside if isinstance(inside, Iterable) and not isinstance(inside, str) else ():
            yield from held(part, depth - 1)


def _started(start: Callable[[], Any]) -> Any:
    """Make an empty cache; an error of the implementation is raised as ``Failed``."""
    try:
        return start()
    except Exception as error:
        raise Failed(describe(error), error) from error


def _stepped(
    patient: Patient, step: Callable[..., Any], tokens: Tensor, kept: Any
) -> tuple[Tensor, Any]:
    """Attend from the next tokens; gives the result, and the cache, changed or returned anew."""
    result: Any = None

    def call(x: Tensor) -> Any:
        nonlocal result
        result = step(x, kept)
        return result

    output = patient.ask_for(call, tokens)
    anew = isinstance(result, tuple) and len(result) == 2
    anew = anew and (kept is None or type(result[1]) is type(kept))
    return output, result[1] if anew else kept

"""What attention of today can do besides, where it says so: a cache, packed documents.

What is wrong with a cache shows in which tokens are seen.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attention_doctor.call.inputs import Failed, Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import describe
from attention_doctor.call.roles import named_parameters, plain_name
from attention_doctor.evidence import situations
from attention_doctor.evidence.influence import exchanged

_CHUNKS = (5, 4, 3)
Named = tuple[str, str]  # code, and what shows besides


def claim(patient: Patient, *names: str) -> list[Any]:
    """Give what the callable says that it can do besides; what it does not is not asked."""
    abilities = [getattr(patient.attend, name, None) for name in names]
    if not all(map(callable, abilities)):
        forward = getattr(patient.attend.module, "forward", patient.attend.attend)
        caches = [x for x in named_parameters(forward) if re.search("cache|past_", plain_name(x))]
        if "step" in names and caches:
            raise NotAsked(
                f"nobody says how its `{caches[0]}` is used; say it with an adapter: `adapt(…, "
                "start=…, step=…)`, where `start()` gives an empty cache and `step(x, cache)` "
                "attends to it and to x"
            )
        raise NotAsked("the callable does not say that it has them")
    return abilities


@dataclass(frozen=True)
class Packed:
    """How results of two documents in one row differ from those of each alone, as a text."""

    leaks: str = ""
    differs: str = ""


def packing(patient: Patient) -> Packed:
    """Compare two documents in one row with each of them alone."""
    (packed,) = claim(patient, "packed")
    situations.only_for(patient, "self", "causal")
    x, cut = patient.draw(54).query, patient.n // 2
    document = (torch.arange(patient.n) >= cut).long()
    parts = [patient.ask(Inputs(y, y, y)) for y in (x[:, :cut], x[:, cut:])]

    def asked(tokens: Tensor) -> Tensor:
        return patient.ask_for(packed, tokens, document.expand(len(x), -1))

    together, other = asked(x), 3 * patient.draw(55).query
    gap = patient.gap(together, torch.cat(parts, 1))
    if gap <= patient.tolerance:
        return Packed()
    apart = document[:, None] != document
    seen = _seen(patient, x, other, asked) & apart
    if not seen.any():
        return Packed(differs=f"they differ by {gap:.0%}, and no document sees another")
    said = f"{int(seen.sum())} of {int(apart.sum())} pairs of tokens from different documents react"
    return Packed(leaks=said)


def _seen(patient: Patient, x: Tensor, other: Tensor, ask: Callable[[Tensor], Tensor]) -> Tensor:
    """Tell which token has influence on which result, (n, n)."""
    before, columns = ask(x), []
    for j in range(x.size(1)):
        moved = (ask(exchanged(x, j, other[:, j : j + 1])) - before).abs().amax((0, 2))
        columns.append(moved > patient.tolerance * before.abs().max())
    return torch.stack(columns, -1)


def cache(patient: Patient) -> Named | None:
    """Compare results with a cache, in chunks of any size, with those without.

    Where that fails in float64, it is asked in float32, for which its cache may have been made.
    """
    claim(patient, "start", "step")
    situations.only_for(patient, "causal")
    try:
        return _cache(patient)
    except Failed:
        if patient.dtype != torch.float64:
            raise
    with patient.converted(torch.float32):
        return _cache(patient)


def _cache(patient: Patient) -> Named | None:
    text = _Text(patient)
    n = text.n
    uneven = _CHUNKS if n == sum(_CHUNKS) else (n - n // 2, n // 2)
    written = (uneven[0], *(1,) * (n - uneven[0]))  # a text is given, and goes on by single tokens
    ways = [(1,) * n, written, uneven, (n,)]
    gaps = {chunks: patient.gap(text.stepped(*chunks), text.ends(*chunks)) for chunks in ways}
    bad = {chunks: gap for chunks, gap in gaps.items() if gap > patient.tolerance}
    if not bad:
        return None
    code, symptom = text.mistake([*bad])
    said = (f"{' + '.join(map(str, x))} differs by {bad[x]:.0%}" for x in sorted(bad, key=len))
    return code, "; ".join([symptom, *said])


class _Text:
    """A text, attended with a cache and without."""

    def __init__(self, patient: Patient) -> None:
        self.patient, self.same = patient, patient.same
        self.n = min(max(sum(_CHUNKS), patient.window + 5), patient.max_length)
        self.x = patient.draw(52, n=self.n).query

    def plain(self, x: Tensor) -> Tensor:
        """Give the results without a cache."""
        return self.patient.ask(Inputs(x, x, x))

    def ends(self, *chunks: int) -> Tensor:
        """Give the results without a cache, each of the text up to the end of its chunk."""
        parts = [self.plain(self.x[:, :end]) for end in itertools.accumulate(chunks)]
        return torch.cat([y[:, -size:] for y, size in zip(parts, chunks, strict=True)], 1)

    def stepped(self, *chunks: int, tokens: Tensor | None = None) -> Tensor:
        """Give the results in these chunks, one behind the other."""
        start, step = claim(self.patient, "start", "step")
        tokens = self.x if tokens is None else tokens
        outputs: list[Tensor] = []
        result: Any = None
        try:
            cache = start()
        except Exception as error:
            raise Failed(describe(error), error) from error

        def call(x: Tensor) -> Any:
            nonlocal result
            result = step(x, cache)
            return result

        for part in tokens[:, : sum(chunks)].split(list(chunks), 1):
            outputs.append(self.patient.ask_for(call, part))
            anew = isinstance(result, tuple) and len(result) == 2
            if anew and (cache is None or type(result[1]) is type(cache)):
                cache = result[1]
        return torch.cat(outputs, 1)

    def mistake(self, bad: Sequence[tuple[int, ...]]) -> Named:
        """Name what is wrong: each mistake has its own effect."""
        x, n, whole = self.x, self.n, self.plain(self.x)
        if not self.same(self.stepped(1), self.stepped(1)):
            return "cache-not-empty", "the same tokens get other results in a second one"
        if not self.same(self.stepped(1), self.plain(x[:, :1])):
            return "cache-zeros-attended", "so does the first token alone"
        views = (_wrong_view(self.seen(x), x, self.patient.window or n) for x in bad)
        if named := next(filter(None, views), None):
            # A past of one token that is lost, token by token, looks as if none were read.
            more = filter(None, views) if named[0] == "cache-ignored" else ()
            return next((x for x in more if x[0] == "cache-loses-tokens"), named)
        short = self.same(self.plain(x[:, :3])[:, :2], self.plain(x[:, :2]))
        if short and not self.same(self.plain(x[:, :-1]), whole[:, :-1]):
            return "cached-keys-not-rescaled", "without a cache, they change with the length"
        swapped, ones = x[:, [1, 0, *range(2, n)]], (1,) * n
        if not self.same(self.plain(swapped)[:, -1], whole[:, -1]):
            after = self.stepped(*ones, tokens=swapped)[:, -1]
            if self.same(after, self.stepped(*ones)[:, -1]):
                return "cache-differs", "one by one, the order of earlier tokens says nothing"
        return "cache-differs", "every token sees what it should"

    def seen(self, chunks: Sequence[int]) -> Tensor:
        """Tell which token, in chunks, has influence on which result, (n, n)."""
        other = 3 * self.patient.draw(53, n=self.n).query
        return _seen(self.patient, self.x, other, lambda x: self.stepped(*chunks, tokens=x))


def _wrong_view(seen: Tensor, chunks: Sequence[int], window: int) -> Named | None:
    """Name a mask that is wrong in chunks, or a past that is lost.

    ``seen``, (n, n), says which token has influence on which result.
    """
    starts = torch.tensor([sum(chunks[:i]) for i, size in enumerate(chunks) for _ in range(size)])
    query, key = torch.arange(len(seen))[:, None], torch.arange(len(seen))
    within = (key <= query) & (query - key < window)
    corner = within & (key <= query - starts[:, None])
    others = query != key  # a token reacts to itself by its query
    if torch.equal(seen, within):
        return None
    if torch.equal(seen & others, corner & others):
        return "causal-at-the-wrong-corner", "a chunk's first query sees the first key alone"
    if (seen & (key <= query - window)).any():
        return "window-differs", "tokens see farther back than their window"
    if (seen & ~within).any():
        return "future-leaks-in-a-chunk", "tokens of a chunk see later ones of it"
    if torch.equal(seen, (key >= starts[:, None]) & within):
        return "cache-ignored", "tokens see their own chunk alone"
    return "cache-loses-tokens", "some earlier tokens have no influence"

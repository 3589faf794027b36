"""A cache, where it is said how it is used.

What is wrong with a cache shows in which tokens are seen.
"""

import itertools
import re
from collections.abc import Callable, Sequence
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


def claim(patient: Patient) -> tuple[Callable[[], Any], Callable[..., Any]]:
    """Give how a cache begins, and how a step uses it; what nobody says is not asked."""
    start, step = patient.attend.start, patient.attend.step
    if start is not None and step is not None:
        return start, step
    forward = getattr(patient.attend.module, "forward", patient.attend.attend)
    caches = [x for x in named_parameters(forward) if re.search("cache|past_", plain_name(x))]
    if not caches:
        raise NotAsked("the callable does not say that it has one")
    raise NotAsked(
        f"nobody says how its `{caches[0]}` is used; say it with an adapter: `adapt(…, "
        "start=…, step=…)`, where `start()` gives an empty cache and `step(x, cache)` "
        "attends to it and to x"
    )


def cache(patient: Patient) -> Named | None:
    """Compare results with a cache, in chunks of any size, with those without.

    Where that fails in float64, it is asked in float32, for which its cache may have been made.
    """
    claim(patient)
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
        start, step = claim(self.patient)
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
        for chunks in bad:
            if named := _wrong_view(self.seen(chunks), chunks, self.patient.window or n):
                return named
        short = self.same(self.plain(x[:, :3])[:, :2], self.plain(x[:, :2]))
        if short and not self.same(self.plain(x[:, :-1]), whole[:, :-1]):
            return "cached-keys-not-rescaled", "without a cache, they change with the length"
        return "cache-differs", "every token sees what it should"

    def seen(self, chunks: Sequence[int]) -> Tensor:
        """Tell which token, in chunks, has influence on which result, (n, n)."""
        other = 3 * self.patient.draw(53, n=self.n).query
        before, columns = self.stepped(*chunks), []
        for j in range(self.n):
            text = exchanged(self.x, j, other[:, j : j + 1])
            moved = (self.stepped(*chunks, tokens=text) - before).abs().amax((0, 2))
            columns.append(moved > self.patient.tolerance * before.abs().max())
        return torch.stack(columns, -1)


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

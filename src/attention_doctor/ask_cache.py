"""Ask whether a cache gives what no cache gives; what is wrong shows in which tokens are seen."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attention_doctor import situations
from attention_doctor.ask_today import claim
from attention_doctor.influence import exchanged
from attention_doctor.inputs import Failed, Inputs
from attention_doctor.patient import Patient
from attention_doctor.places import describe
from attention_doctor.report import Finding, wrong

_CHUNKS = (5, 4, 3)
Named = tuple[str, str, str]  # code, what shows besides, and the remedy if no list has it


def cache(patient: Patient) -> Iterator[Finding]:
    """A cache gives what no cache gives, in chunks of any size."""
    claim(patient, "start", "step")
    situations.only_for(patient, "causal")
    text = _Text(patient)
    n = text.n
    uneven = _CHUNKS if n == sum(_CHUNKS) else (n - n // 2, n // 2)
    written = (uneven[0], *(1,) * (n - uneven[0]))  # a text is given, and goes on by single tokens
    ways = [(1,) * n, written, uneven, (n,)]
    gaps = {chunks: patient.gap(text.stepped(*chunks), text.ends(*chunks)) for chunks in ways}
    bad = [chunks for chunks, gap in gaps.items() if gap > patient.tolerance]
    if bad:
        code, symptom, remedy = text.mistake(bad)
        symptom = f"with a cache, results differ from those without; {symptom}"
        said = "; ".join(
            f"{' + '.join(map(str, chunks))} differs by {gaps[chunks]:.0%}"
            for chunks in sorted(bad, key=len)
        )
        yield wrong(code, symptom, said, remedy)


class _Text:
    """A text, attended with a cache and without."""

    def __init__(self, patient: Patient) -> None:
        self.patient, self.same = patient, patient.same
        self.n = min(sum(_CHUNKS), patient.max_length)
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
        return self.kept(*chunks, tokens=tokens)[0]

    def kept(self, *chunks: int, tokens: Tensor | None = None) -> tuple[Tensor, Any]:
        """Give the results in these chunks, and the cache behind them."""
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
        return torch.cat(outputs, 1), cache

    def mistake(self, bad: Sequence[tuple[int, ...]]) -> Named:
        """Name what is wrong: each mistake has its own effect."""
        x, n, whole = self.x, self.n, self.plain(self.x)
        if not self.same(self.stepped(1), self.stepped(1)):
            remedy = "Make a new cache for each sequence."
            return "cache-not-empty", "the same tokens get other results in a second one", remedy
        if not self.same(self.stepped(1), self.plain(x[:, :1])):
            return "cache-zeros-attended", "so does the first token alone", ""
        for chunks in bad:
            if named := _wrong_view(self.seen(chunks), chunks):
                return named
        short = self.same(self.plain(x[:, :3])[:, :2], self.plain(x[:, :2]))
        if short and not self.same(self.plain(x[:, :-1]), whole[:, :-1]):
            return "cached-keys-not-rescaled", "without a cache, they change with the length", ""
        swapped, ones = x[:, [1, 0, *range(2, n)]], (1,) * n
        if not self.same(self.plain(swapped)[:, -1], whole[:, -1]):
            after = self.stepped(*ones, tokens=swapped)[:, -1]
            if self.same(after, self.stepped(*ones)[:, -1]):
                return self.without_places()
            turns = hasattr(self.patient.attend, "at_positions")
            if turns and self.keeps_the_same(x[:, :2]):
                return "keys-cached-unrotated", "what is kept of a token knows no position", ""
        remedy = "Compare one step with the same row of the whole."
        return "cache-differs", "every token sees what it should", remedy

    def seen(self, chunks: Sequence[int]) -> Tensor:
        """Tell which token, in chunks, has influence on which result, (n, n)."""
        before, other = self.stepped(*chunks), 3 * self.patient.draw(53, n=self.n).query
        columns = []
        for j in range(self.n):
            changed = exchanged(self.x, j, other[:, j : j + 1])
            moved = (self.stepped(*chunks, tokens=changed) - before).abs().amax((0, 2))
            columns.append(moved > self.patient.tolerance * before.abs().max())
        return torch.stack(columns, -1)

    def without_places(self) -> Named:
        """Tell a position that starts anew at each step from keys that are never rotated."""
        at_positions = getattr(self.patient.attend, "at_positions", None)
        symptom = "one by one, the order of earlier tokens makes no difference"
        if at_positions is None:
            return "cache-differs", symptom, "Rotate each token by its place in the whole text."
        zeros = torch.zeros(self.n, dtype=torch.long)
        nowhere = self.patient.ask_for(at_positions, self.x, zeros)
        starts = self.same(self.stepped(*(1,) * self.n)[:, -1], nowhere[:, -1])
        return "positions-restart" if starts else "keys-cached-unrotated", symptom, ""

    def keeps_the_same(self, pair: Tensor) -> bool:
        """Tell whether a cache holds the same numbers after two tokens in either order."""
        caches = (self.kept(2, tokens=tokens)[1] for tokens in (pair, pair.flip(1)))
        one, other = ([x.flatten().sort().values for x in _held(cache)] for cache in caches)
        return bool(one) and all(map(self.same, one, other))


def _wrong_view(seen: Tensor, chunks: Sequence[int]) -> Named | None:
    """Name a mask that is wrong in chunks, or a past that is lost.

    Args:
        seen: (n, n), which token has influence on which result.
        chunks: their lengths.
    """
    starts = torch.tensor([sum(chunks[:i]) for i, size in enumerate(chunks) for _ in range(size)])
    query, key = torch.arange(len(seen))[:, None], torch.arange(len(seen))
    within = key <= query
    corner = key <= query - starts[:, None]
    others = query != key  # a token reacts to itself by its query
    if torch.equal(seen, within):
        return None
    if torch.equal(seen & others, corner & others):
        return "causal-at-the-wrong-corner", "a chunk's first query sees the first key alone", ""
    if (seen & ~within).any():
        remedy = "Block the future among the tokens of a chunk: `triu(diagonal=1 + m - n)`."
        return "future-leaks-in-a-chunk", "tokens of a chunk see later ones of it", remedy
    if torch.equal(seen, (key >= starts[:, None]) & within):
        remedy = "Attend to all keys in the cache."
        return "cache-ignored", "tokens see their own chunk alone", remedy
    remedy = "Write each chunk behind those before it."
    return "cache-loses-tokens", "some earlier tokens have no influence", remedy


def _held(kept: object, depth: int = 3) -> Iterator[Tensor]:
    """Find the tensors of numbers in a cache, whatever holds them."""
    if isinstance(kept, Tensor):
        yield from [kept] if kept.is_floating_point() else []
    elif depth:
        inside: Any = getattr(kept, "__dict__", kept)
        inside = inside.values() if isinstance(inside, dict) else inside
        for part in inside if isinstance(inside, Iterable) and not isinstance(inside, str) else ():
            yield from _held(part, depth - 1)

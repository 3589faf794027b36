"""What a cache does with positions and keys, and a window whose width is said."""

import torch

from attention_doctor.evidence import pairs, protocols
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.rules.masks import HIDING
from attention_doctor.rules.questions import WINDOW
from attention_doctor.rules.rule import Rule, Sign, Test, named, of_mistake


# A cache: each mistake has its own effect.
def cached(code: str) -> Test:
    """Make the test of an effect that a cache has."""

    def test(e: Evidence) -> Sign | None:
        found = e.of(protocols.cache)
        if found is None or found.code != code:
            return None
        said = "; ".join(
            f"{' + '.join(map(str, chunks))} differs by {found.gaps[chunks]:.0%}"
            for chunks in sorted(found.gaps, key=len)
        )
        return Sign(f"with a cache, results differ from those without; {found.symptom}", said)

    return test


def of_cache(code: str, cause: str, remedy: str, steps: tuple[str, ...] = ()) -> Rule:
    return Rule(code, cause, remedy, signs={"cache": cached(code)}, steps=steps)


# In a window that is said.
def other_width(e: Evidence) -> tuple[str, Sign] | None:
    seen, may = e.of(pairs.behind)
    window = e.patient.window
    first = seen[-1].cumprod(0).bool()  # attention sinks are seen by all
    may = may if first.all() else may | first & torch.ones_like(may).tril()
    if torch.equal(seen, may):
        return None
    said = f"the last of {len(seen)} tokens sees {int(seen[-1].sum())}, itself among them, "
    said += f"and its window has {window}"
    if torch.equal(seen, may | torch.ones_like(may).tril(-window).triu(-window)):
        return "window-off-by-one", Sign("each token sees one more than its window", said)
    return "window-differs", Sign("tokens see others than those of their window", said)


RULES = (
    of_mistake(
        "window-off-by-one",
        signs={WINDOW: named("window-off-by-one", other_width)},
        steps=HIDING,
        neighbours=("window-differs",),
    ),
    Rule(
        "window-differs",
        "a window of another width, or one that is applied to the keys of a cache in another way",
        "Hide what is later, and what is `window` tokens back or more: "
        "`(keys > queries) | (keys <= queries - window)`, by places in the whole text.",
        signs={WINDOW: named("window-differs", other_width), "cache": cached("window-differs")},
        steps=HIDING,
        neighbours=("window-off-by-one",),
    ),
    of_cache(
        "cache-differs",
        "positions, a mask or a scale that differ from step to step",
        "Compare one step with the same row of the whole.",
    ),
    of_cache(
        "cache-ignored",
        "keys and values are kept in a cache and never read",
        "Attend to all keys in the cache.",
    ),
    of_cache(
        "cache-loses-tokens",
        "keys in the cache are written over, or a mask hides some of them",
        "Write each chunk behind those before it.",
    ),
    of_cache(
        "cache-not-empty",
        "a cache that still holds another sequence",
        "Make a new cache for each sequence.",
    ),
    of_cache(
        "future-leaks-in-a-chunk",
        "no causal mask within a chunk that is added to a cache",
        "Block the future among the tokens of a chunk: `triu(diagonal=1 + m - n)`.",
        steps=HIDING,
    ),
    of_mistake(
        "causal-at-the-wrong-corner",
        signs={"cache": cached("causal-at-the-wrong-corner")},
        steps=HIDING,
    ),
    *(
        of_mistake(code, signs={"cache": cached(code)})
        for code in (
            "positions-restart",
            "cache-zeros-attended",
            "keys-cached-unrotated",
            "cached-keys-not-rescaled",
        )
    ),
)

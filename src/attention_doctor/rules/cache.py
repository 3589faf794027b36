"""What a cache does with positions and keys."""

from typing import Any

from attention_doctor.evidence import protocols
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.rules.masks import HIDING
from attention_doctor.rules.rule import Named, Rule, Sign, of_mistake


def cached(e: Evidence) -> Named | None:
    """Tell by its effect what is wrong with a cache."""
    if (found := e.of(protocols.cache)) is None:
        return None
    code, said = found
    return code, Sign("with a cache, results differ from those without", said)


def of_cache(code: str, cause: str, remedy: str, **more: Any) -> Rule:
    return Rule(code, cause, remedy, signs={"cache": cached}, **more)


RULES = (
    of_cache(
        "cache-differs",
        "positions, a mask or a scale that differ from step to step",
        "Compare one step with the same row of the whole.",
        explanation="Every token sees what it should, and the numbers are others: a position, a "
        "scale or a bias is not the same in a step as in the whole. `positions-restart` and "
        "`keys-cached-unrotated` look like this.",
    ),
    of_cache(
        "cache-ignored",
        "keys and values are kept in a cache and never read",
        "Attend to all keys in the cache.",
        explanation="Each token sees its own chunk alone. What is written fits no earlier word.",
        wrong="cache.append(k, v)",
        right="k, v = cache.append(k, v)",
    ),
    of_cache(
        "cache-loses-tokens",
        "keys in the cache are written over, or a mask hides some of them",
        "Write each chunk behind those before it.",
        explanation="Some earlier tokens have no say. The text stays fluent, and forgets.",
    ),
    of_cache(
        "cache-not-empty",
        "a cache that still holds another sequence",
        "Make a new cache for each sequence.",
        explanation="The second text begins where the first one ended. The first is right, and "
        "a test that makes a new module each time sees no other.",
        wrong="cache = self.cache",
        right="cache = KVCache()",
    ),
    of_cache(
        "future-leaks-in-a-chunk",
        "no causal mask within a chunk that is added to a cache",
        "Block the future among the tokens of a chunk: `triu(diagonal=1 + m - n)`.",
        steps=HIDING,
        explanation="Token by token it is right, since a single new token has none behind it. A "
        "prompt, which is read at once, sees its own future.",
        wrong="blocked = None",
        right="blocked = torch.ones(n, m, dtype=torch.bool).triu(1 + m - n)",
    ),
    of_mistake(
        "causal-at-the-wrong-corner",
        signs={"cache": cached},
        steps=HIDING,
    ),
    of_mistake("cache-zeros-attended", signs={"cache": cached}),
    of_mistake("cached-keys-not-rescaled", signs={"cache": cached}),
    of_mistake("positions-restart"),
    of_mistake("keys-cached-unrotated"),
)

"""All rules, in the order in which they are asked: the first whose sign shows is said."""

from attention_doctor.mistakes import MISTAKES
from attention_doctor.rules import (
    cache,
    causal,
    conduct,
    designs,
    fills,
    masks,
    positions,
    projections,
    reshapes,
    scale,
    softmax,
    windows,
)
from attention_doctor.rules.rule import Rule, of_mistake

FAMILIES: dict[str, tuple[Rule, ...]] = {
    "The scale": scale.RULES,
    "How hidden scores keep a weight": fills.RULES,
    "Masks": masks.RULES,
    "Windows, and documents in one row": windows.RULES,
    "Designs": designs.RULES,
    "The future, and rows without a key": causal.RULES,
    "Positions": positions.RULES,
    "A cache": cache.RULES,
    "Heads and samples": reshapes.RULES,
    "The softmax and its weights": softmax.RULES,
    "Projections and gradients": projections.RULES,
    "The module": conduct.RULES,
}
_OWN = {rule.code for rules in FAMILIES.values() for rule in rules}
FAMILIES["By comparison alone"] = tuple(of_mistake(x) for x in MISTAKES if x not in _OWN)
RULES = tuple(rule for rules in FAMILIES.values() for rule in rules)
BY_CODE = {rule.code: rule for rule in RULES}
assert len(BY_CODE) == len(RULES), "two rules have one code"

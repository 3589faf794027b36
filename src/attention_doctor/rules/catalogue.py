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
)
from attention_doctor.rules.rule import Rule, of_mistake

_ASKED: tuple[Rule, ...] = (
    *scale.RULES,
    *fills.RULES,
    *masks.RULES,
    *designs.RULES,
    *causal.RULES,
    *positions.RULES,
    *cache.RULES,
    *reshapes.RULES,
    *softmax.RULES,
    *projections.RULES,
    *conduct.RULES,
)
_REST = MISTAKES.keys() - {rule.code for rule in _ASKED}  # which a version that agrees may name
RULES = (*_ASKED, *(of_mistake(code) for code in MISTAKES if code in _REST))
BY_CODE = {rule.code: rule for rule in RULES}
assert len(BY_CODE) == len(RULES), "two rules have one code"

"""Designs: what is no mistake, and which answers it predicts that would be wrong elsewhere."""

import torch
from torch import nn

from attention_doctor.evidence import inner, looks, pairs
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.looks import Look
from attention_doctor.evidence.steps import back
from attention_doctor.evidence.trace import Step, tensors
from attention_doctor.rules.predictions import ORDER, SUMS, Holds, predicts
from attention_doctor.rules.questions import CONVENTION
from attention_doctor.rules.rule import Observed, Rule
from attention_doctor.rules.windows import sees_a_window


# What shows inside.
def keys(one: Look) -> set[int]:
    """Give the numbers of keys that the attentions of a call have."""
    return {x.scores.size(x.axis) for x in one.found}


def watched(e: Evidence) -> list[Look]:
    """Give a call of the usual length, and one of another."""
    first, short = e.of(looks.free), e.of(looks.short)
    return [first] if short is None else [first, short]


def keys_appended(e: Evidence) -> bool:
    more = [{size - x.case.inputs.key.size(1) for size in keys(x)} for x in watched(e)]
    return len(more) == 2 and more[0] == more[1] and min(more[0]) > 0


def queries_are_keys(e: Evidence) -> bool:
    both = [{x.case.inputs.query.size(1) + x.case.inputs.key.size(1)} for x in watched(e)]
    return e.patient.memory and [keys(x) for x in watched(e)] == both


def by_sigmoid(e: Evidence) -> bool:
    return not any(x.normalised for x in e.of(looks.free).found)


def heads_mixed(e: Evidence) -> bool:
    return any("heads mixed" in x.steps for x in e.of(looks.free).found)


def table_mixed(e: Evidence) -> bool:
    return any("table" in x.steps for x in e.of(looks.free).found)


def positions_added(e: Evidence) -> bool:
    return any(back(x.value.step, _adds_places) for x in e.of(looks.free).found)


def _adds_places(step: Step) -> bool:
    """Tell whether a step adds rows that differ, and that no token has made."""
    made = zip(step.given, tensors(step.arguments), strict=False) if step.name == "add" else ()
    rows = [x for given, x in made if given is None and x.dim() > 1]
    return any(x.size(-2) > 1 and not x[..., :1, :].equal(x[..., 1:2, :]) for x in rows)


def tokens_projected(e: Evidence) -> bool:
    calls = watched(e)
    sizes = [keys(x) for x in calls]
    named = any(not sizes[0].isdisjoint(x.shape) for part in parts(e) for x in part.parameters())
    alike = len(sizes) == 2 and sizes[0] == sizes[1] != {calls[0].case.inputs.key.size(1)}
    return alike and named and not sees_a_window(e)


def window_of_one(e: Evidence) -> bool:
    named = [x for part in parts(e) for name, x in vars(part).items() if "window" in name]
    return keys(e.of(looks.free)) == {1} and 1 in named


def tokens_convolved(e: Evidence) -> bool:
    """Tell whether neighbours are mixed in, as far as they may be seen."""
    if (found := e.had(inner.inner)) is None:
        convolutions = (x for x in parts(e) if isinstance(x, nn.Conv1d | nn.Conv2d))
        return any(max(x.kernel_size) > 1 for x in convolutions)
    near = found.near
    everywhere = len(near) == 2 * e.patient.n - 1
    return near > {0} and not everywhere and (e.patient.kind != "causal" or max(near) <= 0)


def spread(e: Evidence, _: Observed) -> bool:
    """Excuse the pairs that a convolution spreads, of one case with a mask, and no others."""
    leak = e.of(pairs.leak)
    if leak is None or not tokens_convolved(e):
        return False
    size = leak.case.inputs.query.size(1), leak.case.inputs.key.size(1)
    usual = size == (e.patient.n, e.patient.m)
    found = e.had(inner.inner if usual else inner.square)
    if found is None:
        return False
    visible = ~leak.blocked
    if e.patient.own_future:
        visible = visible & torch.ones_like(visible).tril()
    return bool((found.seen(visible) | ~leak.seen | ~leak.judged).all())


def parts(e: Evidence) -> list[nn.Module]:
    """Give the modules inside."""
    return [] if e.patient.module is None else [*e.patient.module.modules()]


def design(code: str, cause: str, holds: Holds, *codes: str) -> Rule:
    """Make the rule of a design that shows inside: it is said where it excuses something."""
    steps, excuses = _STEPS.get(code, ()), predicts(holds, *codes)
    return Rule(code, cause, severity=CONVENTION, excuses=excuses, steps=steps)


_STEPS = {
    "keys-appended": ("softmax",),
    "table-mixed": ("table",),
    "heads-mixed": ("heads mixed",),
}
RULES = (
    design(
        "sigmoid-attention",
        "a sigmoid stands in the place of the softmax: weights need not sum to one",
        by_sigmoid,
        SUMS,
    ),
    design(
        "keys-appended",
        "a learned key or score (an attention sink) takes a part of the weight",
        keys_appended,
        SUMS,
    ),
    design(
        "queries-are-keys",
        "the queries' own tokens are keys beside the context",
        queries_are_keys,
        SUMS,
    ),
    design(
        "heads-mixed",
        "the weights of all heads are mixed with each other, as talking heads do",
        heads_mixed,
        SUMS,
    ),
    design(
        "table-mixed",
        "a table of fixed vectors is mixed in beside the values",
        table_mixed,
        SUMS,
        ORDER,
    ),
    design(
        "positions-added",
        "positions are added to the tokens inside, and so to the values, too",
        positions_added,
        SUMS,
        ORDER,
    ),
    design(
        "tokens-projected",
        "keys and values are projected along the tokens' axis (low rank)",
        tokens_projected,
        SUMS,
        ORDER,
        "blocked-has-influence",
    ),
    design(
        "window-of-one",
        "each token attends to itself alone, in a window of one",
        window_of_one,
        "no-attention",
        "parameters-without-gradient",
    ),
    Rule(
        "tokens-convolved",
        "a convolution over neighbouring tokens stands beside the attention",
        severity=CONVENTION,
        excuses={
            **predicts(tokens_convolved, SUMS),
            ORDER: lambda e, _: tokens_convolved(e),
            "blocked-has-influence": spread,
        },
        neighbours=("blocked-has-influence", "future-leaks"),
    ),
)

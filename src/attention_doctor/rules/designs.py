"""Designs: what is no mistake, and which answers it predicts that would be wrong elsewhere."""

from collections.abc import Callable

import torch
from torch import nn

from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.evidence import conduct, inner, looks, pairs
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.looks import Look
from attention_doctor.evidence.parameters import role_of
from attention_doctor.evidence.steps import back
from attention_doctor.evidence.trace import Step, tensors
from attention_doctor.rules.questions import CONVENTION
from attention_doctor.rules.rule import Excuse, Observed, Rule
from attention_doctor.rules.windows import chosen, measured, windowed

_SUMS = "weights-do-not-sum-to-one"
_ORDER = "query-order-matters"
Holds = Callable[[Evidence], bool]


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
    if (found := measured(e)) is None:
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
    try:
        found = e.of(inner.inner if usual else inner.square)
    except (Failed, NotAsked):
        return False
    visible = ~leak.blocked
    if e.patient.own_future:
        visible = visible & torch.ones_like(visible).tril()
    return bool((found.seen(visible) | ~leak.seen | ~leak.judged).all())


def parts(e: Evidence) -> list[nn.Module]:
    """Give the modules inside."""
    return [] if e.patient.module is None else [*e.patient.module.modules()]


def sees_a_window(e: Evidence) -> bool:
    part = "past" if e.patient.kind == "causal" else "visible"
    return windowed(part)(e) is not None


# What else must be so, where a design predicts what would be wrong elsewhere.
def weights_as_made(e: Evidence) -> bool:
    """Tell whether values are mixed with the weights that were made, or with zero."""
    found = [x for call in (e.of(looks.free), *e.of(looks.masked)) for x in call.found]
    used = [(x.mixed.step.value, x.weights) for x in found if "heads mixed" not in x.steps]
    return all(bool((torch.isin(mixed, made) | (mixed == 0)).all()) for mixed, made in used)


def rows_of_tokens(e: Evidence) -> bool:
    """Tell whether rows are made from their own tokens, as far as that can be measured."""
    found = measured(e)
    return found is None or found.rows_are_tokens


def unused_by_choice(e: Evidence) -> bool:
    """Tell whether what gets no gradient makes weights of which there is one alone."""
    return {role_of(name) for name in e.of(conduct.gradients).dead} <= {"q", "k"}


_ALSO = {
    _SUMS: weights_as_made,
    _ORDER: rows_of_tokens,
    "parameters-without-gradient": unused_by_choice,
}


def predicts(holds: Holds, *codes: str) -> dict[str, Excuse]:
    """Excuse these codes where a design holds, and nothing else brings them about."""

    def excuse(e: Evidence, observed: Observed) -> bool:
        return holds(e) and _ALSO.get(observed.rule.code, holds)(e)

    return dict.fromkeys(codes, excuse)


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
    Rule(
        "keys-selected",
        "each query chooses keys, such as the k with the highest scores",
        severity=CONVENTION,
        signs={"visible": chosen("visible"), "past": chosen("past")},
    ),
    design(
        "sigmoid-attention",
        "a sigmoid stands in the place of the softmax: weights need not sum to one",
        by_sigmoid,
        _SUMS,
    ),
    design(
        "keys-appended",
        "a learned key or score (an attention sink) takes a part of the weight",
        keys_appended,
        _SUMS,
    ),
    design(
        "queries-are-keys",
        "the queries' own tokens are keys beside the context",
        queries_are_keys,
        _SUMS,
    ),
    design(
        "heads-mixed",
        "the weights of all heads are mixed with each other, as talking heads do",
        heads_mixed,
        _SUMS,
    ),
    design(
        "table-mixed",
        "a table of fixed vectors is mixed in beside the values",
        table_mixed,
        _SUMS,
        _ORDER,
    ),
    design(
        "positions-added",
        "positions are added to the tokens inside, and so to the values, too",
        positions_added,
        _SUMS,
        _ORDER,
    ),
    design(
        "tokens-projected",
        "keys and values are projected along the tokens' axis (low rank)",
        tokens_projected,
        _SUMS,
        _ORDER,
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
            **predicts(tokens_convolved, _SUMS),
            _ORDER: lambda e, _: tokens_convolved(e),
            "blocked-has-influence": spread,
        },
        neighbours=("blocked-has-influence", "future-leaks"),
    ),
    Rule(
        "sliding-window",
        "a sliding window, or local attention",
        severity=CONVENTION,
        signs={"visible": windowed("visible"), "past": windowed("past")},
        excuses=predicts(sees_a_window, _SUMS, _ORDER),
        neighbours=("split-and-merge-without-transpose", "visible-unseen"),
    ),
)

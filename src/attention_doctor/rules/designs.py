"""Designs: what is no mistake, and which answers it predicts that would be wrong elsewhere."""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attention_doctor.call.trace import Step, tensors
from attention_doctor.evidence import inner, looks, order, pairs, weighing
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.looks import Look
from attention_doctor.evidence.sight import Seen
from attention_doctor.evidence.steps import back
from attention_doctor.rules.questions import CONVENTION
from attention_doctor.rules.rule import Excuse, Observed, Rule, Sign

SUMS, ORDER = "weights-do-not-sum-to-one", "query-order-matters"
Holds = Callable[[Evidence], bool]


# What else must be so, or a fault stands beside the design.
def weights_as_made(e: Evidence) -> bool:
    """Tell whether values are mixed with the weights that were made, or with zero."""
    used = [x for x in seen_inside(e) if "heads mixed" not in x.steps]
    mixed = [(x.mixed.step.value, x.weights) for x in used]
    return all(bool((torch.isin(x, made) | (x == 0)).all()) for x, made in mixed)


def rows_of_tokens(e: Evidence) -> bool:
    """Tell whether rows are made from their own tokens, as far as that can be measured."""
    found = e.had(inner.inner)
    return found is None or found.rows_are_tokens


_ALSO = {
    SUMS: weights_as_made,
    ORDER: rows_of_tokens,
}


def predicts(holds: Holds, *codes: str) -> dict[str, Excuse]:
    """Excuse these codes where a design is seen inside, and nothing else brings them about."""

    def excuse(e: Evidence, observed: Observed) -> bool:
        return sees(e) and holds(e) and _ALSO.get(observed.rule.code, holds)(e)

    return dict.fromkeys(codes, excuse)


# What shows inside.
def sees(e: Evidence) -> bool:
    return e.had(looks.free) is not None


def seen_inside(e: Evidence) -> list[Seen]:
    """Give the attentions of calls without a mask, and with each."""
    return [x for call in (e.of(looks.free), *e.of(looks.masked)) for x in call.found]


def has(step: str) -> Holds:
    return lambda e: any(step in x.steps for x in e.of(looks.free).found)


def by_sigmoid(e: Evidence) -> bool:
    return not any(x.normalised for x in e.of(looks.free).found)


def keys(call: Look) -> set[int]:
    """Give the numbers of keys that the attentions of a call have."""
    return {x.scores.size(x.axis) for x in call.found}


def watched(e: Evidence) -> list[Look]:
    """Give a call of the usual length, and one of another."""
    return [x for x in (e.of(looks.free), e.had(looks.short)) if x is not None]


def keys_appended(e: Evidence) -> bool:
    more = [{size - x.case.inputs.key.size(1) for size in keys(x)} for x in watched(e)]
    return len(more) == 2 and more[0] == more[1] and min(more[0]) > 0


def queries_are_keys(e: Evidence) -> bool:
    both = [{x.case.inputs.query.size(1) + x.case.inputs.key.size(1)} for x in watched(e)]
    return e.patient.memory and [keys(x) for x in watched(e)] == both


def tokens_projected(e: Evidence) -> bool:
    calls = watched(e)
    sizes = [keys(x) for x in calls]
    named = any(not sizes[0].isdisjoint(x.shape) for x in e.patient.named.values())
    alike = len(sizes) == 2 and sizes[0] == sizes[1] != {calls[0].case.inputs.key.size(1)}
    return alike and named


def positions_added(e: Evidence) -> bool:
    return any(back(x.value.step, _adds_places) for x in e.of(looks.free).found)


def _adds_places(step: Step) -> bool:
    """Tell whether a step adds rows that differ, and that no token has made."""
    made = zip(step.given, tensors(step.arguments), strict=False) if step.name == "add" else ()
    rows = [x for given, x in made if given is None and x.dim() > 1]
    return any(x.size(-2) > 1 and not x[..., :1, :].equal(x[..., 1:2, :]) for x in rows)


def tokens_convolved(e: Evidence) -> bool:
    """Tell whether neighbours are mixed in, as far as they may be seen."""
    near = set() if (found := e.had(inner.inner)) is None else found.near
    everywhere = len(near) == 2 * e.patient.n - 1
    return near > {0} and not everywhere and (e.patient.kind != "causal" or max(near) <= 0)


def sums_convolved(e: Evidence, observed: Observed) -> bool:
    """Excuse the sums of weights; without a softmax, if equal values behind neighbours do not.

    Behind a projection, a convolution makes values that are equal no more.
    """
    if sees(e):
        return predicts(tokens_convolved, SUMS)[SUMS](e, observed)
    found = e.had(weighing.neighbours)
    if found is None or found.near == {0}:
        return False
    return found.late or not e.had(order.unequal_keys)


def order_convolved(e: Evidence, _: Observed) -> bool:
    if sees(e):
        return tokens_convolved(e)
    found = e.had(weighing.neighbours)
    return found is not None and found.near > {0}


def spread(e: Evidence, _: Observed) -> bool:
    """Excuse the pairs that a convolution spreads, of one case with a mask, and no others."""
    leak, found = e.of(pairs.leak), e.had(inner.inner)
    if leak is None or found is None or not tokens_convolved(e):
        return False
    visible = ~leak.blocked
    if visible.shape[1:] != found.beside.shape:
        return False
    if e.patient.own_future:
        visible = visible.tril()
    return bool((found.seen(visible) | ~leak.seen | ~leak.judged).all())


# What is unseen by design.
def chosen(e: Evidence) -> Sign | None:
    """Tell a choice by its difference between samples, which a model's own padding brings, too."""
    found = e.of(pairs.unseen)
    if found is None or not found.chosen or e.patient.given_masks:
        return None
    return Sign("each query chooses some keys: not all that it may see matter", found.text)


def windowed(e: Evidence) -> Sign | None:
    found, inside = e.of(pairs.unseen), e.had(inner.inner)
    if found is None or (inside is not None and not inside.near):
        return None  # a window hides tokens; it does not take one for another
    seen, may = found.seen.any(0), found.may
    if e.patient.kind != "cross":
        seen.fill_diagonal_(True)
    if len(seen) != seen.size(1) or seen.equal(may):
        return None
    both = (seen | seen.mT).double()  # a causal mask hides one of the two
    whole = (both @ both > 0).equal(both > 0)  # whoever sees the same sees each other
    blocks = f"blocks of {int(both.sum(-1).max())}", both > 0 if whole else may
    shapes = (*_shapes(len(seen)), blocks)
    words = next((words for words, mask in shapes if seen.equal(mask & may)), "")
    return Sign(f"tokens see {words}", found.text) if words else None


def _shapes(n: int) -> Iterator[tuple[str, Tensor]]:
    """Give windows, and blocks with a halo, with their words."""
    place = torch.arange(n)
    distance = place[:, None] - place
    for behind, ahead in itertools.product(range(1, n - 1), range(n)):
        words = f"a window of {behind + ahead + 1}, themselves included, and nothing farther away"
        yield words, (distance <= behind) & (distance >= -ahead)
    for w in range(1, n - 1):
        for k in range(1, n - w):
            words = f"a window of {w} on each side, and the first {k}"
            yield words, (distance.abs() < w) | (place < k)
        first = place[:, None] // (w + 1) * (w + 1)
        for halo in range(1, w + 2):
            near = (place >= first - halo) & (place <= first + w + halo)
            yield f"blocks of {w + 1}, and {halo} beside on each side", near


def design(code: str, cause: str, holds: Holds, *codes: str, steps: tuple[str, ...] = ()) -> Rule:
    """Make the rule of a design that shows inside: it is said where it excuses something."""
    return Rule(code, cause, severity=CONVENTION, excuses=predicts(holds, *codes), steps=steps)


RULES = (
    Rule(
        "weights-not-divided",
        "no weight is divided by the sum of all, as in linear attention without that: retention, "
        "gated linear attention, the delta rule",
        severity=CONVENTION,
        excuses={SUMS: lambda e, _: not sees(e) and e.had(weighing.divides) is False},
        ignore="the results are normed behind the heads, or need not be means",
    ),
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
        steps=("softmax",),
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
        has("heads mixed"),
        SUMS,
        steps=("heads mixed",),
    ),
    design(
        "table-mixed",
        "a table of fixed vectors is mixed in beside the values",
        has("table"),
        SUMS,
        ORDER,
        steps=("table",),
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
    Rule(
        "tokens-convolved",
        "a convolution over neighbouring tokens, or a shift, stands beside the attention",
        severity=CONVENTION,
        excuses={
            SUMS: sums_convolved,
            ORDER: order_convolved,
            "blocked-has-influence": spread,
        },
        neighbours=("blocked-has-influence", "future-leaks"),
    ),
    Rule(
        "keys-selected",
        "each query chooses keys, such as the k with the highest scores",
        severity=CONVENTION,
        signs={"visible": chosen},
        ignore="the choice is meant",
    ),
    Rule(
        "sliding-window",
        "a sliding window, or local attention",
        severity=CONVENTION,
        signs={"visible": windowed},
        excuses=predicts(lambda e: windowed(e) is not None, SUMS, ORDER),
        neighbours=("split-and-merge-without-transpose", "visible-unseen"),
        explanation="Tokens see their neighbours alone, or blocks, or every second token. "
        "Nothing else is hidden.",
        ignore="the window is meant; say how wide it is with `--window`",
    ),
)

"""What else must be so, where a design predicts what would be wrong elsewhere."""

from collections.abc import Callable

import torch

from attention_doctor.evidence import conduct, inner, looks
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.parameters import role_of
from attention_doctor.rules.rule import Excuse, Observed

SUMS = "weights-do-not-sum-to-one"
ORDER = "query-order-matters"
Holds = Callable[[Evidence], bool]


def weights_as_made(e: Evidence) -> bool:
    """Tell whether values are mixed with the weights that were made, or with zero."""
    found = [x for call in (e.of(looks.free), *e.of(looks.masked)) for x in call.found]
    used = [(x.mixed.step.value, x.weights) for x in found if "heads mixed" not in x.steps]
    return all(bool((torch.isin(mixed, made) | (mixed == 0)).all()) for mixed, made in used)


def rows_of_tokens(e: Evidence) -> bool:
    """Tell whether rows are made from their own tokens, as far as that can be measured."""
    found = e.had(inner.inner)
    return found is None or found.rows_are_tokens


def unused_by_choice(e: Evidence) -> bool:
    """Tell whether what gets no gradient makes weights of which there is one alone."""
    return {role_of(name) for name in e.of(conduct.gradients).dead} <= {"q", "k"}


_ALSO = {
    SUMS: weights_as_made,
    ORDER: rows_of_tokens,
    "parameters-without-gradient": unused_by_choice,
}


def predicts(holds: Holds, *codes: str) -> dict[str, Excuse]:
    """Excuse these codes where a design holds, and nothing else brings them about."""

    def excuse(e: Evidence, observed: Observed) -> bool:
        return holds(e) and _ALSO.get(observed.rule.code, holds)(e)

    return dict.fromkeys(codes, excuse)

"""Positions inside: how they count, and what they turn."""

import re

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_doctor.evidence import inner, looks, order
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.steps import LOW
from attention_doctor.rules.questions import CONVENTION, OUTPUTS
from attention_doctor.rules.rule import Rule, Sign, of_mistake

_TURNED = OUTPUTS | {"positions-not-relative"}


def by_order(e: Evidence) -> Sign | None:
    gap = e.of(order.moved)
    if gap is None or gap.case.blocked is not None or not e.of(order.has_positions):
        return None
    symptom = "results do not move with their tokens, but equal tokens get equal results"
    return Sign(symptom, gap.text)


# What positions turn, as equal tokens show it.
def turns(e: Evidence) -> dict[str, bool | None]:
    """Tell what differs by a turn between equal tokens; None where it differs otherwise.

    Nothing does where a row is made from other tokens than its own: a reshape moves numbers, too.
    """
    equal, found = e.had(looks.equal), e.had(inner.inner)
    if equal is None or (found is not None and not found.rows_are_tokens):
        return {}
    return {x: _turns(rows) for x, rows in equal.found[0].rows.items()}


def values_turn(e: Evidence) -> Sign | None:
    if not turns(e).get("values"):
        return None
    return Sign("equal tokens have different values", "they differ by a turn")


def one_side_turns(e: Evidence) -> Sign | None:
    sides = {found: name for name, found in turns(e).items() if name != "values"}
    if sides.keys() != {True, False}:
        return None
    said = f"with equal tokens, {sides[True]} differ by a turn, {sides[False]} do not"
    cause = f"the {sides[False]} are not rotated"
    return Sign(f"positions turn the {sides[True]} alone", said, cause=cause)


def unturned(e: Evidence) -> Sign | None:
    names, sides = rotations(e), turns(e)
    still = sides.get("queries") is False and sides.get("keys") is False
    if not still or not names or e.patient.kind == "cross":
        return None
    symptom = "equal tokens have equal queries and keys, wherever they stand"
    return Sign(symptom, f"it has {', '.join(names)}")


def unrelated(e: Evidence) -> Sign | None:
    """Tell whether the scores of equal tokens depend on more than how far apart they are.

    What tokens of zeros give is taken off, so that positions which are added are none of it. Turns
    by two angles, as in images, depend on no single difference, keep every length, and differ.
    """
    equal, zeros = e.had(looks.equal), e.had(looks.zeros)
    if equal is None or zeros is None or e.patient.kind == "cross":
        return None
    rows, bare = equal.found[0].rows, zeros.found[0].rows
    query, key = (rows[x] - bare[x] if x in rows else None for x in ("queries", "keys"))
    if query is None or key is None or query.shape != key.shape:
        return None

    def by_difference(x: Tensor) -> bool:
        return e.patient.same(x[..., 1:, 1:], x[..., :-1, :-1])

    scores = query @ key.mT
    directions = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
    if by_difference(scores) or by_difference(directions):
        return None
    if (found := e.had(inner.inner)) is None or not found.rows_are_tokens:
        return None
    said = "queries and keys are turned in opposite senses"
    if not by_difference(scores.flip(-1)):
        said = "a turn changes the lengths of queries and keys"
        if _turns(query) is not None or _turns(key) is not None:
            if not _shared(query):
                return None
            said = "several places have one turn"
    symptom = "the scores of equal tokens depend on more than the differences of their places"
    return Sign(symptom, said)


def grows(e: Evidence) -> Sign | None:
    """Tell whether what is added for an earlier token is larger the farther away it is.

    The scores of equal tokens show it.
    """
    equal = e.had(looks.equal)
    if equal is None or e.patient.kind == "cross":
        return None
    for seen in equal.found:
        if seen.query.kept is None or seen.keys is None or seen.scores.size(seen.keys) < 4:
            continue
        scores = seen.scores.movedim((seen.query.kept, seen.keys), (-2, -1))
        steps = scores[..., -1, :].flip(-1).diff(dim=-1)  # by distance
        linear = _steady(scores) and e.patient.same(steps, steps[..., :1].expand_as(steps))
        if linear and bool(steps.isfinite().all() and (steps > 1e-6).all()):
            said = f"by {steps.min():.2g} to {steps.max():.2g} for each token, in every head"
            return Sign("what is added to a score grows with the distance to a token", said)
    return None


def added_in_vain(e: Evidence) -> Sign | None:
    """Tell whether what is added to scores changes those alone that are hidden afterwards."""
    for seen in e.of(looks.free).found:
        step = seen.steps.get("weak mask")
        if step is None or step.name not in ("add", "sub"):
            continue
        old = next(x for x in step.parents if x.from_tokens).value.flatten()
        new, scores = step.value.flatten(), seen.scores.flatten()
        if old.shape == new.shape == scores.shape and bool((new > LOW).all()):
            changed, added = scores[new != old], (new - old)[new != old]
            if bool((changed <= LOW).all()) and added.min() < added.max():  # no mask is weak so
                cause = "a bias by distance that is zero wherever a key is seen"
                remedy = "Take the distance from a query back to its keys."
                said = f"{len(changed)} scores change, and a mask hides them"
                return Sign("what is added to scores is hidden", said, remedy, cause=cause)
    return None


def _steady(scores: Tensor) -> bool:
    """Tell whether scores, as far as they are finite, are the same along each diagonal."""
    x, y = scores[..., 1:, 1:], scores[..., :-1, :-1]
    both = (x > LOW) & (y > LOW)
    size = scores[scores > LOW].abs().max() if (scores > LOW).any() else torch.tensor(0.0)
    return bool(both.any() and (x - y)[both].abs().max() <= 1e-6 * size.clamp(min=1e-30))


def rotations(e: Evidence) -> list[str]:
    """Name what is made to turn something: arguments, and buffers, by their names."""
    buffers = dict(e.patient.module.named_buffers())
    found = [x for x in buffers if re.search(r"(^|[._])(cos|sin|inv_freq|freqs)(_|$)", x)]
    return [*e.patient.attend.rotation, *found]


def _turns(rows: Tensor) -> bool | None:
    """Tell whether rows of equal tokens differ by a turn; None if they differ otherwise."""
    if _alike(rows):
        return False
    return True if _alike(rows.norm(dim=-1, keepdim=True)) else None


def _shared(rows: Tensor) -> bool:
    """Tell whether places have one turn behind others; some in front may have none."""
    alike = [_alike(rows[..., i : i + 2, :]) for i in range(rows.size(-2) - 1)]
    return any(alike[alike.index(False) :]) if False in alike else False


def _alike(rows: Tensor) -> bool:
    return torch.allclose(rows, rows[..., :1, :].expand_as(rows), atol=1e-6)


RULES = (
    Rule(
        "order-matters",
        "positions inside the attention: rotary, relative, or a learned bias",
        severity=CONVENTION,
        signs={"order": by_order},
        hides=True,
        neighbours=("query-order-matters",),
        explanation="Tokens in another order get other results, and equal tokens equal ones: "
        "order counts by the scores.",
        ignore="positions are meant to be inside",
    ),
    Rule(
        "positions-ignored",
        "a rotation that is not used, has no angles, or runs along another axis",
        "Rotate queries and keys by their positions before the scores.",
        signs={"places": lambda e: unturned(e) or added_in_vain(e)},
        steps=("weak mask", "product"),
        explanation="The tables of a rotation are there, and equal tokens have equal queries "
        "and keys wherever they stand: the model never learns the order.",
        wrong="turn(q, places), turn(k, places)  # and what they return is lost",
        right="q, k = turn(q, places), turn(k, places)",
    ),
    Rule(
        "positions-not-relative",
        "queries and keys are turned in opposite senses, by other angles, or before a norm",
        "Turn both by the same function, behind their norms, a place by one angle more than the "
        "place before it, with angles laid out as it pairs the features.",
        signs={"places": unrelated},
        steps=("product",),
        explanation="A rotation is to make scores depend on how far apart two tokens are. Here "
        "the same two meet otherwise at another place of the text.",
        wrong="q, k = turn(q, places), turn(k, -places)",
        right="q, k = turn(q, places), turn(k, places)",
    ),
    Rule(
        "bias-grows-with-distance",
        "a bias by distance, as ALiBi has it, with the wrong sign",
        "Take it off: the bias of a key that is farther away is lower.",
        signs={"places": grows},
        steps=("weak mask", "product"),
        neighbours=("positions-not-relative",),
        explanation="The farthest tokens get the largest weights, and in a longer text all of "
        "them: the last words hardly count.",
        wrong="scores = scores + slopes * (query_places - key_places)",
        right="scores = scores - slopes * (query_places - key_places)",
        ignore="far tokens are meant to be favoured",
    ),
    Rule(
        "values-rotated",
        "values are rotated together with queries and keys",
        signs={"values turn": values_turn},
        steps=("mix",),
        explains=_TURNED,
        explanation="The value of a word differs by its place, and what is mixed of several is "
        "turned by all of their places. A model learns around it.",
        wrong="q, k, v = (turn(x, places) for x in (q, k, v))",
        right="q, k = turn(q, places), turn(k, places)",
    ),
    of_mistake(
        "rotates-one-side",
        signs={"one side turns": one_side_turns},
        steps=("product",),
        explains=_TURNED,
    ),
)

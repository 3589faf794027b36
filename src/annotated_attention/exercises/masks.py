"""Exercises of "Masks": masks merged by hand, and models that attend to padding."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from annotated_attention import mistakes
from annotated_attention.exercises._verdict import (
    Refused,
    call,
    check,
    require_function,
)
from annotated_attention.masks import block_padding
from annotated_attention.multihead import MultiheadAttention

Model = Callable[[Tensor, Tensor], Tensor]  # of the tokens and of blocked
Masks = Callable[[Tensor], dict[str, Tensor]]  # arguments of a module, made from blocked
Call = tuple[str, Tensor, Tensor]  # which model was given what

_WIDTH, _HEADS = 12, 3
_SAMPLES = {"the cat drank milk": 4, "it was · ·": 2}  # the text, and how many of it are words
_PAIRS = (".xxx", "..xx", "x..x", "xx..")  # a word may look at itself and at the one before it


@check("merged_by_hand")
def check_merged(answer: object) -> str:
    """Judge masks merged by hand, and print the verdict.

    Args:
        answer: for each of the two samples, by its text, four texts of four characters, a row for
            each query: "x" where a key is blocked, "." where it may be seen.
    """
    found = _read(answer)
    pairs = _cells(_PAIRS).expand(2, 4, 4)
    padding = _padding(0)
    right = pairs | padding
    if not found.equal(right):
        for reason, wrong in _wrong_merges(pairs, padding):
            if found.equal(wrong):
                raise Refused(reason)
        raise Refused(_first_difference(found, pairs, padding))
    return (
        "right: a key is blocked if either mask blocks it. The row of the last “·” is fully "
        "masked: the two keys that it may look at are padding."
    )


def _padding(off: int) -> Tensor:
    """Block the padding, (2, 4, 4), of samples that are ``off`` words longer than they are."""
    lengths = torch.tensor([*_SAMPLES.values()]) + off
    return block_padding(lengths, 4)[:, None, :].expand(2, 4, 4)


def _read(answer: object) -> Tensor:
    """Turn the reader's texts into blocked, (2, 4, 4)."""
    if answer is None or answer is ...:
        raise Refused(f"not yet, it is {answer if answer is None else '...'}.")
    if not isinstance(answer, Mapping):
        kind = type(answer).__name__
        raise Refused(f"it is an object of type {kind}; a dictionary with two texts is asked for.")
    if set(answer) != set(_SAMPLES):
        raise Refused(f"its keys must be the two texts {' and '.join(map(repr, _SAMPLES))}.")
    for text in _SAMPLES:
        rows = answer[text]
        if not isinstance(rows, list | tuple) or not all(isinstance(row, str) for row in rows):
            raise Refused(f"“{text}” must have a list of texts, one for each query.")
        if len(rows) != 4 or any(len(row) != 4 for row in rows):
            widths = ", ".join(str(len(row)) for row in rows)
            raise Refused(
                f"“{text}” has {len(rows)} rows, with {widths} characters. There are 4 queries and "
                "4 keys: 4 rows of 4. A row belongs to a query, a column to a key."
            )
    strange = sorted(set("".join(row for rows in answer.values() for row in rows)) - set("x."))
    if "?" in strange:
        raise Refused('not yet, some cells are still "?".')
    if strange:
        raise Refused(f'"{strange[0]}" is not read. Write x for blocked and . for may be seen.')
    return torch.stack([_cells(answer[text]) for text in _SAMPLES])


def _cells(rows: Any) -> Tensor:
    """Turn texts into a boolean matrix, True for "x"."""
    return torch.tensor([[cell == "x" for cell in row] for row in rows])


def _wrong_merges(pairs: Tensor, padding: Tensor) -> list[tuple[str, Tensor]]:
    """List reasons with the answer that each leads to."""
    right = pairs | padding
    off = "the length of “it was · ·” is one off: “it” and “was” are words, the rest is padding."
    both = pairs | _padding(-1)
    short = torch.stack([right[0], both[1]])
    return [
        ("it is inverted: x means blocked here.", ~right),
        (
            "you have merged with “and”: a cell is blocked only if both masks block it. One is "
            "enough.",
            pairs & padding,
        ),
        ("that is the mask of pairs alone: the padding of “it was · ·” is seen.", pairs),
        ("that is the padding alone: it does not matter there which word asks.", padding),
        ("the two samples are in each other's place.", right.flip(0)),
        (off, short),
        (off, both),
        (off, pairs | _padding(1)),
        (
            "both samples have the padding of “it was · ·”; “the cat drank milk” has none.",
            pairs | padding[1],
        ),
        (
            "rows and columns are swapped: a row belongs to a query, a column to a key.",
            right.mT,
        ),
    ]


def _first_difference(found: Tensor, pairs: Tensor, padding: Tensor) -> str:
    """Say which cell is wrong first, and why."""
    wrong = found != (pairs | padding)
    sample, query, key = wrong.nonzero()[0].tolist()
    text = [*_SAMPLES][sample]
    words = [f"“{word}”" for word in text.split()]
    if "·" in text:
        words[2:] = "the first “·”", "the last “·”"
    why = (
        "it is padding"
        if padding[sample, query, key]
        else "this pair is blocked"
        if pairs[sample, query, key]
        else "it is a word, and this pair is not blocked"
    )
    said = "blocked" if found[sample, query, key] else "may be seen"
    return (
        f"{int(wrong.sum())} of the 32 cells are wrong. The first is in “{text}”, in the row of "
        f"{words[query]} and the column of {words[key]}: you say {said}, but {why}."
    )


def four_models() -> dict[str, Model]:
    """Make the four models of the exercise; one of them attends to padding.

    Returns:
        Functions of x (b, m, 12), floating point, and of blocked (b, m), boolean with True for
        padding, that return (b, m, 12).
    """
    kinds: dict[str, tuple[type[MultiheadAttention], Masks]] = {
        "north": (MultiheadAttention, _as_padding),
        "east": (MultiheadAttention, _queries_too),
        "south": (mistakes.MaskInTheWrongOrder, _for_each_head),
        "west": (mistakes.FiniteFillInHalf, _as_padding),
    }
    return {name: _build(*kind) for name, kind in kinds.items()}


def _build(version: type[MultiheadAttention], masks: Masks) -> Model:
    """Make a function of self-attention in float64 that is given its masks in some way."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        module = version(_WIDTH, _HEADS, batch_first=True, dtype=torch.float64).eval()

    def model(x: Tensor, blocked: Tensor) -> Tensor:
        if x.dim() != 3 or x.size(-1) != _WIDTH:
            raise ValueError(f"x must have shape (b, m, {_WIDTH}), got {tuple(x.shape)}")
        if blocked.dtype != torch.bool or blocked.shape != x.shape[:2]:
            raise ValueError(
                f"blocked must be boolean and (b, m) = {tuple(x.shape[:2])}, got {blocked.dtype} "
                f"and {tuple(blocked.shape)}"
            )
        wide = x.double()
        output, _ = module(wide, wide, wide, **masks(blocked))
        return output.to(x.dtype)  # (b, m, 12)

    return model


def _as_padding(blocked: Tensor) -> dict[str, Tensor]:
    return {"key_padding_mask": blocked}


def _for_each_head(blocked: Tensor) -> dict[str, Tensor]:
    """Repeat the padding, (b, m), for every head and query."""
    b, m = blocked.shape
    each = blocked[:, None, :].expand(b, m, m).repeat_interleave(_HEADS, 0)  # (b * h, m, m)
    return {"attn_mask": each}


def _queries_too(blocked: Tensor) -> dict[str, Tensor]:
    each = _for_each_head(blocked)["attn_mask"]  # (b * h, m, m)
    return {"attn_mask": each | each.mT}


def _one_head_free(blocked: Tensor) -> dict[str, Tensor]:
    each = _for_each_head(blocked)["attn_mask"].clone()  # (b * h, m, m)
    each[::_HEADS] = False
    return {"attn_mask": each}


def _one_late(blocked: Tensor) -> dict[str, Tensor]:
    before = torch.cat([blocked.new_zeros(len(blocked), 1), blocked[:, :-1]], 1)
    return {"key_padding_mask": blocked & before}


def _discouraged(blocked: Tensor) -> dict[str, Tensor]:
    return {"key_padding_mask": -4 * blocked.double()}


# What each new candidate does, and whether its words react to padding.
_CANDIDATES: tuple[tuple[type[MultiheadAttention], Masks, bool, str], ...] = (
    (mistakes.MaskAfterSoftmax, _as_padding, True,
     "masks after the softmax, so padding counts in the sum"),
    (MultiheadAttention, _queries_too, False,
     "also blocks padded queries, and gives them zeros; words are untouched"),
    (MultiheadAttention, _one_late, True, "lets the first padded key of each sentence through"),
    (mistakes.MaskInverted, _as_padding, True, "reads the mask the wrong way round"),
    (MultiheadAttention, _as_padding, False, "masks as it should"),
    (mistakes.PaddingMaskOnQueries, _as_padding, True, "blocks padding as queries, not as keys"),
    (MultiheadAttention, _one_head_free, True, "forgets the mask in its first head"),
    (MultiheadAttention, _discouraged, True,
     "takes 4 off the scores of padding, which is much and not infinite"),
    (mistakes.FiniteFillInHalf, _as_padding, False,
     "fills with -1e9, whose exponential is 0"),
    (mistakes.MaskIgnored, _as_padding, True, "does not look at the mask"),
)  # fmt: skip


@check("find_leaks")
def check_find_leaks(answer: Callable[..., Any]) -> str:
    """Judge ``find_leaks(models)``, and print the verdict.

    Args:
        answer: the reader's function of a dictionary of models, by name, that returns a list of
            the names of those whose words react to padding.
    """
    require_function(answer)
    calls: list[Call] = []
    found = _ask(answer, four_models(), calls)
    _judge_the_four(found, calls)
    calls.clear()
    models = {f"model {i}": _build(a, b) for i, (a, b, *_) in enumerate(_CANDIDATES, 1)}
    found = _ask(answer, models, calls)
    for name, (*_, leaks, what) in zip(models, _CANDIDATES, strict=True):
        if (name in found) != leaks:
            said = "named" if name in found else "not named"
            raise Refused(
                f"of the four it names the right one, but of {len(models)} new ones, {name} is "
                f"{said}: it {what}.{_hint(calls)}"
            )
    return (
        "right: it is south. It repeats the masks for its heads in the wrong order, so samples "
        f"get each other's. Of {len(models)} new models your probe finds all {len(found)} that "
        "leak, and only those."
    )


class _Models(dict[str, Model]):
    """Models by name, which a refusal shows by their names alone."""

    def __repr__(self) -> str:
        return f"the models {', '.join(self)}"


def _ask(answer: Callable[..., Any], models: Mapping[str, Model], calls: list[Call]) -> set[str]:
    """Let the reader's function judge models, and note what it gives them."""

    def noting(name: str, model: Model) -> Model:
        def noted(x: Tensor, blocked: Tensor) -> Tensor:
            calls.append((name, x.detach().clone(), blocked.clone()))
            return model(x, blocked)

        return noted

    noted_models = _Models({name: noting(name, model) for name, model in models.items()})
    found = call("your code", answer, noted_models)
    if found is None or found is ...:
        raise Refused(f"not yet, it returns {found if found is None else '...'}.")
    if not isinstance(found, list | tuple | set | frozenset):
        raise Refused(f"it returns an object of type {type(found).__name__}; return a list.")
    for name in found:
        if not isinstance(name, str) or name not in models:
            kind = f'"{name}"' if isinstance(name, str) else f"a {type(name).__name__}"
            raise Refused(
                f"it returns {kind}, which is none of the {len(models)} names that it was given, "
                f"{next(iter(models))} to {list(models)[-1]}."
            )
    return set(found)


def _judge_the_four(found: set[str], calls: list[Call]) -> None:
    """Refuse a wrong answer about the four models, with the likeliest reason."""
    if found == {"south"}:
        return
    if not calls:
        raise Refused(f"not yet: it names {_listed(found)}, and has not called any model.")
    false = found - {"south"}
    if false:
        why = _hint(calls) or (
            " Which rows do you compare? A padded row is made from its own token, so it changes "
            "with it. Only the rows of words say something."
        )
        raise Refused(
            f"it names {_listed(found)}, but in {_listed(false)} no word reacts to padding.{why}"
        )
    raise Refused(f"it names none of the four, but one attends to padding.{_hint(calls)}")


def _listed(names: set[str]) -> str:
    return " and ".join(sorted(names)) if names else "none"


def _hint(calls: list[Call]) -> str:
    """Say what the probe's inputs cannot show."""
    if not calls:
        return " Your function has not called any of them."
    if any(not x.isfinite().all() for _, x, _ in calls):
        return (
            " You put NaN or infinity into the padding: 0 times NaN is NaN, so a right mask does "
            "not stop it. Use finite numbers."
        )
    if not any(blocked.any() for *_, blocked in calls):
        return " Nothing was blocked in any of your calls."
    if all(len(x) == 1 for _, x, _ in calls):
        return " You give one sample at a time. What if samples get each other's mask?"
    if all(blocked.equal(blocked[:1].expand_as(blocked)) for *_, blocked in calls):
        return " All your samples have the same length. What if samples get each other's mask?"
    return _changed(calls)


def _changed(calls: list[Call]) -> str:
    """Say what the probe should have changed between two calls of a model, or should not have."""
    name, first, blocked = calls[0]
    moved = torch.zeros_like(blocked)
    for other, x, mask in calls[1:]:
        if other == name and x.shape == first.shape and mask.equal(blocked):
            moved |= (x != first).any(-1)
    if (moved & ~blocked).any():
        return " Between your calls words change, too: change padding, and nothing else."
    if moved.any() and (blocked & ~moved).any():
        return " Some of the padding is the same in all your calls: change all of it."
    return ""

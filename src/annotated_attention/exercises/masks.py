"""Exercises of "Masks": masks merged by hand, and models that attend to padding."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_attention import mistakes
from annotated_attention.exercises._exercise import Either, Exercise, NotYet, Refused
from annotated_attention.exercises._values import cells
from annotated_attention.masks import block_padding
from annotated_attention.multihead import MultiheadAttention

Model = Callable[[Tensor, Tensor], Tensor]  # of the tokens and of blocked
Models = dict[str, Model]
Masks = Callable[[Tensor], dict[str, Tensor]]  # arguments of a module, made from blocked

_TEXTS = ("the cat drank milk", "it was · ·")
_PAIRS = [".xxx", "..xx", "x..x", "xx.."]  # a word may look at itself and at the one before it
_MERGED = [".xxx", "..xx", "x.xx", "xxxx"]  # with the padding of the second text


def _both(first: list[str], second: list[str]) -> dict[str, list[str]]:
    return dict(zip(_TEXTS, (first, second), strict=True))


def _first_difference(answer: object, found: Tensor, right: Tensor) -> str:
    """Say which cell is wrong first, and why."""
    sample, query, key = (found != right).nonzero()[0].tolist()
    words = [f"“{word}”" for word in _TEXTS[sample].split()]
    if sample == 1:
        words[2:] = "the first “·”", "the last “·”"
    why = "this pair is blocked" if _PAIRS[query][key] == "x" else "this pair is not blocked"
    if sample == 1:
        why = "it is padding" if key > 1 else f"it is a word, and {why}"
    said = "blocked" if found[sample, query, key] else "may be seen"
    return (
        f"{int((found != right).sum())} of the 32 cells are wrong. The first is in "
        f"“{_TEXTS[sample]}”, in the row of {words[query]} and the column of {words[key]}: you say "
        f"{said}, but {why}."
    )


check_merged = Exercise(
    name="merged_by_hand",
    right=_both(_PAIRS, _MERGED),
    praise=(
        "right: a key is blocked if either mask blocks it. The row of the last “·” is fully "
        "masked: the two keys that it may look at are padding."
    ),
    wrong={
        "it is inverted: x means blocked here.": _both(
            ["x...", "xx..", ".xx.", "..xx"], ["x...", "xx..", ".x..", "...."]
        ),
        "you have merged with “and”: a cell is blocked only if both masks block it. One is "
        "enough.": _both(["...."] * 4, ["..xx", "..xx", "...x", "...."]),
        "that is the mask of pairs alone: the padding of “it was · ·” is seen.": (
            _both(_PAIRS, _PAIRS)
        ),
        "that is the padding alone: it does not matter there which word asks.": (
            _both(["...."] * 4, ["..xx"] * 4)
        ),
        "the two samples are in each other's place.": _both(_MERGED, _PAIRS),
        "the length of “it was · ·” is one off: “it” and “was” are words, the rest is padding.": (
            Either(
                [
                    _both(_PAIRS, [".xxx", ".xxx", "xxxx", "xxxx"]),
                    _both([".xxx", "..xx", "x..x", "xx.x"], [".xxx", ".xxx", "xxxx", "xxxx"]),
                    _both(_PAIRS, [".xxx", "..xx", "x..x", "xx.x"]),
                ]
            )
        ),
        "both samples have the padding of “it was · ·”; “the cat drank milk” has none.": (
            _both(_MERGED, _MERGED)
        ),
        "rows and columns are swapped: a row belongs to a query, a column to a key.": _both(
            ["..xx", "x..x", "xx..", "xxx."], ["..xx", "x..x", "xxxx", "xxxx"]
        ),
    },
    run=cells(_TEXTS, 4, 4),
    why=_first_difference,
)


def four_models() -> Models:
    """Make the four models of the exercise; one of them attends to padding.

    Returns:
        Functions of x (b, m, 12), floating point, and of blocked (b, m), boolean with True for
        padding, that return (b, m, 12).
    """
    return {
        "north": _build(MultiheadAttention, _as_padding),
        "east": _build(MultiheadAttention, _queries_too),
        "south": _build(mistakes.MaskInTheWrongOrder, _for_each_head),
        "west": _build(mistakes.FiniteFillInHalf, _as_padding),
    }


_WIDTH, _HEADS = 12, 3


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


# What each new model does, with the class and the masks that it is made of.
_NEW: dict[str, tuple[type[MultiheadAttention], Masks]] = {
    "masks after the softmax, so padding counts in the sum": (
        mistakes.MaskAfterSoftmax,
        _as_padding,
    ),
    "also blocks padded queries, and gives them zeros; words are untouched": (
        MultiheadAttention,
        _queries_too,
    ),
    "lets the first padded key of each sentence through": (MultiheadAttention, _one_late),
    "masks as it should": (MultiheadAttention, _as_padding),
    "forgets the mask in its first head": (MultiheadAttention, _one_head_free),
    "takes 4 off the scores of padding, which is much and not infinite": (
        MultiheadAttention,
        _discouraged,
    ),
}


def _draw_models(models: int) -> dict[str, Models]:
    """Make the four models, or as many new ones as there are."""
    new = {f"model {i}": _build(*kind) for i, kind in enumerate(_NEW.values(), 1)}
    return {"models": four_models() if models == 4 else new}


def _named(answer: Callable[[Models], Any], models: Models) -> Tensor:
    """Ask the answer, and tell for each model whether it is named."""
    found = answer(models)
    if found is None or found is ...:
        raise NotYet(f"it returns {'...' if found is ... else None}")
    if not isinstance(found, list | tuple | set | frozenset):
        raise Refused(f"it returns an object of type {type(found).__name__}; return a list.")
    for name in found:
        if not isinstance(name, str) or name not in models:
            raise Refused(f"it returns {name!r}, which is none of the names that it was given.")
    return torch.tensor([name in found for name in models])


def _probe(
    lengths: tuple[int, ...] = (2, 6, 4), change: str = "padding", rows: str = "words"
) -> Callable[[Models], list[str]]:
    """Make a probe that compares two runs, well or badly."""

    def probe(models: Models) -> list[str]:
        blocked = block_padding(torch.tensor(lengths), 6)
        x, other = torch.randn(2, len(lengths), 6, _WIDTH, dtype=torch.float64)
        changed = {
            "padding": torch.where(blocked[..., None], other, x),
            "everything": other,
            "last": torch.cat([x[:, :-1], other[:, -1:]], 1),
            "to NaN": x.masked_fill(blocked[..., None], torch.nan),
        }[change]
        chosen = ~blocked if rows == "words" else torch.ones_like(blocked)
        return [
            name
            for name, model in models.items()
            if not torch.allclose(model(x, blocked)[chosen], model(changed, blocked)[chosen])
        ]

    return probe


def _which_model(answer: object, found: Tensor, right: Tensor, models: Models) -> str:
    """Say which model is wrongly named or not named, and what it does."""
    wrong = int((found != right).nonzero()[0])
    name = [*models][wrong]
    said = f"{name} is {'named' if found[wrong] else 'not named'}"
    if name.startswith("model"):
        return f"{said}: it {[*_NEW][wrong]}."
    reacts = "the words of some sample react" if right[wrong] else "no word reacts"
    return f"{said}, but in it {reacts} to padding."


check_find_leaks = Exercise(
    name="find_leaks",
    right=_probe(),
    praise=(
        "right: it is south. It repeats the masks for its heads in the wrong order, so samples get "
        "each other's. Of the new models your probe finds all that leak, and only those."
    ),
    wrong={
        "it names none, though words react to padding in one of them. Is anything blocked in your "
        "calls, and does it change between them?": lambda models: [],
        "Which rows do you compare? A padded row is made from its own token, so it changes with "
        "it. Only the rows of words say something.": _probe(rows="all"),
        "change padding, and nothing else; and use finite numbers: 0 times NaN is NaN, so a right "
        "mask does not stop it.": Either([_probe(change="everything"), _probe(change="to NaN")]),
        "you give one sample at a time, or samples of the same length. What if samples get each "
        "other's mask?": Either([_probe((4,)), _probe((4, 4))]),
        "some of the padding is the same in all your calls: change all of it.": (
            _probe((2, 4, 3), change="last")
        ),
    },
    run=_named,
    sizes=[{"models": 4}, {"models": len(_NEW)}],
    draw=_draw_models,
    why=_which_model,
)

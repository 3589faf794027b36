"""Exercises of "A model of today": a config.json, models that differ, and heads that are misled."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Either, Exercise, Refused
from annotated_book.exercises._values import furthest, numbers, whole

_NUMBERS = ("first", "second", "third")
_BYTES = 2 * 36 * 8 * 128 * 2

check_config = Exercise(
    name="my_numbers",
    right=[4096, 4, _BYTES],
    praise="right: its heads are 128 wide, together wider than the model's 2,560. A token "
    "takes 147 kB, and a text of 8,192 tokens takes 1.2 GB.",
    wrong={
        "head_dim is given, and so is the number of heads: W_Q makes 32 · 128 numbers. Here h · d "
        "is not e.": Either([[2560, 4, _BYTES], [2560, 4, 2 * 36 * 8 * 80 * 2]]),
        "a head is 128 wide, as head_dim says, and not 2,560 / 32.": [4096, 4, 2 * 36 * 8 * 80 * 2],
        "a cache keeps keys and values.": [4096, 4, _BYTES // 2],
        "a number in half precision takes two bytes.": Either(
            [[4096, 4, 2 * _BYTES], [4096, 4, _BYTES // 4]]
        ),
        "only KV heads are kept, of which there are 8.": [4096, 4, 4 * _BYTES],
        "each of the 36 layers keeps keys and values of its own.": [4096, 4, _BYTES // 36],
        "32 heads of queries share 8 KV heads, so each serves 32 / 8.": Either(
            [[4096, 8, _BYTES], [4096, 32, _BYTES]]
        ),
    },
    run=numbers(3),
    why=lambda answer, found, right: (
        f"look at the {_NUMBERS[furthest(found, right)]} number again: "
        f"{found[furthest(found, right)]:g} is not right."
    ),
    close=0,
)

_CAUSES = ("", "the rotation", "the window", "the groups", "the cache")
_REASONS = [3, 4, 1, 2]


def _reasons(answer: object) -> Tensor:
    """Read four numbers of causes."""
    given = whole("it is", answer, 4, "a list of four numbers")
    if not {*given} <= {1, 2, 3, 4}:
        raise Refused("each of the four is the number of a cause, from 1 to 4.")
    return torch.tensor(given)


def _why_reasons(answer: object, found: Tensor, right: Tensor) -> str:
    model = int((found != right).nonzero()[0])
    said = {
        1: "a rotation turns the first token by nothing, and a query that sees only itself gives "
        "it all its weight: the first position stays right.",
        2: "a window hides nothing until there are more tokens than it holds.",
        3: "query heads that read the wrong KV head get wrong values, even where there is a single "
        "key.",
        4: "as long as the first chunk lasts, nothing comes from a cache.",
    }[int(found[model])]
    return f"model {'ABCD'[model]} is not right with {_CAUSES[int(found[model])]}: {said}"


check_reasons = Exercise(
    name="my_reasons",
    right=_REASONS,
    praise="right: the first position that differs tells the causes apart. No code has to be read.",
    wrong={
        "a rotation turns the first token by nothing, so the first position stays right. Wrong "
        "groups give it wrong values.": [1, 4, 3, 2],
        "the second chunk begins at position 3. There a window of four still sees all tokens, and "
        "at position 4 no longer.": [3, 2, 1, 4],
    },
    run=_reasons,
    why=_why_reasons,
)


def _copies(tokens: list[int]) -> list[tuple[int, int]]:
    """List where a token follows another that it has followed before."""
    pairs = list(itertools.pairwise(tokens))
    return [(i + 1, i) for i, pair in enumerate(pairs) if pair in pairs[:i]]


def _misled(answer: object) -> Tensor:
    """Count how often an induction head that looks at every earlier copy would be right."""
    tokens = whole("it is", answer, 12, "a list of twelve whole numbers")
    if not {*tokens} <= {0, 1, 2, 3}:
        raise Refused("the tokens are 0, 1, 2 and 3.")
    for token in range(4):
        if (count := tokens.count(token)) != 3:
            raise Refused(f"each token comes three times, and {token} comes {count} times.")
    return torch.tensor(len(_copies(tokens)))


def _why_misled(answer: list[int], found: Tensor, right: Tensor) -> str:
    tokens = [int(token) for token in answer]
    place, before = _copies(tokens)[0]
    again = "once" if len(_copies(tokens)) == 1 else f"{len(_copies(tokens))} times"
    return (
        f"the head is right {again}. At index {place} stands {tokens[place]} after "
        f"{tokens[before]}, as it did before: it copies what followed an earlier "
        f"{tokens[before]}."
    )


check_tokens: Callable[[object], None] = Exercise(
    name="my_tokens",
    # One of many, so a page, which knows no other, leaves the verdict to the notebook.
    right=torch.tensor([0, 1, 2, 3, 0, 2, 1, 3, 1, 0, 3, 2]),
    praise="right: no pair of neighbours comes twice, so whatever the head copies is wrong.",
    wrong={},
    run=_misled,
    why=_why_misled,
    close=0,
)

"""The checks of “Masks in the wild” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import scaled_dot_product_attention
from annotated_attention.exercises.masks_in_the_wild import check_make_ready, check_turned

TURNED = check_turned.right


@pytest.mark.parametrize("name", TURNED)
def test_what_it_reacts_to(verdict: Any, name: str) -> None:
    """The functions themselves react to what the verdict says."""
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "nn.MultiheadAttention": lambda x, given: module(x, x, x, key_padding_mask=given)[0],
        "F.scaled": lambda x, given: F.scaled_dot_product_attention(x, x, x, given[:, None]),
        "nn.Transf": lambda x, given: layer(x, src_key_padding_mask=given),
        "this": lambda x, given: scaled_dot_product_attention(x, x, x, blocked=given[:, None])[0],
    }
    function = next(made for start, made in functions.items() if name.startswith(start))
    words = ["it", "was", "·", "·"]
    mask = torch.tensor([[word != "·" for word in words]])

    def seen(choice: str) -> str:
        x = torch.randn(1, 4, 8, requires_grad=True)
        output = function(x, mask if choice == "mask" else ~mask)[0, 0]
        (reaction,) = torch.autograd.grad((output * torch.arange(8)).sum(), x)
        moved = reaction[0].abs().amax(-1) > 1e-6
        reacts = dict.fromkeys(word for word, yes in zip(words, moved.tolist(), strict=True) if yes)
        return " and ".join(f"“{word}”" for word in reacts)

    other = {"mask": "~mask", "~mask": "mask"}[TURNED[name]]
    said = verdict(check_turned, TURNED | {name: other})
    assert seen(TURNED[name]) == "“it” and “was”"
    assert said.startswith(f"✗ turned: given {other}, {name.replace(', ', ' with ')} lets ")
    assert f"react to {seen(other)} alone" in said


def parts(given: Tensor, n: int, by: int = 0) -> tuple[Tensor, Tensor]:
    """Give the keys that are words, and for each of the newest queries the keys up to it."""
    place = torch.arange(given.size(1))
    return (given == 1)[:, None, None, :], place <= place[-n:, None] + by


def right(given: Tensor, n: int, by: int = 0) -> Tensor:
    words, past = parts(given, n, by)
    return words & past


def for_each_head(given: Tensor, n: int) -> Tensor:
    return right(given, n).expand(-1, {6: 4}.get(given.size(1), 2), -1, -1)


def top_left(given: Tensor, n: int) -> Tensor:
    return torch.ones(n, given.size(1)).bool().tril()


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_make_ready, right, "✓ "),
    (check_make_ready, for_each_head, "✓ "),
    (check_make_ready, lambda given, n: ~right(given, n), "It is inverted"),
    (check_make_ready, lambda given, n: parts(given, n)[0] & top_left(given, n), "which corner?"),
    (check_make_ready, lambda given, n: parts(given, n)[0], "but the queries still look ahead"),
    (check_make_ready, lambda given, n: parts(given, n)[1], "no query looks ahead, and padding is"),
    (check_make_ready, lambda given, n: torch.logical_or(*parts(given, n)), "use “and”"),
    (check_make_ready, lambda given, n: right(1 - given, n), "The padding is turned"),
    (check_make_ready, lambda given, n: right(given, n, -1), "may see the key at its own place"),
    (check_make_ready, lambda given, n: right(given, n, 1), "the key after its own place"),
    (check_make_ready, lambda given, n: right(given, n)[:, 0], "Give the heads an axis of 1"),
    (check_make_ready, lambda given, n: given.bool(), "of shape (2, 6); what fits is (b, h, n"),
    (check_make_ready, lambda given, n: right(given, n).float(), "and 1 hides nothing"),
    (check_make_ready, lambda given, n: parts(given, n)[0] & parts(given, n)[1].flip(-1),
     "in sample 0, the query at place 3 finds the key at place 0"),
    (check_turned, {}, "its keys must be 'nn.MultiheadAttention, key_padding_mask', 'F."),
    (check_turned, {**TURNED, "this package's function, blocked": "not"}, "'not' is not read"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)

"""The checks of “Trained weights” accept what is right and name what is wrong."""

from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises.trained_weights import check_my_head, check_my_pool, check_parts


def in_a_loop(states: Tensor, blocked: Tensor) -> Tensor:
    return torch.stack([x[~hidden].mean(0) for x, hidden in zip(states, blocked, strict=True)])


def added_up(states: Tensor, chosen: Tensor) -> Tensor:
    return torch.einsum("bne,bn->be", states, chosen.double())


def by_loops(weights: Tensor, distance: int) -> tuple[int, int]:
    layers, h, n, _ = weights.shape
    score = {
        (i, j): sum(float(weights[i, j, q, q - distance]) for q in range(distance, n))
        for i in range(layers)
        for j in range(h)
    }
    return max(score, key=lambda pair: score[pair])


def largest(score: Tensor) -> tuple[int, int]:
    at = int(score.flatten().argmax())
    return at // score.shape[1], at % score.shape[1]


def wrapping(weights: Tensor, distance: int) -> tuple[int, int]:
    rows = range(weights.size(-1))
    return largest(torch.stack([weights[..., i, i - distance] for i in rows]).mean(0))


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_parts, torch.tensor([0.2, 0.6, 0.2]), "✓ "),
    (check_parts, (0.8, 0.15, 0.05), "these are the weights"),
    (check_parts, (0.25, 4, 4), "these are the norms"),
    (check_parts, (0.8 / 0.25, 0.15 / 4, 0.05 / 4), "you divided the weights by the norms"),
    (check_parts, (0.25 / 0.8, 4 / 0.15, 4 / 0.05), "you divided the norms by the weights"),
    (check_parts, (1.05, 4.15, 4.05), "you added weight and norm"),
    (check_parts, (0.2, 0.2, 0.2), "that is not the weight of cat times its norm"),
    (check_my_pool, in_a_loop, "✓ "),
    (check_my_pool, lambda s, x: torch.einsum("bne->be", s) / s.shape[1], "padding is in the mean"),
    (check_my_pool, lambda s, x: s.sum(1) / (~x).sum(1)[:, None], "the padding is in the sum"),
    (check_my_pool, lambda s, x: added_up(s, ~x), "it is the sum of the real"),
    (check_my_pool, lambda s, x: added_up(s, ~x) / s.shape[1], "divide by n, the padded length"),
    (check_my_pool, lambda s, x: in_a_loop(s, ~x), "you average what is padding"),
    (check_my_pool, lambda s, x: s.select(1, 0), "it is the first token"),
    (check_my_pool, lambda s, x: s[~x].mean(0).repeat(len(s), 1), "over all sentences' tokens"),
    (check_my_pool, lambda s, x: (y := in_a_loop(s, x)) / y.norm(dim=1)[:, None], "to length 1"),
    (check_my_pool, lambda s, x: in_a_loop(s.mul_(2), x), "changes its argument states in place"),
    (check_my_pool, lambda s, x: in_a_loop(s.detach(), x), "no gradient reaches states"),
    (check_my_head, by_loops, "✓ "),
    (check_my_head, lambda w, k: largest(w.diagonal(k, 2, 3).mean(2)), "that head looks ahead"),
    (check_my_head, lambda w, k: largest(w.diagonal(0, 2, 3).mean(2)), "looks at the token itself"),
    (check_my_head, lambda w, k: largest(w.diagonal(-k, 2, 3).amax(2)), "the mean, not the max"),
    (check_my_head, wrapping, "i - distance is negative and wraps round"),
    (check_my_head, lambda w, k: divmod(int(w.diagonal(-k).mean(-1).argmax()), w.size(1)),
     "unless you name the last two, -2 and -1"),
    (check_my_head, lambda w, k: by_loops(w, 1), "not with layers = 2, h = 5, n = 8, distance = 3"),
    (check_my_head, lambda w, k: by_loops(w, k + 1), "looks further back"),
    (check_my_head, lambda w, k: by_loops(w, k)[::-1], "the layer comes first"),
    (check_my_head, lambda w, k: [i + 1 for i in by_loops(w, k)], "count layers and heads from 0"),
    (check_my_head, lambda w, k: int(w.diagonal(-k, 2, 3).mean(2).argmax()), "a layer and a head"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)

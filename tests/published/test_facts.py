"""What the sources' own code does, where no cell of “Published code” shows it."""

import pytest
import torch
from torch import Tensor

from annotated_attention import chapters, sinusoidal_code
from annotated_attention.published import WeightedScores

chapter = chapters.load("15_published_code")


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_scores_of_a_shared_projection_start_out_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own initial parameters, at e = 256 and h = 8, the scores' deviation is 0.11."""
    seen: list[Tensor] = []
    published = chapter.slice_scores
    monkeypatch.setattr(
        chapter, "slice_scores", lambda *given: seen.append(published(*given)) or seen[-1]
    )
    torch.manual_seed(0)
    for _ in range(20):
        query, key = torch.randn(2, 50, 256), torch.randn(2, 50, 256)
        chapter.SlicesFirst(256, 8)(key, key, query, None)
    assert torch.stack(seen).std().item() == pytest.approx(0.11, abs=0.01)


@pytest.mark.parametrize("build", [chapter.ScaledDotProductAttention, WeightedScores])
@pytest.mark.parametrize(("width", "parameters"), [(512, 8_401_408), (64, 1_050_624)])
def test_parameters_of_the_demo_with_weighted_scores(
    build: type, width: int, parameters: int
) -> None:
    """Its d_k and d_v are the model's width, so eight heads are eight times as wide as that."""
    with torch.device("meta"):
        assert count(build(512, width, width, 8)) == parameters


def positions(length: int, width: int, columns: list[int]) -> Tensor:
    """Compute the article's sinusoidal positions, (length, 1, width), sines in these columns."""
    angles = torch.arange(length)[:, None, None] * 10_000 ** (-torch.tensor(columns) / width)
    table = torch.zeros(length, 1, width)
    table[..., columns], table[..., 1::2] = angles.sin(), angles.cos()
    return table


def test_the_articles_positions() -> None:
    """Right at even widths for sequence-first data, and for nothing else."""
    even = positions(3, 8, [0, 2, 4, 6])
    torch.testing.assert_close(even[:, 0].double(), sinusoidal_code(3, 8), rtol=0, atol=1e-5)
    batch_first = torch.zeros(3, 5, 8) + even  # added by sample, and to all its tokens alike
    assert batch_first.equal(batch_first[:, :1].expand(3, 5, 8))
    assert not batch_first[0].equal(batch_first[1])
    with pytest.raises(RuntimeError, match="size"):
        positions(5, 7, [0, 2, 4, 6])
    with pytest.raises(IndexError):  # j up to the width, as printed, where 2j is meant
        positions(5, 8, [2 * j for j in range(8)])

"""The checks of “From memory” let the doctor judge, and say what it says."""

import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated_attention.doctor.command import main
from annotated_attention.exercises import from_memory
from annotated_attention.exercises.from_memory import check_attention, check_mended, check_order
from book.run.scripts import ROOT

CHAPTER = "17_from_memory"


def test_the_stub_can_be_examined_as_a_file(
    groups: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the very command that the chapter names, and there is nothing in it yet."""
    _, stub, *_ = groups(CHAPTER)[1]
    script = (ROOT / "notebooks" / f"{CHAPTER}.py").read_text(encoding="utf-8")
    command = re.search(r"# attention-doctor (mine.py:MyAttention .*)", script)
    assert command is not None
    mine = tmp_path / "mine.py"
    mine.write_text(f"from torch import Tensor, nn\n\n\n{stub.source}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(command[1].split()) == 2
    assert "NotImplementedError" in capsys.readouterr().out


def exchanged(first: str, second: str) -> list[str]:
    """Exchange two words of the right order."""
    other = {first: second, second: first}
    return [other.get(word, word) for word in check_order.right]


class Right(nn.Module):
    """Another way to write it."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        assert embed_dim % num_heads == 0
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
    ) -> Any:
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        inputs = zip((query, key, value), weights, biases, strict=True)
        q, k, v = (
            nn.functional.linear(*x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x in inputs
        )
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if blocked is not None:
            scores = scores.masked_fill(blocked.unsqueeze(1), -math.inf)
        return self.proj(self.merge(scores.softmax(-1) @ v))


class WithWeights(Right):
    def forward(self, *given: Any, **options: Any) -> Any:
        output = super().forward(*given, **options)
        return output, output.new_zeros(1)


class StraightMerge(Right):
    def merge(self, x: Tensor) -> Tensor:
        b, h, n, d = x.shape
        return x.reshape(b, n, h * d)


class Unset(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        self.proj.weight = nn.Parameter(torch.empty(embed_dim, embed_dim))


class AnyWidth(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim - embed_dim % num_heads, num_heads)


class LateError(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        if embed_dim % num_heads:
            raise RuntimeError("shapes")
        super().__init__(embed_dim, num_heads)


class Swapped(Right):
    def forward(self, query: Any, key: Any, value: Any, blocked: Any = None) -> Any:
        return super().forward(key, query, query)


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_order, exchanged("scale", "mask"), "✓ "),
    (check_order, exchanged("mask", "softmax"), "the numbers are wrong"),
    (check_order, exchanged("split", "score"), "“score” comes too early: scores compare"),
    (check_order, exchanged("mix", "merge"), "“merge” comes too early: nothing is mixed"),
    (check_order, ["split", "project", *check_order.right[2:]], "“split” comes too early: there"),
    (check_order, ["project", *check_order.right[:-1]], "the second “project” comes too early"),
    (check_attention, Right, "✓ "),
    (check_attention, WithWeights, "✓ "),
    (check_mended, StraightMerge, "merge-without-transpose"),
    (check_attention, Unset, "proj.weight is never given numbers"),
    (check_mended, AnyWidth, "MyAttention(10, 4) is accepted: 4 heads do not divide 10"),
    (check_attention, LateError, "stops with RuntimeError: 4 heads do not divide 10"),
    (check_attention, Swapped, "shape (2, 5, 24); what fits is (b, n, e), here (2, 3, 24)"),
    (check_mended, Right(24, 4), "give the class itself"),
]


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)


def test_the_clock(
    verdict: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(from_memory, "_started", None)
    assert "Written" not in verdict(check_attention, Right)
    from_memory.start_clock()
    assert "15 minutes" in capsys.readouterr().out
    now = time.monotonic()
    for minutes, said in ((0.5, "less than a minute"), (1.5, "1 minute."), (12.1, "12 minutes.")):
        monkeypatch.setattr(from_memory.time, "monotonic", lambda: now + 60 * minutes)  # noqa: B023
        assert said in from_memory._taken()

"""A check says something helpful whatever it is given, and leaves no trace."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated_book import exercises
from annotated_book.exercises._exercise import Exercise, normal
from annotated_book.exercises._values import numbers
from annotated_book.exercises.one_head import check_attend
from annotated_book.exercises.short_path import check_attention

CHECKS = {
    f"{room}.{name}": member
    for room in exercises.__all__
    for name, member in vars(getattr(exercises, room)).items()
    if name.startswith("check_")
}


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError


class Hostile:
    """Raises whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        raise Mute

    def __call__(self, *args: object) -> object:
        raise Mute

    def __repr__(self) -> str:
        raise Mute


def deep(*args: object) -> object:
    return deep(*args)


GARBAGE: list[Any] = [
    None,
    ...,
    "softmax",
    object,
    {},
    [],
    Mute(),
    Hostile,
    Hostile(),
    deep,
    lambda: None,
    torch,
    lambda *x: Hostile(),
    lambda *x: x,
    lambda *x: "text",
    lambda *x: 1.5,
    nn.Linear,
    lambda *x: torch.zeros(()),
    lambda *x: torch.zeros(0),
    lambda *x: torch.ones(3, 7).bool(),
    lambda *x: torch.zeros(3, 7, device="meta"),
    lambda *x: torch.zeros(3, 7).to_sparse(),
    nn.Linear(2, 2),
    torch.zeros(4, 4, device="meta"),
    torch.eye(4).to_sparse(),
    torch.zeros(4, 4, dtype=torch.bool),
]


@pytest.mark.parametrize("check", CHECKS)
def test_garbage_is_refused(verdict: Any, check: str) -> None:
    for index, answer in enumerate(GARBAGE):
        assert verdict(CHECKS[check], answer).startswith("✗ "), f"it accepts GARBAGE[{index}]"


@pytest.mark.parametrize("check", CHECKS)
def test_each_row_of_a_table_gives_its_sentence(verdict: Any, check: str) -> None:
    exercise = CHECKS[check]
    assert verdict(exercise, exercise.right).startswith(f"✓ {exercise.name}: ")
    for sentence, answer in exercise.rows():
        said = verdict(exercise, answer)
        assert said.startswith("✗ ")
        assert sentence in said


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(*args: object) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_attend(interrupted)


def test_nothing_is_not_yet(verdict: Any) -> None:
    def later(*args: object) -> object:
        raise NotImplementedError

    assert "not yet, your code raises NotImplementedError" in verdict(check_attend, later)
    assert "not yet, it returns ..." in verdict(check_attend, lambda *x: ...)
    assert "not yet, it is None" in verdict(check_attend, None)
    said = verdict(check_attend, "it")
    assert "give the function or class itself; this is an object of type str" in said


def test_the_line_that_raised_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.softmax(query, 5)  # raised within PyTorch

    check_attend(answer)
    lines = capsys.readouterr().out.splitlines()
    at = answer.__code__.co_firstlineno + 1
    assert lines[-3:] == [
        f"in line {at}:",
        "    return nn.functional.softmax(query, 5)  # raised within PyTorch",
        "It was given (3, 6), (5, 6), (5, 7).",
    ]
    assert lines[0].startswith("✗ my_attend: your code raises IndexError: Dimension out of range")


def test_long_reasons_are_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    def verbose(*args: object) -> object:
        raise ValueError("many words " * 500)

    check_attend(verbose)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 15
    assert max(map(len, lines)) <= 88


def test_the_readers_state_stays(verdict: Any) -> None:
    """Random numbers go on as if there had been no check, and a switch stays off or on."""

    class Random(nn.Module):
        def __init__(self, embed_dim: int, num_heads: int) -> None:
            super().__init__()
            self.w_o = nn.Parameter(torch.randn(embed_dim, embed_dim))

    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    verdict(check_attention, Random)
    assert torch.randn(2).equal(expected)

    with torch.no_grad():
        said = verdict(check_attend, nn.functional.scaled_dot_product_attention)
        assert not torch.is_grad_enabled()
    assert said.startswith("✓ ")


def test_a_broken_check_says_so(verdict: Any) -> None:
    def broken(answer: object) -> None:
        raise OSError("no checkout")

    exercise = Exercise(name="answer", right=[1], praise="", wrong={}, run=numbers(1), also=broken)
    assert verdict(exercise, [1]) == (
        "✗ answer: this check cannot judge it. It stopped with OSError: no checkout "
        f"in line {broken.__code__.co_firstlineno + 1}: "
    )


def attend(query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.mT).softmax(-1)  # (n, m)


def test_the_row_that_fits_everywhere_goes_first(verdict: Any) -> None:
    """With n = 2, half of the weights are those of the first key alone."""
    exercise = Exercise(
        name="attend",
        right=attend,
        praise="right.",
        wrong={"half": lambda q, k: attend(q, k) / 2, "fewer": lambda q, k: attend(q, k) / len(q)},
        sizes=[{"n": 2, "m": 3}, {"n": 4, "m": 3}],
        draw=lambda n, m: normal(query=(n, 5), key=(m, 5)),
    )
    assert verdict(exercise, lambda q, k: attend(q, k) / len(q)) == "✗ attend: fewer "
    assert verdict(exercise, lambda q, k: attend(q, k) / 2) == "✗ attend: half "
    once = verdict(exercise, lambda q, k: attend(q, k) / (2 if len(q) == 2 else 3))
    assert once == "✗ attend: half "


def test_an_answer_that_raises_is_matched_at_easy_sizes(verdict: Any) -> None:
    exercise = Exercise(
        name="scores",
        right=lambda q, k: q @ k.mT,
        praise="right.",
        wrong={"you add.": lambda q, k: q + k, "no transpose.": lambda q, k: q @ k},
        sizes=[{"n": 3, "m": 5, "d": 6}],
        easy=[{"n": 4, "m": 4, "d": 4}],
        draw=lambda n, m, d: normal(query=(n, d), key=(m, d)),
    )
    said = verdict(exercise, lambda q, k: torch.einsum("ij,jk", q, k))
    assert said.startswith("✗ scores: no transpose. So your code raises RuntimeError: ")
    said = verdict(exercise, lambda q, k: [][0] if len(q) == 3 else q + k)
    assert said.startswith("✗ scores: your code raises IndexError"), "another error, another reason"
    said = verdict(exercise, lambda q, k: q.view(7) + k)
    assert said.startswith("✗ scores: your code raises RuntimeError"), "it raises there, too"


def test_infinite_numbers_are_compared(verdict: Any) -> None:
    def mask(x: Tensor, hidden: float = -torch.inf) -> Tensor:
        return torch.where(x > 0, hidden, 0.0)

    exercise = Exercise(
        name="mask",
        right=mask,
        praise="right.",
        wrong={"finite": lambda x: mask(x, -1e9), "not a number": lambda x: mask(x, torch.nan)},
        sizes=[{"n": 6}],
        draw=lambda n: normal(x=(n,)),
    )
    assert verdict(exercise, lambda x: mask(x, torch.nan)) == "✗ mask: not a number "
    assert "numbers are NaN or infinite" in verdict(exercise, lambda x: mask(x, torch.inf))


def test_lists_modules_and_hidden_tensors_get_gradients(verdict: Any) -> None:
    def draw(n: int) -> dict[str, Any]:
        parts = normal(one=(n, 3), two=(n, 3), three=(n, 3))
        layer = nn.Linear(3, 4, dtype=torch.float64)
        return {"parts": [parts["one"], parts["two"]], "layer": layer, "own": {"w": parts["three"]}}

    def right(parts: list[Tensor], layer: nn.Module, own: dict[str, Tensor]) -> Tensor:
        return layer(parts[0] + parts[1] * own["w"])

    exercise = Exercise(
        name="add", right=right, praise="right.", wrong={}, sizes=[{"n": 2}], draw=draw
    )
    assert verdict(exercise, right) == "✓ add: right. "

    def cut(name: str) -> Callable[..., Tensor]:
        def answer(parts: list[Tensor], layer: nn.Linear, own: dict[str, Tensor]) -> Tensor:
            one, two = (x.detach() if name == f"parts[{i}]" else x for i, x in enumerate(parts))
            weight = layer.weight.detach() if name == "weight" else layer.weight
            w = own["w"].detach() if name == "w" else own["w"]
            return nn.functional.linear(one + two * w, weight, layer.bias)

        return answer

    for name in ("parts[0]", "parts[1]", "weight", "w"):
        assert f"no gradient reaches {name}, " in verdict(exercise, cut(name))
    with torch.no_grad():  # what the reader's notebook has switched off
        assert "no gradient reaches w, " in verdict(exercise, cut("w"))
    assert "parts in place" in verdict(
        exercise, lambda parts, *x: right([parts.pop(0), *parts], *x)
    )
    assert "It was given [(2, 3), (2, 3)], Linear. " in verdict(exercise, lambda *x: [][0])

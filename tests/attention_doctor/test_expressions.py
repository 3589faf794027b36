"""What cannot be guessed is given as an expression: by names of the file, and by letters."""

import pytest
import torch

from attention_doctor.command import main
from attention_doctor.expressions import for_call
from attention_doctor.options import Expression

FILE = """
import math
import torch
from torch import nn

WIDTH = 7


class Inner(nn.Module):
    def __init__(self, hides):
        super().__init__()
        self.hides = hides

    def forward(self, q, k, v):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if self.hides:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
        return scores.softmax(-1) @ v


class Attention(nn.Module):
    def __init__(self, dim, num_heads, core, norm="rms", wide=7):
        super().__init__()
        assert norm == "rms", norm
        self.h, self.core, self.norm = num_heads, core, norm
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.near, self.wide = nn.Linear(wide, dim), wide

    def forward(self, x, where):
        assert where.shape == (1, x.size(1), self.wide) or where.shape[:2] == x.shape[:2]
        q, k, v = (self.qkv(x) + 0).chunk(3, -1)
        q, k = q + self.near(where), k + self.near(where)
        heads = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in (q, k, v))
        return self.out(self.core(*heads).transpose(1, 2).flatten(2))
"""


@pytest.fixture
def examine(tmp_path, capsys):
    """Return a function that runs the command on the file, and gives the code and the output."""
    path = tmp_path / "given.py"
    path.write_text(FILE)

    def run(*options, kind="self"):
        target = f"{path}:Attention"
        code = main([target, "--kind", kind, "--embed-dim", "24", "--num-heads", "4", *options])
        return code, " ".join(capsys.readouterr().out.split())

    return run


GIVEN = ("--init", "core=Inner(hides=False)", "--call")


@pytest.mark.parametrize(
    "where",
    [
        "where=torch.ones(1, n, WIDTH)",  # a name of the file
        "where=torch.randn(1, n, 7)",  # other lengths get the beginning of it
        "where=torch.randn(b, n, 7)",  # all samples get the same
        "where=torch.randn(16, 7)[None, :n]",  # which is cut already
    ],
)
def test_modules_and_tensors_are_given_as_expressions(examine, where):
    code, output = examine(*GIVEN, where)
    assert code == 0, output
    assert f"called with x=x, {where}" in output


def test_sizes_are_letters_for_the_constructor_too(examine):
    init = ["--init", "core=Inner(hides=n < e // h)", "wide=d + 1"]
    code, output = examine(*init, "--max-length", "5", "--call", "where=torch.ones(1, n, d + 1)",
                           kind="causal")  # fmt: skip
    assert code == 0, output


def test_a_word_that_the_file_does_not_know_is_a_string(examine):
    init = ("--init", "core=Inner(hides=True)", "norm=rms", "--call", "where=torch.ones(1, n, 7)")
    assert examine(*init, kind="causal")[0] == 0
    assert "AssertionError: math" in examine(*init[:2], "norm='math'", *init[3:])[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--init", "core=Outer(3)"], "`--init core=Outer(3)`: NameError: name 'Outer' is not"),
        (["--init", "core=Inner("], "`--init core=Inner(`: SyntaxError"),
        ([*GIVEN, "where=torch.zeros(n, k)"], "`--call where=torch.zeros(n, k)`: NameError"),
        ([*GIVEN, "where=1 / 0"], "`--call where=1 / 0`: ZeroDivisionError: division by zero"),
    ],
)
def test_an_expression_that_fails_is_named_with_its_error(examine, options, says):
    given = [] if "--call" in options else ["--call", "where=None"]
    code, output = examine(*options, *given)
    assert code == 2
    assert says in output
    assert "It may use the names of the file, `torch`, and " in output
    assert "in quotes: `" in output


def test_the_message_that_asks_shows_expressions(examine):
    code, output = examine()
    assert code == 2
    assert "the constructor's core and the call's where cannot be guessed" in output
    assert "--init 'core=torch.nn.Identity()' --call 'where=torch.randn(b, n, e)'`" in output


def sizes(b, n, m=None):
    return {"b": b, "n": n, "m": m or n, "e": 24, "h": 4, "d": 6}


def expression(text):
    found = Expression(text)
    found.names = {}
    return found


def value(text, b, n, m=None, dtype=torch.float64):
    return for_call(expression(text), sizes(b, n, m), 16, dtype)


@pytest.mark.parametrize("text", ["torch.randn(b, n, e)", "torch.randn(b * h, n, m)",
                                  "torch.rand(n, b, e)"])  # fmt: skip
def test_calls_of_other_sizes_agree(text):
    many, one = value(text, 3, 5, 7), value(text, 1, 5, 7)
    axis = 1 if text.endswith("(n, b, e)") else 0
    assert all(torch.equal(x, one) for x in many.chunk(3, axis))
    short = value(text, 3, 2, 7)
    assert torch.equal(short, many.narrow(1 - axis, 0, 2))


def test_distances_are_cut_on_both_sides():
    long, short = (value("torch.randn(2 * n - 1, e)", 1, n) for n in (5, 3))
    assert torch.equal(short, long[2:-2])


def test_what_is_cut_by_the_expression_is_left_as_it_is():
    long, short = (value("torch.randn(16, 1, e)[-n:]", 2, n) for n in (5, 3))
    assert torch.equal(short, long[-3:])


def test_what_is_not_drawn_is_computed_as_it_is_written():
    assert torch.equal(value("torch.arange(b)", 3, 5), torch.arange(3))
    assert value("torch.full((b,), n)", 3, 5).tolist() == [5, 5, 5]


def test_numbers_get_the_dtype_of_the_call_and_nobody_elses_generator_moves():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    text = "(torch.randn(n, d), [torch.ones(1, dtype=torch.cfloat)], {'at': torch.arange(n)})"
    found = value(text, 2, 5, dtype=torch.float16)
    assert torch.equal(before, torch.get_rng_state())
    assert found[0].dtype == torch.float16
    assert found[1][0].dtype == torch.complex64
    assert found[2]["at"].dtype == torch.int64
    assert value("torch.nn.Linear(d, d)", 2, 5).weight.dtype == torch.float64

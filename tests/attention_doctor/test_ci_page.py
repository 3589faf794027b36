"""The page *In your CI* does what it says: its test and its step run, and fail on a mistake."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
from mkdocs.utils.yaml import yaml_load

import attention_doctor.testing  # noqa: F401  # not anew in each run of pytest
from attention_doctor.command import main

PAGE = Path(__file__).parents[2] / "docs" / "package" / "doctor-in-ci.md"
MODEL = """
    import math
    import torch
    from torch import nn

    class CausalSelfAttention(nn.Module):
        def __init__(self, width, num_heads):
            super().__init__()
            self.h, self.qkv = num_heads, nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            b, n, e = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.mT / math.sqrt(e // self.h)
            hidden = torch.ones(n, n).triu(DIAGONAL).bool()
            weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
            return self.out((weights @ v).transpose(1, 2).reshape(b, n, e))

    def build():
        return nn.Sequential(CausalSelfAttention(24, 4)), {"input": torch.randn(2, 5, 24)}
    """


def block(language):
    """Give the page's only block of code in a language."""
    _, text = PAGE.read_text(encoding="utf-8").split(f"```{language}\n")
    return text.partition("```")[0]


@pytest.fixture
def project(tmp_path, monkeypatch):
    def write(diagonal):
        text = textwrap.dedent(MODEL).replace("DIAGONAL", str(diagonal))
        (tmp_path / "my_model.py").write_text(text)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return write


@pytest.mark.parametrize(("diagonal", "passed"), [(1, 2), (2, 0)])
def test_the_test_of_the_page(pytester, monkeypatch, diagonal, passed):
    model = textwrap.dedent(MODEL).replace("DIAGONAL", str(diagonal))
    pytester.makepyfile(my_model=model, test_attention=block("python"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loaded anew, each takes its time
    run = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    assert run.ret == (0 if passed else 1)
    run.assert_outcomes(passed=passed, failed=2 - passed)
    text = run.stdout.str()
    assert ("wrong: causal-off-by-one" in text) == (not passed)
    assert ("triu(diagonal=1)" in text) == (not passed)


@pytest.mark.parametrize(("diagonal", "code"), [(1, 0), (2, 1)])
def test_the_step_of_the_page(project, diagonal, code, capsys):
    project(diagonal)
    (step,) = yaml_load(block("yaml"))
    commands = [shlex.split(line) for line in step["run"].splitlines()]
    assert len(commands) == 2
    for name, *arguments in commands:
        assert name == "attention-doctor"
        assert main(arguments) == code
    assert f'"exit_code": {code}' in capsys.readouterr().out


def test_the_table_has_the_keys_that_the_json_has(project, capsys):
    project(2)
    sizes = ["--kind", "causal", "--embed-dim", "24", "--num-heads", "4", "--json"]
    main(["my_model.py:CausalSelfAttention", *sizes])
    data = yaml_load(capsys.readouterr().out)  # JSON is YAML
    _, table = PAGE.read_text(encoding="utf-8").split("| key |")
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    first = {name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)}
    assert first == {*data, "reports", "where", "explains"}
    (findings,) = (text for cell, text in rows if "findings" in cell)
    assert {*data["findings"][0]} <= {*re.findall(r"`(\w+)`", findings)}

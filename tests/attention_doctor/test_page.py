"""The page on the doctor shows what the doctor prints, and its adapter fits."""

import inspect
import re
import shlex
from pathlib import Path

from attention_doctor.command import main
from attention_doctor.rules.questions import HOLDS

PAGE = (Path(__file__).parents[2] / "docs" / "package" / "doctor.md").read_text(encoding="utf-8")
GRAPH = """
import math
from torch import nn


class GraphAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.h, self.qkv = heads, nn.Linear(width, 3 * width)

    def forward(self, targets, graph):
        parts = self.qkv(targets).chunk(3, -1)
        q, k, v = (x.unflatten(-1, (self.h, -1)).transpose(1, 2) for x in parts)
        scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~graph[:, None], -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


def blocks(language):
    """Give the page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_report_of_the_page_is_what_is_printed(tmp_path, monkeypatch, capsys):
    (layer, _), (shown, *_) = blocks("python"), blocks("text")
    (tmp_path / "layer.py").write_text(layer)
    monkeypatch.chdir(tmp_path)
    command, *arguments = shlex.split(blocks("sh")[0])
    assert command == "attention-doctor"
    assert main(arguments) == 1
    assert capsys.readouterr().out == shown


def test_the_adapter_of_the_page_is_what_is_printed_and_fits(tmp_path, monkeypatch, capsys):
    (tmp_path / "layers.py").write_text(GRAPH)
    monkeypatch.chdir(tmp_path)
    sizes = ["--kind", "self", "--embed-dim", "24", "--num-heads", "4"]
    assert main(["layers.py:GraphAttention", *sizes]) == 2
    printed = capsys.readouterr().out.partition("# Save")[2]
    (complete,) = blocks("py")
    open_lines = [line for line in printed.splitlines() if "return" in line and "#" not in line]
    assert open_lines[0].strip() == "return module(targets=..., graph=...)"
    given = {*complete.splitlines()} - {*printed.splitlines()}
    assert len(given) == 2  # what the user completes
    (tmp_path / "examined.py").write_text(complete)
    assert main(["examined.py:make_attention", *sizes]) == 0
    assert "blocked, padding" not in capsys.readouterr().out  # among what is not examined


def test_the_model_of_the_page_is_examined(tmp_path, monkeypatch, capsys):
    layer, make_model = blocks("python")
    (tmp_path / "layer.py").write_text(layer.replace(").reshape(b", ").mT.reshape(b"))
    model = """
        import torch
        from torch import nn

        from layer import CausalSelfAttention


        def MyModel():
            return nn.Sequential(nn.Embedding(100, 24), CausalSelfAttention(24, 4))


        """
    (tmp_path / "models.py").write_text(inspect.cleandoc(model) + "\n\n" + make_model)
    monkeypatch.chdir(tmp_path)
    assert main(["--model", "models.py:make_model", "--attention", "CausalSelfAttention"]) == 1
    assert "1 attention" in capsys.readouterr().out


def table(heading):
    """Give the rows of a table by its heading, as lists of cells."""
    rows = PAGE.split(heading)[1].split("\n\n")[0].strip().splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_the_table_of_tests_has_all_of_them_as_they_are_described():
    listed = dict(table("| test | what must hold |"))
    assert {*listed} - {*HOLDS} == {"inside", "reference"}
    assert HOLDS.items() <= listed.items()
    assert [*listed][: len(HOLDS)] == [*HOLDS]

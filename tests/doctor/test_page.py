"""The page on the doctor shows what the doctor prints, and its adapter fits."""

import re
import shlex
from pathlib import Path

from annotated_attention.doctor.command import main

PAGE = (Path(__file__).parents[2] / "docs" / "package" / "doctor.md").read_text(encoding="utf-8")
GRAPH = """
import math
from torch import nn


class GraphAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.h, self.qkv = heads, nn.Linear(width, 3 * width)

    def forward(self, targets, sources, *, keep):
        assert targets is sources
        parts = self.qkv(targets).chunk(3, -1)
        q, k, v = (x.unflatten(-1, (self.h, -1)).transpose(1, 2) for x in parts)
        scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~keep[:, None], -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
"""


def blocks(language):
    """Give the page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_report_of_the_page_is_what_is_printed(tmp_path, monkeypatch, capsys):
    (layer,), (shown,) = blocks("python"), blocks("text")
    (tmp_path / "layer.py").write_text(layer)
    monkeypatch.chdir(tmp_path)
    command, *arguments = shlex.split(blocks("sh")[0])
    assert command == "attention-doctor"
    assert main(arguments) == 1
    assert capsys.readouterr().out == shown


def test_the_adapter_of_the_page_fits(tmp_path, monkeypatch, capsys):
    (tmp_path / "layers.py").write_text(GRAPH)
    (tmp_path / "examined.py").write_text(*blocks("py"))
    monkeypatch.chdir(tmp_path)
    sizes = ["--kind", "self", "--embed-dim", "24", "--num-heads", "4"]
    assert main(["examined.py:make_attention", *sizes]) == 0
    assert "blocked, padding" not in capsys.readouterr().out  # among what is not examined

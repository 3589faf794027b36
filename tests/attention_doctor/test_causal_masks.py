"""What hides the future by itself, and takes a mask as well, is asked about that mask."""

import pytest

from attention_doctor.command import main

CLASS = """
import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.qkv = n_heads, nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, NAME=None):
        b, n, e = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        scores = (q @ k.mT / math.sqrt(e // self.h)).masked_fill(future, -math.inf)
        if NAME is not None:
            MASKED
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, e))
"""
RIGHT = {
    "padding": ("pad_mask", "scores = scores.masked_fill(pad_mask[:, None, None], -math.inf)"),
    "padding that is allowed": ("mask",
        "scores = scores.masked_fill(mask[:, None, None] == 0, -1e9)"),
    "one for all samples": ("attn_mask", "scores = scores.masked_fill(~attn_mask, -math.inf)"),
    "for each query": ("attention_mask", "scores = scores + attention_mask"),
}  # fmt: skip
WRONG = {
    "mask-ignored": ("pad_mask", "scores.masked_fill(pad_mask[:, None, None], -math.inf)"),
    "mask-inverted": ("key_padding_mask",
        "scores = scores.masked_fill(~key_padding_mask[:, None, None], -math.inf)"),
    "padding-mask-on-queries": ("padding_mask",
        "scores = scores.masked_fill(padding_mask[:, None, :, None], -1e9)"),
}  # fmt: skip


@pytest.fixture
def examine(tmp_path, capsys):
    """Examine the class with a mask of this name; gives the exit code and what is printed."""

    def run(name, line, *options):
        path = tmp_path / "examined.py"
        path.write_text(CLASS.replace("NAME", name).replace("MASKED", line))
        sizes = ["--embed-dim", "24", "--num-heads", "4", "--kind", "causal"]
        code = main([f"{path}:Attention", *sizes, *options])
        return code, " ".join(capsys.readouterr().out.split())

    return run


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_mask_besides_the_future_is_asked_about(examine, case):
    code, output = examine(*RIGHT[case])
    assert code == 0, output
    assert f"{RIGHT[case][0]}=mask" in output
    assert "left out of all calls" not in output
    assert "blocked: the test does not apply" not in output


@pytest.mark.parametrize("code", WRONG)
def test_a_wrong_one_is_named(examine, code):
    found, output = examine(*WRONG[code])
    assert found == 1
    assert f"wrong: {code}" in output, output
    assert output.count("wrong: ") == 1


def test_what_is_said_about_it_counts(examine):
    name, line = RIGHT["padding that is allowed"]
    assert examine(name, line, "--mask", "allowed")[0] == 0
    code, output = examine(name, line, "--mask", "blocked")
    assert (code, "wrong: mask-inverted" in output) == (1, True), output


def test_a_mask_without_effect_and_without_a_telling_name_is_left_out_and_said_to_be(examine):
    code, output = examine("mask", "pass")
    assert code == 0
    assert "`mask` was not understood as a mask over keys, and is left out of all calls" in output


@pytest.mark.parametrize("name", ["is_decoder", "causal", "autoregressive"])
def test_a_flag_of_the_constructor_that_hides_the_future_is_set(tmp_path, capsys, name):
    text = CLASS.replace(", NAME=None", "").split("        if NAME")
    text = text[0] + text[1].split("MASKED\n")[1]
    text = text.replace("n_heads):", f"n_heads, {name}=False):").replace(
        "super().__init__()", f"super().__init__(); self.flag = {name}"
    )
    path = tmp_path / "examined.py"
    path.write_text(text.replace(".triu(1)", ".triu(1) & self.flag"))
    sizes = ["--embed-dim", "24", "--num-heads", "4"]
    assert main([f"{path}:Attention", *sizes, "--kind", "causal"]) == 0
    assert f"{name}=True" in capsys.readouterr().out

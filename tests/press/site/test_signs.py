"""The page of symptoms: the doctor takes its commands, and no code of the doctor is missing."""

import re
import shlex

import pytest
import torch
from markdown.extensions.toc import slugify
from torch import nn

from attention_doctor.codes import CODES
from attention_doctor.command import read
from press.run import scripts
from press.site import signs

PAGE = (scripts.ROOT / "docs" / "symptoms.md").read_text(encoding="utf-8")


def test_the_doctor_takes_its_commands():
    commands = re.findall(r"^attention-doctor (.*)$", PAGE, re.MULTILINE)
    assert commands
    for command in commands:
        given = read(shlex.split(command))
        assert (given.embed_dim, given.num_heads) == (24, 4)


def test_the_list_has_the_sections_in_their_order():
    listed = re.findall(r"^- \[.*\]\(#(.*)\)$", PAGE, re.MULTILINE)
    _, *sections = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert listed == [slugify(section, "-") for section in sections]


def test_lists_of_codes_become_tables_of_every_code():
    said = []
    written = signs.write(PAGE, said.append)
    assert (
        "| Blocked scores are filled with a number that float16 cannot hold | "
        "[`finite-fill-in-half`](codes.md#finite-fill-in-half) | [Masks in the wild]"
        "(../notebooks/16_masks_in_the_wild.ipynb#cell-id=fills-in-half-precision) |"
    ) in written
    unseen = {"sink-added-to-scores"}  # a mistake that the doctor does not tell from a design
    assert {*re.findall(r"\| \[`([\w-]+)`\]", written)} == {*CODES} - unseen
    assert said == []
    signs.write("- [Masks](../notebooks/06_masks.ipynb#x): mask-ignored no-mask\n", said.append)
    assert said == ["no-mask is no code of the doctor"]


def test_three_causes_are_open_and_the_others_folded():
    four = "mask-ignored mask-inverted nan-row nan-spreads"
    shown, folded = signs.write(f"- [Masks](../notebooks/06_masks.ipynb#x): {four}\n", print).split(
        "<summary>Less likely: 1</summary>"
    )
    found = [re.findall(r"\| \[`([\w-]+)`\]", part) for part in (shown, folded)]
    assert found == [four.split()[:3], four.split()[3:]]


def test_every_code_has_a_section():
    written = signs.reference((scripts.ROOT / "docs" / "codes.md").read_text(encoding="utf-8"))
    sections = re.findall(r"^### (.*)$", written, re.MULTILINE)
    assert sorted(sections) == sorted(CODES)
    assert {*re.findall(r"\(#(.*?)\)", written)} <= {*CODES}
    (text,) = re.findall(r"^### mask-ignored\n(.*?)^###", written, re.MULTILINE | re.DOTALL)
    assert "(../notebooks/06_masks.ipynb#" in text
    assert "```diff\n- weights = scores.softmax(-1)\n+ weights = scores.masked_fill(" in text
    assert "[`mask-missing-in-evaluation`](#mask-missing-in-evaluation)" in text


def test_the_probes_of_the_page_run_without_the_package(capsys):
    block = re.search(r"```python\n(.*?)```", signs.write(PAGE, print), re.DOTALL)[1]
    assert not re.search("annotated_attention|attention_doctor", block)
    exec(block, space := {"__name__": "pasted"})
    *small, competition = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert len(small) == 5
    assert max(small) < 1e-9 < competition
    mean = space["patient"]
    mean.in_proj_weight.data[: space["WIDTH"]] = 0
    assert space["competition"](mean) < 1e-9


def test_projections_start_as_the_page_says():
    e, made = 512, nn.MultiheadAttention(512, 8)
    apart, as_theirs = nn.Linear(e, e), nn.Linear(e, e)
    nn.init.xavier_uniform_(as_theirs.weight, 2**-0.5)
    for weight, std in (
        (apart.weight, (3 * e) ** -0.5),
        (made.out_proj.weight, (3 * e) ** -0.5),  # left as nn.Linear has it
        (made.in_proj_weight, (2 * e) ** -0.5),
        (as_theirs.weight, (2 * e) ** -0.5),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.02)
    assert apart.bias.abs().max().item() == pytest.approx(e**-0.5, rel=0.05)
    assert not torch.cat([made.in_proj_bias, made.out_proj.bias]).any()


def test_scores_below_a_finite_fill_give_all_weight_to_what_is_blocked():
    assert "If the keys that a query may see score −15,000".lower() in PAGE.lower()
    blocked, scores = torch.tensor([False, True]), torch.full((2,), -15_000.0)
    for fill, weights in ((-1e4, [0.0, 1.0]), (-torch.inf, [1.0, 0.0])):
        assert scores.masked_fill(blocked, fill).softmax(-1).tolist() == weights

"""What nobody says of a mask and of a call: how it is found, or what is said instead."""

import pytest
import torch

from attention_doctor import adapt
from attention_doctor.call.build import build
from attention_doctor.call.matching import matched
from attention_doctor.call.roles import Sizes, Unasked, size_of
from attention_doctor.command import main
from attention_doctor.examination import examine_called

FORWARD = "self, x, mask=None"
HIDE = "scores.masked_fill(mask[:, None], -math.inf)"
BASE = f"""
import math
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward({FORWARD}):
        q, k, v = (y.unflatten(-1, (3, 4)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(4)
        if mask is not None:
            scores = {HIDE}
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
PADDING = "mask[:, None, None]"


def asked(hide=HIDE, forward=FORWARD, call="", wrap=None, mask="", kind="self", **options):
    text = BASE.replace("def forward(" + FORWARD, f"def forward({forward})".rstrip(")"))
    text = text.replace(HIDE, hide).replace("q, k, v = (y", f"{call}\n        q, k, v = (y")
    exec(text, space := {"__name__": "theirs"})
    torch.manual_seed(0)
    module = space["Attention"]()
    made = module if wrap is None else adapt(lambda x, blocked: module(x, blocked), mask=wrap)
    return examine_called(made, Sizes(12, 3, 12), kind, mask=mask, **options)


# What is put in, the codes that are wrong, and what the report says of the mask.
MASKS = {
    "one minus the mask, times a number": (
        {"hide": f"scores - 1e30 * (1 - {PADDING})"},
        (),
        "`mask` is bm, 1 = allowed: inferred",
    ),
    "and it must be given": (
        {"hide": f"scores - 1e9 * (1 - {PADDING})", "forward": "self, x, mask"},
        (),
        "mask=bm allowed float always",
    ),
    "it is there, though it need not": (
        {"call": "mask = mask.bool()"},
        (),
        "mask=bnm blocked always",
    ),
    "two kinds of it in two lines": (
        {"hide": f"(scores - 9 * (1 - {PADDING})).masked_fill(1 - {PADDING}, -9e9)"},
        ("mask-fails",),
        "one line takes numbers for a mask and another",
    ),
    "more axes than there are": (
        {"hide": "scores.flatten(0, 1).masked_fill(mask[:, None, None, None].expand(3), 0)"},
        ("mask-fails",),
        "Axes are aligned from the right",
    ),
    "in an adapter": (
        {"hide": f"scores.masked_fill(1 - {PADDING}, -9e9)", "wrap": "inferred"},
        ("mask-fails",),
        "it fails with any mask",
    ),
    "in an adapter, and left out": (
        {"hide": f"scores.masked_fill(1 - {PADDING}, -9e9)", "wrap": "", "mask": "none"},
        (),
        "it takes no mask",
    ),
    "a name that people give to both": (
        {"forward": "self, x, src_padding_mask=None", "call": "mask = src_padding_mask"}
        | {"hide": f"scores.masked_fill({PADDING} == 0, -math.inf)"},
        (),
        "`src_padding_mask` is bm, True = allowed: inferred",
    ),
    "True and False are added": (
        {"hide": f"scores + {PADDING}"},
        ("fill-does-not-block",),
        "`mask` is bm, True = allowed: guessed, though 0 and −∞ would hide",
    ),
    "an error that no mask brings about": (
        {"forward": "self, x, mask", "call": "x = x.view(7, -1)"},
        ("fails",),
        "shape '[7, -1]' is invalid",
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_what_is_found_out_about_a_mask(name):
    given, wrong, said = MASKS[name]
    report = asked(**given)
    found = [x.code for x in report.findings if x.severity != "convention"]
    assert (*found,) == wrong, str(report)
    assert said in " ".join(str(report).split())


def test_a_form_that_is_said_and_does_not_fit_is_no_fault():
    with pytest.raises(Unasked, match="no mask of nm fits its mask"):
        asked(mask="nm blocked")


CONFIG = """
class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.qkv, self.rate = nn.Linear(config.n_embd, 3 * config.n_embd), config.decay

    def forward(self, x, speed):
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v
"""
KEPT = CONFIG.replace("config.decay", "0").replace("speed", "mask=torch.ones(0)")
KEPT = KEPT.replace("        q, k, v", "        mask.size(0)\n        q, k, v")
FOURTH = CONFIG.replace("config.decay", "0").replace("x, speed", "x")
FOURTH = FOURTH.replace("        q, k, v", "        b, rows, columns, e = x.shape\n        q, k, v")
# A file, options, what the printed adapter holds, and what it does not.
PRINTED = {
    "a field that is said": (CONFIG, "--init decay=0.1", "n_embd=12, decay=0.1))", "config=..."),
    "a field that is missing": (CONFIG, "", "(n_embd=12, decay=...))", "config=..."),
    "a mask that must not be None": (
        KEPT,
        "--call no_such=1",
        'return module(x=x, **({} if blocked is None else {"mask": blocked}))',
        "mask=blocked",
    ),
    "nothing is left to fill in": (FOURTH, "", "# fails so far: ValueError: not enough", "= ..."),
    "it is an adapter": (
        "from attention_doctor import adapt\ndef make(): return adapt(lambda x, blocked: 1 / 0)",
        "",
        "ZeroDivisionError",
        "# Save",
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_adapter_that_is_printed_can_work(tmp_path, capsys, name):
    text, options, said, not_said = PRINTED[name]
    (tmp_path / "theirs.py").write_text("import math\nimport torch\nfrom torch import nn\n" + text)
    target = f"{tmp_path / 'theirs.py'}:{'make' if 'def make' in text else 'Attention'}"
    sizes = ["--kind", "self", "--embed-dim", "12", "--num-heads", "1"]
    assert main([target, *sizes, *options.split()]) == 2
    printed = capsys.readouterr().out
    assert said in printed.replace("decay=0.1, n_embd=12", "n_embd=12, decay=0.1")
    assert not_said not in printed


WINDOWED = """
class Attention(nn.Module):
    def __init__(self, emb, head_num, high=2, wide=4, window=2):
        super().__init__()
        self.h, self.qkv, self.image = head_num, nn.Linear(emb, 3 * emb), (high, wide)
        self.window, self.bias = window, nn.Parameter(torch.randn(window**2, window**2))

    def forward(self, x):
        (high, wide), w, (b, n, e) = self.image, self.window, x.shape
        x = x.view(b, high // w, w, wide // w, w, e).transpose(2, 3).reshape(-1, w * w, e)
        q, k, v = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(q.size(-1)) + self.bias
        y = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return y.view(b, high // w, wide // w, w, w, e).transpose(2, 3).reshape(b, n, e)
"""


def test_windows_of_an_image_are_asked_with_the_tokens_of_one():
    exec("import math\nimport torch\nfrom torch import nn\n" + WINDOWED, space := {})
    sizes = Sizes(12, 3, 12)
    module = build(space["Attention"], {}, sizes, "self")[0]
    report = examine_called(module, sizes, "self")
    assert report.codes == ("sliding-window", "order-matters"), str(report)
    assert "8 tokens, the number that its error names" in str(report)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ("x, xa", "memory"),
        ("x, c", "memory"),
        ("Q, K", "memory"),
        ("X_Q, X_KV", "memory"),
        ("inputs_kv, inputs_q", "memory"),
        ("Q, K, V", "cross"),
        ("input_tensor", "self"),
    ],
)
def test_names_of_what_a_call_takes(names, kind):
    exec(f"def attend({names}): pass", space := {})
    assert matched(space["attend"], kind, "", {}).fits


@pytest.mark.parametrize(
    ("name", "role"),
    [
        *((name, "width") for name in ("emb", "feats", "n_feat", "q_dim", "out_channels")),
        *((name, "heads") for name in ("head_num", "query_heads")),
    ],
)
def test_names_of_sizes(name, role):
    assert size_of(name) == role

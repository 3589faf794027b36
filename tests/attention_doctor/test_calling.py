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
# Both masks are (n, m); a mask of more axes gives the scores six, and `view` takes them.
WINDOW = "i = torch.arange(x.size(1)); far = (i > i[:, None]) | (i < i[:, None] - 2)"
HIDE_BOTH = "scores.masked_fill((far if mask is None else far | mask)[None, None], -math.inf)"
VIEWED = BASE.replace("mask is not None", "x is not None").replace(
    "flatten(2)", "contiguous().view(x.shape)"
)

EITHER = "scores.masked_fill(future if keep is None else future & ~keep, -math.inf)"
HIDES_NONE = "None if mask is None else mask[:, None, None]"
HIDES_NONE += "; i = torch.arange(x.size(1)); future = i > i[:, None]"
KEPT_BY = "self, x, padding_keep=None"
KEEP = "keep = " + HIDES_NONE.replace("mask", "padding_keep")
VALID = {"forward": "self, x, valid=None", "base": BASE.replace("mask is not", "valid is not")}


def asked(
    hide=HIDE, forward=FORWARD, call="", wrap=None, mask="", kind="self", base=BASE, **options
):
    text = base.replace("def forward(" + FORWARD, f"def forward({forward})".rstrip(")"))
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
        ("boolean-mask-added",),
        "`mask` is bm, True = allowed: guessed, though 0 and −∞ would hide",
    ),
    "and its docstring says what True means": (
        {"call": "'mask: bool, True where a query may attend.'", "hide": "scores + mask"},
        ("boolean-mask-added",),
        "`mask` is b1nm, True = allowed: guessed, though 0 and −∞ would hide, as its docstring",
    ),
    "and its docstring says what True does not mean": (
        {"call": "'mask: bool, True where a token is real, not padding.'", "hide": "scores + mask"},
        ("boolean-mask-added",),
        "`mask` is b1nm, True = allowed: guessed, though 0 and −∞ would hide",
    ),
    "minus infinity alone hides": (
        {"hide": "scores + (1 - mask) * -1e-9"},
        ("mask-ignored",),
        "`mask` is b1nm, 1 = allowed: guessed, though 0 and −∞ would hide",
    ),
    "padding that must be given": (
        {"forward": "self, x, key_pad", "call": "mask = key_pad"}
        | {"hide": f"scores.masked_fill({PADDING}, -math.inf)"},
        (),
        "key_pad=bm blocked always",
    ),
    "padding the wrong way round": (
        {"forward": "self, x, key_pad", "call": "mask = key_pad"}
        | {"hide": f"scores.masked_fill(~{PADDING}, -math.inf)"},
        ("mask-inverted",),
        "key_pad=bm blocked always",
    ),
    "axes that scores would gain, beside a window": (
        {"kind": "causal", "hide": HIDE_BOTH, "call": WINDOW, "base": VIEWED},
        (),
        "`mask` is nm, True = blocked: inferred",
    ),
    "padding joined by or, by a name that says what it is": (
        {"kind": "causal", "hide": EITHER, "call": KEEP, "base": VIEWED, "forward": KEPT_BY},
        ("masks-joined-by-or",),
        "padding_keep=bm allowed",
    ),
    "and by one that does not": (
        {"kind": "causal", "hide": EITHER, "call": "keep = " + HIDES_NONE, "base": VIEWED},
        (),
        "`mask`: no call shows what it hides; say what it is, as in `--mask",
    ),
    "no call hides a key, and it must be given": (
        {"hide": "scores.masked_fill(mask[:, None] == 0, 1e-9)", "forward": "self, x, mask"},
        ("fill-does-not-block",),
        "`mask` must be given, and its meaning is guessed",
    ),
    "a word that keeps": (
        {"hide": "scores.masked_fill(valid[:, None, None], -math.inf)", **VALID},
        ("mask-inverted",),
        "valid=bm allowed",
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
    ("names", "kind", "said"),
    [
        ("x, xa", "memory", "x=x, xa=context"),
        ("x, c", "memory", "x=x, c=context"),
        ("Q, K", "memory", "Q=x, K=context"),
        ("X_Q, X_KV", "memory", "X_Q=x, X_KV=context"),
        ("inputs_kv, inputs_q", "memory", "inputs_q=x, inputs_kv=context"),
        ("q, h=None, mask=None", "memory", "q=x, h=context"),
        ("x, mask=None, ctx=None", "memory", "x=x, ctx=context"),
        ("text, image_features", "memory", "text=x, image_features=context"),
        ("image_features, text", "memory", "text=x, image_features=context"),
        ("memory, decoder_input", "memory", "decoder_input=x, memory=context"),
        ("enc_output, dec_input, enc_mask=None", "memory", "dec_input=x, enc_output=context"),
        ("x, latents", "memory", "latents=x, x=context"),
        ("latents", "self", "latents=x"),
        ("queries, features", "memory", "queries=x, features=context"),
        ("here, there", "memory", "here=x, there=context"),
        ("Q, K, V", "cross", "Q=query, K=key, V=value"),
        ("x_q, x_k, x_v", "cross", "x_q=query, x_k=key, x_v=value"),
        ("input_tensor", "self", "input_tensor=x"),
        ("image_features, attn_mask=None", "self", "image_features=x"),
        ("whatever, pos_mask", "self", "whatever=x"),
        ("x, cache=None, pos_emb=None", "self", "x=x"),
    ],
)
def test_names_of_what_a_call_takes(names, kind, said):
    exec(f"def attend({names}): pass", space := {})
    plan = matched(space["attend"], kind, "", {})
    assert (plan.fits, str(plan)) == (True, said)


def test_what_no_name_says_is_no_reason_for_another_kind():
    exec("def attend(here, there): pass", space := {})
    assert not matched(space["attend"], "self", "", {}).fits
    assert not matched(space["attend"], "memory", "", {}, by_order=False).fits


@pytest.mark.parametrize(
    ("role", "names"),
    {
        "width": "emb feats n_feat q_dim out_channels hid_dim emb_size num_hidden d_model n_embd "
        "hidden_size in_features d_in num_hiddens embedding_dim attn_dim output_size dim_model",
        "context width": "context_dim kdim dim_k key_size kv_dim encoder_dim cross_attention_dim",
        "heads": "head_num query_heads heads_count n_attention_heads nhead num_attn_heads h",
        "groups": "n_kv_heads num_key_value_heads kv_heads n_query_groups",
        "head width": "d_k head_dim dim_per_head d_head attention_head_size size_per_head",
        "length": "ctx_len max_seq_len n_ctx max_position_embeddings num_tokens block_size maxlen",
        "device": "device",
        "dtype": "dtype",
        "dropout": "attn_pdrop dropout_p",
        "": "tokens context features hidden window_size scale p mode tokens_in",
    }.items(),
)
def test_names_of_sizes(role, names):
    assert {name: size_of(name) for name in names.split()} == dict.fromkeys(names.split(), role)


def test_a_device_and_a_dtype_are_filled_in():
    exec("def make(emb_size, heads_count, device, dtype): return locals()", space := {})
    made = build(space["make"], {}, Sizes(12, 3, 12), "self")[0]
    assert [*made.values()] == [12, 3, "cpu", torch.float32]


class Reading(torch.nn.MultiheadAttention):
    def forward(self, x, context):
        return super().forward(x, *(context if self.training else x,) * 2)[0]


def test_a_context_that_nobody_reads():
    module = Reading(12, 3, batch_first=True)
    report = examine_called(module, Sizes(12, 3, 12), "memory")
    assert report.findings[0].code == "context-ignored", str(report)


class Around(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(12, 3, batch_first=True)

    def forward(self, x, *given, **named):
        return self.inner(x, x, x)[0]


def test_a_mask_is_not_thought_to_be_taken_where_arguments_have_no_names():
    with pytest.raises(Unasked, match="arguments of any name, and none is a mask"):
        examine_called(Around(), Sizes(12, 3, 12), "self", mask="blocked")
    assert examine_called(Around(), Sizes(12, 3, 12), "self", mask="none").ok


# Decorators, of classes.
AROUND = {
    "it is registered, and keeps its names": """
    @functools.wraps(cls)
    def make(*args, **kwargs):
        return cls(*args, **kwargs)
    return make
""",
    "a partial": "    return functools.partial(cls)",
    "an object": "    return functools.lru_cache(cls)",
}


@pytest.mark.parametrize("hides", [True, False])
@pytest.mark.parametrize("around", AROUND)
def test_a_decorator_of_a_class_hides_no_lost_mask(around, hides, tmp_path, capsys):
    text = BASE.replace("self):", "self, width):")
    text = text if hides else text.replace("mask is not None", "False")
    text = text.replace("class Att", f"def decorate(cls):\n{AROUND[around]}\n@decorate\nclass Att")
    (tmp_path / "theirs.py").write_text("import functools\n" + text)
    words = ["--kind", "self", "--embed-dim", "12", "--num-heads", "3", "--mask", "blocked"]
    words += ["--init", "width=e"]
    code = main([f"{tmp_path / 'theirs.py'}:Attention", *words])
    said = capsys.readouterr().out
    assert (code, "wrong: mask-ignored" in said) == ((0, False) if hides else (1, True)), said
    assert "no module is given" not in said


SIZED = """
import math
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.h, self.d = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.register_buffer("future", torch.ones(9, 9).triu(1).bool())

    def forward(self, x, context=None):
        context = x if context is None else context
        (b, n, e), m = x.shape, context.size(1)
        q = self.q(x).view(b, n, self.h, self.d).transpose(1, 2)
        k = self.k(context).view(b, m, self.h, self.d).transpose(1, 2)
        v = self.v(context).view(b, m, self.h, self.d).transpose(1, 2)
        scores = q @ k.mT / math.sqrt(self.d)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, e))
"""
SCORES = "q @ k.mT / math.sqrt(self.d)"
CUT = "scores = scores.masked_fill(self.future[:n, :n], -math.inf)\n        return"
IMAGE = "x.view(len(x), math.isqrt(n := x.size(1)), -1, 12)[n]\n        (b, n, e), m"
# What is written in the place of what, the kind, the codes of what is wrong, and others.
RUNS = {
    "as it should": (SCORES, SCORES, "memory", "", ""),
    "keys get the number of queries": (
        "(context).view(b, m",
        "(context).view(b, n",
        "memory",
        "lengths-mixed",
        "",
    ),
    "and nobody notices in one sequence": ("view(b, m", "view(b, n", "self", "", ""),
    "values are the queries' own": (
        "self.v(context).view(b, m",
        "self.v(x).view(b, n",
        "memory",
        "lengths-mixed",
        "order-matters",
    ),
    "squares alone": ("(b, n, e), m", IMAGE, "self", "fails", ""),
    "all of a buffer": ("return", CUT.replace("[:n, :n]", ""), "causal", "", "length-fixed"),
    "a part of a buffer": ("return", CUT, "causal", "", ""),
}


@pytest.mark.parametrize("name", RUNS)
def test_sizes_at_which_alone_it_runs(name):
    old, new, kind, wrong, others = RUNS[name]
    text = SIZED.replace(old, new)
    exec(text, space := {"__name__": "theirs"})
    torch.manual_seed(0)
    report = examine_called(space["Attention"](12, 3), Sizes(12, 3, 12), kind)
    found = {x: x.severity == "convention" for x in report.findings}
    assert [x.code for x, usual in found.items() if not usual] == wrong.split(), str(report)
    assert [x.code for x, usual in found.items() if usual] == others.split(), str(report)
    assert ("`future`" in str(report)) == (others == "length-fixed")


@pytest.mark.parametrize("given", ["key", "query"])
def test_values_of_the_queries_are_not_said_to_be_those_of_the_keys(given):
    text = SIZED.replace("x, context=None", "query, key, value")
    text = text.replace("context = x if context is None else context", "x, context = query, key")
    text = text.replace("self.v(context).view(b, m", f"self.v({given}).view(b, {given}.size(1)")
    exec(text, space := {"__name__": "theirs"})
    torch.manual_seed(0)
    report = examine_called(space["Attention"](12, 3), Sizes(12, 3, 12), "cross")
    wrong = [x.code for x in report.findings if x.severity == "wrong"]
    assert wrong == [{"key": "values-from-keys", "query": "lengths-mixed"}[given]], str(report)

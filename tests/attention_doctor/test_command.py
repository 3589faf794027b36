"""From the command line to a report: building, calling, the adapter to paste, exit codes."""

import io
import re
import runpy
import shlex
import subprocess
import sys
import textwrap

import pytest
import torch

from attention_doctor import adapters, assert_attention, command, examine
from attention_doctor.command import main
from tests.attention_doctor.demanded import Attention, E, H, split, varied

HEAD = "import math\nimport torch\nfrom torch import nn\n"
CROSS = '''
class Attention(nn.Module):
    """Query, key and value, a mask of (b, 1, n, m), True = allowed; the output begins at zero."""

    def __init__(self, config):
        super().__init__()
        e, self.h = config.n_embd, config.n_head
        self.q, self.k, self.v, self.o = (nn.Linear(e, e) for _ in range(4))
        nn.init.zeros_(self.o.weight)

    def forward(self, q, k, v, mask=None):
        split = lambda x: x.unflatten(-1, (self.h, -1)).transpose(1, 2)
        q, k, v = split(self.q(q)), split(self.k(k)), split(self.v(v))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            assert mask.dim() == 4
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), scores.softmax(-1)
'''
MINE = '''
class Attention(nn.Module):
    """Self-attention; a line or two of it are another in each case."""

    def __init__(self, dim, heads):
        super().__init__()
        self.h, self.qkv, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        scores, v = self.scores(x)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None], -math.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def scores(self, x):
        q, k, v = (y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return q @ k.mT / math.sqrt(q.size(-1)), v
'''
FUTURE = "torch.ones(n, n).triu(1).bool(), -math.inf)"
HIDES = "scores, v = self.scores(x)\n        n = x.size(1); scores = scores.masked_fill(" + FUTURE
# A decoder-only attention with usual names.
SIZES = "d_in, d_out, context_length, dropout, num_heads, qkv_bias=False"
CAUSAL = (
    MINE.replace("scores, v = self.scores(x)", HIDES)
    .replace("x, mask=None", "x")
    .replace("mask is not None", "False")
    .replace("dim, heads", SIZES, 1)
    .replace(
        "super().__init__()",
        "super().__init__(); dim, heads = d_out, num_heads\n"
        "        assert (context_length, dropout) == (16, 0.0)",
    )
)
ROTATED = (
    MINE.replace("scores(x)", "scores(x, cos, sin)")
    .replace("scores(self, x)", "scores(self, x, cos, sin)")
    .replace("x, mask=None", "x, cos, sin, mask=None")
    .replace(
        "        return q @",
        "        turn = lambda y: y * cos + torch.cat([-y[..., 2:], y[..., :2]], -1) * sin\n"
        "        assert cos.dim() == 3; q, k = turn(q), turn(k)\n        return q @",
    )
)
TWO_MASKS = MINE.replace("mask=None", "blocked=None, pad=None").replace(
    "mask is not None:\n            scores = scores.masked_fill(mask[:, None], -math.inf)",
    "blocked is not None:\n            scores = scores.masked_fill(blocked[:, None], -math.inf)"
    "\n        if pad is not None:\n"
    "            scores = scores.masked_fill(pad[:, None, None], -math.inf)",
)
SLICED = (
    ROTATED.replace("assert cos.dim() == 3; ", "")
    .replace("y * cos", "y * cos[: y.size(2)].unsqueeze(0).unsqueeze(0)")
    .replace("-1) * sin", "-1) * sin[: y.size(2)].unsqueeze(0).unsqueeze(0)")
    .replace(".transpose(1, 2).flatten(2))", ".transpose(1, 2).reshape(x.shape))")
)
TORCHS = "from torch.nn import MultiheadAttention as Attention"
FUNCTION = """
def attend(x, blocked):
    scores = x @ x.mT
    if blocked is not None:
        scores = scores.masked_fill(blocked, -math.inf)
    return scores.softmax(-1) @ x


def factory():
    from attention_doctor import adapt
    return adapt(lambda x, allowed: attend(x, None if allowed is None else ~allowed),
                 mask="bnm allowed")
"""
STRANGE = MINE.replace("x, mask=None", "targets, graph").replace("if mask is not None", "if True")
STRANGE = STRANGE.replace("scores(x)\n        if", "scores(targets)\n        if").replace(
    "mask[:, None]", "graph[:, None] == 0"
)
CLASS = "class Attention(nn.Module):\n"
# Files, options, the exit code, and what the output holds.
CALLS = {
    "usual names": (CAUSAL, "--kind causal", 0, "built with d_in=12, d_out=12, context_length=16"),
    "a config": (CROSS, "--mask allowed", 0, "n_embd=12, n_head=3"),
    "a mask that nobody has explained": (CROSS, "", 0, "`mask` is b1nm, True = allowed: inferred"),
    "a mask that zeroes queries, too": (
        MINE.replace(
            "mask[:, None], -math.inf", "~(mask[:, None] & mask[:, :, None])[:, None], -1e9"
        ),
        "--kind self",
        0,
        "`mask` is bm, True = allowed: inferred",
    ),
    "random in evaluation": (
        MINE.replace("super()", "self.dropout = 0.2; super()", 1)
        .replace("mask[:, None]", "~mask[:, None]")
        .replace("scores.softmax(-1)", "nn.functional.dropout(scores.softmax(-1), self.dropout)"),
        "--kind self",
        1,
        "`mask` is bnm, True = allowed: inferred",
    ),
    "the wrong meaning": (CROSS, "--mask blocked", 1, "wrong: mask-inverted"),
    "no mask": (CROSS, "--mask none", 0, "it takes no mask"),
    "other order": (CROSS.replace("self, q, k, v,", "self, v, k, q,"), "--mask allowed", 0, ""),
    "must have a mask": (
        CROSS.replace("mask=None", "mask"),
        "--mask allowed",
        0,
        "mask=b1nm allowed always",
    ),
    "memory": (CROSS, "--kind memory --mask allowed", 0, "q=x, k=context, v=context"),
    "a name says it": (
        MINE.replace("mask=", "blocked=").replace("if mask", "mask = blocked\n        if mask"),
        "--kind self",
        0,
        "blocked=bnm blocked",
    ),
    "added": (
        MINE.replace("masked_fill(mask[:, None], -math.inf)", "add(mask)"),
        "--kind self",
        0,
        "`mask` is b1nm, added to the scores",
    ),
    "two masks, other names of sizes": (
        MINE.replace("mask=None", "mask=None, other_mask=None")
        .replace("dim", "n_state")
        .replace("heads", "head_count"),
        "--kind self --mask 'mask blocked'",
        0,
        "mask=bnm blocked",
    ),
    "padding and the future": (
        MINE.replace("scores, v = self.scores(x)", HIDES).replace(
            "mask[:, None]", "mask[:, None, None]"
        ),
        "--kind causal --mask blocked",
        0,
        "mask=bm blocked",
    ),
    "padding is ignored under the future": (
        MINE.replace("scores, v = self.scores(x)", HIDES).replace("mask is not None", "False"),
        "--kind causal --mask 'bm blocked'",
        1,
        "wrong: mask-ignored",
    ),
    "a mask that nobody names is ignored under the future": (
        MINE.replace("scores, v = self.scores(x)", HIDES).replace("mask is not None", "False"),
        "--kind causal",
        0,
        "`mask` is left out: it hides no key",
    ),
    "padding lets the future in": (
        MINE.replace("scores, v = self.scores(x)", HIDES)
        .replace(".bool(), -", ".bool() & (mask is None), -")
        .replace("mask[:, None]", "mask[:, None, None]"),
        "--kind causal --mask 'bm blocked'",
        1,
        "wrong: future-leaks",
    ),
    "padding that hides all of a window": (
        MINE.replace("scores, v = self.scores(x)", HIDES)
        .replace(".bool(), -", ".bool() | torch.ones(n, n).tril(-5).bool(), -")
        .replace("mask[:, None]", "mask[:, None, None]"),
        "--kind causal --window 5 --mask 'bm blocked'",
        0,
        "nothing wrong",
    ),
    "padding beside another mask": (TWO_MASKS, "--kind self", 0, "pad=bm blocked, too"),
    "padding on queries beside another mask": (
        TWO_MASKS.replace("pad[:, None, None]", "pad[:, None, :, None]"),
        "--kind self",
        1,
        "wrong: padding-mask-on-queries",
    ),
    "another mask that is right if its name means the other": (
        TWO_MASKS.replace("pad[:, None, None]", "pad[:, None] == 0").replace("pad", "future_mask"),
        "--kind self",
        0,
        "`future_mask`: right if True = allowed, and wrong if True = blocked",
    ),
    "and which is said": (
        TWO_MASKS.replace("pad[:, None, None]", "pad[:, None] == 0").replace("pad", "future_mask"),
        "--kind self --mask 'future_mask blocked'",
        1,
        "wrong: mask-inverted",
    ),
    "another mask that says nothing": (
        TWO_MASKS.replace("pad", "other_mask"),
        "--kind self",
        0,
        "this one with `--mask other_mask`",
    ),
    "cosines and sines that nobody uses": (
        MINE.replace("x, mask=None", "x, cos, sin, mask=None"),
        "--kind self --mask blocked",
        1,
        "it has cos, sin",
    ),
    "cosines and sines": (ROTATED, "--kind self --mask blocked", 0, "cos=a rotation"),
    "cosines and sines of two axes, and the tokens first": (
        ROTATED.replace("cos.dim() == 3", "cos.dim() == 2")
        .replace("scores, v = ", "x = x.transpose(0, 1); scores, v = ")
        .replace(".flatten(2))", ".flatten(2)).transpose(0, 1)"),
        "--kind self --mask blocked --layout nbe",
        0,
        "cos=a rotation",
    ),
    "cosines and sines that it slices": (SLICED, "--kind self --mask blocked", 0, "order-matters"),
    "cosines and sines that it slices, and a mask that must be given": (
        SLICED.replace("mask=None", "mask"),
        "--kind self --mask blocked",
        0,
        "mask=bnm blocked always",
    ),
    "an expression of the sizes": (MINE, "--kind self --mask blocked --init dim=h*d", 0, "nan-row"),
    "PyTorch's arguments": (TORCHS, "--layout nbe", 0, "nan-row"),
    "a reference": (
        MINE.replace("math.sqrt(q.size(-1))", "1"),
        "--kind self --mask blocked --init dim=12 --reference torch.nn.MultiheadAttention",
        1,
        "are not those of the reference",
    ),
    "a window that it has not": (CAUSAL, "--kind causal --window 4", 1, "wrong: window-differs"),
    "a further argument": (
        MINE.replace("mask=None", "factor").replace(
            "if mask is", "mask = None; assert factor == 2\n        if mask is"
        ),
        "--kind self --call factor=2",
        0,
        "factor=2",
    ),
    "the number of its tokens": (
        MINE.replace("mask=None", "rows, columns").replace(
            "if mask is", "mask = None; assert rows * columns == x.size(1)\n        if mask is"
        ),
        "--kind self --call rows=1 columns=n",
        0,
        "rows=1, columns=n",
    ),
    "weights that nobody fills": (
        MINE.replace(
            "super().__init__()", "super().__init__(); self.w = nn.Parameter(torch.empty(dim, dim))"
        ).replace("self.qkv(x)", "self.qkv(x @ self.w)"),
        "--kind self --mask blocked",
        0,
        "",
    ),
}
FAILS = {
    "import": ("import no_such_module", "", "Install no_such_module"),
    "an error": ("raise ValueError('early')", "", "Run `python` on the file first"),
    "a script": ("import sys; sys.exit(3)", "", '`if __name__ == "__main__":`'),
    "no such name": ("class Attend: pass", "", "Name one of: Attend."),
    "a number": ("Attention = 3", "", "Attention is an object of type int"),
    "no size": (
        STRANGE.replace("dim, heads", "dim, heads, mystery"),
        "",
        "the constructor's mystery cannot be filled in",
    ),
    "it refuses": (
        f"{CLASS}    def __init__(self, dim): raise ValueError('no')",
        "",
        "It was built with dim=12.",
    ),
    "it ends Python": (f"{CLASS}    def __init__(self, dim): exit(0)", "", "SystemExit: 0"),
    "no call": ("class Attention: pass", "", "an object of type Attention cannot be called"),
    "two tensors": (MINE, "--kind cross", "Give the kind that fits: `--kind self` or"),
    "strange": (STRANGE, "", "the call's targets, graph cannot be filled in"),
    "it crashes": (
        f"{CLASS}    def forward(self, x): return x @ x",
        "",
        "Mend that line if it should take tensors of (2, 5, 12).",
    ),
    "empty": (
        f"{CLASS}    def forward(self, x): raise NotImplementedError",
        "",
        "Write what is missing",
    ),
    "no output": (f"{CLASS}    def forward(self, x): return x.sum()", "", "it returns shape ()"),
    "unknown options": (MINE, "--init no_head=3", "It has: dim, heads."),
    "unknown arguments": (MINE, "--call caasal=True", "It has: x, mask."),
    "a wrong expression": (MINE, "--init dim=1/0", "ZeroDivisionError"),
    "an unknown form": (MINE, "--mask sideways", "has 'sideways'"),
    "no such mask": (
        MINE.replace("=None", ""),
        "--mask 'nmb blocked'",
        "no mask of nmb fits its mask; the first raises RuntimeError: ",
    ),
    "no such reference": (MINE, "--reference no.Such", "there is no no.Such"),
}


@pytest.fixture
def run(tmp_path, capsys):
    """Write a file, examine it, and give exit code and output."""

    def call(text, options="", target="Attention", sizes="--embed-dim 12 --num-heads 3"):
        path = tmp_path / "theirs.py"
        path.write_text(HEAD + textwrap.dedent(text))
        words = re.findall(r"'[^']*'|\S+", f"{sizes} {options}")
        code = main([f"{path}:{target}", *(word.strip("'") for word in words)])
        return code, " ".join(capsys.readouterr().out.split())

    return call


@pytest.mark.parametrize("name", CALLS)
def test_what_is_called(run, name):
    text, options, code, said = CALLS[name]
    found, output = run(text, options)
    assert found == code, output
    assert said in output
    assert ("inferred from one call" in output) == ("inferred" in said or "added" in said)


ONE = MINE.replace("dim, heads", "dim", 1).replace("= heads", "= 3")
UNUSED = {
    "no heads": (ONE, "", "`--num-heads 3` is not used: no argument"),
    "no heads, and a mask": (ONE, "--mask none", "`--num-heads 3` is not used: no argument"),
    "no heads of an adapter": (FUNCTION, "", ""),
    "heads by their width": (ONE.replace("dim)", "dim, head_dim)", 1), "", ""),
    "heads in a configuration": (CROSS, "--kind memory", ""),
    "no mask": (
        MINE.replace(", mask=None", "").replace("mask is not None", "False"),
        "--mask allowed",
        "`--mask allowed` is not used: its call takes no mask",
    ),
    "PyTorch's masks": (TORCHS, "--layout nbe --mask allowed", "its masks are PyTorch's"),
    "PyTorch's masks, as they are": (TORCHS, "--layout nbe --mask blocked", ""),
    "an adapter": (FUNCTION, "--layout nbe --mask allowed", "`--layout`, `--mask`: not used"),
}


@pytest.mark.parametrize("name", UNUSED)
def test_an_option_that_is_not_used_is_said(run, name):
    text, options, said = UNUSED[name]
    kind = "" if "--kind" in options else "--kind self "
    target = "factory" if text == FUNCTION else "Attention"
    output = run(text, kind + options, target)[1]
    assert said in output
    assert ("not used" in output) == bool(said), output


@pytest.mark.parametrize("name", FAILS)
def test_what_cannot_be_asked_exits_with_2_and_an_adapter(run, name):
    text, options, said = FAILS[name]
    code, output = run(text, options if "--kind" in options else f"{options} --kind self")
    assert code == 2, output
    assert said in output
    there = "class Attention" in text
    assert ("# Save this as" in output) == there


PRINTED = {
    "the future": ("theirs.py", CAUSAL, "--kind causal"),
    "no mask": (
        "theirs.py",
        MINE.replace("x, mask=None", "x, *, mask=False").replace("mask is not None", "False"),
        "--kind self",
    ),
    "a mask that is kept": (
        "theirs.py",
        MINE.replace("mask[:, None]", "~mask[:, None]"),
        "--kind self",
    ),
    "a mask of other axes": (
        "theirs.py",
        MINE.replace("mask[:, None]", "~mask[:, None, None]"),
        "--kind self",
    ),
    "a mask for each head": (
        "theirs.py",
        MINE.replace("mask[:, None]", "mask.unflatten(0, (-1, self.h))"),
        "--kind self",
    ),
    "a name that is no identifier": ("5-1.theirs.py", MINE, "--kind self"),
    "sizes with a default": (
        "theirs.py",
        MINE.replace("dim, heads", "dim=8, heads=2", 1),
        "--kind self --init dim=h*d",
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_adapter_with_nothing_open_runs_as_it_is_printed(tmp_path, capsys, monkeypatch, name):
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    file, text, options = PRINTED[name]
    (tmp_path / file).write_text(HEAD + text)
    words = [*options.split(), "--embed-dim", "12", "--num-heads", "3"]
    assert main([f"{tmp_path / file}:Attention", *words, "--call", "no_such=1"]) == 2
    _, mark, adapter = capsys.readouterr().out.partition("# Save")
    (tmp_path / "examined.py").write_text(mark + adapter)
    words = [word for word in words if word not in ("--init", "dim=h*d")]
    code = main([f"{tmp_path / 'examined.py'}:make_attention", *words])
    assert code == 0, adapter + capsys.readouterr().out


def test_an_adapter_whose_usual_mask_fails_gets_another(run):
    text = MINE.replace("mask[:, None]", "~mask[:, None, None]")
    text += """
def make():
    from attention_doctor import adapt
    module = Attention(12, 3)
    return adapt(lambda x, blocked: module(x, blocked), module=module)
"""
    code, output = run(text, "--kind self", target="make")
    assert (code, "`mask` is bm, True = allowed: inferred" in output) == (0, True), output


def test_the_same_command_draws_the_same_numbers(run):
    text = f"{CLASS}    def __init__(self): raise ValueError(torch.rand(5))"
    torch.manual_seed(1)
    first, following = run(text), torch.rand(1)
    assert first == run(text)
    torch.manual_seed(1)
    assert following == torch.rand(1)


def test_a_function_and_a_factory(run):
    sizes = "--embed-dim 12 --num-heads 1 --kind self"
    code, output = run(FUNCTION, target="attend", sizes=sizes)
    assert (code, "convention: nan-row" in output) == (0, True)
    assert output.partition("✓ ")[2].startswith("attend: nothing wrong")
    assert run(FUNCTION, target="factory", sizes=sizes)[0] == 0
    code, output = run(FUNCTION, "--init e=3", target="attend", sizes=sizes)
    assert (code, "is no class and is not constructed" in output) == (2, True)


def test_a_file_that_does_not_exist_exits_with_2(capsys):
    assert main(["/no/such/file.py:A", "--embed-dim", "12", "--num-heads", "3"]) == 2
    assert "there is no file /no/such/file.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "required: target, --embed-dim, --num-heads"),
        ("a.py:A --kind self", "a.py:A --kind self --embed-dim 24 --num-heads 4"),
        ("file.py --embed-dim 12 --num-heads 3", "must be path/to/file.py:Name"),
        ("a.py:A --embed-dim 12 --num-heads 5", "--num-heads 5 must divide --embed-dim 12"),
        ("a.py:A --embed-dim 12 --num-heads 3 --max-length 1", "must be at least 2"),
        ("a.py:A --embed-dim 12 --num-heads 3 --init a", "a must be NAME=VALUE"),
        ("a.py:A --model b.py:b --attention A", "--model has its own file"),
        ("--model b.py:b", "needs --attention"),
        ("--model b.py:b --attention A --num-heads 3", "--num-heads is of a target"),
        ("a.py:A --embed-dim 12 --num-heads 3 --attention A", "--attention is of --model"),
        (
            "a.py:A --embed-dim 12 --num-heads 3 --context-dim 5",
            "--context-dim is of --kind memory",
        ),
        *(
            (f"a.py:A --embed-dim 12 --num-heads 3 {option} no-scale,no-code", "no code no-code")
            for option in ("--select", "--ignore", "--wrong")
        ),
    ],
)
def test_options_that_do_not_fit_exit_with_2(line, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_file_in_a_package_is_imported_as_part_of_it(tmp_path, capsys):
    package = tmp_path / "their_package" / "layers"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "parts.py").write_text(HEAD + CAUSAL)
    (package / "top.py").write_text("from .parts import Attention\n")
    arguments = ["--kind", "causal", "--embed-dim", "12", "--num-heads", "3"]
    assert main([f"{package / 'top.py'}:Attention", *arguments]) == 0
    assert "agrees" in capsys.readouterr().out


def test_the_module_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["doctor", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_module("attention_doctor", run_name="__main__")
    assert "usage: attention-doctor" in capsys.readouterr().out


def test_a_fault_of_the_doctor_itself_is_no_finding(monkeypatch, capsys):
    def broken(_):
        raise RuntimeError("of its own")

    monkeypatch.setattr(command, "read", broken)
    assert main(["layer.py:Attention"]) == 2
    said = capsys.readouterr().err
    assert "of its own" in said
    assert "nothing can be concluded" in said


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("mine.py:attend --kind self --embed-dim 12 --num-heads 1", 1, "looking at"),
        ("--explain no-scale", 0, ""),
    ],
)
def test_a_closed_pipe_is_no_error(tmp_path, options, code, said):
    text = "def attend(x): print('looking at', x.shape); return (x @ x.mT).softmax(-2) @ x"
    (tmp_path / "mine.py").write_text(text)
    command = f"{shlex.quote(sys.executable)} -m attention_doctor {options}"
    command += " 2>errors | true; echo ${PIPESTATUS[0]}"
    run = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == f"{code}\n"
    errors = (tmp_path / "errors").read_text()
    assert said in errors
    assert "Traceback" not in errors


def made(text):
    exec(HEAD + text, space := {"__name__": "theirs"})
    torch.manual_seed(0)
    return space["Attention"](12, 3)


def test_an_assertion_in_a_test():
    sizes = {"embed_dim": 12, "num_heads": 3, "kind": "self"}
    report = assert_attention(made(MINE), **sizes)
    assert report.inferred.startswith("`mask` is bnm, True = blocked: inferred")
    assert not assert_attention(made(MINE), **sizes, mask="blocked", ignore=["nan-row"]).inferred
    wrong = made(MINE.replace("@ v).transpose(1, 2).flatten(2)", "@ v).reshape(x.shape)"))
    with pytest.raises(AssertionError, match="wrong: merge-without-transpose"):
        assert_attention(wrong, **sizes)
    assert_attention(wrong, **sizes, ignore=["merge-without-transpose"])
    with pytest.raises(AssertionError, match="cannot be filled in"):
        assert_attention(made(STRANGE), **sizes)
    with pytest.raises(AssertionError, match="with the same parameters, outputs are not"):
        assert_attention(wrong, **sizes, select=["differs-from-reference"], reference=made(MINE))
    with pytest.raises(ValueError, match="no code no-code"):
        assert_attention(wrong, **sizes, ignore=["no-code"])


LAYOUTS = {  # there and back
    "nbe": (lambda x: x.transpose(0, 1), lambda y: y.transpose(0, 1)),
    "ben": (lambda x: x.mT, lambda y: y.mT),
    "nbhd": (
        lambda x: x.transpose(0, 1).flatten(2),
        lambda y: y.transpose(0, 1).unflatten(2, (H, -1)),
    ),
    "bhnd": (lambda x: x.transpose(1, 2).flatten(2), split),
    "be1n": (lambda x: x.squeeze(2).mT, lambda y: y.mT.unsqueeze(2)),
    "1b1en": (lambda x: x[0, :, 0].mT, lambda y: y.mT[None, :, None]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout):
    there, back = LAYOUTS[layout]
    laid = varied(forward=lambda self, x: back(Attention.forward(self, there(x))))
    adapted = adapters.adapt(laid(), layout, "none", num_heads=H)
    report = examine(adapted, embed_dim=E, num_heads=H, kind="self")
    assert report.ok, str(report)


def test_what_an_adapter_cannot_be_told():
    for options, message in (
        ({"layout": "bn"}, "must have b, n and e"),
        ({"layout": "bhnd"}, "num_heads must be given"),
        ({"mask": "bnm forbidden"}, "'forbidden'"),
    ):
        with pytest.raises(ValueError, match=message):
            adapters.adapt(made(MINE), **options)
    with pytest.raises(TypeError, match="there is no rotation"):
        adapters.adapt(made(MINE), rotation=None)


def test_a_terminal_that_cannot_write_every_character_gets_the_others(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text(HEAD + CROSS, "utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    assert (
        main([f"{tmp_path / 'theirs.py'}:Attention", "--embed-dim", "12", "--num-heads", "3"]) == 0
    )
    assert b"? Attention: nothing wrong" in written.getvalue()

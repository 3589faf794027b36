"""The command examines files that have never heard of this project; nothing ends in a traceback."""

import runpy
import subprocess
import sys
import textwrap

import pytest

from attention_doctor.command import main

HEAD = """
import math
import torch
from torch import nn
"""
CAUSAL = '''
class Attention(nn.Module):
    """A decoder-only attention with usual names."""

    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert context_length == 16 and dropout == 0.0
        self.h = num_heads
        self.qkv = nn.Linear(d_in, 3 * d_out, bias=qkv_bias)
        self.out = nn.Linear(d_out, d_out)
        self.register_buffer("mask", torch.ones(context_length, context_length).triu(DIAGONAL))

    def forward(self, x):
        b, n, e = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(e // self.h)
        scores = scores.masked_fill(self.mask[:n, :n].bool(), -math.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, e))
'''
CROSS = '''
class Attention(nn.Module):
    """Query, key and value, and a mask of (b, 1, n, m), True = allowed."""

    def __init__(self, config):
        super().__init__()
        e, self.h = config.n_embd, config.n_head
        self.q, self.k, self.v, self.o = (nn.Linear(e, e) for _ in range(4))

    def forward(self, q, k, v, mask=MASK):
        split = lambda x: x.unflatten(-1, (self.h, -1)).transpose(1, 2)
        q, k, v = split(self.q(q)), split(self.k(k)), split(self.v(v))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if mask is not None:
            assert mask.dim() == 4
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)), scores.softmax(-1)
'''
TORCH_LIKE = '''
class Attention(nn.Module):
    """PyTorch's arguments, sequence-first, and nothing that says so."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.inner = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        return self.inner(query, key, value, key_padding_mask, True, attn_mask)[0]
'''
FUNCTION = """
def attend(x, blocked):
    scores = x @ x.mT
    if blocked is not None:
        scores = scores.masked_fill(blocked, -math.inf)
    return scores.softmax(-1) @ x
"""
FILES = {
    "right": CAUSAL.replace("DIAGONAL", "1"),
    "off_by_one": CAUSAL.replace("DIAGONAL", "2"),
    "cross": CROSS.replace("MASK", "None"),
    "must_have_mask": CROSS.replace("=MASK", ""),
    "function": FUNCTION,
    "broken": "import no_such_module",
    "script": "import sys; sys.exit(3)",
    "needs": "class Attention:\n    def __init__(self, mystery): pass",
    "refuses": "class Attention(nn.Module):\n    def __init__(self, dim): raise ValueError('no')",
    "crashes": "class Attention(nn.Module):\n    def forward(self, x): return x @ x",
    "shapeless": "class Attention(nn.Module):\n    def forward(self, x): return x.sum()",
    "no_module": "class Attention: pass",
    "gone": "",
    "raises": "raise ValueError('early')",
    "misnamed": "class Attend: pass\ndef attend(x): pass",
    "number": "Attention = 3",
    "asks": "class Attention(nn.Module):\n    def forward(self, x, mystery): return x",
    "exits": "class Attention(nn.Module):\n    def __init__(self, dim): raise SystemExit(0)",
    "empty": "class Attention(nn.Module):\n    def forward(self, x): raise NotImplementedError",
    "sequence_first": CAUSAL.replace("DIAGONAL", "1").replace(
        "b, n, e = x.shape", "x = x.transpose(0, 1); b, n, e = x.shape"
    ).replace("reshape(b, n, e))", "reshape(b, n, e)).transpose(0, 1)"),
    "short": CAUSAL.replace("DIAGONAL", "1").replace("d_in", "emb"),
    "optional_widths": CROSS.replace("MASK", "None").replace(
        "self, config", "self, dim, out_dim=0, num_heads=8, dim_head=64, kdim=None"
    ).replace("e, self.h = config.n_embd, config.n_head",
              "e, self.h = dim * 12 // dim, num_heads; assert dim_head == 4 and kdim is None\n"
              "        assert out_dim == 0 and e % (out_dim or 1) == 0"),
    "all_optional": CAUSAL.replace("DIAGONAL", "1").replace(
        "self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False",
        "self, d_in=512, d_out=512, context_length=16, dropout=0.0, num_heads=8, qkv_bias=False"),
    "permuted": CROSS.replace("MASK", "None").replace("self, q, k, v,", "self, v, k, q,"),
    "by_position": CROSS.replace("MASK", "None").replace("self, q, k, v,", "self, v, k, q, /,"),
    "named_otherwise": CROSS.replace("MASK", "None").replace(
        "self, q, k, v,", "self, quality, vigour, kind,"
    ).replace("self.q(q)", "self.q(quality)").replace(
        "self.k(k)", "self.k(vigour)").replace("self.v(v)", "self.v(kind)"),
    "full_names": CROSS.replace("MASK", "None").replace(
        "self, q, k, v,", "self, values, keys, queries,"
    ).replace("self.q(q)", "self.q(queries)").replace(
        "self.k(k)", "self.k(keys)").replace("self.v(v)", "self.v(values)"),
    "not_causal": CAUSAL.replace("DIAGONAL", "1").replace(
        "qkv_bias=False", "causal"
    ).replace("bias=qkv_bias", "bias=True").replace("-math.inf)", "-math.inf if self.c else 0)"
    ).replace("self.h = num_heads", "self.h, self.c = num_heads, causal").replace(
        "def forward(self, x):", "def forward(self, x):\n        assert not self.c"
    ).replace("scores.masked_fill(self.mask[:n, :n].bool(), -math.inf if self.c else 0)", "scores"),
    "prints": CAUSAL.replace("DIAGONAL", "1").replace(
        "        b, n, e = x.shape", "        b, n, e = x.shape; print('looking at', x.shape)"),
    "torch_like": TORCH_LIKE,
    "factor": CAUSAL.replace("DIAGONAL", "1").replace("self, d_in,", "self, factor, d_in,"),
}  # fmt: skip


@pytest.fixture
def examine(tmp_path, capsys):
    """Write a file, examine it, and give exit code and output."""

    def run(name, *options, target="Attention", sizes=("--embed-dim", "12", "--num-heads", "3")):
        path = tmp_path / f"{name}.py"
        path.write_text(HEAD + textwrap.dedent(FILES[name]))
        code = main([f"{path}:{target}", *sizes, *options])
        return code, capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("name", "options", "target"),
    [
        ("right", ["--kind", "causal"], "Attention"),
        ("short", ["--kind", "causal"], "Attention"),
        ("cross", ["--mask", "allowed"], "Attention"),
        ("cross", ["--mask", "allowed", "--mask-shape", "b1nm"], "Attention"),
        ("cross", ["--mask", "none"], "Attention"),
        ("cross", ["--mask", "allowed", "--kind", "causal"], "Attention"),
        ("must_have_mask", ["--mask", "allowed"], "Attention"),
        ("sequence_first", ["--kind", "causal", "--sequence-first"], "Attention"),
        ("factor", ["--kind", "causal", "--init", "factor=2.5"], "Attention"),
        ("optional_widths", ["--mask", "allowed"], "Attention"),
        ("all_optional", ["--kind", "causal"], "Attention"),
        ("permuted", ["--mask", "allowed"], "Attention"),
        ("by_position", ["--mask", "allowed"], "Attention"),
        ("by_position", ["--mask", "allowed", "--kind", "self"], "Attention"),
        ("named_otherwise", ["--mask", "allowed"], "Attention"),
        ("full_names", ["--mask", "allowed"], "Attention"),
        ("full_names", ["--mask", "allowed", "--kind", "self"], "Attention"),
        ("not_causal", ["--kind", "self"], "Attention"),
        ("prints", ["--kind", "causal"], "Attention"),
        ("torch_like", ["--sequence-first"], "Attention"),
        ("torch_like", ["--sequence-first", "--kind", "self"], "Attention"),
        ("torch_like", ["--sequence-first", "--kind", "causal"], "Attention"),
    ],
)
def test_right_ones_exit_with_0(examine, name, options, target):
    code, output = examine(name, *options, target=target)
    assert code == 0, output
    assert output.startswith("✓ Attention: nothing wrong")


def test_a_function(examine):
    sizes = ("--embed-dim", "12", "--num-heads", "1")
    code, output = examine("function", "--kind", "self", target="attend", sizes=sizes)
    assert code == 0
    assert "convention: nan-row" in output


def test_a_mistake_is_named_and_exits_with_1(examine):
    code, output = examine("off_by_one", "--kind", "causal")
    assert code == 1
    assert "wrong: causal-off-by-one" in output
    assert "triu(diagonal=1)" in output


def test_the_wrong_meaning_of_a_mask_is_a_mistake(examine):
    code, output = examine("cross", "--mask", "blocked")
    assert code == 1
    assert output.count("wrong: ") == output.count("wrong: mask-inverted") == 1
    assert "`--mask allowed`" in output


def test_the_wrong_meaning_of_a_mask_that_must_be_given_is_a_mistake(examine):
    code, output = examine("must_have_mask", "--mask", "blocked")
    assert code == 1
    assert output.count("wrong: ") == output.count("wrong: mask-inverted") == 1
    assert "`--mask allowed`" in output


def test_the_layout_can_be_told(examine):
    assert examine("torch_like", "--batch-first")[0] != 0
    assert examine("torch_like", "--sequence-first")[0] == 0


@pytest.mark.parametrize(
    ("name", "finding", "evidence", "remedy"),
    [
        ("broken", "import-fails", "No module named 'no_such_module' (broken.py, line 5: `import",
         "Install no_such_module"),
        ("raises", "import-fails", "ValueError: early (raises.py, line 5: `raise",
         "Run `python` on the file first"),
        ("script", "import-fails", "SystemExit: 3", '`if __name__ == "__main__":`'),
        ("gone", "import-fails", "gone.py has no class or function Attention", "It defines none."),
        ("misnamed", "import-fails", "has no class or function Attention",
         "Name one of: Attend, attend."),
        ("number", "import-fails", "Attention is an object of type int", "Name a class"),
        ("needs", "construction-fails", "the constructor's mystery cannot be guessed",
         "--kind causal --embed-dim 12 --num-heads 3 --init mystery=…`"),
        ("refuses", "construction-fails", "ValueError: no (refuses.py, line 6: `def __init__",
         "It was built with dim=12."),
        ("exits", "call-fails", "SystemExit: 0 (exits.py, line 6", "write an adapter"),
        ("crashes", "fails", "(crashes.py, line 6: `def forward(self, x): return x @ x`)",
         "Mend that line if it should take tensors of (2, 5, 12)."),
        ("asks", "call-fails", "the call's mystery cannot be guessed", "--call mystery=…`"),
        ("empty", "fails", "NotImplementedError (empty.py, line 6", "Write what is missing"),
        ("no_module", "call-fails", "an object of type Attention cannot be called",
         "Name a class whose objects can be called"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_exits_with_2(examine, name, finding, evidence, remedy):
    code, output = examine(name, "--kind", "causal")
    output = " ".join(output.split())
    assert code == 2
    assert output.startswith("✗ Attention: it could not be asked")
    assert f"unasked: {finding}" in output
    assert evidence in output
    assert remedy in output


def test_another_result_than_asked_for_cannot_be_examined(examine):
    code, output = examine("shapeless", "--kind", "causal")
    assert code == 2
    assert "unasked: wrong-result" in output
    assert "it returns shape ()" in output


def test_a_file_that_does_not_exist_exits_with_2(capsys):
    assert main(["/no/such/file.py:A", "--embed-dim", "12", "--num-heads", "3"]) == 2
    output = capsys.readouterr().out
    assert "there is no file /no/such/file.py" in output
    assert "Check the path: it starts at" in output


@pytest.mark.parametrize(
    ("name", "options", "extra", "names"),
    [
        ("right", ["--init", "no_head=3"], "no_head (--init)",
         "d_in, d_out, context_length, dropout, num_heads, qkv_bias"),
        ("right", ["--call", "caasal=True"], "caasal (--call)", "x"),
        ("cross", ["--call", "masc=1"], "masc (--call)", "q, k, v, mask"),
        ("cross", ["--mask-name", "masc"], "masc", "q, k, v, mask"),
    ],
)  # fmt: skip
def test_names_that_it_does_not_have_are_refused(examine, name, options, extra, names):
    code, output = examine(name, "--kind", "causal", *options)
    output = " ".join(output.split())
    assert code == 2
    assert f"has no {extra}" in output
    assert f"name one of: {names}." in output


def test_a_function_is_not_constructed(examine):
    code, output = examine("function", "--kind", "self", "--init", "e=3", target="attend")
    assert code == 2
    assert "is no class and is not constructed" in output


def test_settings_that_a_config_takes_are_not_refused(examine):
    assert examine("cross", "--mask", "allowed", "--init", "depth=3")[0] == 0


@pytest.mark.parametrize("target", ["file.py", ":Name", "file.py:"])
def test_a_wrong_command_line_exits_with_2(target, capsys):
    with pytest.raises(SystemExit) as stop:
        main([target, "--embed-dim", "12", "--num-heads", "3"])
    assert stop.value.code == 2
    assert "must be path/to/file.py:Name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (["--embed-dim", "12", "--num-heads", "5"], "--num-heads 5 must divide --embed-dim 12"),
        (["--embed-dim", "12", "--num-heads", "0"], "--num-heads 0 must divide --embed-dim 12"),
        (["--embed-dim", "12", "--num-heads", "3", "--max-length", "1"], "must be at least 2"),
        (["--embed-dim", "12", "--num-heads", "3", "--init", "a"], "a must be NAME=VALUE"),
    ],
)
def test_options_that_do_not_fit_exit_with_2(sizes, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["file.py:Name", *sizes])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_file_in_a_package_is_imported_as_part_of_it(tmp_path, capsys):
    package = tmp_path / "their_package" / "layers"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "parts.py").write_text(HEAD + CAUSAL.replace("DIAGONAL", "1"))
    (package / "top.py").write_text("from .parts import Attention\n")
    arguments = ["--kind", "causal", "--embed-dim", "12", "--num-heads", "3"]
    assert main([f"{package / 'top.py'}:Attention", *arguments]) == 0
    assert "agrees" in capsys.readouterr().out


def test_the_module_runs(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(HEAD + CAUSAL.replace("DIAGONAL", "2"))
    sizes = ["--kind", "causal", "--embed-dim", "12", "--num-heads", "3"]
    monkeypatch.setattr(
        sys, "argv", ["attention-doctor", f"{tmp_path / 'mine.py'}:Attention", *sizes]
    )
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("attention_doctor", run_name="__main__")
    assert ended.value.code == 1
    assert "wrong: causal-off-by-one" in capsys.readouterr().out


def test_the_old_command_says_the_new_one(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["doctor", "mine.py:A", "--mask", "b1nm allowed"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("annotated_attention.doctor", run_name="__main__")
    assert ended.value.code == 2
    new = "python -m attention_doctor mine.py:A --mask 'b1nm allowed'\n"
    assert capsys.readouterr().err.endswith(new)


def test_a_closed_pipe_is_no_error(tmp_path):
    text = "def attend(x): print('looking at', x.shape); return (x @ x.mT).softmax(-2) @ x"
    (tmp_path / "mine.py").write_text(text)  # no class, which would take longer to construct
    command = f"{sys.executable} -m attention_doctor mine.py:attend --kind self"
    command += " --embed-dim 12 --num-heads 1 2>errors | true; echo ${PIPESTATUS[0]}"
    run = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == "1\n"
    errors = (tmp_path / "errors").read_text()
    assert "looking at" in errors
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


def test_a_module_that_cannot_be_found_and_is_not_named(tmp_path, capsys):
    path = tmp_path / "theirs.py"
    path.write_text("raise ModuleNotFoundError('something is missing')")
    assert main([f"{path}:Attention", "--embed-dim", "24", "--num-heads", "4"]) == 2
    output = capsys.readouterr().out
    assert "something is missing" in output
    assert "Install None" not in output

"""Whatever the file holds, the command says so and ends: no traceback, nothing left changed."""

import os
import signal
import time

import pytest
import torch
from torch import nn

from attention_doctor import adapters, examine
from attention_doctor.command import main

SIZES = ["--embed-dim", "12", "--num-heads", "3", "--kind", "self"]
HEAD = """
import math
import os
import sys
import time
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, embed_dim, num_heads, dtype=None, device=None):
        super().__init__()
        options = {"dtype": dtype, "device": device}
        self.h, self.memory = num_heads, []
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, **options)
        self.out = nn.Linear(embed_dim, embed_dim, **options)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

class Stop(BaseException):
    pass

def made(**options):
    return Attention(12, 3, **options)
"""
FILES = {
    "syntax": "def broken(:",
    "not utf-8": "x = '\\x00'",
    "leaves at once": "os._exit(3)",
    "ends at once": "sys.exit(0)",
    "hangs at once": "while True: pass",
    "stops": "raise Stop('here')",
    "leaves when it is built": "class Mine(Attention):\n    def __init__(self): os._exit(3)",
    "leaves in a call": "class Mine(Attention):\n    def forward(self, x): os._exit(3)",
    "hangs in a call": "class Mine(Attention):\n    def forward(self, x): time.sleep(60)",
    "stops in a call": "class Mine(Attention):\n    def forward(self, x): raise Stop('there')",
    "catches everything": "class Mine(Attention):\n    def forward(self, x):\n"
    "        try: time.sleep(60)\n        except Exception: return x",
    "recursion": "class Mine(Attention):\n    def forward(self, x): return self.forward(x)",
    "another shape": "class Mine(Attention):\n    def forward(self, x): return x[..., :5]",
    "another type": "class Mine(Attention):\n    def forward(self, x): return 'attention'",
    "meta": "def Mine(): return made(device='meta')",
    "nothing": "def Mine(): return None",
}
MESSAGES = {
    "syntax": ("import-fails", "SyntaxError"),
    "not utf-8": ("import-fails", "has no class or function Mine"),
    "leaves at once": ("import-fails", "SystemExit: 3"),
    "ends at once": ("import-fails", "SystemExit: 0"),
    "hangs at once": ("call-fails", "did not come to an end in time: Expired (theirs.py"),
    "stops": ("call-fails", "Stop: here"),
    "leaves when it is built": ("call-fails", "SystemExit: 3"),
    "leaves in a call": ("call-fails", "SystemExit: 3"),
    "hangs in a call": ("call-fails", "Expired (theirs.py"),
    "stops in a call": ("call-fails", "Stop: there"),
    "catches everything": ("call-fails", "did not come to an end in time"),
    "recursion": ("fails", "RecursionError"),
    "another shape": ("wrong-result", "it returns shape (2, 5, 5)"),
    "another type": ("wrong-result", "an object of type str"),
    "meta": ("fails", "its parameters are on meta, and the inputs on cpu"),
    "nothing": ("call-fails", "an object of type NoneType cannot be called"),
}


@pytest.fixture
def run(tmp_path, capsys):
    """Write a file, examine it, and give exit code and output in one line."""

    def examined(text, *options, name="Mine"):
        path = tmp_path / "theirs.py"
        path.write_text(HEAD + text)
        code = main([f"{path}:{name}", *SIZES, *options])
        return code, " ".join(capsys.readouterr().out.split())

    return examined


@pytest.mark.parametrize("name", FILES)
def test_it_exits_with_2_and_says_why(run, name):
    exits, handler = os._exit, signal.getsignal(signal.SIGALRM)
    code, output = run(
        FILES[name], "--timeout", "1" if "hangs" in name or "catch" in name else "60"
    )
    assert code == 2, output
    finding, message = MESSAGES[name]
    assert f"unasked: {finding}" in output
    assert message in output
    assert "remedy" in output
    assert os._exit is exits
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


BUILT = "        super().__init__(embed_dim, num_heads"
INIT = "class Mine(Attention):\n    def __init__(self, embed_dim, num_heads):\n" + BUILT
GOOD = {
    "half precision alone": INIT
    + """, dtype=torch.bfloat16)
    def forward(self, x):
        assert x.dtype == torch.bfloat16
        return super().forward(x)
""",
    "compiled": "def Mine(): return torch.compile(made())",
    "scripted": "def Mine(): return torch.jit.script(nn.Sequential(nn.Identity(), Plain(12, 3)))",
    "a script with arguments": "def Mine(): return torch.jit.script(Plain(12, 3))",
    "keeps what it saw": """
class Mine(Attention):
    def forward(self, x):
        self.last = x
        self.memory.append(x)
        assert len(self.memory) == 1
        return super().forward(x)
""",
    "a cache that it writes to": INIT
    + """)
        self.cache = torch.zeros(8, 16, embed_dim)
    def forward(self, x):
        self.cache = self.cache.to(x)
        assert not self.cache.any()
        self.cache[: len(x), : x.size(1)] = x
        return super().forward(self.cache[: len(x), : x.size(1)])
""",
    "weights that get their shape later": INIT
    + """)
        self.qkv = nn.LazyLinear(3 * embed_dim)
""",
    "slots": """
class Mine:
    __slots__ = ("inner",)
    def __init__(self, embed_dim, num_heads):
        self.inner = Attention(embed_dim, num_heads)
    def __call__(self, x):
        return self.inner(x)
""",
}
PLAIN = """
class Plain(Attention):
    def forward(self, x: torch.Tensor):
        b, n, e = x.shape
        y = self.qkv(x).view(b, n, 3, self.h, e // self.h).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(y[0], y[1].transpose(-2, -1)) / math.sqrt(e // self.h)
        mixed = torch.matmul(scores.softmax(-1), y[2])
        return self.out(mixed.transpose(1, 2).reshape(b, n, e))

    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__(embed_dim, num_heads)
        del self.memory
"""


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", GOOD)
def test_what_is_unusual_and_right_is_examined(run, name):
    code, output = run(PLAIN + GOOD[name])
    assert code == 0, output


def test_one_head_and_no_parameters(run):
    text = "def attend(x): return (x @ x.mT / math.sqrt(12)).softmax(-1) @ x"
    code, output = run(text, "--num-heads", "1", name="attend")
    assert code == 0, output


def test_a_change_in_place_is_a_finding(run):
    text = "class Mine(Attention):\n    def forward(self, x): return super().forward(x.mul_(2))"
    code, output = run(text)
    assert code == 1
    assert "wrong: input-changed-in-place" in output


class Keeping(nn.Module):
    """Attention that writes down whatever it sees, in every way in which one can."""

    class Notes:
        def __init__(self):
            self.seen, self.table = 0, {"first": torch.zeros(3)}

    def __init__(self):
        super().__init__()
        self.linear, self.list, self.set = nn.Linear(12, 12), [1], {1}
        self.tensor, self.notes = torch.zeros(4), self.Notes()
        self.register_buffer("counted", torch.zeros(()))

    def forward(self, x):
        assert self.list == [1]
        assert self.notes.seen == self.counted == self.tensor.sum() == 0
        self.list.append(x)
        self.set.add(x)
        self.tensor += 1
        self.counted += 1
        self.notes.seen += 1
        self.notes.table["first"][:] = 5
        self.notes.table["new"] = self.new = x
        y = self.linear(x)
        return (y @ y.mT).softmax(-1) @ x


def test_what_calls_leave_behind_is_put_back_in_the_same_objects():
    module = Keeping()
    kept = {name: x for name, x in vars(module).items() if name not in ("_buffers", "training")}
    first = module.notes.table["first"]
    attend = adapters.without_mask(module)
    found = examine(attend, embed_dim=12, num_heads=1, kind="self")
    assert found.asked
    assert "fails" not in found.codes, str(found)
    assert {name: id(x) for name, x in vars(module).items() if name in kept} == {
        name: id(x) for name, x in kept.items()
    }
    assert not hasattr(module, "new")
    assert (module.list, module.set, module.notes.seen) == ([1], {1}, 0)
    assert module.notes.table == {"first": first}
    assert not first.any()
    assert not module.tensor.any()
    assert not module.counted


def test_no_limit_where_none_is_wanted(run):
    begin = time.monotonic()
    assert run("", "--timeout", "0", name="Attention")[0] == 0
    assert time.monotonic() > begin

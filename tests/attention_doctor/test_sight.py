"""What the doctor sees inside: right code in many styles, and planted mistakes by their lines."""

import numpy as np
import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention
from annotated_attention.published import DESIGNS
from attention_doctor import adapters, examine, situations
from attention_doctor.patient import NotAsked, Patient
from attention_doctor.sight import look

E, H = 24, 4
D = E // H
HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn, Tensor
"""
FOUR = """
class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.d = h, e // h
        self.q, self.k, self.v, self.o = (nn.Linear(e, e) for _ in range(4))

    def split(self, x):
        b, n, e = x.shape
        return x.view(b, n, self.h, self.d).transpose(1, 2)

"""
# Self-attention that takes a mask, True = blocked, as people write it.
STYLES = {
    "packed": """
class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(e, 3 * e), nn.Linear(e, e)

    def forward(self, x, blocked=None):
        b, n, e = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.h, e // self.h)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(q.size(-1))
        if blocked is not None:
            scores = scores.masked_fill(blocked.unsqueeze(1), float("-inf"))
        weights = scores.softmax(dim=-1)
        heads = weights @ v
        merged = heads.transpose(1, 2).reshape(b, n, e)
        return self.out(merged)
""",
    "einsum": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q, k, v = (f(x).view(b, n, self.h, self.d) for f in (self.q, self.k, self.v))
        energy = torch.einsum("bqhd,bkhd->bhqk", q, k)
        if blocked is not None:
            energy = energy.masked_fill(blocked[:, None], -1e4)
        attention = torch.softmax(energy / self.d ** 0.5, dim=3)
        out = torch.einsum("bhql,blhd->bqhd", attention, v)
        return self.o(out.reshape(b, n, e))
""",
    "bmm, folded": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q, k, v = (self.split(f(x)).flatten(0, 1) for f in (self.q, self.k, self.v))
        scores = torch.bmm(q * self.d**-0.5, k.transpose(1, 2))
        if blocked is not None:
            hidden = blocked.repeat_interleave(self.h, 0)
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        out = torch.bmm(F.softmax(scores, dim=-1), v)
        out = out.view(b, self.h, n, self.d)
        return self.o(out.permute(0, 2, 1, 3).contiguous().view(b, n, e))
""",
    "baddbmm": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q, k, v = (self.split(f(x)).flatten(0, 1) for f in (self.q, self.k, self.v))
        bias = x.new_zeros(b * self.h, n, n)
        if blocked is not None:
            bias = bias.masked_fill(blocked.repeat_interleave(self.h, 0), float("-inf"))
        scores = torch.baddbmm(bias, q, k.mT, beta=1, alpha=1 / math.sqrt(self.d))
        heads = scores.softmax(-1).bmm(v).view(b, self.h, n, self.d)
        return self.o(heads.transpose(1, 2).flatten(2))
""",
    "fused": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        allowed = None if blocked is None else ~blocked[:, None]
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.o(heads.transpose(1, 2).flatten(2))
""",
    "a list of heads": """
class Head(nn.Module):
    def __init__(self, e, d):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(e, d, bias=False) for _ in range(3))

    def forward(self, x, blocked=None):
        q, k, v = self.query(x), self.key(x), self.value(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1]**-0.5
        if blocked is not None:
            wei = wei.masked_fill(blocked, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        return wei @ v


class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.heads = nn.ModuleList(Head(e, e // h) for _ in range(h))
        self.proj = nn.Linear(e, e)

    def forward(self, x, blocked=None):
        return self.proj(torch.cat([head(x, blocked) for head in self.heads], dim=-1))
""",
    "grouped and rotated": """
def rotate(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.g, self.d = h, h // 2, e // h
        self.q_proj = nn.Linear(e, h * self.d)
        self.k_proj, self.v_proj = (nn.Linear(e, self.g * self.d) for _ in range(2))
        self.o_proj = nn.Linear(e, e)

    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q = self.q_proj(x).view(b, n, -1, self.d).transpose(1, 2)
        k = self.k_proj(x).view(b, n, -1, self.d).transpose(1, 2)
        v = self.v_proj(x).view(b, n, -1, self.d).transpose(1, 2)
        angle = torch.outer(torch.arange(n), 10.0 ** -torch.arange(self.d // 2)).repeat(1, 2).to(x)
        cos, sin = angle.cos(), angle.sin()
        q, k = (y * cos + rotate(y) * sin for y in (q, k))
        k, v = (y.repeat_interleave(self.h // self.g, dim=1) for y in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * self.d**-0.5
        if blocked is not None:
            mask = torch.zeros_like(scores).masked_fill(blocked[:, None], float("-inf"))
            scores = scores + mask
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        heads = torch.matmul(weights, v)
        return self.o_proj(heads.transpose(1, 2).contiguous().reshape(b, n, e))
""",
    "a bias by distance": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        place = torch.arange(x.size(1))
        slopes = 2.0 ** -torch.arange(1, self.h + 1)[:, None, None]
        scores = q @ k.mT / math.sqrt(self.d)
        scores = scores - slopes * (place[:, None] - place).abs()
        if blocked is not None:
            scores = torch.where(blocked[:, None], float("-inf"), scores)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
""",
    "by hand": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(self.d)
        raised = (scores - scores.amax(-1, keepdim=True)).exp()
        if blocked is not None:
            raised = raised * ~blocked[:, None]
        heads = raised @ v / raised.sum(-1, keepdim=True)
        return self.o(heads.transpose(1, 2).flatten(2))
""",
    "by logarithms": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        scores = q @ k.mT / math.sqrt(self.d)
        if blocked is not None:
            scores = scores.masked_fill(blocked[:, None], -math.inf)
        weights = torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))
        return self.o((weights @ v).transpose(1, 2).flatten(2))
""",
    "in place": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        scores = torch.empty(x.size(0), self.h, x.size(1), x.size(1), dtype=x.dtype)
        for i in range(self.h):
            scores[:, i] = q[:, i] @ k[:, i].mT
        scores /= math.sqrt(self.d)
        if blocked is not None:
            scores[blocked[:, None].expand_as(scores)] = -math.inf
        weights = scores.log_softmax(-1).exp()
        return self.o((weights @ v).transpose(1, 2).flatten(2))
""",
    "PyTorch's function": """
class Attention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.qkv, self.out = h, nn.Linear(e, 3 * e), nn.Linear(e, e)

    def forward(self, x, blocked=None):
        mask = None if blocked is None else blocked.repeat_interleave(self.h, 0)
        x = x.transpose(0, 1)
        return F.multi_head_attention_forward(
            x, x, x, x.size(-1), self.h, self.qkv.weight, self.qkv.bias, None, None, False, 0.0,
            self.out.weight, self.out.bias, attn_mask=mask,
        )[0].transpose(0, 1)
""",
    "vmap": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        if blocked is None:
            blocked = torch.zeros(x.size(0), x.size(1), x.size(1), dtype=torch.bool)

        def head(q, k, v, blocked):
            scores = (q @ k.mT / math.sqrt(self.d)).masked_fill(blocked, -math.inf)
            return scores.softmax(-1) @ v

        heads = torch.vmap(torch.vmap(head, in_dims=(0, 0, 0, None)))(q, k, v, blocked)
        return self.o(heads.transpose(1, 2).flatten(2))
""",
    "through a view": FOUR
    + """
    def forward(self, x, blocked=None):
        b, n, e = x.shape
        q = self.split(self.q(x) + 2.0 * F.linear(x, self.k.weight * 0.1))  # as low-rank updates
        k, v = self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.mT / math.sqrt(self.d)
        scores = 30 * torch.tanh(scores / 30)
        flat = scores.view(b * self.h, n, n)
        if blocked is not None:
            flat.masked_fill_(blocked.repeat_interleave(self.h, 0), -math.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
""",
    "norms": FOUR
    + """
    def forward(self, x, blocked=None):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        q, k = (F.rms_norm(y, (self.d,)) for y in (q, k))
        scores = (q * self.d**-0.25) @ (k * self.d**-0.25).mT
        if blocked is not None:
            scores.masked_fill_(blocked[:, None], -math.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
""",
}


def made(text, folder, name="mine"):
    """Write the file, and make its class."""
    file = folder / f"{name}.py"
    file.write_text(HEAD + text)
    space = {"__name__": name}
    exec(compile(file.read_text(), file, "exec"), space)
    torch.manual_seed(0)
    return space["Attention"](E, H)


def report(module, kind="self"):
    return examine(module, embed_dim=E, num_heads=H, kind=kind)


def looks(attend, kind="self", e=E, h=H):
    """Watch a call without a mask, and one with."""
    patient = Patient(attend, e, h, kind, None, 16)
    with patient.admitted():
        cases = [situations.free(patient), next(situations.masked(patient), None)]
        return [look(patient, case) for case in cases if case is not None]


@pytest.mark.parametrize("style", STYLES)
def test_right_code_is_seen_as_it_is(style, tmp_path):
    module = made(STYLES[style], tmp_path)
    for seen in looks(module):
        heads = H if style in ("a list of heads",) else 1
        assert len(seen.found) == heads
        for one in seen.found:
            assert one.scale == pytest.approx(D**-0.5, rel=1e-5)
            assert one.width == D
            assert one.axis == -1
            torch.testing.assert_close(one.weights.sum(-1), torch.ones_like(one.weights[..., 0]))
            assert one.normalised == (style == "norms")
        hidden = sum(int(one.mask.sum()) for one in seen.found)
        blocked = seen.case.blocked
        assert hidden == (0 if blocked is None else H * int(blocked.sum()))


@pytest.mark.parametrize("style", STYLES)
def test_right_code_is_called_right(style, tmp_path):
    found = report(made(STYLES[style], tmp_path))
    assert found.ok, str(found)
    assert not any(code.startswith(("scale", "no-scale")) for code in found.codes)
    assert "scores times 0.408 = 1/√6 (mine.py:" in found.inside


@pytest.mark.parametrize("style", STYLES)
def test_watching_changes_nothing(style, tmp_path):
    module = made(STYLES[style], tmp_path)
    patient = Patient(module, E, H, "self", None, 16)
    with patient.admitted():
        for case in (situations.free(patient), *situations.masked(patient)):
            expected = patient.ask(case.inputs, case.blocked)
            for gradient in (False, True):
                assert torch.equal(look(patient, case, gradient).output, expected)


# Style, what is written there, what is written in its place, the code, and the line that is named.
PLANTED = [
    ("packed", "scores / math.sqrt(q.size(-1))", "scores / math.sqrt(e)", "scale-by-model-width",
     "scores = scores / math.sqrt(e)"),
    ("packed", "q @ k.transpose(-2, -1)", "q @ q.transpose(-2, -1)", "keys-from-queries",
     "scores = q @ q.transpose(-2, -1)"),
    ("packed", "softmax(dim=-1)", "softmax(dim=1)", "softmax-over-heads",
     "weights = scores.softmax(dim=1)"),
    ("packed", "heads.transpose(1, 2).reshape", "heads.reshape", "merge-without-transpose",
     "merged = heads.reshape(b, n, e)"),
    ("packed", "blocked.unsqueeze(1)", "~blocked.unsqueeze(1)", "mask-inverted",
     'scores = scores.masked_fill(~blocked.unsqueeze(1), float("-inf"))'),
    ("einsum", "dim=3", "dim=2", "softmax-over-queries",
     "attention = torch.softmax(energy / self.d ** 0.5, dim=2)"),
    ("einsum", "bhql,blhd->bqhd", "bhlq,blhd->bqhd", "mixed-over-queries",
     'out = torch.einsum("bhlq,blhd->bqhd", attention, v)'),
    ("einsum", "bqhd,bkhd->bhqk", "bqhd,bkhe->bhqk", "summed-apart",
     'energy = torch.einsum("bqhd,bkhe->bhqk", q, k)'),
    ("einsum", "-1e4)", "1e-4)", "fill-does-not-block",
     "energy = energy.masked_fill(blocked[:, None], 1e-4)"),
    ("einsum", "-1e4)", "-1e20)", "finite-fill-in-half",
     "energy = energy.masked_fill(blocked[:, None], -1e20)"),
    ("bmm, folded", "q * self.d**-0.5", "q * self.d**0.5", "scale-inverted",
     "scores = torch.bmm(q * self.d**0.5, k.transpose(1, 2))"),
    ("bmm, folded", "out.view(b, self.h, n, self.d)",
     "out.view(self.h, b, n, self.d).transpose(0, 1)", "heads-of-other-samples", ""),
    ("bmm, folded", "blocked.repeat_interleave(self.h, 0)", "blocked.repeat(self.h, 1, 1)",
     "mask-in-the-wrong-order", ""),
    ("baddbmm", "alpha=1 / math.sqrt(self.d)", "alpha=1 / self.d", "scale-twice",
     "scores = torch.baddbmm(bias, q, k.mT, beta=1, alpha=1 / self.d)"),
    ("fused", "~blocked[:, None]", "(~blocked[:, None]).to(x.dtype)", "fill-does-not-block",
     "heads = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)"),
    ("a list of heads", "k.shape[-1]**-0.5", "k.shape[1]**-0.5", "scale-by-length",
     "wei = q @ k.transpose(-2, -1) * k.shape[1]**-0.5"),
    ("a list of heads", "F.softmax(wei, dim=-1)", "F.softmax(wei, dim=0)",
     "softmax-over-samples", "wei = F.softmax(wei, dim=0)"),
    ("grouped and rotated", "* self.d**-0.5", "/ math.sqrt(e)", "scale-by-model-width",
     "scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(e)"),
    ("grouped and rotated", "heads.transpose(1, 2).contiguous().reshape(b, n, e)",
     "heads.reshape(b, n, e)", "merge-without-transpose",
     "return self.o_proj(heads.reshape(b, n, e))"),
    ("grouped and rotated", "scores = scores + mask", "scores = scores * mask", "mask-multiplied",
     "scores = scores * mask"),
    ("grouped and rotated", "dim=-1, dtype", "dim=-2, dtype", "softmax-over-queries", ""),
    ("grouped and rotated", "self.q_proj(x).view(b, n, -1, self.d).transpose(1, 2)",
     "self.q_proj(x).view(b, -1, n, self.d)", "split-without-transpose",
     "q = self.q_proj(x).view(b, -1, n, self.d)"),
    ("grouped and rotated", "* self.d**-0.5", "/ self.d", "scale-twice",
     "scores = torch.matmul(q, k.transpose(2, 3)) / self.d"),
    ("grouped and rotated", "repeat_interleave(self.h // self.g, dim=1)",
     "repeat(1, self.h // self.g, 1, 1)", "groups-tiled",
     "k, v = (y.repeat(1, self.h // self.g, 1, 1) for y in (k, v))"),
    ("grouped and rotated", 'float(\"-inf\")', "1e9", "fill-does-not-block",
     "scores = scores + mask"),
    ("through a view", "/ math.sqrt(self.d)", "/ self.d", "scale-twice",
     "scores = q @ k.mT / self.d"),
    ("a bias by distance", "@ v).transpose(1, 2)",
     "@ v).flatten(0, 1).unflatten(0, (self.h, -1)).permute(1, 2, 0, 3)", "heads-of-other-samples",
     ""),
    ("a bias by distance", "torch.where(blocked[:, None], ", "torch.where(blocked[:, None].mT, ",
     "mask-transposed", ""),
    ("a bias by distance", "scores = torch.where(blocked[:, None], float(\"-inf\"), scores)",
     "blocked = None", "mask-ignored", ""),
    ("by hand", "raised * ~blocked[:, None]", "raised * blocked[:, None]", "mask-inverted", ""),
    ("by logarithms", "-math.inf", "1", "fill-does-not-block",
     "scores = scores.masked_fill(blocked[:, None], 1)"),
    ("in place", "scores /= math.sqrt(self.d)", "scores /= self.d", "scale-twice",
     "scores /= self.d"),
    ("vmap", "scores.softmax(-1)", "scores.softmax(-2)", "softmax-over-queries",
     "return scores.softmax(-2) @ v"),
]  # fmt: skip


@pytest.mark.parametrize(("style", "old", "new", "code", "line"), PLANTED)
def test_planted_mistakes_are_named_with_their_line(style, old, new, code, line, tmp_path):
    assert old in STYLES[style]
    found = report(made(STYLES[style].replace(old, new, 1), tmp_path))
    named = [x for x in found.findings if x.severity == "wrong" or x.code == code]
    assert [x.code for x in named] == [code], str(found)
    assert named[0].where.file == str(tmp_path / "mine.py")
    text = (tmp_path / "mine.py").read_text().splitlines()
    assert text[named[0].where.line - 1].strip() == named[0].where.text
    if line:
        assert named[0].where.text == line
    assert f"mine.py, line {named[0].where.line}: `" in " ".join(str(found).split())


@pytest.mark.parametrize("name", DESIGNS)
def test_published_designs_are_seen(name):
    design = DESIGNS[name]
    torch.manual_seed(0)
    module = design.build(E, H)

    def attend(query, key, value, blocked):
        return design.call(module, query, key, value, blocked)

    alone = design.kind == "self"
    for seen in looks((lambda x, m: attend(x, x, x, m)) if alone else attend, design.kind):
        assert seen.found
        assert [one.scale for one in seen.found] == [pytest.approx(D**-0.5)] * len(seen.found)
        assert all(one.where("softmax").shown.endswith(".py") for one in seen.found)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("version", [MultiheadAttention, nn.MultiheadAttention])
@pytest.mark.parametrize("kind", ["cross", "self", "causal"])
def test_ours_and_pytorchs_are_seen(version, need_weights, kind):
    torch.manual_seed(0)
    module = version(E, H, batch_first=True)
    attend = adapters.torch_like(module, kind, need_weights=need_weights)
    for seen in looks(attend, kind):
        (one,) = seen.found
        assert one.scale == pytest.approx(D**-0.5)
        assert one.mask.any() == (kind == "causal" or seen.case.blocked is not None)


ROTATED = (
    STYLES["grouped and rotated"]
    .replace("blocked[:, None], float", "torch.ones(n, n).triu(diagonal=1).bool(), float")
    .replace(
        "        if blocked is not None:\n            mask", "        if True:\n            mask"
    )
)


@pytest.mark.parametrize(
    ("triangle", "code"),
    [
        ("triu(diagonal=1)", ""),
        ("triu(diagonal=2)", "causal-off-by-one"),
        ("triu(diagonal=0)", "causal-hides-itself"),
        ("tril(diagonal=-1)", "mask-transposed"),
    ],
)
def test_a_causal_mask_is_named_by_the_line_of_its_triangle(triangle, code, tmp_path):
    assert "triu(diagonal=1)" in ROTATED
    text = ROTATED.replace("triu(diagonal=1)", triangle).replace(", blocked=None", "")
    found = report(made(text, tmp_path), "causal")
    wrong = [x for x in found.findings if x.severity == "wrong"]
    assert [x.code for x in wrong] == [code] * bool(code), str(found)
    assert all(f"torch.ones(n, n).{triangle}" in x.where.text for x in wrong)


def test_compiled_code_is_seen_line_by_line(tmp_path):
    module = made(STYLES["packed"], tmp_path)
    found = report(torch.compile(module, backend="eager", fullgraph=True))
    assert "mine.py" in found.inside


def test_a_detour_through_numpy_is_examined_from_outside():
    def attend(x, blocked=None):
        q = x.detach().unflatten(-1, (H, -1)).transpose(1, 2).numpy()
        e = np.exp(q @ q.swapaxes(-1, -2))
        return torch.from_numpy(e / e.sum(-1, keepdims=True) @ q).transpose(1, 2).flatten(2)

    found = report(adapters.without_mask(attend))
    assert found.inside == ""
    assert "inside: no softmax over a product of queries and keys could be seen" in (
        found.not_examined
    )
    assert found.results["query order"] == "fine"


@pytest.mark.filterwarnings("ignore")  # what is to be traced is deprecated, and warns
def test_what_shows_nothing_is_examined_from_outside(tmp_path):
    class Scripted(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.jit.trace(
                made(STYLES["packed"], tmp_path).double(), torch.randn(2, 5, E).double()
            )

        def forward(self, x):
            return self.inner(x)

    found = report(adapters.without_mask(Scripted()))
    assert found.inside == ""
    (reason,) = (x for x in found.not_examined if x.startswith("inside"))
    assert reason == "inside: no softmax over a product of queries and keys could be seen"
    assert found.results["query order"] == "fine"


def test_an_error_of_the_sight_is_no_error_of_the_doctor(tmp_path, monkeypatch):
    def stumble(*_):
        raise KeyError("lost")

    module = made(STYLES["packed"].replace("heads.transpose(1, 2)", "heads"), tmp_path)
    monkeypatch.setattr("attention_doctor.traced._copied", stumble)
    found = report(module)
    assert found.codes[0] == "merge-without-transpose"
    (reason,) = (x for x in found.not_examined if x.startswith("inside"))
    assert "the sight fails, with KeyError" in reason


def test_a_change_of_an_input_is_found_with_its_line(tmp_path):
    text = STYLES["packed"].replace("b, n, e = x.shape", "x *= 2; b, n, e = x.shape")
    found = report(made(text, tmp_path))
    (finding,) = (x for x in found.findings if x.code == "input-changed-in-place")
    assert finding.where.text == "x *= 2; b, n, e = x.shape"


def test_another_constant_is_a_convention_with_its_line(tmp_path):
    text = STYLES["grouped and rotated"].replace("self.d**-0.5", "0.3")
    found = report(made(text, tmp_path))
    (finding,) = (x for x in found.findings if x.code == "scale-by-convention")
    assert found.ok
    assert "q kᵀ is multiplied by 0.3" in finding.evidence
    assert finding.where.text == "scores = torch.matmul(q, k.transpose(2, 3)) * 0.3"


UNSCALED = {  # what is written there, what in its place, and the line that is named
    "packed": ("scores = scores / math.sqrt(q.size(-1))", "pass", "scores = q @ k"),
    "a bias by distance": ("k.mT / math.sqrt(self.d)", "k.mT", "k.mT"),
    "fused": ("attn_mask=allowed", "attn_mask=allowed, scale=1.0", "scale=1.0"),
    "grouped and rotated": ("k.transpose(2, 3)) * self.d**-0.5", "k.transpose(2, 3))",
                            "scores = torch.matmul(q, k.transpose(2, 3))"),
}  # fmt: skip


@pytest.mark.parametrize("style", UNSCALED)
def test_no_scale_is_a_convention_with_its_line(style, tmp_path):
    old, new, line = UNSCALED[style]
    assert old in STYLES[style]
    found = report(made(STYLES[style].replace(old, new), tmp_path))
    (finding,) = (x for x in found.findings if x.code == "no-scale")
    assert found.ok, str(found)
    assert line in finding.where.text


@pytest.mark.parametrize("style", ["packed", "grouped and rotated"])
def test_no_scale_is_wrong_by_a_reference_that_has_one(style, tmp_path):
    old, new, _ = UNSCALED[style]
    right, module = (made(x, tmp_path) for x in (STYLES[style], STYLES[style].replace(old, new)))
    for reference, severity in ((right, "wrong"), (module, "convention")):
        found = examine(module, embed_dim=E, num_heads=H, kind="self", reference=reference)
        (finding,) = (x for x in found.findings if x.code == "no-scale")
        assert finding.severity == severity
        assert found.ok == (severity == "convention")


def test_without_projections_no_scale_is_a_convention(tmp_path):
    found = report(adapters.without_mask(lambda x: (x @ x.mT).softmax(-1) @ x))
    assert found.codes == ("heads-not-split", "no-scale")
    assert found.ok


def test_appended_keys_and_tables_of_positions_are_by_design(tmp_path):
    text = STYLES["by logarithms"]
    null = text.replace(
        "        scores = q",
        "        k, v = (F.pad(y, (0, 0, 1, 0), value=0.5) for y in (k, v))\n        scores = q",
    ).replace("blocked[:, None]", "F.pad(blocked, (1, 0))[:, None]")
    found = report(made(null, tmp_path))
    assert found.ok, str(found)
    assert "keys-appended" in found.codes
    table = text.replace(
        "return self.o((weights @ v)",
        "place = torch.arange(x.size(1)).to(x)\n"
        "        near = (place - place[:, None, None] + torch.arange(self.d)[:, None]).sin()\n"
        "        far = torch.einsum('bhnm,ndm->bhnd', weights, near)\n"
        "        return self.o((weights @ v + far)",
    )
    found = report(made(table, tmp_path))
    assert found.ok, str(found)
    (finding,) = (x for x in found.findings if x.code == "table-mixed")
    assert finding.where.text == "far = torch.einsum('bhnm,ndm->bhnd', weights, near)"


def test_two_mistakes_are_both_named_with_what_follows_from_each(tmp_path):
    text = STYLES["grouped and rotated"].replace("* self.d**-0.5", "* self.d**0.5")
    text = text.replace("heads.transpose(1, 2).contiguous()", "heads")
    found = report(made(text, tmp_path))
    wrong = [x for x in found.findings if x.severity == "wrong"]
    assert [x.code for x in wrong] == ["scale-inverted", "merge-without-transpose"]
    assert "prefix-changes" in wrong[1].explains
    assert not wrong[0].explains


def test_an_inverted_mask_that_explains_all_says_so_on_one_screen(tmp_path):
    found = report(made(STYLES["packed"].replace("blocked.uns", "~blocked.uns"), tmp_path))
    text = str(found)
    assert found.findings[0].code == "mask-inverted"
    assert "nothing else is wrong" in found.findings[0].symptom
    assert "`--mask allowed`" in found.findings[0].remedy
    assert len(text.splitlines()) <= 40


def test_a_library_reports_its_own_line_and_keeps_the_calls_around_it(tmp_path):
    text = STYLES["packed"] + "\n\nclass Outer(nn.Module):\n"
    text += "    def __init__(self, inner):\n        super().__init__()\n"
    text += "        self.inner = inner\n\n"
    text += "    def forward(self, x, blocked=None):\n        return self.inner(x, blocked)\n"
    inner = made(text, tmp_path)
    space = inner.forward.__func__.__globals__
    (seen, _) = looks(space["Outer"](inner))
    frames = seen.found[0].steps["softmax"].frames
    lines = (tmp_path / "mine.py").read_text().splitlines()
    assert lines[frames[0][1] - 1].strip() == "weights = scores.softmax(dim=-1)"
    assert lines[frames[1][1] - 1].strip() == "return self.inner(x, blocked)"


def test_nothing_to_see_is_said(tmp_path):
    with pytest.raises(NotAsked, match="no softmax over a product"):
        looks(lambda x, blocked: x.softmax(-1))


@pytest.mark.parametrize("how", ["a product", "a layer and a norm"])
def test_talking_heads_are_by_design(how, tmp_path):
    text = STYLES["by logarithms"]
    heads = "torch.linspace(-1, 2, 16, dtype=x.dtype).view(4, 4)"
    weights = f"torch.einsum('bhnm,hg->bgnm', weights, {heads})"
    if how != "a product":
        mixed = f"F.linear(weights.movedim(1, -1), {heads})"
        weights = f"F.layer_norm({mixed}, (4,)).movedim(-1, 1)"
    found = report(made(text.replace("(weights @ v)", f"({weights} @ v)"), tmp_path))
    assert found.ok, str(found)
    assert ("heads-mixed" in found.codes) == (how != "a product")


NORMED = (
    FOUR
    + """
    def forward(self, x):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        HOW
        scores = q @ k.mT
        HIDE
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.o(mixed)OUT
"""
)
NORMS = {
    "queries": ("q = F.normalize(q, dim=2)", True),
    "keys": ("k = F.layer_norm(k.mT, k.shape[2:3]).mT", True),
    "by hand": ("q = q / q.norm(dim=-2, keepdim=True)", True),
    "features": ("q, k = F.normalize(q, dim=-1), F.layer_norm(k, k.shape[-1:])", False),
    "channels": ("k = F.group_norm(k.flatten(0, 1).mT, 1).mT.view_as(k)", False),
    "neighbours": ("q = F.normalize(q + F.pad(q, (0, 0, 1, 0))[:, :, :-1], dim=-1)", False),
}
FUTURE = "scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)"


@pytest.mark.parametrize("kind", ["self", "causal", "half"])
@pytest.mark.parametrize("how", NORMS)
def test_a_norm_over_tokens_is_named(how, kind, tmp_path):
    line, wrong = NORMS[how]
    text = NORMED.replace("HOW", line).replace("HIDE", FUTURE if kind == "causal" else "")
    text = text.replace("OUT", ".half()" if kind == "half" else "")
    attend = made(text, tmp_path)
    causal = kind == "causal"
    found = report(attend, kind) if causal else report(adapters.without_mask(attend))
    codes = [x.code for x in found.findings if x.severity == "wrong"]
    if wrong:
        assert "norm-over-tokens" in codes
        assert next(x for x in found.findings if x.code == codes[0]).where.text == line
        assert not any(x.startswith("split") for x in codes)
    else:
        assert "norm-over-tokens" not in codes
        assert causal or not codes


def test_what_answers_otherwise_while_it_is_watched_is_not_judged_by_what_was_seen():
    class Shy(nn.Module):
        def forward(self, x):
            far = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
            weights = (x @ x.mT / x.size(-1) ** 0.5).masked_fill(far, -torch.inf).softmax(-1)
            return weights @ x * (2 if torch._C._len_torch_function_stack() else 1)

    report = examine(Shy(), embed_dim=24, num_heads=1, kind="causal")
    assert "inside: the result is another one when it is watched" in report.not_examined


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_is_near_nothing(number):
    patient = Patient(lambda x: x, 24, 4, "causal")
    one, odd = torch.ones(3), torch.tensor([1.0, number, 1.0])
    assert patient.gap(odd, one) == patient.gap(one, odd) == patient.gap(odd, odd) == torch.inf

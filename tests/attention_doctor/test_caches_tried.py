"""A cache is asked about from the command line where names and a few calls say how it is given."""

import pytest

from attention_doctor.command import main

HEAD = '''
import torch
from torch import nn


def turn(x, start):
    """Turn (b, h, n, d) from this position on."""
    d = x.size(-1)
    angle = torch.arange(start, start + x.size(2))[:, None] * 10.0 ** -torch.arange(d // 2).to(x)
    cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Base(nn.Module):
    def __init__(self, embed_dim, num_heads, max_seq_len):
        super().__init__()
        self.h, e = num_heads, embed_dim
        self.q, self.k, self.v, self.o = (nn.Linear(e, e) for _ in range(4))
        for name in ("cache_k", "cache_v"):
            zeros = torch.zeros(8, max_seq_len, num_heads, e // num_heads)
            self.register_buffer(name, zeros, persistent=False)

    def project(self, x):
        return (f(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))

    def mix(self, q, k, v):
        n, m = q.size(2), k.size(2)
        allowed = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        scores = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(~allowed, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Attention(Base):
'''
STYLES = {
    "gpt2": """
    def forward(self, hidden_states, layer_past=None, use_cache=False):
        q, k, v = self.project(hidden_states)
        if layer_past is not None:
            k = torch.cat((layer_past[0], k), dim=-2)
            v = torch.cat((layer_past[1], v), dim=-2)
        present = (k, v) if use_cache else None
        return self.mix(q, k, v), present
    """,
    "hf": """
    def forward(self, hidden_states, past_key_value=None, output_attentions=False, use_cache=False):
        q, k, v = self.project(hidden_states)
        past = 0 if past_key_value is None else past_key_value[0].shape[-2]
        q, k = turn(q, past), turn(k, past)
        if past_key_value is not None:
            k = torch.cat([past_key_value[0], k], dim=2)
            v = torch.cat([past_key_value[1], v], dim=2)
        past_key_value = (k, v) if use_cache else None
        return self.mix(q, k, v), None, past_key_value
    """,
    "llama": """
    def forward(self, x, start_pos: int):
        b, n, e = x.shape
        q, k, v = self.project(x)
        q, k = turn(q, start_pos), turn(k, start_pos)
        self.cache_k = self.cache_k.to(k)
        self.cache_v = self.cache_v.to(v)
        self.cache_k[:b, start_pos : start_pos + n] = k.transpose(1, 2)
        self.cache_v[:b, start_pos : start_pos + n] = v.transpose(1, 2)
        keys = self.cache_k[:b, : start_pos + n].transpose(1, 2)
        values = self.cache_v[:b, : start_pos + n].transpose(1, 2)
        return self.mix(q, keys, values)
    """,
    "nanogpt": """
    def forward(self, x, kv_cache=None):
        q, k, v = self.project(x)
        start = 0
        if kv_cache is not None:
            start = kv_cache["k"].size(2)
        q, k = turn(q, start), turn(k, start)
        if kv_cache is not None:
            k = torch.cat([kv_cache["k"], k], 2)
            v = torch.cat([kv_cache["v"], v], 2)
        return self.mix(q, k, v), {"k": k, "v": v}
    """,
    "offset beside the cache": """
    def forward(self, x, cache=None, start_pos=0):
        q, k, v = self.project(x)
        q, k = turn(q, start_pos), turn(k, start_pos)
        if cache is not None:
            k, v = (torch.cat(pair, 2) for pair in zip(cache, (k, v)))
        return self.mix(q, k, v), (k, v)
    """,
    "flag alone": """
    def forward(self, x, use_cache=False):
        q, k, v = self.project(x)
        if use_cache:
            past = getattr(self, "past_kv", None)
            start = 0 if past is None else past[0].size(2)
            q, k = turn(q, start), turn(k, start)
            if past is not None:
                k, v = (torch.cat(pair, 2) for pair in zip(past, (k, v)))
            self.past_kv = (k, v)
        else:
            q, k = turn(q, 0), turn(k, 0)
        return self.mix(q, k, v)
    """,
    "one at a time": """
    def forward(self, x, cache=None):
        q, k, v = self.project(x)
        past = cache or {"k": None, "v": None}
        start = 0 if past["k"] is None else past["k"].size(2)
        assert cache is None or x.size(1) == 1
        q, k = turn(q, start), turn(k, start)
        if start:
            k, v = torch.cat([past["k"], k], 2), torch.cat([past["v"], v], 2)
        return self.mix(q, k, v), None if cache is None else {"k": k, "v": v}
    """,
}
# The future is blocked, and positions are given, by whoever calls.
FROM_OUTSIDE = {
    "start_pos, rows of angles": """
    def forward(self, x, start_pos: int, freqs_cis, mask=None):
        b, n, e = x.shape
        q, k, v = self.project(x)
        q, k = rotate(q, freqs_cis), rotate(k, freqs_cis)
        self.cache_k = self.cache_k.to(k)
        self.cache_v = self.cache_v.to(v)
        self.cache_k[:b, start_pos : start_pos + n] = k.transpose(1, 2)
        self.cache_v[:b, start_pos : start_pos + n] = v.transpose(1, 2)
        keys = self.cache_k[:b, : start_pos + n].transpose(1, 2)
        values = self.cache_v[:b, : start_pos + n].transpose(1, 2)
        return self.add(q, keys, values, mask)
    """,
    "cos and sin": """
    def forward(self, hidden_states, cos, sin, attention_mask=None, past_key_value=None):
        q, k, v = self.project(hidden_states)
        q, k = (x * cos[:, None] + half(x) * sin[:, None] for x in (q, k))
        if past_key_value is not None:
            k = torch.cat([past_key_value[0], k], dim=2)
            v = torch.cat([past_key_value[1], v], dim=2)
        return self.add(q, k, v, attention_mask), None, (k, v)
    """,
    "no positions, one mask for all": """
    def forward(self, x, mask, cache=None):
        q, k, v = self.project(x)
        if cache is not None:
            k, v = (torch.cat(pair, 2) for pair in zip(cache, (k, v)))
        return self.add(q, k, v, torch.where(mask, 0.0, float("-inf"))), (k, v)
    """,
}
MORE = """

def rotate(x, freqs_cis):
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * freqs_cis
    return torch.view_as_real(turned).flatten(3).type_as(x)


def half(x):
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1)


class Base(Base):
    def add(self, q, k, v, mask):
        scores = q @ k.mT / q.size(-1) ** 0.5
        scores = scores if mask is None else scores + mask
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Attention(Base):
"""
BASE = HEAD.removesuffix("class Attention(Base):\n") + MORE
WRONG_OUTSIDE = {
    "values at the start": ("start_pos, rows of angles",
        "self.cache_v[:b, start_pos : start_pos + n] =", "self.cache_v[:b, :n] =",
        "cached-values-misplaced"),
    "values before": ("cos and sin", "[past_key_value[1], v]", "[v, past_key_value[1]]",
        "cached-values-misplaced"),
    "new keys alone": ("no positions, one mask for all", "(torch.cat(pair, 2) for pair",
        "(pair[1][..., -1:, :].expand_as(torch.cat(pair, 2)) for pair", "cache-ignored"),
}  # fmt: skip
# A style, what is written instead, and what is found.
WRONG = {
    "position that stays 0": ("hf", "past_key_value[0].shape[-2]", "0", "positions-restart"),
    "keys rotated again": ("nanogpt", '[kv_cache["k"], k]', '[turn(kv_cache["k"], 0), k]',
        "cache-differs"),
    "wrong axis": ("gpt2", "dim=-2", "dim=1", "fails"),
    "mask at the wrong corner": ("gpt2", "tril(m - n)", "tril()", "causal-at-the-wrong-corner"),
    "start_pos off by one": ("llama", "n].transpose", "n - (start_pos > 0)].transpose",
        "cache-loses-tokens"),
    "written over": ("llama", "[:b, start_pos : start_pos + n] =", "[:b, :n] =",
        "cache-ignored"),
    "one at a time, position 0": ("one at a time", 'past["k"].size(2)', "1e-9",
        "positions-restart"),
    "behind the flag, position 0": ("flag alone", "past[0].size(2)", "0", "positions-restart"),
    "one further for a whole text": ("flag alone", "start = 0 if past is None else past[0].size(2)",
        "start = self.at = 0 if past is None else self.at + 1", "cache-differs"),
}  # fmt: skip
# What is no cache, or is not understood: nothing is said.
UNSURE = {
    "the caller joins": STYLES["gpt2"].replace("present = (k, v) if", "present = (a, c) if")
    .replace("self.project(hidden_states)", "self.project(hidden_states); a, c = k, v"),
    "an object": STYLES["nanogpt"].replace('kv_cache["k"]', "kv_cache.k")
    .replace('kv_cache["v"]', "kv_cache.v"),
    "caches of all layers": STYLES["gpt2"].replace("layer_past[0]", "layer_past[0][0]")
    .replace("layer_past[1]", "layer_past[0][1]"),
    "refuses": STYLES["gpt2"].replace(" k = torch.cat(", " raise ValueError(", 1)
    .replace("dim=-2)", ")", 1),
    "an offset without a cache": """
    def forward(self, x, start_pos=0):
        q, k, v = self.project(x)
        self.weights = k.mT
        return self.mix(turn(q, start_pos), turn(k, start_pos), v)
    """,
    "positions of its own": STYLES["hf"].replace("use_cache=False", "use_cache=False, position=0")
    .replace("past = 0 if past_key_value is None else past_key_value[0].shape[-2]",
             "past = position"),
    "weights come back": """
    def forward(self, x, past=None):
        q, k, v = self.project(x)
        return self.mix(q, k, v), (q @ k.mT).softmax(-1)
    """,
}  # fmt: skip


@pytest.fixture
def examine(tmp_path, capsys):
    """Examine a class with this way to call it; gives the exit code and what is printed."""

    def run(forward, head=HEAD, kind="causal"):
        path = tmp_path / "examined.py"
        path.write_text(head + forward)
        sizes = ["--embed-dim", "24", "--num-heads", "4", "--kind", kind]
        code = main([f"{path}:Attention", *sizes])
        return code, capsys.readouterr().out

    return run


def left_out(output):
    """Tell whether the cache is among what was not examined."""
    (line,) = [x for x in output.splitlines() if x.endswith("does not say that it has them")]
    return "cache" in line


@pytest.mark.parametrize("style", STYLES)
def test_right_caches_are_asked_about_and_right(examine, style):
    code, output = examine(STYLES[style])
    assert code == 0, output
    assert not left_out(output)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_caches_are_named(examine, name):
    style, right, wrong, code = WRONG[name]
    head, body = HEAD.replace(right, wrong), STYLES[style].replace(right, wrong)
    assert (head, body) != (HEAD, STYLES[style])
    found, output = examine(body, head)
    assert found == 1
    assert f"wrong: {code}" in output, output
    assert output.count("wrong: ") == 1


@pytest.mark.parametrize("kind", ["self", "causal"])
@pytest.mark.parametrize("style", FROM_OUTSIDE)
def test_right_caches_are_right_where_mask_and_positions_are_given(examine, style, kind):
    code, output = examine(FROM_OUTSIDE[style], BASE, kind)
    assert code == 0, output
    assert not left_out(output), output


@pytest.mark.parametrize("name", WRONG_OUTSIDE)
def test_wrong_caches_are_named_where_mask_and_positions_are_given(examine, name):
    style, right, wrong, code = WRONG_OUTSIDE[name]
    assert right in FROM_OUTSIDE[style]
    found, output = examine(FROM_OUTSIDE[style].replace(right, wrong), BASE, "self")
    assert found == 1
    assert f"wrong: {code}" in output, output
    assert output.count("wrong: ") == 1


@pytest.mark.parametrize("name", UNSURE)
def test_what_is_not_understood_is_left_out(examine, name):
    code, output = examine(UNSURE[name])
    assert code == 0, output
    assert left_out(output)


def test_chunks_that_nobody_promised_are_a_convention(examine):
    after_a_prompt = STYLES["hf"].replace("self.mix(q, k, v), None", "self.see(q, k, v), None")
    see = """
    def see(self, q, k, v):
        n, m = q.size(2), k.size(2)
        if n == m:
            return self.mix(q, k, v)
        weights = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))
    """
    code, output = examine(after_a_prompt + see)
    assert code == 0
    assert "convention: future-leaks-in-a-chunk" in output

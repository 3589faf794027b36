"""Every mistake in styles of code that share nothing with its entry."""

import functools
import itertools
from pathlib import Path

import torch

from attention_doctor import adapters, examine

E, H = 12, 3

# Right attention as different people write it.
FILES = sorted(Path(__file__).with_name("styles").glob("*.py"))
STYLES = {path.stem: path.read_text() for path in FILES}

# What people write instead: by mistake and style, the text that is replaced, and by what.
FILL = 'scores.masked_fill(blocked.unsqueeze(1), float("-inf"))'
WHERE = "logits = torch.where(blocked.unsqueeze(1), -math.inf, logits)"
PACKED = "qkv.permute(2, 0, 3, 1, 4)"
SOFT = "weights = scores.softmax(dim=-1)"
DROPPED = "weights = F.dropout(logits.softmax(dim=-1), self.dropout, self.training)"
LISTS = "zip(self.queries, self.keys, self.values, strict=True)"
THREE = "q, k, v = to_q(query), to_k(key), to_v(value)"
HEADS = 'heads = torch.einsum("bhnm,bhmd->bhnd", weights, v)'
MERGED = 'torch.einsum("bhnd,hde->bne", heads, self.w_o)'
VALUES = 'v = torch.einsum("bme,hed->bhmd", value, self.w_v)'
KEYS = 'k = torch.einsum("bme,hed->bhmd", key, self.w_k)'
SCALED = "q.shape[-1] ** -0.5"
OUT = "self.out(torch.cat(results, -1))"

STYLED = ("packed", "einsum", "loop")

WRONG = {
    "input-changed-in-place": {
        "packed": ("b, n, e = x.shape", "b, n, e = x.shape\n        x *= 0.5"),
        "einsum": ("q = torch", "query /= query.norm(dim=-1, keepdim=True)\n        q = torch"),
        "loop": ("s[blocked] =", "value[blocked.all(1)] = 0\n                s[blocked] ="),
    },
    "call-instead-of-forward": dict.fromkeys(STYLED, ("def forward", "def __call__")),
    "mask-inverted": {
        "packed": (FILL, "scores.masked_fill(blocked[:, None] == 0, -math.inf)"),
        "einsum": (WHERE, "logits = torch.where(blocked.unsqueeze(1), logits, -math.inf)"),
        "loop": ("s[blocked]", "s[~blocked]"),
    },
    "mask-ignored": {
        "packed": ("scores = " + FILL, FILL),
        "loop": ("s[blocked] =", "s.clone()[blocked] ="),
    },
    "mask-after-softmax": {
        "packed": [("scores = " + FILL, "pass"),
                   (SOFT, SOFT + "\n        if blocked is not None:\n"
                          "            weights = weights * ~blocked[:, None]")],
        "einsum": [(WHERE, "pass"),
                   (HEADS, "if blocked is not None:\n            weights = torch.einsum("
                           "'bhnm,bnm->bhnm', weights, 1 - blocked.to(weights))\n        "
                           + HEADS)],
        "loop": [("s[blocked] = -math.inf", "pass"),
                 ("results.append", "if blocked is not None:\n                a[blocked] = 0\n"
                                    "            results.append")],
    },
    "mask-multiplied": {
        "packed": (FILL, "scores * ~blocked[:, None]"),
        "loop": ("s[blocked] = -math.inf", "s[blocked] = 0"),
    },
    "padding-mask-on-queries": {
        "packed": (FILL, "scores.masked_fill(blocked[:, None, :, None], -1e4)"),
        "einsum": ("blocked.unsqueeze(1), -math.inf", "blocked[:, None, :, None], -1e4"),
        "loop": ("s[blocked] =", "s[blocked.unsqueeze(2).expand_as(s)] ="),
    },
    "mask-on-the-wrong-axis": {
        "packed": (FILL, "scores.masked_fill(blocked, -math.inf)"),
        "einsum": ("blocked.unsqueeze(1), -math.inf", "blocked, -math.inf"),
        "loop": ("s[blocked] = -math.inf", "s = s.masked_fill(blocked, -math.inf)"),
    },
    "mask-in-the-wrong-order": {
        "packed": (FILL, "scores.flatten(0, 1).masked_fill(blocked.repeat(self.h, 1, 1), -math.inf)"
                         ".view_as(scores)"),
        "einsum": ("blocked.unsqueeze(1)", "blocked.repeat(q.size(1), 1, 1).view_as(logits)"),
    },
    "mask-transposed": {
        "packed": (FILL, "scores.masked_fill(blocked[:, None].transpose(2, 3), -math.inf)"),
        "einsum": ("blocked.unsqueeze(1)", "blocked.mT.unsqueeze(1)"),
        "loop": ("s[blocked]", "s[blocked.permute(0, 2, 1)]"),
    },
    "causal-off-by-one": {
        "packed": ("triu(1)", "triu(2)"),
        "einsum": ("place > place[:, None]", "place > place[:, None] + 1"),
        "loop": ("triu(1)", "triu(diagonal=2)"),
    },
    "causal-hides-itself": {
        "packed": ("triu(1)", "triu()"),
        "einsum": ("place > place[:, None]", "place >= place[:, None]"),
        "loop": ("triu(1)", "triu(0)"),
    },
    "causal-unasked": dict.fromkeys(STYLED, ("causal=False", "causal=True")),
    "finite-fill-in-half": {
        "packed": (FILL, "scores.masked_fill(blocked[:, None], -1e9)"),
        "loop": ("s[blocked] = -math.inf", "s = s.masked_fill(blocked, -1e20)"),
    },
    "nan-row": dict.fromkeys(STYLED, ("blocked=None", "blocked = None")),
    "chunks-in-the-wrong-order": {
        "packed": ("q, k, v = qkv", "k, q, v = qkv"),
        "einsum": [("query, self.w_q", "query, self.w_k"), ("key, self.w_k", "key, self.w_q")],
        "loop": (LISTS, "zip(self.keys, self.queries, self.values, strict=True)"),
    },
    "interleaved-per-head": {
        "packed": (PACKED, "qkv.view(b, n, self.h, 3, -1).permute(3, 0, 2, 1, 4)"),
        "einsum": [
            ("self.w_q = nn.Parameter(torch.randn(shape) * size)",
             "self.qkv = nn.Parameter(torch.randn(3 * e, e) * size)"),
            ("self.w_k = nn.Parameter(torch.randn(shape) * size)", "self.h = h"),
            ("self.w_v = nn.Parameter(torch.randn(shape) * size)", ""),
            ("key, value, blocked=None", "key=None, value=None, blocked=None"),
            ('q = torch.einsum("bne,hed->bhnd", query, self.w_q)',
             "q, k, v = torch.einsum('bne,htde->tbhnd', query, self.qkv.unflatten(0, "
             "(self.h, 3, -1)))"),
            (KEYS, ""), (VALUES, ""),
        ],
        "loop": [
            ("self.queries = nn.ModuleList([nn.Linear(e, self.d) for _ in range(h)])",
             "self.in_proj = nn.Linear(e, 3 * e)"),
            ("self.keys = nn.ModuleList([nn.Linear(e, self.d) for _ in range(h)])", ""),
            ("self.values = nn.ModuleList([nn.Linear(e, self.d) for _ in range(h)])", ""),
            ("key, value, blocked=None", "key=None, value=None, blocked=None"),
            ("for to_q, to_k, to_v in " + LISTS,
             "for part in self.in_proj(query).split(3 * self.d, -1)"),
            (THREE, "q, k, v = part.split(self.d, -1)"),
        ],
    },
    "shared-heads": {
        "packed": (PACKED, PACKED + "[:, :, :1].expand(-1, -1, self.h, -1, -1)"),
        "loop": (LISTS, "[(self.queries[0], self.keys[0], self.values[0])] * len(self.keys)"),
    },
    "keys-of-one-head": {
        "packed": ("q @ k.transpose", "q @ k[:, :1].transpose"),
        "einsum": ('"bhnd,bhmd->bhnm", q, k)', '"bhnd,bmd->bhnm", q, k[:, 0])'),
        "loop": ("to_k(key)", "self.keys[0](key)"),
    },
    "keys-from-queries": {
        "packed": ("q @ k.transpose", "q @ q.transpose"),
        "einsum": ("key, self.w_k", "key, self.w_q"),
        "loop": ("to_k(key)", "to_q(key)"),
    },
    "values-from-keys": {
        "packed": ("weights @ v", "weights @ k"),
        "einsum": ("value, self.w_v", "value, self.w_k"),
        "loop": ("to_v(value)", "to_k(value)"),
    },
    "keys-and-values-swapped": {
        "einsum": [('"bhnd,bhmd->bhnm", q, k)', '"bhnd,bhmd->bhnm", q, v)'),
                   ("weights, v)", "weights, k)")],
        "loop": (THREE, "q, v, k = to_q(query), to_k(key), to_v(value)"),
    },
    "output-projection-missing": {
        "packed": ("self.out(merged)", "merged"),
        "loop": (OUT, "torch.cat(results, -1)"),
    },
    "output-projection-doubled": {
        "packed": ("self.out(merged)", "self.out(self.out(merged))"),
        "einsum": (MERGED, "(" + MERGED + ") @ self.w_o.flatten(0, 1)"),
    },
    "heads-in-a-plain-list": {
        "packed": [("self.qkv, self.out = nn.Linear(e, 3 * e), nn.Linear(e, e)",
                    "self.layers = [nn.Linear(e, 3 * e), nn.Linear(e, e)]"),
                   ("self.qkv(x)", "self.layers[0](x)"),
                   ("self.out(merged)", "self.layers[1](merged)")],
        "loop": ("self.keys = nn.ModuleList([nn.Linear(e, self.d) for _ in range(h)])",
                 "self.keys = [nn.Linear(e, self.d) for _ in range(h)]"),
    },
    "merge-without-transpose": {
        "packed": (".transpose(1, 2).reshape(b, n, e)", ".reshape(b, n, e)"),
        "einsum": (MERGED, "heads.reshape(query.shape) @ self.w_o.flatten(0, 1)"),
        "loop": (OUT, "self.out(torch.stack(results, 1).view(query.shape))"),
    },
    "split-without-transpose": {
        "packed": (PACKED, "(y.reshape(b, self.h, n, -1) for y in self.qkv(x).chunk(3, -1))"),
    },
    "split-and-merge-without-transpose": {
        "packed": [(PACKED, "[y.reshape(b, self.h, n, -1) for y in self.qkv(x).chunk(3, -1)]"),
                   (".transpose(1, 2).reshape(b, n, e)", ".reshape(b, n, e)")],
    },
    "batch-mixed-into-sequence": {
        "packed": [(PACKED, "(y.reshape(n, b, self.h, -1).permute(1, 2, 0, 3)\n"
                            "                   for y in self.qkv(x).chunk(3, -1))"),
                   ("heads.transpose(1, 2)", "heads.permute(2, 0, 1, 3)")],
    },
    "heads-of-other-samples": {
        "packed": ("heads.transpose(1, 2)",
                   "heads.flatten(0, 1).view(self.h, b, n, -1).permute(1, 2, 0, 3)"),
        "einsum": ("return ", "heads = heads.reshape(-1, len(query), *heads.shape[2:]).transpose("
                              "0, 1)\n        return "),
    },
    "heads-attended-over": {
        "packed": [(PACKED, "qkv.unbind(2)"),
                   ("self.later[:n, :n]", "self.later[: self.h, : self.h]"),
                   (".transpose(1, 2).reshape(b, n, e)", ".reshape(b, n, e)")],
        "einsum": [('"bhnd,bhmd->bhnm", q, k)', '"bhnd,bgnd->bnhg", q, k)'),
                   ("place = torch.arange(q.shape[2])", "place = torch.arange(q.shape[1])"),
                   ('"bhnm,bhmd->bhnd"', '"bnhg,bgnd->bhnd"')],
    },
    "no-scale": {
        "packed": ("scores = scores / math.sqrt(q.size(-1))", "pass"),
        "einsum": (" * " + SCALED, ""),
        "loop": (" / self.d**0.5", ""),
    },
    "scale-by-model-width": {
        "packed": ("math.sqrt(q.size(-1))", "math.sqrt(e)"),
        "einsum": (SCALED, "query.shape[-1] ** -0.5"),
        "loop": ("self.d**0.5", "query.size(-1) ** 0.5"),
    },
    "scale-twice": {
        "packed": ("math.sqrt(q.size(-1))", "q.size(-1)"),
        "loop": (THREE, THREE + "\n            q = q / self.d**0.5"),
    },
    "scale-inverted": {
        "packed": ("/ math.sqrt(q.size(-1))", "* math.sqrt(q.size(-1))"),
        "einsum": (SCALED, "q.shape[-1] ** 0.5"),
        "loop": ("/ self.d**0.5", "/ self.d**-0.5"),
    },
    "scale-by-length": {
        "packed": ("math.sqrt(q.size(-1))", "math.sqrt(k.size(-2))"),
        "einsum": (SCALED, "k.shape[2] ** -0.5"),
    },
    "softmax-over-queries": {
        "packed": ("dim=-1", "dim=-2"),
        "einsum": ("logits.softmax(dim=-1)", "logits.softmax(dim=2)"),
        "loop": ("torch.softmax(s, 2)", "torch.softmax(s, 1)"),
    },
    "softmax-over-heads": {
        "packed": ("dim=-1", "dim=1"),
        "einsum": ("logits.softmax(dim=-1)", "logits.exp() / logits.exp().sum(1, keepdim=True)"),
    },
    "weights-averaged-over-heads": {
        "packed": (SOFT, SOFT + ".mean(1, keepdim=True)"),
        "einsum": ('"bhnm,bhmd->bhnd", weights', '"bnm,bhmd->bhnd", weights.mean(1)'),
    },
    "dropout-before-softmax": {
        "packed": [(SOFT, SOFT.replace("scores", "self.drop(scores)")),
                   ("weights = self.drop(weights)", "pass")],
        "einsum": (DROPPED, "weights = F.dropout(logits, self.dropout, self.training).softmax(-1)"),
        "loop": ("self.drop(torch.softmax(s, 2))", "torch.softmax(self.drop(s), 2)"),
    },
    "dropout-in-evaluation": {
        "packed": ("self.drop(weights)", "nn.functional.dropout(weights, self.drop.p)"),
        "einsum": (DROPPED, "weights = F.dropout(logits.softmax(dim=-1), self.dropout)"),
    },
}  # fmt: skip

KINDS = {  # where the usual kind does not show it
    "padding-mask-on-queries": "self",
    "mask-on-the-wrong-axis": "self",
    "mask-transposed": "self",
    "causal-unasked": "self",
    "causal-off-by-one": "causal",
    "causal-hides-itself": "causal",
    "interleaved-per-head": "self",
    "heads-attended-over": "self",
}
PADDING = {"padding-mask-on-queries", "mask-on-the-wrong-axis"}


@functools.cache
def made(code, style):
    """Write the class with the mistake, or the right one for an empty code."""
    text = STYLES[style]
    edits = WRONG[code][style] if code else []
    for old, new in [edits] if isinstance(edits, tuple) else edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    exec(text, space := {"__name__": "theirs"})
    return space["Attention"]


def report(code, style, kind=""):
    usual = "self" if style == "packed" else "cross"
    kind = kind or KINDS.get(code, usual)
    torch.manual_seed(0)
    module = made(code, style)(E, H)
    module.causal |= kind == "causal"
    attend = module
    if kind == "causal" and style != "packed":
        attend = adapters.Adapted(lambda x: module(x, x, x), module)
    elif kind == "self" and style != "packed":
        attend = adapters.Adapted(lambda x, blocked: module(x, x, x, blocked), module)
    if code in PADDING:
        call = attend
        attend = adapters.Adapted(
            lambda x, y: call(x, None if y is None else y[:, 0]), call, "padding"
        )
    return examine(attend, embed_dim=E, num_heads=H, kind=kind)


ASKED = [*itertools.product(STYLES, ["cross", "self", "causal"])]
ASKED.remove(("packed", "cross"))  # its queries, keys and values are one tensor
CASES = [(code, style) for code, styles in WRONG.items() for style in styles]

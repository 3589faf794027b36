"""Each mistake with positions, caches, groups and latents in at least three styles of code."""

import functools
from pathlib import Path

import torch

from attention_doctor import adapters, examine

E, H = 24, 6

# Right attention as different people write it: rotated, rotated by the length, biased, latent.
FILES = sorted(Path(__file__).with_name("styles_today").glob("*.py"))
STYLES = {path.stem: path.read_text() for path in FILES}
CACHED, TURNED = ("start", "step"), ("at_positions",)
CLASSES = {  # what each of them says that it can do
    "Rotary": (*TURNED, *CACHED), "Stretched": CACHED, "Biased": CACHED, "Latent": CACHED,
    "Bucketed": CACHED,
}  # fmt: skip

# What people write instead: by mistake the class, by style the text that is replaced, and by what.
SPARE = "y.new_zeros(*y.shape[:2], 16 - y.size(2), self.d)"
WRONG = {
    "rotation-layout-mixed": ("Rotary", {
        "halves": [("left, right = x.chunk(2, -1)", "left, right = x[..., ::2], x[..., 1::2]"),
                   ("torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()",
                    "angle.cos(), angle.sin()"),
                   ("x * cos + torch.cat([-right, left], -1) * sin",
                    "torch.stack([left * cos - right * sin, right * cos + left * sin], -1)"
                    ".flatten(-2)")],
        "complex": [("x.double().unflatten(-1, (-1, 2)).contiguous()",
                     "x.double().unflatten(-1, (2, -1)).mT.contiguous()"),
                    ("torch.view_as_real(pairs * freqs_cis)",
                     "torch.view_as_real(pairs * freqs_cis).mT")],
        "einsum": [("repeat_interleave(2, dim=-1)", "repeat(1, 2)"),
                   ("t[..., ::2], t[..., 1::2]", "t.chunk(2, -1)"),
                   ("torch.stack((-odd, even), -1).flatten(-2)", "torch.cat((-odd, even), -1)")],
    }),
    "rotates-one-side": ("Rotary", {
        "halves": [("q, k = turn(q, places), turn(k, places)", "q = turn(q, places)"),
                   ("k = turn(k, new)", "")],
        "complex": [("xq, xk = rotate(xq, places), rotate(xk, places)", "xk = rotate(xk, places)"),
                    ("xq = rotate(xq, now)", "")],
        "einsum": [("q, k = rope(q, pos), rope(k, pos)", "q = rope(q, pos)"),
                   ("k = rope(k, pos)", "")],
    }),
    "causal-at-the-wrong-corner": ("Rotary", {
        "halves": ("triu(1 + start)", "triu(1)"),
        "complex": ("xq, keys, values, now)", "xq, keys, values, torch.arange(x.size(1)))", 0),
        "einsum": ("return self.finish(q, k, v, pos)\n",
                   "return self.finish(q, k, v, torch.arange(len(pos)))\n", 0),
    }),
    "positions-restart": ("Rotary", {
        "halves": [("q = turn(q, new)", "q = turn(q, new - start)"),
                   ("k = turn(k, new)", "k = turn(k, new - start)")],
        "complex": [("xq = rotate(xq, now)", "xq = rotate(xq, now - now[0])"),
                    ("xk = rotate(xk, now)", "xk = rotate(xk, now - now[0])")],
        "einsum": [("q = rope(q, pos)", "q = rope(q, torch.arange(x.shape[1]))"),
                   ("k = rope(k, pos)", "k = rope(k, torch.arange(x.shape[1]))")],
    }),
    "cache-zeros-attended": ("Rotary", {
        "halves": ("return self.attend(q, k, v, start)",
                   f"k, v = (torch.cat([y, {SPARE}], 2) for y in (k, v))\n"
                   "        return self.attend(q, k, v, start if x.size(1) > 1 else 16)", 0),
        "complex": ("xq, keys, values, now)",
                    "xq, keys, values, now if len(now) > 1 else now + ROOM)", 0),
        "einsum": [
            ("return first, second", "return (torch.cat((y, y.new_zeros(*y.shape[:-2], 9, y.size("
             "-1))), -2) for y in (first, second))"),
            ("return self.finish(q, k, v, pos)\n",
             "return self.finish(q, k, v, pos if len(pos) > 1 else pos + 20)\n", 0)],
    }),
    "keys-cached-unrotated": ("Rotary", {
        "halves": [("k = turn(k, new)", ""),
                   ("return self.attend(q, k, v, start)",
                    "k = turn(k, start + torch.arange(k.size(2)))\n"
                    "        return self.attend(q, k, v, start)", 0)],
        "complex": [("xk = rotate(xk, now)", ""),
                    ("xq, keys, values, now)",
                     "xq, rotate(keys, now[0] + torch.arange(ROOM)), values, now)", 0)],
        "einsum": [("k = rope(k, pos)", ""),
                   ("return self.finish(q, k, v, pos)\n",
                    "k = rope(k, pos[0] + torch.arange(k.size(2)))\n"
                    "        return self.finish(q, k, v, pos)\n", 0)],
    }),
    "cached-keys-not-rescaled": ("Stretched", {
        "halves": [("k, v = self.keep(cache, k, v)",
                    "k, v = self.keep(cache, turn(k, torch.arange(start, end), end), v)", 1),
                   ("k = turn(k, torch.arange(end), end)", "")],
        "complex": [("keys, values = cache.write(xk, xv)",
                     "keys, values = cache.write(rotate(xk, now, length), xv)", 1),
                    ("keys = rotate(keys, torch.arange(ROOM), length)", "")],
        "einsum": [("k, v = past.add(k, v)", "k, v = past.add(rope(k, pos, reach), v)", 1),
                   ("k = rope(k, torch.arange(past.seen), reach)", "")],
    }),
    "groups-tiled": ("Rotary", {
        "halves": ("y.repeat_interleave(self.h // self.g, dim=1)",
                   "y.repeat(1, self.h // self.g, 1, 1)"),
        "complex": ("y[:, :, :, None].expand(-1, -1, g, h // g, -1)",
                    "y[:, :, None].expand(-1, -1, h // g, g, -1)"),
        "einsum": ("// (self.heads // self.kv_heads)", "% self.kv_heads"),
    }),
    "alibi-slopes-by-formula": ("Biased", {
        "halves": ("slopes = torch.tensor(slopes[: self.h])",
                   "slopes = torch.tensor([2 ** (-8 * (i + 1) / self.h) for i in range(self.h)])"),
        "complex": ("torch.tensor(of(closest) + of(2 * closest)[0::2][: h - closest])",
                    "torch.tensor(of(h))"),
        "einsum": ("torch.tensor(exact + between)",
                   "2 ** (-8 * torch.arange(1, self.heads + 1) / self.heads)"),
    }),
    "distances-restart": ("Biased Biased Bucketed", {
        "halves": ("torch.arange(start, k.size(2))", "torch.arange(x.size(1))"),
        "complex": ("(now[:, None] - torch.arange(ROOM))",
                    "(torch.arange(x.size(1))[:, None] - torch.arange(ROOM))"),
        "einsum": ("self.learned(pos, torch.arange(past.seen))",
                   "self.learned(torch.arange(len(pos)), torch.arange(past.seen))"),
    }),
    "rotation-absorbed": ("Latent", {
        "halves": [("q, k = torch.cat([q, short], -1), torch.cat([k, key.expand",
                    "q, k = turn(q, places), turn(k, places)\n"
                    "        q, k = torch.cat([q, short], -1), torch.cat([k, key.expand"),
                   ("q = q @ self.k_up", "q = turn(q, new) @ self.k_up")],
        "complex": [("q = torch.cat((q_nope, q_pe), -1)",
                     "q, k = torch.cat((rotate(q_nope, now), q_pe), -1), rotate(k, now)"),
                    ('"bnhd,hdc->bnhc", q_nope,', '"bnhd,hdc->bnhc", rotate(q_nope, now),')],
        "einsum": [('"bhid,bhjd->bhij", q, k)',
                    '"bhid,bhjd->bhij", rope(q, pos), rope(k, pos))'),
                   ('"bhid,hdc->bhic", q,', '"bhid,hdc->bhic", rope(q, pos),')],
    }),
    "latent-positions-missing": ("Latent", {
        "halves": ("q, k = torch.cat([q, short], -1), torch.cat([latent, key], -1)", "k = latent"),
        "complex": ("q, k = torch.cat((q_nope, q_pe), -1), torch.cat((kv, k_pe), -1)",
                    "q, k = q_nope, kv"),
        "einsum": ('sim = sim + torch.einsum("bhir,bjr->bhij", short, key)\n        mixed',
                   "mixed"),
    }),
}  # fmt: skip


def kind_of(code, style):
    """Name the class of a style in which a mistake is made."""
    names = WRONG[code][0].split()
    return names[[*WRONG[code][1]].index(style) if len(names) > 1 else 0]


@functools.cache
def made(style, name, code=""):
    """Make an attention of a style, right or with a mistake, from the same numbers."""
    text = STYLES[style]
    edits = WRONG[code][1][style] if code else []
    for old, new, *which in [edits] if isinstance(edits, tuple) else edits:
        count = text.count(old)
        assert count == 1 or which, (count, old)
        parts = text.split(old)
        i = which[0] % count + 1 if which else 1
        text = old.join(parts[:i]) + new + old.join(parts[i:])
    exec(text, space := {"__name__": "theirs"})
    torch.manual_seed(0)
    return space[name](E, H)


def adapted(style, name, code=""):
    module = made(style, name, code)
    attend = adapters.Adapted(module, module)
    for ability in CLASSES[name]:
        method = {"start": "begin", "at_positions": "anywhere"}.get(ability, ability)
        if hasattr(module, method):
            setattr(attend, ability, getattr(module, method))
    return attend


def report(style, name, code="", reference=False):
    trusted = adapted(style, name) if reference else None
    return examine(
        adapted(style, name, code), embed_dim=E, num_heads=H, kind="causal", reference=trusted
    )


THERE = [(style, x) for style in STYLES for x in CLASSES if f"class {x}(" in STYLES[style]]


CASES = [(code, style) for code, (_, styles) in WRONG.items() for style in styles]
# A reference alone shows these, or shows that they are wrong: in itself each is a valid attention.
IN_ITSELF = ("rotation-layout-mixed", "groups-tiled", "alibi-slopes-by-formula")

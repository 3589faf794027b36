"""Each mistake with positions, caches, groups and latents, in a style of its own."""

from pathlib import Path

from attention_doctor import adapters, examine
from tests.attention_doctor.planted import defined
from tests.attention_doctor.styles_today.halves import E, H

# Right attention as others write it: rotated, rotated by the length, biased.
TEXT = (Path(__file__).with_name("styles_today") / "halves.py").read_text()
CACHED = ("start", "step")
CLASSES = {  # what each of them says that it can do
    "Rotary": CACHED,
    "Stretched": CACHED,
    "Biased": CACHED,
}

# What people write instead: by mistake the class, the text that is replaced, and by what.
TURNS = "q, k = turn(q, places), turn(k, places)"
KEEPS = "k, v = self.keep(cache, k, v)\n        "
STEPS = KEEPS + "return self.attend(q, k, v, start)"
SPARE = "y.new_zeros(*y.shape[:2], 16 - y.size(2), D)"
WRONG = {
    "rotation-layout-mixed": (
        "Rotary",
        [
            ("left, right = x.chunk(2, -1)", "left, right = x[..., ::2], x[..., 1::2]"),
            (
                "torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()",
                "angle.cos(), angle.sin()",
            ),
            (
                "x * cos + torch.cat([-right, left], -1) * sin",
                "torch.stack([left * cos - right * sin, right * cos + left * sin], -1).flatten(-2)",
            ),
        ],
    ),
    "causal-at-the-wrong-corner": (
        "Rotary",
        [
            ("triu(1 + start)", "triu(1)"),
        ],
    ),
    "positions-restart": (
        "Rotary",
        [
            ("q = turn(q, new)", "q = turn(q, new - start)"),
            ("k = turn(k, new)", "k = turn(k, new - start)"),
        ],
    ),
    "cache-zeros-attended": (
        "Rotary",
        [
            (
                "return self.attend(q, k, v, start)",
                f"k, v = (torch.cat([y, {SPARE}], 2) for y in (k, v))\n"
                "        return self.attend(q, k, v, start if x.size(1) > 1 else 16)",
                0,
            ),
        ],
    ),
    "keys-cached-unrotated": (
        "Rotary",
        [
            ("k = turn(k, new)", ""),
            (
                "return self.attend(q, k, v, start)",
                "k = turn(k, start + torch.arange(k.size(2)))\n"
                "        return self.attend(q, k, v, start)",
                0,
            ),
        ],
    ),
    "cached-keys-not-rescaled": (
        "Stretched",
        [
            (
                "k, v = self.keep(cache, k, v)",
                "k, v = self.keep(cache, turn(k, torch.arange(start, end), end), v)",
                1,
            ),
            ("k = turn(k, torch.arange(end), end)", ""),
        ],
    ),
    "groups-tiled": (
        "Rotary",
        [
            ("y.repeat_interleave(H // G, dim=1)", "y.repeat(1, H // G, 1, 1)"),
        ],
    ),
    "alibi-slopes-by-formula": (
        "Biased",
        [
            (
                "[2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]",
                "[2 ** (-8 * (i + 1) / H) for i in range(H)]",
            ),
        ],
    ),
    # Served with rotation and a cache.
    "queries alone": ("Rotary", [(TURNS, "q = turn(q, places)")]),
    "keys alone": ("Rotary", [(TURNS, "k = turn(k, places)")]),
    "opposite senses": ("Rotary", [(TURNS, "q, k = turn(q, -places), turn(k, places)")]),
    "unrotated keys": ("Rotary", [("k = turn(k, new)", "")]),
    "no mask": ("Rotary", [(STEPS, STEPS.replace("start", "99"), 0)]),
    "forgets": (
        "Rotary",
        [
            (STEPS, STEPS.replace("k, v = ", "").replace("start", "0"), 0),
        ],
    ),
    "loses the first": (
        "Rotary",
        [
            (
                STEPS,
                KEEPS + "first = k.size(2) > 1\n"
                "        return self.attend(q, k[:, :, first:], v[:, :, first:], start - first)",
                0,
            ),
        ],
    ),
    "the same cache": (
        "Rotary",
        [
            (
                "return {}",
                "self.kept = getattr(self, 'kept', None) or {}\n        return self.kept",
                0,
            ),
        ],
    ),
}


def adapted(name, edits=(), says=None):
    """Make an attention, right or with a mistake, from the same numbers."""
    module = defined(TEXT, edits, "theirs.py")[name]()
    attend = adapters.Adapted(module, module)
    for ability in CLASSES[name] if says is None else says:
        method = {"start": "begin"}.get(ability, ability)
        setattr(attend, ability, getattr(module, method))
    return attend


def report(flaw="", name="", *, reference=False, says=None):
    """Examine a class, right or with a flaw, alone or beside the right one."""
    name, edits = WRONG[flaw] if flaw else (name, ())
    trusted = adapted(name) if reference else None
    attend = adapted(name, edits, says)  # behind it: lines are those of the last that was defined
    return examine(attend, embed_dim=E, num_heads=H, kind="causal", reference=trusted)


# A reference alone shows these, or shows that they are wrong: in itself each is a valid attention.
IN_ITSELF = ("rotation-layout-mixed", "groups-tiled", "alibi-slopes-by-formula")

"""Attention with rotation and a cache; a flaw is a line of it that is different."""

from attention_doctor import examine
from tests.attention_doctor.mistakes_today import WRONG, adapted
from tests.attention_doctor.styles_today.halves import E, H

TURNS = "q, k = turn(q, places), turn(k, places)"
KEEPS = "k, v = self.keep(cache, k, v)\n        "
STEPS = KEEPS + "return self.attend(q, k, v, start)"
FLAWS = {
    "rotation": {
        "no rotation": [(TURNS, "")],
        "along the heads": [
            (TURNS, "q = turn(q.transpose(1, 2), torch.arange(H)).transpose(1, 2)"),
        ],
        "queries alone": [(TURNS, "q = turn(q, places)")],
        "keys alone": [(TURNS, "k = turn(k, places)")],
        "opposite senses": [(TURNS, "q, k = turn(q, -places), turn(k, places)")],
        "angles of the other layout": [
            ("torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()",
             "angle.cos().repeat_interleave(2, -1), angle.sin().repeat_interleave(2, -1)"),
        ],
        "values, too": [(TURNS, TURNS.replace("k =", "k, v =") + ", turn(v, places)")],
    },
    "cache": {
        "position 0": WRONG["positions-restart"][1],
        "unrotated keys": [("k = turn(k, new)", "")],
        "wrong corner": WRONG["causal-at-the-wrong-corner"][1],
        "no mask": [(STEPS, STEPS.replace("start", "99"), 0)],
        "zeros": WRONG["cache-zeros-attended"][1],
        "forgets": [(STEPS, STEPS.replace("k, v = ", "").replace("start", "0"), 0)],
        "loses the first": [
            (STEPS, KEEPS + "first = k.size(2) > 1\n"
             "        return self.attend(q, k[:, :, first:], v[:, :, first:], start - first)", 0),
        ],
        "the same cache": [
            ("return {}", "self.kept = getattr(self, 'kept', None) or {}\n"
             "        return self.kept", 0),
        ],
        "another scale": [("q = turn(q, new)", "q = turn(q, new) * (2 if start else 1)")],
    },
}  # fmt: skip
SAYS = {
    "rotation": ("at_positions",),
    "cache": ("at_positions", "start", "step"),
}


def made(flaw="", says=SAYS["cache"], window=None):
    """Make it, or what has a flaw, with a window or without."""
    edits = [*(FLAWS["rotation"] | FLAWS["cache"]).get(flaw, [])]
    if window:
        edits.append(("triu(1 + start)", f"triu(1 + start) | pairs.tril(start - {window})"))
    return adapted("Rotary", edits, says, "served.py")


def report(flaw="", says=SAYS["cache"], window=None):
    """Examine what says that it has these."""
    return examine(made(flaw, says, window), embed_dim=E, num_heads=H, kind="causal")

"""What the doctor says of mistakes and of right code in many forms, recorded.

The record holds behaviour and no text: exit codes, severities, codes, which codes a finding
explains, the step and the function that it names, and the tests that fail. Of all cases that can be
made, it has those that reach a branch or a finding that the others do not.
``python -m tests.attention_doctor.contract NAME …`` writes it anew, with the named cases besides; a
diff shows what has changed.
"""

import copy
import itertools
import json
import math
import sys
from collections.abc import Callable
from dataclasses import make_dataclass
from pathlib import Path

import torch
from torch import nn

from annotated_attention import MultiheadAttention
from annotated_attention.modern import (
    CachedAttention,
    GroupedQueryAttention,
    KVCache,
    LatentAttention,
    PagedCache,
    RotaryAttention,
    RotaryEmbedding,
    StaticCache,
)
from annotated_book.published import DESIGNS
from attention_doctor import Finding, Report, adapters, assert_attention, examine
from attention_doctor.call.roles import KINDS
from attention_doctor.mistakes import MISTAKES
from attention_doctor.report import exit_code
from tests.attention_doctor import demanded, mistakes_today, planted, right_code

SHAPES = ("bnm", "b1nm", "(bh)nm", "bm", "b11m", "nm", "bhnm")
RECORD = Path(__file__).with_suffix(".json")
Case = Callable[[], Report]
Found = make_dataclass("Found", ["output", "weights"])


def said(report: Report) -> list[str]:
    """Give what counts of a report, each as a line."""
    findings = [f"{x.severity}: {x.code}{_place(x)}{_explained(x)}" for x in report.findings]
    shows = sorted(test for test, x in report.results.items() if x in ("wrong", "fails"))
    version = [f"version: {report.version}"] if report.version == "right" else []
    return [f"exit {exit_code(report)}", *findings, *version, *(f"shows: {x}" for x in shows)]


def _place(finding: Finding) -> str:
    place = finding.where
    return "" if place is None else f" @ {place.step or 'a line'} in {place.function}"


def _explained(finding: Finding) -> str:
    return f" ({', '.join(finding.explains)})" if finding.explains else ""


def catalogue(code: str, kind: str, e: int = 12, h: int = 3) -> Report:
    """Examine an entry of the catalogue through PyTorch's arguments."""
    torch.manual_seed(0)
    module = (MISTAKES[code].version if code else MultiheadAttention)(e, h, batch_first=True)
    return examine(adapters.torch_like(module, kind), embed_dim=e, num_heads=h, kind=kind)


def without_module(code: str) -> Report:
    """Examine a function: there are no weights to compare."""
    torch.manual_seed(0)
    module = MISTAKES[code].version(12, 3, batch_first=True)
    return examine(
        lambda q, k, v, blocked: module(
            q, k, v, attn_mask=None if blocked is None else blocked.repeat_interleave(3, 0)
        )[0],
        embed_dim=12,
        num_heads=3,
    )


def cached(version: type[nn.Module], make: Callable[[], object]) -> Report:
    """Examine our attention with a cache."""
    torch.manual_seed(0)
    module = version(24, 4, batch_first=True, rotary=RotaryEmbedding(6))
    attend = adapters.Adapted(module, module)

    attend.start, attend.step = make, lambda x, cache: module(x, cache)[0]
    return examine(attend, embed_dim=24, num_heads=4, kind="causal")


def latent(version: type[nn.Module]) -> Report:
    """Examine our attention with a latent, which is absorbed where there is a cache."""
    module = made(version, 24, 4, latent_dim=8, rotary_dim=2, batch_first=True)
    attend = adapters.Adapted(lambda x: Found(*module(x)), module)
    attend.start = KVCache  # which a step leaves as it is, and gives a new one
    attend.step = lambda x, cache: (module(x, new := copy.copy(cache), absorb=True)[0], new)
    return right(attend, 24, 4)


class PositionsLeftOut(LatentAttention):
    """Leaves out of the absorbed form what carries the positions."""

    def attend_absorbed(self, q, q_rotated, *kept, **masks):
        return super().attend_absorbed(q, 0 * q_rotated, *kept, **masks)


CACHES = {
    "growing": KVCache,
    "static": lambda: StaticCache(2, 4, 16, 6, dtype=torch.float64),
    "paged": lambda: PagedCache(64, 4, 4, 6, dtype=torch.float64),
}


def grouped(version: type[nn.Module], groups: int) -> Report:
    torch.manual_seed(0)
    module = version(24, 4, groups, batch_first=True)
    return examine(adapters.torch_like(module, "causal"), embed_dim=24, num_heads=4, kind="causal")


def published(name: str) -> Report:
    design = DESIGNS[name]
    torch.manual_seed(1)
    module = design.build(12, 3)

    def cross(query, key, value, blocked):
        return design.call(module, query, key, value, blocked)

    attend = cross if design.kind == "cross" else lambda x, blocked: cross(x, x, x, blocked)
    adapted = adapters.Adapted(lambda *given: {"output": attend(*given)}, module)
    return examine(adapted, embed_dim=12, num_heads=3, kind=design.kind)


def right(module: nn.Module, e: int = 12, h: int = 3, kind: str = "causal") -> Report:
    return examine(module, embed_dim=e, num_heads=h, kind=kind)


class Masked(demanded.Attention):
    """Takes a mask of some axes and meaning."""

    def __init__(self, shape: str, meaning: str) -> None:
        super().__init__()
        self.shape, self.meaning = shape, meaning

    def changed(self, scores):
        if self.blocked is None:
            return scores
        letters = self.shape.replace("(bh)", "b")
        assert self.blocked.dim() == len(letters)
        mask = self.blocked.squeeze([i for i, x in enumerate(letters) if x == "1"])
        letters = letters.replace("1", "")
        mask = mask.permute([letters.index(x) for x in "bhnm" if x in letters])
        if self.shape == "(bh)nm":
            mask = mask.unflatten(0, (-1, demanded.H))
        for place in [i for i, x in enumerate("bhnm") if x not in self.shape]:
            mask = mask.unsqueeze(place)
        if self.meaning == "additive":
            return scores + mask
        hidden = mask > 0
        return scores.masked_fill(~hidden if self.meaning == "allowed" else hidden, -math.inf)

    def hidden(self, n, m):
        return None

    def forward(self, x, mask=None):
        return super().forward(x, x, x, mask)


def masked(shape: str, meaning: str, words: str) -> Report:
    """Examine right code by the names of its arguments, with a mask of this form."""
    torch.manual_seed(0)
    return assert_attention(
        Masked(shape, meaning), embed_dim=12, num_heads=3, kind="self", mask=words
    )


def made(make: Callable[..., nn.Module], *arguments: object, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return make(*arguments, **options)


def cases() -> dict[str, Case]:
    """Give every case by its name."""
    found: dict[str, Case] = {}

    def add(name: str, function: Callable[..., Report], *arguments: object) -> None:
        assert name not in found, name
        found[name] = lambda: function(*arguments)

    for code, entry in MISTAKES.items():
        kinds = ["cross", "self", "causal"] if entry.of is MultiheadAttention else []
        for kind in kinds:
            add(f"catalogue: {code}, {kind}", catalogue, code, kind)
        if kinds and code != "heads-in-a-plain-list":
            add(f"without weights: {code}", without_module, code)
        if entry.of is RotaryAttention:
            module = made(entry.version, 24, 4, batch_first=True)
            add(f"rotary: {code}", right, adapters.torch_like(module, "causal"), 24, 4)
        if entry.of is CachedAttention:
            add(f"cache: {code}", cached, entry.version, CACHES["static"])
    for kind in ("cross", "self", "causal"):
        add(f"right: ours, {kind}", catalogue, "", kind)
    for name, make in CACHES.items():
        add(f"right: ours, cache, {name}", cached, CachedAttention, make)
    add("right: ours, latent", latent, LatentAttention)
    add("latent: positions left out", latent, PositionsLeftOut)
    for groups in (1, 2, 4):
        add(f"right: ours, {groups} groups", grouped, GroupedQueryAttention, groups)
    for style, mistakes in planted.PLANTED.items():
        for code in mistakes:
            add(f"{style}: {code}", planted.report, style, code)
    for style in planted.STYLES:
        add(f"{style}: right", planted.report, style)
    for style in ("packed", "parameters by head", "loop"):
        add(f"{style}: right, causal", planted.report, style, "", "causal")
    for flaw in mistakes_today.WRONG:
        add(f"today: {flaw}", mistakes_today.report, flaw)
    for flaw in mistakes_today.IN_ITSELF:
        add(f"today: {flaw}, compared", lambda x: mistakes_today.report(x, reference=True), flaw)
    for name in mistakes_today.CLASSES:
        add(f"today: right {name}", lambda x: mistakes_today.report("", x, reference=True), name)
    for name in DESIGNS:
        add(f"right: {name}", published, name)
    for layout in right_code.LAYOUTS:
        add(f"right: {layout}", lambda x: right(made(right_code.Decoder, x)), layout)
    for parts in right_code.PARTS:
        for groups in (4, 2, 1) if len(parts) in (0, 6) else (2,):
            name = f"right: {groups} groups, {', '.join(parts) or 'plain'}"
            add(
                name,
                lambda p, g: right(made(right_code.Modern, *p, groups=g), 24, 4),
                parts,
                groups,
            )
    for name, kind in itertools.product(demanded.VERSIONS, KINDS):
        version = demanded.varied(**demanded.VERSIONS[name])
        add(f"demanded: {name}, {kind}", demanded.report, version, kind)
        add(f"demanded: {name}, {kind}, from outside", demanded.report, version, kind, False)
    for kind in KINDS:
        add(f"right: in steps, {kind}", demanded.report, demanded.Attention, kind)
    for shape, meaning in itertools.product(SHAPES, ("blocked", "allowed", "additive")):
        form = f"{shape} {meaning}"
        add(f"right: a mask of {form}", masked, shape, meaning, form)
    for shape, meaning, dtype in (("nmb", "blocked", "float"), ("nm1", "allowed", "int")):
        form = f"{shape} {meaning} {dtype}"
        add(f"right: a mask of {form}", masked, shape, meaning, form)
    for shape, meaning in itertools.product(SHAPES[:6], ("blocked", "allowed")):
        add(f"right: a mask of {shape} {meaning}, inferred", masked, shape, meaning, "")
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = cases()
    names = dict.fromkeys([*json.loads(RECORD.read_text(encoding="utf-8")), *sys.argv[1:]])
    rows = (f"{json.dumps(x)}: {json.dumps(said(known[x]()), ensure_ascii=False)}" for x in names)
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")

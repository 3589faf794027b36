"""What the doctor says of every mistake and of all right code that the tests know, recorded.

``python -m tests.attention_doctor.contract`` compares with the record and shows what differs;
with ``record`` it writes the record anew.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from annotated_attention import MultiheadAttention
from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import (
    CachedAttention,
    GroupedQueryAttention,
    KVCache,
    PagedCache,
    RotaryAttention,
    RotaryEmbedding,
    StaticCache,
)
from annotated_attention.published import DESIGNS
from attention_doctor import Report, adapters, examine
from tests.attention_doctor import (
    demanded,
    mistakes_in_styles,
    mistakes_today,
    planted,
    right_code,
    served,
)

RECORD = Path(__file__).with_suffix(".json")
Case = Callable[[], Report]


def said(report: Report) -> list[str]:
    """Give what counts of a report: severities and codes, the tests that fail, and lines."""
    findings = [
        f"{x.severity}: {x.code}{f' @ {x.where.text}' if x.where else ''}" for x in report.findings
    ]
    shows = sorted(test for test, x in report.results.items() if x in ("wrong", "fails"))
    version = [f"version: {report.version}"] if report.version == "right" else []
    return [*findings, *version, *(f"shows: {test}" for test in shows)]


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

    def at_positions(x, positions):
        q, k, v = (y.unflatten(-1, (4, -1)).transpose(1, 2) for y in module._project(x, x, x))
        q, k = module.rotary(q, positions), module.rotary(k, positions)
        future = torch.ones(len(positions), len(positions)).triu(1) > 0
        scores = (q @ k.mT / 6**0.5).masked_fill(future, float("-inf"))
        return module.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    attend.start, attend.step = make, lambda x, cache: module(x, cache)[0]
    attend.at_positions = at_positions
    return examine(attend, embed_dim=24, num_heads=4, kind="causal")


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
    adapted = adapters.Adapted(attend, module)
    return examine(adapted, embed_dim=12, num_heads=3, kind=design.kind)


def right(module: nn.Module, e: int = 12, h: int = 3, kind: str = "causal") -> Report:
    return examine(module, embed_dim=e, num_heads=h, kind=kind)


def made(make: Callable[..., nn.Module], *arguments: object, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return make(*arguments, **options)


def seen(style: str, old: str = "", new: str = "") -> Report:
    """Examine a style, or a mistake that is planted in it, from a file, so that lines are named."""
    text = planted.HEAD + planted.STYLES[style]
    assert old in text
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mine.py")
        file.write_text(text.replace(old, new, 1) if old else text)
        space = {"__name__": "mine"}
        exec(compile(file.read_text(), file, "exec"), space)
        return right(made(space["Attention"], 24, 4), 24, 4, "self")


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
        if entry.of is CachedAttention:
            add(f"cache: {code}", cached, entry.version, CACHES["static"])
    for kind in ("cross", "self", "causal"):
        add(f"right: ours, {kind}", catalogue, "", kind)
    for name, make in CACHES.items():
        add(f"right: ours, cache, {name}", cached, CachedAttention, make)
    for groups in (1, 2, 4):
        add(f"right: ours, {groups} groups", grouped, GroupedQueryAttention, groups)
    add("today: tiled groups", grouped, MISTAKES["groups-tiled"].version, 2)
    for code, style in mistakes_in_styles.CASES:
        add(f"{style}: {code}", mistakes_in_styles.report, code, style)
    for style, kind in mistakes_in_styles.ASKED:
        add(f"{style}: right, {kind}", mistakes_in_styles.report, "", style, kind)
    for code, (version, _) in mistakes_today.WRONG.items():
        compared = code in mistakes_today.IN_ITSELF
        add(f"today, halves: {code}", mistakes_today.report, version, code, compared)
        if compared:
            add(f"today, halves: {code}, alone", mistakes_today.report, version, code)
    for version in mistakes_today.CLASSES:
        add(f"today, halves: right {version}", mistakes_today.report, version, "", True)
    for style in planted.STYLES:
        add(f"seen, {style}: right", seen, style)
    for i, (style, old, new, code, _) in enumerate(planted.PLANTED):
        add(f"seen, {style}: {code} {i}", seen, style, old, new)
    for name in DESIGNS:
        add(f"right: {name}", published, name)
    for layout in right_code.LAYOUTS:
        add(f"right: {layout}", lambda x: right(made(right_code.Decoder, x)), layout)
    for parts in right_code.PARTS:
        for groups in (4, 2, 1) if len(parts) in (0, 6) else (2,):
            name = f"right: {groups} groups, {', '.join(parts) or 'plain'}"
            add(name, lambda p, g: right(made(right_code.Modern, *p, groups=g), 24, 4),
                parts, groups)  # fmt: skip
    add("right: a bias by distance", lambda: right(made(right_code.Positioned), kind="self"))
    for back in (True, False):
        add(f"values turned, {'and back' if back else 'and left'}",
            lambda x: right(made(right_code.ValuesTurned, True, x), 12, 2), back)  # fmt: skip
    for version, kind in dict.fromkeys([*demanded.NONE, *demanded.IGNORED, *demanded.NAMED]):
        add(f"demanded: {version.__name__}, {kind}", demanded.report, version, kind)
        add(f"demanded: {version.__name__}, {kind}, from outside", demanded.report, version, kind,
            False)  # fmt: skip
    for kind in ("cross", "memory", "self", "causal"):
        add(f"right: in steps, {kind}", demanded.report, demanded.Attention, kind)
    for test, flaws in served.FLAWS.items():
        for flaw in flaws:
            add(f"served, {test}: {flaw}", served.report, flaw, served.SAYS[test])
    add("served: right", served.report)
    add("today: one side is turned", rotated, MISTAKES["rotates-one-side"].version)
    add("right: our rotation", rotated, RotaryAttention)
    return found


def rotated(version: type[nn.Module]) -> Report:
    module = made(version, 24, 4, batch_first=True)
    attend = adapters.torch_like(module, "causal")
    turn = module.rotary.forward

    def at_positions(x, positions):
        module.rotary.forward = lambda y, _: turn(y, positions)
        try:
            return attend(x)[0]
        finally:
            module.rotary.forward = turn

    attend.at_positions = at_positions
    return examine(attend, embed_dim=24, num_heads=4, kind="causal")


def main() -> int:
    """Compare with the record, or write it."""
    torch.set_num_threads(1)
    now = {}
    for name, case in cases().items():
        try:
            now[name] = said(case())
        except Exception as error:
            now[name] = [f"raises {type(error).__name__}: {error}"]
    if sys.argv[1:] == ["record"]:
        lines = [
            f"{json.dumps(name)}: {json.dumps(x, ensure_ascii=False)}" for name, x in now.items()
        ]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return 0
    before = json.loads(RECORD.read_text(encoding="utf-8"))
    differ = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name in differ:
        print(f"{name}\n  before {before.get(name)}\n  now    {now.get(name)}")
    print(f"{len(differ)} of {len(now)} differ")
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())

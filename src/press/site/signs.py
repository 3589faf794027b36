"""The pages of symptoms and of codes: lists become tables, rules sections, and probes are pasted.

A line of such a list is a link to the section of a chapter, a colon, and the codes that the section
is about. What each code means is the doctor's own: a section on the page of codes. The likeliest
three are open, the others folded. The probes are functions of *Testing attention*, by name, in the
place of a comment: a block to paste that needs no package.
"""

import ast
import re
from collections.abc import Callable, Iterator

from press.run import scripts

CHAPTER = "17_testing_attention"
PLACE = "<!-- the probes of the chapter -->"
PROBES = ("leakage", "prefix", "permutation", "convexity", "idle", "competition")
PASTED = '''import torch
from torch import Tensor, nn

WIDTH = 24
patient = nn.MultiheadAttention(WIDTH, 4, batch_first=True)  # put yours here, in float64
patient = patient.double().eval()


def attend(patient, x, key_padding_mask=None, is_causal=False):
    """Call it in your way; True in a mask is hidden."""
    future = torch.ones(x.size(1), x.size(1)).triu(1).bool() if is_causal else None
    return patient(x, x, x, key_padding_mask=key_padding_mask, attn_mask=future)[0]


{functions}


for probe in ({probes}):
    print(f"{{probe.__name__:>12}}  {{probe(patient):.0e}}")
'''
HEAD = ("| likely cause | code | chapter |", "|---|---|---|")
LIKELIEST = 3
SECTIONS = "<!-- every code -->"
CAUSES = re.compile(r"(?:^- \[[^\]]*\]\(\.\./notebooks/[^)]*\): .*\n)+", re.MULTILINE)


def write(markdown: str, complain: Callable[[str], None]) -> str:
    """Write the lists of codes as tables: the likely cause, its code, its chapter."""
    if PLACE in markdown:
        markdown = markdown.replace(PLACE, f"```python\n{probes()}```")
    return CAUSES.sub(lambda found: "\n".join(_table(found[0], complain)) + "\n", markdown)


def probes() -> str:
    """Write a block that probes a patient, from the functions of the chapter."""
    script = (scripts.CHAPTERS / f"{CHAPTER}.py").read_text(encoding="utf-8")
    defined = {
        x.name: ast.get_source_segment(script, x) or ""
        for x in ast.parse(script).body
        if isinstance(x, ast.FunctionDef)
    }
    functions = "\n\n\n".join(defined[name] for name in ("tokens", "gap", *PROBES))
    return PASTED.format(functions=functions, probes=", ".join(PROBES))


def _table(causes: str, complain: Callable[[str], None]) -> Iterator[str]:
    rows = [*_rows(causes, complain)]
    yield from (*HEAD, *rows[:LIKELIEST])
    if others := rows[LIKELIEST:]:
        yield from ("", f"<details markdown><summary>Less likely: {len(others)}</summary>", "")
        yield from (*HEAD, *others, "", "</details>")


def _rows(causes: str, complain: Callable[[str], None]) -> Iterator[str]:
    from attention_doctor.codes import CODES  # with torch, so not for every page

    for line in causes.splitlines():
        chapter, _, codes = line.removeprefix("- ").rpartition(": ")
        for code in codes.split():
            if code not in CODES:
                complain(f"{code} is no code of the doctor")
                continue
            cause = f"{CODES[code][0].upper()}{CODES[code][1:]}"
            yield f"| {cause} | [`{code}`](codes.md#{code}) | {chapter} |"


def reference(markdown: str) -> str:
    """Write a section for every code of the doctor, from its rule."""
    from attention_doctor.codes import about
    from attention_doctor.rules.catalogue import FAMILIES

    read = chapters()
    parts = []
    for family, rules in FAMILIES.items():
        parts.append(f"## {family}")
        for code in (rule.code for rule in rules):
            said = about(code)
            parts.append(f"### {code}")
            severity = "Wrong" if said.severity == "wrong" else "A convention"
            parts.append(" · ".join([f"*{severity}*", *read.get(code, [])[:2]]))
            parts.append(said.texts[0])
            if said.right:
                parts.append(f"```diff\n- {said.wrong}\n+ {said.right}\n```")
            parts.append(" ".join(said.texts[1:]))
            for other in said.codes:
                parts[-1] = parts[-1].replace(f"`{other}`", f"[`{other}`](#{other})")
    return markdown.replace(SECTIONS, "\n\n".join(filter(None, parts)))


def chapters() -> dict[str, list[str]]:
    """Give the sections of chapters that the page of symptoms names beside each code."""
    found: dict[str, list[str]] = {}
    page = (scripts.ROOT / "docs" / "symptoms.md").read_text(encoding="utf-8")
    for line in "".join(x[0] for x in CAUSES.finditer(page)).splitlines():
        chapter, _, codes = line.removeprefix("- ").rpartition(": ")
        for code in codes.split():
            if chapter not in found.setdefault(code, []):
                found[code].append(chapter)
    return found

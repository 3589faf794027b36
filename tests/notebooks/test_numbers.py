"""Numbers in a chapter's prose stand in what its cells put out, or say whose they are."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from press.run import scripts

CHAPTERS = sorted(scripts.CHAPTERS.glob("*.py"))
each_chapter = pytest.mark.parametrize("script", CHAPTERS, ids=lambda script: script.stem)

FENCE = r"^```.*?^```"
FORMULA = r"\$\$.*?\$\$|(?<!\\)\$[^$]+\$"
CODE = r"(`+)(?!`).+?(?<!`)\1(?!`)"
ADDRESS = r"\]\([^)]*\)|<[a-z/][^>]*>|\w+://\S+"
PLACE = r"\b(?:[Ss]ections?|[Ee]quations?|[Tt]ables?|[Ff]igures?|Python|PyTorch)\s+\d[\d.]*\d"
NO_PROSE = re.compile(f"{FENCE}|{FORMULA}|{CODE}|{ADDRESS}|{PLACE}", re.DOTALL | re.MULTILINE)
MARK = r"<!-- (?:quoted|invented|setting) -->"
CLAIMED = re.compile(
    rf"(?<![\w.])(?P<sign>-|−)?(?P<digits>\d[\d,]*(?:\.\d+)?)(?!\.?\d)(?P<percent>\s?%)?(?P<mark>{MARK})?"
)
PUT_OUT = re.compile(r"(?<![\d.])-?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))(?:e[-+]?\d+)?%?")


def prose_numbers(script: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbers with a decimal point or percent sign that carry no mark, by line."""
    lines = script.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(r"# %%(?:\s|$)", line)]
    for start, cell in zip(starts, scripts.notebook(script).cells, strict=True):
        if cell.cell_type != "markdown":
            continue
        text = NO_PROSE.sub(lambda found: "x" + "\n" * found[0].count("\n"), cell.source)
        for found in CLAIMED.finditer(text):
            if ("." in found["digits"] or found["percent"]) and not found["mark"]:
                yield start + 2 + text.count("\n", 0, found.start()), found[0]


def put_out(executed: Path) -> list[float]:
    """List the numbers in the outputs of an executed chapter: text, tables, figures."""
    cells = json.loads(executed.read_text(encoding="utf-8"))["cells"]
    texts = []
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        texts.append("".join(output.get("text", "")))
        for kind in ("text/plain", "text/markdown", "text/html"):
            text = "".join(output.get("data", {}).get(kind, ""))
            if kind == "text/html":
                text = re.sub(r"<(style|script)\b.*?</\1>", " ", text, flags=re.DOTALL)
                texts += re.findall(r'(?:aria-label|alt)="([^"]*)"', text)
                text = re.sub(r"<[^>]*>", " ", text)
            texts.append(html.unescape(text))
    numbers = (found[0] for text in texts for found in PUT_OUT.finditer(text.replace("−", "-")))
    return [float(n.replace(",", "").rstrip("%")) / (100 if n[-1] == "%" else 1) for n in numbers]


def stands(number: str, there: list[float]) -> bool:
    """Say whether a number of the prose is one of those, rounded as it is written."""
    digits = re.sub(r"[^\d.]", "", number)
    percent = 2 * number.endswith("%")
    half = 0.5 * 10.0 ** -(len(digits.partition(".")[2]) + percent)
    value = float(digits) / 10**percent
    signed = number[0] in "-−"
    return any(abs((-x if signed else abs(x)) - value) <= half * (1 + 1e-6) for x in there)


def unfounded(script: Path, executed: Path) -> list[str]:
    """Name the numbers of a chapter's prose that stand in none of its outputs."""
    there = put_out(executed)
    return [
        f"{script.name}:{line}: {number} stands in no output; if it is not measured there, "
        "write <!-- quoted -->, <!-- invented --> or <!-- setting --> right behind it"
        for line, number in prose_numbers(script)
        if not stands(number, there)
    ]


@each_chapter
def test_numbers_in_prose_stand_in_an_output(script):
    wrong = unfounded(script, scripts.EXECUTED / f"{script.stem}.ipynb")
    assert not wrong, "\n".join(wrong)


PROSE = r"""# %% [markdown]
# # Title
# Between 0.25 and −1.5 %, about 28% of 1,234.5, at most 3 of 40; twice `0.1`, $0.2$, ``0.3``.
# In section 3.2.1, equation 1.2 and [table 4.5](x.html#0.6), with Python 3.11.5 and 2.13.0,
# quoted 28.4<!-- quoted --> and 26 %<!-- quoted -->, set to 0.1<!-- setting -->.
# $$
# 0.7
# $$
#
# ```
# 0.8
# ```
# <b class="dim-0.9">b</b> and 3.0.

# %%
print(0.5)
"""
FIGURE = '<svg aria-label="7.5" width="99"><style>0.1</style><text>8&#46;25 %</text></svg>'
OUTPUTS = [
    {"text": ["a 3, -1.5e-3\n", "28.4% (1,234.46) .76 3.11.5 of [1,2]"]},
    {"data": {"text/plain": "<Figure 640x480>", "text/html": FIGURE}},
]


def test_which_numbers_count_and_stand_in_no_output(tmp_path):
    script, executed = tmp_path / "00_prose.py", tmp_path / "00_prose.ipynb"
    script.write_text(PROSE, encoding="utf-8")
    executed.write_text(json.dumps({"cells": [{"outputs": OUTPUTS}]}))
    assert list(prose_numbers(script)) == [
        (3, "0.25"),
        (3, "−1.5 %"),
        (3, "28%"),
        (3, "1,234.5"),
        (13, "3.0"),
    ]
    found = set(put_out(executed))
    assert {3, -1.5e-3, 0.284, 1234.46, 0.76, 1, 2, 7.5, 8.25} <= found
    assert not {99, 0.1} & found
    named = [found.partition(";")[0] for found in unfounded(script, executed)]
    assert named == [f"00_prose.py:3: {x} stands in no output" for x in ("0.25", "−1.5 %")]

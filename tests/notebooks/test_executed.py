"""Each chapter ran to its end, as it stands now, and takes as long as it says."""

import math
import re

import pytest

from press.run import record, scripts
from press.site import chapter_list

CHAPTERS = sorted(scripts.CHAPTERS.glob("*.py"))
each_chapter = pytest.mark.parametrize("script", CHAPTERS, ids=lambda script: script.stem)


@each_chapter
def test_ran_without_error_and_stubs_fail_and_solutions_pass(script):
    executed = scripts.executed(script.stem)
    ran = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.source for cell in ran] == [cell.source for cell in scripts.code_cells(script)], (
        f"{script.stem} has changed since it was executed: `make notebooks` does it again"
    )
    shown = executed.metadata.get("run") == record.RECORDED  # instead of run, where it must be
    counts = [x.execution_count for x in ran if not (shown and record.needs_weights(x))]
    assert counts == list(range(1, len(counts) + 1))
    kinds = {(output.output_type, output.get("name")) for cell in ran for output in cell.outputs}
    assert kinds <= {("stream", "stdout"), ("display_data", None), ("execute_result", None)}
    for i, cell in enumerate(ran):
        tags = cell.metadata.get("tags", [])
        if "exercise" in tags:
            assert ran[i + 1].outputs[0].text.startswith("✗ "), ran[i + 1].source
        if "solution" in tags:
            assert cell.outputs[0].data["text/plain"].startswith("✓ "), cell.source
        if "proof" in tags:
            assert "".join(x.get("text", "") for x in cell.outputs[:1]).startswith("✓ "), (
                cell.source
            )
            said = "".join(output.get("text", "") for output in cell.outputs)
            measured = re.findall(r"\d\.\d+|\de[-+]\d+", said)
            assert not measured, f"a proof says that it holds, not {measured}: {cell.source}"


STATED = re.compile(r"^\*\w+, (\d+) minutes\.\*", re.MULTILINE)  # as exercises begin
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$]+\$", re.DOTALL)  # read like a word
NOT_READ = re.compile(r"\]\([^)]*\)|<[^>]+>", re.DOTALL)  # addresses, tags
LISTING = re.compile(r"<pre><code>(.*?)</code></pre>", re.DOTALL)  # source that a cell shows


def reading(cells):
    """Give the minutes for what is in sight: 200 words each, or 32 lines; half a minute a listing.

    What stands in a fold or among the exercises is not read.
    """
    words, code, folded, exercises = 0, 0.0, False, False
    for cell in cells:
        source, tags = cell.source, cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            opens = source.startswith("<!-- deeper: ")
            folded = "<!-- /deeper -->" not in source and (folded or opens)
            for part in [] if folded else re.split(r"^(?=## )", source, flags=re.MULTILINE):
                if part.startswith("## "):
                    exercises = part.partition("\n")[0].endswith("xercises")
                said = NOT_READ.sub(" ", FORMULA.sub(" x ", part))
                words += 0 if exercises else len(re.findall(r"\w[\w'’-]*", said))
        elif not folded and not exercises and not {"exercise", "solution"} & {*tags}:
            shown = "".join(x.get("data", {}).get("text/html", "") for x in cell.outputs)
            hidden = scripts.FOLDED.intersection(tags)
            if "proof" in tags:
                words += len(re.findall(r"\w[\w'’-]*", cell.outputs[0].text.partition("\n")[0]))
            listings = LISTING.findall(shown) + [source] * (not hidden)
            if "aa-built" in shown:  # one listing, with a note over each of its parts
                listings = ["\n".join(listings)]
            code += sum(max(0.5, len(x.strip().splitlines()) / 32) for x in listings)
    return math.ceil(words / 200 + code)


@pytest.mark.parametrize(
    "script", [x for x in CHAPTERS if x.stem != "cheat_sheet"], ids=lambda script: script.stem
)
def test_it_takes_as_long_as_it_says(script):
    said = chapter_list.opening(script)["minutes"]
    exercises = script.read_text(encoding="utf-8").partition("\n# ## More exercises")[0]
    assert said.exercises == sum(map(int, STATED.findall(exercises.replace("\n# ", "\n"))))
    takes = reading(scripts.executed(script.stem).cells)
    assert abs(said.reading - takes) <= 1, f"{script.stem} takes {takes} minutes"


TINY = re.compile(r"(?<![\w.])\d(?:\.\d+)?e-\d+")


def rounding_errors(cells):
    """List the numbers in outputs that are too small to be anything but rounding."""
    shown = (x for cell in cells for x in cell.get("outputs", []))
    texts = (text for x in shown for text in (x.get("text", ""), *x.get("data", {}).values()))
    return [found for text in texts for found in TINY.findall(str(text)) if float(found) < 1e-5]


@each_chapter
def test_no_output_shows_a_rounding_error(script):
    found = rounding_errors(scripts.executed(script.stem).cells)
    assert not found, (
        f"{script.stem} shows {found}, another number in each build: say up to rounding"
    )

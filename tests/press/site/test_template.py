"""What the page shows of a cell, by the cell's tags."""

from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter

from press.site import hooks

TEMPLATES = Path(hooks.__file__).parent / "nbconvert"
SAID = nbformat.v4.new_output("stream", text="✓ Equal.\nand so on\n")


def rendered(*tags, outputs=(SAID,)):
    cell = nbformat.v4.new_code_cell("x = 1", metadata={"tags": [*tags]}, outputs=[*outputs])
    book = nbformat.v4.new_notebook(cells=[cell])
    exporter = HTMLExporter(
        template_file="notebook.html.j2",
        template_name="mkdocs_html",
        extra_template_basedirs=[str(TEMPLATES)],
    )
    return BeautifulSoup(exporter.from_notebook_node(book)[0], "html.parser")


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ((), "x = 1|✓ Equal.\nand so on\n"),
        (("hide-input",), "✓ Equal.\nand so on\n"),
        (("fold-input",), "✓ Equal.\nand so on\n|Show the code|x = 1"),
        (("proof",), "✓ Equal.|x = 1|and so on\n"),
        (("solution",), "Solution|x = 1|✓ Equal.\nand so on\n"),
    ],
)
def test_code_and_output_stand_as_the_tags_say(tags, wanted):
    page = rendered(*tags)
    assert "|".join(x.text for x in page.select("pre, summary")) == wanted
    folded = {"fold-input", "proof", "solution"} & {*tags}
    assert bool(page.select("details pre.aa-source")) == bool(folded)
    assert not page.select("details[open]")


def test_a_proof_of_one_line_and_a_hidden_cell_without_output_leave_nothing_behind():
    (line,) = (nbformat.v4.new_output("stream", text="✓ Equal.\n"),)
    assert not rendered("proof", outputs=[line]).select(".aa-out")
    assert not rendered("hide-input", outputs=[]).select_one(".aa-cell").contents

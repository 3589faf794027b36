"""What a chapter says that it shows in full."""

import inspect
import re

from annotated_attention.modern import decoder, generation
from press.run import scripts

CHECKS = {"check_call", "check_choice", "generate"}  # what these do is check their arguments


def test_every_function_of_the_language_model_is_on_its_page_but_checks():
    cells = scripts.code_cells(scripts.CHAPTERS / "26_a_model_of_today.py")
    source = "\n".join(cell.source for cell in cells if "display.annotated(" in cell.source)
    for module in (decoder, generation):
        name = module.__name__.rpartition(".")[2]
        shown = {*re.findall(rf"\b{name}\.([\w.]+)", source)}
        own = [x for x in vars(module).values() if getattr(x, "__module__", "") == module.__name__]
        parts = [part for x in own for part in (vars(x).values() if inspect.isclass(x) else [x])]
        there = {x.__qualname__ for x in parts if inspect.isfunction(inspect.unwrap(x))}
        assert there - CHECKS <= shown, there - CHECKS - shown
        assert len(there) > 2

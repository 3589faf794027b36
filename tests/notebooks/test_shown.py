"""“Multi-head attention” shows the final class whole, and every function that it calls.

The chapters on attention today show every method of their classes.
"""

import ast
import json
from collections.abc import Iterator

import pytest
from bs4 import BeautifulSoup

from annotated_attention import (
    MultiheadAttention,
    attention,
    checks,
    display,
    heads,
    masks,
    modern,
    quick,
)
from annotated_attention import multihead as home
from annotated_attention.display.code import located_source
from book.run.scripts import EXECUTED

MODULES = (attention, checks, heads, quick, home, masks)  # its forward, not a softmax's
TODAY = {
    "18_positions": "RotaryEmbedding RotaryAttention AlibiBias BucketedBias BiasedAttention",
    "19_cache": "KVCache StaticCache PagedCache CachedAttention",
    "20_fewer_keys": "GroupedQueryAttention LatentAttention",
}


@pytest.fixture(scope="module")
def sections() -> list[BeautifulSoup]:
    return annotated("07_multihead_attention")


def annotated(chapter: str) -> list[BeautifulSoup]:
    """The annotated source on the page."""
    cells = json.loads((EXECUTED / f"{chapter}.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    pages = ("".join(x.get("data", {}).get("text/html", "")) for x in outputs)
    return [
        part
        for page in pages
        for part in BeautifulSoup(page, "html.parser").select(".aa-annotated")
    ]


def lines(part: BeautifulSoup) -> dict[int, str]:
    return {int(str(tag["data-line"])): tag.text for tag in part.select(".aa-line")}


def shown(sections: list[BeautifulSoup], file: str) -> set[int]:
    """Say which lines of a file stand on the page."""
    place = f"annotated_attention/{file}.py, "
    return {
        number
        for part in sections
        if part.select_one(".aa-place").text.startswith(place)
        for number in lines(part)
    }


def definitions() -> dict[str, tuple[str, set[int], set[str]]]:
    """List the core's functions and methods: the file, the lines of code, and what they call."""
    found = {}
    for module in MODULES:
        file = module.__name__.rpartition(".")[2]
        tree = ast.parse(located_source(module)[0])
        code = lines(BeautifulSoup(display.annotated(module).html, "html.parser"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                own = {i for i in code if node.lineno <= i <= node.end_lineno}
                found[node.name] = (file, own, set(names(node)))
    return found


def names(node: ast.AST) -> Iterator[str]:
    """Name what a function uses, called or handed on."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def test_every_line_of_the_class_is_shown(sections):
    whole = BeautifulSoup(display.annotated(MultiheadAttention).html, "html.parser")
    assert lines(whole).keys() <= shown(sections, "multihead")


def test_nothing_that_is_called_stays_unshown(sections):
    known = definitions()
    waiting, seen = ["forward", "__init__"], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        file, own, uses = known[name]
        assert own, f"{name} has no lines"
        assert own <= shown(sections, file), f"{name} is called and not shown"
        waiting += uses
    assert {"forward", "_fused", "merge_masks", "_check_tensor", "split_heads"} <= seen


@pytest.mark.parametrize("chapter", TODAY)
def test_every_method_of_a_class_of_today_is_shown(chapter):
    sections = annotated(chapter)
    for name in TODAY[chapter].split():
        kind = getattr(modern, name)
        file = kind.__module__.removeprefix("annotated_attention.").replace(".", "/")
        whole, outside = (
            lines(BeautifulSoup(display.annotated(kind, methods=methods).html, "html.parser"))
            for methods in (True, False)
        )
        texts = set(outside.values())
        methods = {number for number, text in whole.items() if text not in texts}
        assert methods, name
        assert methods <= shown(sections, file), f"{name} is not shown whole"


def test_every_class_of_today_is_asked_for():
    classes = {name for name in modern.__all__ if isinstance(getattr(modern, name), type)}
    assert classes - {"Cache"} == set(" ".join(TODAY.values()).split())  # a protocol has no code

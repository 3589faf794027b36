"""The pages of the package: every public name is on one."""

import html
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import pytest
from bs4 import BeautifulSoup

import annotated_attention
from book.site.build import SITE

PAGES = sorted(SITE.glob("package/*/index.html"))
# Packages and modules that say what they offer, and modules that offer what they define.
AREAS = [
    "", ".transformer", ".positions", ".seq2seq", ".modern", ".doctor", ".doctor.adapters",
    ".doctor.layouts", ".doctor.abilities",
    ".mistakes", ".mistakes.reshapes", ".published", ".pretrained", ".counting",
    ".counting.formulas", ".measure", ".display", ".chapters",
]  # fmt: skip


def offered(area: ModuleType) -> Iterator[str]:
    if hasattr(area, "__all__"):
        yield from area.__all__
    else:
        for name, value in vars(area).items():
            if not name.startswith("_") and getattr(value, "__module__", "") == area.__name__:
                yield name


def names() -> Iterator[tuple[str, str, object]]:
    """Yield every public name with its area and what it stands for, each object once."""
    seen = set()
    for path in AREAS:
        area = importlib.import_module(f"annotated_attention{path}")
        for name in offered(area):
            value = getattr(area, name)
            if inspect.ismodule(value) or id(value) in seen:
                continue
            seen.add(id(value))
            yield area.__name__, name, value


each_name = pytest.mark.parametrize(
    ("area", "name", "value"), [pytest.param(*x, id=f"{x[0]}.{x[1]}") for x in names()]
)


@cache
def read(page) -> str:
    return page.read_text(encoding="utf-8")


@cache
def described(page) -> frozenset[str]:
    return frozenset(re.findall(r'<h\d class="doc doc-heading" id="([^"]+)"', read(page)))


@cache
def examples(page) -> str:
    codes = re.findall(r"<pre.*?</pre>", read(page), re.DOTALL)
    texts = [html.unescape(re.sub("<[^>]*>", "", code)) for code in codes]
    return "\n".join(text for text in texts if ">>> " in text)


def is_code(value: object) -> bool:
    return inspect.isfunction(value) or inspect.isclass(value)


@each_name
def test_each_public_name_is_on_one_page(area, name, value):
    if is_code(value):
        known_as = {f"{area}.{name}", f"{value.__module__}.{value.__qualname__}"}
        found = [page.parent.name for page in PAGES if known_as & described(page)]
    else:  # a constant: what it holds is seen where it is used
        found = [page.parent.name for page in PAGES if re.search(rf"\b{name}\b", examples(page))]
    assert len(found) == 1, found


def test_all_pages_are_there():
    """Or the test above would find nothing to complain of."""
    assert len(PAGES) == 13
    assert len(list(names())) > 150


def test_what_is_described_stands_below_the_sections():
    for page in PAGES:
        sections = set(re.findall(r'<h2 id="([^"]+)"', read(page)))
        assert sections
        assert not sections & described(page), page


def test_the_last_change_is_this_version():
    changes = read(SITE / "package" / "index.html").partition('<h2 id="changes"')[2]
    first = BeautifulSoup(changes, "html.parser").h3
    assert first is not None
    assert first.text.removesuffix("¶") == annotated_attention.__version__

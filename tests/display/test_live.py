"""Live figures: one static picture and one module, for the site and for Jupyter."""

import base64
import json
import re

import pytest
from bs4 import BeautifulSoup

from annotated_attention import display
from annotated_attention.display import _live
from book.run import execute

DATA = {"keys": ["<b>", "'\"&", "ok"], "numbers": [[1, 2.5], []], "texts": {"loss": ["0.1"]}}


def still():
    return display.finish(display.panels(60, 40)[0], name="still", alt="A still picture.")


def figure(data=DATA):
    return display.live(still(), "attention_over_training", data)


def test_holds_the_picture_the_module_and_its_data():
    frame = BeautifulSoup(figure().html, "html.parser").select_one(".aa-live")
    assert frame["data-live"] == "attention_over_training"
    assert json.loads(frame["data-state"]) == DATA
    assert still().html in figure().html
    assert figure().text == "Figure: A still picture."
    assert figure().html == figure().html


def test_data_survive_being_parsed_and_written_again():
    again = str(BeautifulSoup(figure().html, "html.parser"))
    frame = BeautifulSoup(again, "html.parser").select_one(".aa-live")
    assert json.loads(frame["data-state"]) == DATA


def test_a_notebook_is_given_the_figure_with_its_script():
    bundle = figure()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}, "a widget is nothing without its kernel"
    page = BeautifulSoup(bundle["text/html"], "html.parser")
    style, frame, script = page.find_all(recursive=False)
    assert ".aa-stage {" in style.text, "its stylesheet is missing"
    assert str(frame) == str(BeautifulSoup(figure().html, "html.parser"))
    assert (script["type"], script.text) == ("module", _live.bundle("attention_over_training"))
    assert execute.CARRIED.sub("", bundle["text/html"]) == figure().html


def test_room_is_kept_in_units_of_the_text():
    frame = display.live(still(), "calculator", {}, room=(480, 600)).html
    assert 'style="--aa-wide: 30em; --aa-narrow: 37.5em"' in frame


@pytest.mark.parametrize("module", _live.modules())
def test_a_bundle_holds_everything_it_imports(module):
    def scripts(text):
        yield text
        for inner in re.findall(r'from "data:text/javascript;base64,([^"]+)"', text):
            yield from scripts(base64.b64decode(inner).decode())

    texts = list(scripts(_live.bundle(module)))
    assert _live.files()["host/figure.js"] in texts
    assert any("render({ model, el }) {\n    const" in text for text in texts)
    for text in texts:
        assert not re.search(r'(?:from|import) ?\(?"(?!data:)', text)


@pytest.mark.parametrize("path", _live.files())
def test_scripts_name_no_host(path):
    addresses = set(re.findall(r"\w+://[^\"']+", _live.files()[path]))
    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: display.live(still(), "no", {}), ValueError, r"'no'.* one of attention_over_tr"),
        (lambda: display.live(display.chapter_map(), "attention_over_training", {}),
         ValueError, "static must be a figure"),
        (lambda: figure({"x": object()}), TypeError, "JSON"),
        (lambda: figure({"x": float("nan")}), ValueError, "JSON"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(call, kind, message):
    with pytest.raises(kind, match=message):
        call()

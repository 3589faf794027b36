"""What the search is given: prose to show, and beside it words of code and American spelling."""

from press.site import search


def test_code_is_found_beside_the_prose_that_is_shown():
    text = "<p>A norm, initialised.</p> <pre><code>x = q.<b>view</b>(b) # &lt;x&gt;\n</code></pre>"
    page = {"location": "norm/", "title": "Norm", "text": text, "tags": ["LayerNorm"]}
    section = page | {"location": "norm/#colours", "title": "Colours", "text": ""}
    found, below = search.widen({"docs": [page, section]})["docs"]
    assert found["text"] == "<p>A norm, initialised.</p> "
    assert {"view", "initialization", "initialized"} <= {*found["words"].split()}
    assert found["tags"] == ["LayerNorm"]
    assert "tags" not in below  # once a page
    assert below["words"] == "Color"

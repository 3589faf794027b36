"""What the search is given: prose to show, and beside it words of code and American spelling."""

import quickjs

from press.run import scripts
from press.site import search


def test_code_is_found_beside_the_prose_that_is_shown():
    prose = "<p>A norm of QKᵀ and XY^\\top, initialised.</p> "
    text = prose + "<pre><code>x = q.<b>view</b>(b) # &lt;x&gt;\n</code></pre>"
    page = {"location": "norm/", "title": "Norm", "text": text, "tags": ["LayerNorm"]}
    section = page | {"location": "norm/#colours", "title": "Colours", "text": ""}
    found, below = search.widen({"docs": [page, section]})["docs"]
    assert found["text"] == prose
    assert {"view", "initialization", "initialized", "QKT", "XYT"} <= {*found["words"].split()}
    assert found["tags"] == ["LayerNorm"]
    assert "tags" not in below  # once a page
    assert below["words"] == "Color"


def test_a_pasted_message_is_searched_without_what_every_page_has():
    script = (scripts.ROOT / "docs/assets/searching.js").read_text(encoding="utf-8")
    context = quickjs.Context()
    context.eval("class Worker { postMessage(message) { return message.data; } }")
    context.eval(script)
    for typed, sought in {
        "No available kernel. Aborting execution.": "available kernel. Aborting execution.",
        "Torch was not compiled with a kernel": "Torch compiled kernel",
        "16 bits": "16 bits",
        "not": "not",  # nothing else was typed
        "QK^T": "QKT",
        "Q @ K.T": "QKT",
        "why Q(Q+K)^T and not Q K^T": "query query key QKT",
        "softmax(QKᵀ/sqrt(d))V": "softmax QKT sqrt value",
        "~mask": "mask",
        "p^i": "p i",
        "masked_fill -inf": "masked fill inf",
        "Unexpected key(s) in state_dict": "Unexpected key(s state dict",
        "q_proj of is_causal": "proj causal",
        "~": "",
    }.items():
        context.set("typed", typed)
        assert context.eval("new Worker().postMessage({ type: 2, data: typed })") == sought

"""Caches and packed rows are asked about where the callable says it has them."""

import pytest
import torch

from attention_doctor import adapt, examine
from attention_doctor.call.calls import called
from attention_doctor.call.roles import Sizes
from attention_doctor.mistakes import MISTAKES
from tests.attention_doctor.mistakes_today import E, H, adapted, report


def wrong(found):
    return [finding.code for finding in found.findings if finding.severity == "wrong"]


# What the window is said to be, from where it hides, and what is wrong with it.
WINDOWS = [
    (0, "start - 2", []),
    (4, "start - 4", []),
    (9, "start - 9", []),
    (4, "start - 5", ["window-off-by-one"]),
    (9, "start - 10", ["window-off-by-one"]),
    (4, "start - 3", ["window-differs"]),
    (4, "-99", ["window-differs"]),
    (4, "-4", ["window-differs"]),  # by places in the chunk
]


@pytest.mark.parametrize(("window", "hides", "codes"), WINDOWS)
def test_a_window_is_no_mistake_but_of_another_width(window, hides, codes):
    attend = adapted("Rotary", [("triu(1 + start)", f"triu(1 + start) | pairs.tril({hides})")])
    attend.window = window
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == codes
    assert found.results["cache"] == ("wrong" if hides == "-4" else "fine")


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize(("code", "codes"), [("", []), ("documents-leak", ["documents-leak"])])
def test_documents_in_one_row_keep_apart(code, codes, by_name):
    entry = MISTAKES["documents-leak"]
    torch.manual_seed(0)
    module = (entry.version if code else entry.of)(E, H, batch_first=True)
    sizes = {"embed_dim": E, "num_heads": H, "kind": "causal"}
    if by_name:
        asked = called(module, "causal", Sizes(E, H, E), "", "", {})
        found = examine(asked.attend, **sizes)
    else:

        def attend(x, documents=None):
            one = torch.zeros(x.shape[:2], dtype=torch.long)
            return module(x, one if documents is None else documents)[0]

        found = examine(adapt(attend, mask="none", module=module, packed=attend), **sizes)
    assert (wrong(found), found.results["packing"]) == (codes, "wrong" if code else "fine")


def test_positions_that_go_on_in_the_next_document_are_told():
    def attend(x, start=0):
        places = (start + torch.arange(x.size(1)).to(x))[:, None]
        scores = (x + places.sin()) @ (x + places.cos()).mT / E**0.5
        return scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf).softmax(-1) @ x

    def packed(x, documents):
        cut = int((documents[0] == 0).sum())
        return torch.cat([attend(x[:, :cut]), attend(x[:, cut:], cut)], 1)

    adapted = adapt(attend, mask="none", packed=packed)
    assert wrong(examine(adapted, embed_dim=E, num_heads=1, kind="causal")) == ["packing-differs"]


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_the_side_that_stands_still_is_told(side):
    other = {"queries": "keys alone", "keys": "queries alone"}[side]
    (finding,) = report(other, says=()).findings
    assert finding.cause == f"the {side} are not rotated"


def test_nothing_is_asked_that_nobody_claims():
    found = report(name="Rotary", says=())
    assert not {"packing", "cache"} & {*found.results}
    (line,) = (x for x in found.not_examined if "does not say" in x)
    assert line.startswith("cache, packing: ")


def test_a_cache_that_drops_its_oldest_key_is_not_called_unread():
    keeps = 'torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)'
    edits = [
        ("if cache:", "seen = cache.get('seen', 0) + k.size(2)\n        if cache:", 0),
        (keeps, keeps.replace('"]', '"][:, :, 1:]'), 0),
        ("cache.update(k=k, v=v)", "cache.update(k=k, v=v, seen=seen)", 0),
        ('start = cache["k"].size(2) if cache else 0', 'start = cache.get("seen", 0)', 0),
        ("self.attend(q, k, v, start)", "self.attend(q, k, v, k.size(2) - x.size(1))", 0),
    ]
    found = examine(adapted("Rotary", edits), embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == ["cache-loses-tokens"], found


def test_a_cache_that_cannot_be_made_is_a_finding():
    attend = adapted("Rotary")
    attend.start = lambda: 1 / 0
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == ["fails"]
    assert "ZeroDivisionError" in found.findings[0].evidence

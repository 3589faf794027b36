"""Every mistake is found, and named: which symptom shows which of them."""

import functools

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention
from annotated_attention.mistakes import MISTAKES
from attention_doctor import adapters, examine

E, H = 12, 3
EXAMINED = [code for code, mistake in MISTAKES.items() if mistake.of is MultiheadAttention]
# They need that question; `heads-attended-over` stops where queries and keys differ in number.
KINDS = {
    "causal-off-by-one": "causal",
    "causal-hides-itself": "causal",
    "heads-attended-over": "self",
}
ONLY_OUTPUTS = {"reference"}
MIXED = {
    "key order", "query order", "queries apart", "equal values", "blocked", "prefix", "alone",
    "padding", "reference",
}  # fmt: skip

# The symptoms, of those that are wrong, not a matter of convention.
CONVENTIONS = {"nan-row", "finite-fill-in-half"}
SHOWS = {
    "input-changed-in-place": {"inputs"},
    "call-instead-of-forward": {"hooks"},
    "mask-inverted": {"meaning"},  # everything else is asked with the mask turned
    "mask-ignored": {"blocked", "padding", "prefix", "alone", "reference"},
    "mask-after-softmax": {"blocked", "equal values", "padding", "prefix", "alone", "reference"},
    "mask-multiplied": {"blocked", "padding", "prefix", "alone", "reference"},
    "padding-mask-on-queries": {"blocked", "reference"},
    "mask-on-the-wrong-axis": {"blocked", "reference"},
    "mask-in-the-wrong-order": {"samples apart", "blocked", "reference"},
    "mask-transposed": {"blocked", "prefix", "reference"},
    "causal-off-by-one": {"future", "prefix", "reference"},
    "causal-hides-itself": {"future", "equal values", "reference"},
    "causal-unasked": {"visible", "key order", "query order", "equal values", "reference"},
    "finite-fill-in-half": set(),
    "nan-row": set(),
    "chunks-in-the-wrong-order": ONLY_OUTPUTS,
    "interleaved-per-head": ONLY_OUTPUTS,
    "shared-heads": {"gradients", "reference"},
    "keys-of-one-head": {"gradients", "reference"},
    "keys-from-queries": {"gradients", "reference"},
    "values-from-keys": {"gradients", "reference"},
    "keys-and-values-swapped": {"equal values", "reference"},
    "output-projection-missing": {"gradients", "reference"},
    "output-projection-doubled": ONLY_OUTPUTS,
    "heads-in-a-plain-list": {"registration"},
    "merge-without-transpose": {
        "query order",
        "queries apart",
        "equal values",
        "blocked",
        "prefix",
        "alone",
        "reference",
    },
    "split-without-transpose": MIXED,
    "split-and-merge-without-transpose": {
        "visible",
        "key order",
        "query order",
        "equal values",
        "blocked",
        "prefix",
        "padding",
        "reference",
    },
    "batch-mixed-into-sequence": {
        "key order",
        "query order",
        "samples apart",
        "equal values",
        "blocked",
        "prefix",
        "padding",
        "reference",
    },
    "heads-of-other-samples": {"samples apart", "blocked", "reference"},
    "heads-attended-over": {"attention", "blocked", "reference"},  # masks do not fit
    "no-scale": ONLY_OUTPUTS,
    "scale-by-model-width": ONLY_OUTPUTS,
    "scale-twice": ONLY_OUTPUTS,
    "scale-inverted": ONLY_OUTPUTS,
    "scale-by-length": {"prefix", "padding", "reference"},
    "softmax-over-queries": {"queries apart", "equal values", "prefix", "reference"},
    "softmax-over-heads": {"equal values", "reference"},
    "weights-averaged-over-heads": ONLY_OUTPUTS,
    "dropout-before-softmax": {"dropout"},
    "dropout-in-evaluation": {"evaluation"},
}


@functools.cache
def report(code, kind=""):
    """Examine a mistake, or the right version for an empty code."""
    torch.manual_seed(0)
    version = MISTAKES[code].version if code else MultiheadAttention
    module = version(E, H, batch_first=True)
    kind = kind or KINDS.get(code, "cross")
    return examine(adapters.torch_like(module, kind), embed_dim=E, num_heads=H, kind=kind)


@pytest.mark.parametrize("code", EXAMINED)
def test_is_found_and_named(code):
    found = report(code)
    assert code in found.codes
    assert found.ok == (code in CONVENTIONS)
    finding = found.findings[found.codes.index(code)]
    assert finding.symptom
    assert MISTAKES[code].title in finding.cause
    assert finding.remedy.startswith(MISTAKES[code].remedy)


@pytest.mark.parametrize("code", EXAMINED)
def test_shows_these_symptoms(code):
    assert {test for test, result in report(code).results.items() if result == "wrong"} == SHOWS[
        code
    ]


@pytest.mark.parametrize("code", EXAMINED)
def test_nothing_else_is_called_wrong(code):
    wrong = [finding.code for finding in report(code).findings if finding.severity == "wrong"]
    assert wrong == [code] * (code not in CONVENTIONS)


@pytest.mark.parametrize(
    "code", ["merge-without-transpose", "keys-and-values-swapped", "mask-inverted", "no-scale"]
)
@pytest.mark.parametrize("kind", ["self", "causal"])
def test_is_named_in_self_attention(code, kind):
    assert report(code, kind).codes[0] == code


@pytest.mark.parametrize("code", sorted(code for code in EXAMINED if SHOWS[code] - ONLY_OUTPUTS))
def test_repaired_it_is_right(code):
    """The right version shows none of what the mistake shows."""
    kind = KINDS.get(code, "cross")
    assert {report("", kind).results[test] for test in SHOWS[code]} == {"fine"}


def test_without_weights_it_is_named_by_what_is_seen_inside():
    """A function with no module: no weights to compare."""
    torch.manual_seed(0)
    wrong = MISTAKES["merge-without-transpose"].version(E, H, batch_first=True)
    call = adapters.torch_like(wrong)
    found = examine(lambda *inputs: call(*inputs), embed_dim=E, num_heads=H, module=None)
    assert found.codes[0] == "merge-without-transpose"
    assert "queries-mixed" in found.findings[0].explains
    assert any("no module is given" in reason for reason in found.not_examined)


def test_two_mistakes_at_once_are_found():
    class Both(MISTAKES["merge-without-transpose"].version):
        def score(self, q, k):
            return super().score(q, k) * 2

    torch.manual_seed(0)
    found = examine(adapters.torch_like(Both(E, H)), embed_dim=E, num_heads=H)
    assert {"merge-without-transpose", "no-scale"} <= {*found.codes}, str(found)
    assert any("two mistakes at once" in reason for reason in found.not_examined)


class Block(nn.Module):
    """A decoder block: attention, norms, residuals, more layers."""

    def __init__(self, version=MultiheadAttention):
        super().__init__()
        self.attention = version(E, H, batch_first=True)
        self.before, self.between = nn.LayerNorm(E), nn.LayerNorm(E)
        self.layers = nn.Sequential(nn.Linear(E, 2 * E), nn.ReLU(), nn.Linear(2 * E, E))

    def forward(self, x):
        inner = self.before(x)
        x = x + self.attention(inner, inner, inner, is_causal=True)[0]
        return x + self.layers(self.between(x))


@pytest.mark.parametrize("code", ["", "merge-without-transpose", "causal-off-by-one"])
def test_a_whole_block_can_be_examined(code):
    torch.manual_seed(0)
    block = Block(MISTAKES[code].version if code else MultiheadAttention)
    found = examine(block, embed_dim=E, num_heads=H, kind="causal")
    assert found.ok == (not code)
    assert code != "causal-off-by-one" or code in found.codes

"""An examination leaves everything as it was, and answers whatever it is given."""

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention
from attention_doctor import adapters, examine
from tests.attention_doctor.demanded import Attention, E, H


def module(**options):
    torch.manual_seed(0)
    return MultiheadAttention(E, H, batch_first=True, **options)


def report(attend, kind="cross", **options):
    return examine(attend, embed_dim=E, num_heads=H, kind=kind, **options)


def test_everything_is_left_as_it_was():
    ours = module(dropout=0.3)
    ours.register_buffer("counted", torch.arange(3.0))
    ours.register_forward_hook(lambda *_: setattr(ours, "counted", ours.counted + 1))
    ours.train()
    ours.out_proj.eval()
    ours.in_proj_weight.grad = torch.ones_like(ours.in_proj_weight)
    state = {
        name: (x, x.data_ptr(), x.clone()) for name, x in ours.state_dict(keep_vars=True).items()
    }
    grad = ours.in_proj_weight.grad
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert report(adapters.torch_like(ours)).ok
    assert torch.equal(torch.rand(3), expected)
    after = ours.state_dict(keep_vars=True)
    assert list(after) == list(state)
    for name, (tensor, address, value) in state.items():
        assert after[name] is tensor
        assert tensor.data_ptr() == address
        assert torch.equal(tensor, value)
    assert ours.in_proj_weight.grad is grad
    assert ours.training
    assert not ours.out_proj.training
    assert ours.dropout == 0.3
    assert len(ours._forward_hooks) == 1


def test_the_same_examination_gives_the_same_report():
    reports = [str(report(adapters.torch_like(module(dropout=0.1)))) for _ in range(2)]
    assert reports[0] == reports[1]


def test_a_module_in_half_precision_stays_in_it():
    ours = module(dtype=torch.bfloat16)
    assert report(adapters.torch_like(ours)).ok
    assert ours.in_proj_weight.dtype == torch.bfloat16


REFUSED = {
    "raises": (nn.Sequential(nn.Unflatten(-1, (5, 5)), nn.LazyLinear(E)), "fails", "RuntimeError"),
    "returns None": (lambda x: None, "wrong-result", "NoneType"),
    "returns another shape": (lambda x: x[..., :-1], "wrong-result", "(2, 5, 11)"),
    "returns an empty tuple": (lambda x: (), "wrong-result", "tuple"),
    "returns NaN": (lambda x: x * float("nan"), "output-not-finite", "none"),
    "takes other arguments": (lambda: None, "fails", "TypeError"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_answer_is_a_finding(case):
    attend, code, evidence = case
    found = report(attend, "causal")
    assert found.codes == (code,)
    assert evidence in found.findings[0].evidence
    assert not found.ok
    assert found.not_examined


def test_an_empty_skeleton_is_to_be_written_first():
    def attend(x):
        raise NotImplementedError

    assert report(attend, "causal").findings[0].remedy == "Write what is missing; then ask again."
    assert "kind" in report(lambda x: 1 / 0, "causal").findings[0].remedy


def test_uninitialised_parameters_are_named():
    ours = module()
    with torch.no_grad():
        ours.out_proj.weight.fill_(float("nan"))
    found = report(adapters.torch_like(ours))
    assert found.codes == ("output-not-finite",)
    assert "out_proj.weight" in found.findings[0].evidence


class Plain(Attention):
    """Its fill, its softmax and what it always drops are in the hands of the test."""

    def __init__(self, soften=None, always=0.0, fill=float("-inf")):
        super().__init__()
        self.soften = soften or (lambda scores: scores.softmax(-1))
        self.always, self.fill = always, fill

    def forward(self, query, key=None, value=None, blocked=None):
        self.causal = key is None
        return super().forward(query, key, value, blocked)

    def weigh(self, q, k):
        scores, hidden = q @ k.mT / (E / H) ** 0.5, self.hidden(q.size(-2), k.size(-2))
        scores = scores if hidden is None else scores.masked_fill(hidden, self.fill)
        return nn.functional.dropout(self.soften(scores), self.always)


def test_a_mask_that_changes_in_the_call_is_named():
    module = Plain()

    def attend(*inputs):
        output = module(*inputs)
        if inputs[-1] is not None:
            inputs[-1].fill_(False)
        return torch.zeros(2), output  # which of the two it is, its shape says

    found = report(attend)
    assert [x.code for x in found.findings if x.severity == "wrong"] == ["input-changed-in-place"]
    assert found.findings[0].evidence == "changed: blocked"


def test_randomness_that_cannot_be_switched_off_leaves_the_rest_unexamined():
    found = report(Plain(always=0.1))
    assert found.codes == ("dropout-in-evaluation",)
    assert set(found.results) == {"answers", "evaluation", "inside"}
    assert "nn.functional.dropout(" in found.findings[0].where.text
    assert "F.dropout(weights, p, self.training)" in found.findings[0].remedy
    (reason,) = (text for text in found.not_examined if "a different result each time" in text)
    assert reason.startswith("precision, attention, visible, order, ")


@pytest.mark.parametrize(
    ("looked_into", "kind", "fill"), [(True, "cross", float("-inf")), (False, "self", -1e4)]
)
def test_an_inverted_mask_is_one_finding_that_names_the_way_out(looked_into, kind, fill):
    module = Plain(fill=fill)

    def inverted(*inputs):
        *tokens, blocked = inputs
        tokens = tokens * 3 if kind == "self" else tokens
        return module(*tokens, None if blocked is None else ~blocked)

    attend = adapters.Adapted(inverted, module) if looked_into else inverted
    found = report(attend, kind)
    wrong = [finding for finding in found.findings if finding.severity == "wrong"]
    assert [finding.code for finding in wrong] == ["mask-inverted"]
    assert "`--mask allowed`" in wrong[0].remedy
    assert 'mask="bnm allowed"' in wrong[0].remedy
    assert report(adapters.adapt(attend, mask="bnm allowed"), kind).ok
    required = report(adapters.adapt(attend, mask="bnm blocked always"), kind)
    assert [x.code for x in required.findings if x.severity == "wrong"] == ["mask-inverted"]


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float16, "cross"), (torch.bfloat16, "causal")])
def test_a_softmax_in_half_precision_is_named_and_is_one_finding(dtype, kind):
    found = report(Plain(lambda scores: scores.to(dtype).softmax(-1).to(scores.dtype)), kind)
    wrong = [finding.code for finding in found.findings if finding.severity == "wrong"]
    assert wrong == ["computed-in-low-precision"]
    assert found.version == "right"


def test_a_softmax_in_float32_is_no_mistake():
    soften = lambda scores: (scores * 20).float().softmax(-1).to(scores.dtype)  # noqa: E731
    assert report(Plain(soften), "causal").results["precision"] == "fine"
    assert report(Plain(lambda scores: (scores * 20).softmax(-1))).results["precision"] == "fine"


def test_a_backward_pass_that_raises_is_a_finding():
    module = Plain()

    def attend(*inputs):
        output = module(*inputs)
        if output.requires_grad:
            output.register_hook(lambda gradient: {}["torn"])
        return output

    found = report(attend)
    assert not found.ok
    assert "fails" in found.codes
    (evidence,) = (x.evidence for x in found.findings if "torn" in x.evidence)
    assert evidence.startswith("in the backward pass: KeyError: 'torn' (")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "both"}, ValueError, r"kind \('both'\) must be"),
        ({"num_heads": 5}, ValueError, r"embed_dim \(12\) must be divisible by num_heads \(5\)"),
        ({"num_heads": 3.0}, TypeError, r"num_heads \(3.0\) must be an integer"),
        ({"max_length": 1}, ValueError, r"max_length \(1\) must be at least 2"),
        ({"attend": MultiheadAttention}, TypeError, "attend must be a function or a module"),
        ({"attend": None}, TypeError, "attend must be a function or a module"),
    ],
)
def test_arguments_are_checked(options, error, message):
    arguments = {"attend": module(), "embed_dim": E, "num_heads": H, **options}
    with pytest.raises(error, match=message):
        examine(arguments.pop("attend"), **arguments)

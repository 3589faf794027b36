"""An examination leaves everything as it was, and answers whatever it is given."""

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention
from annotated_attention.doctor import adapters, examine

E, H = 12, 3


def module(**options):
    torch.manual_seed(0)
    return MultiheadAttention(E, H, batch_first=True, **options)


def report(attend, kind="cross", **options):
    return examine(attend, embed_dim=E, num_heads=H, kind=kind, **options)


def test_everything_is_left_as_it_was():
    ours = module(dropout=0.3)
    ours.register_buffer("counted", torch.arange(3.0))
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
    assert not ours._forward_hooks


def test_the_same_examination_gives_the_same_report():
    reports = [str(report(adapters.torch_like(module(dropout=0.1)))) for _ in range(2)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_dtype(dtype):
    ours = module(dtype=dtype)
    assert report(adapters.torch_like(ours)).ok
    assert ours.in_proj_weight.dtype == dtype


def test_what_cannot_be_made_float64_is_examined_as_it_is():
    class Stubborn(nn.Module):
        """Computes with numbers that are no parameters of it."""

        def __init__(self):
            super().__init__()
            self.inner = [module()]

        def forward(self, x):
            return self.inner[0](x, x, x, is_causal=True)[0]

    found = report(Stubborn(), "causal")
    assert found.codes == ("heads-in-a-plain-list",)


def test_a_plain_function_can_be_examined():
    def attend(query, key, value, blocked):
        scores = query @ key.mT
        if blocked is not None:
            scores = scores.masked_fill(blocked, -1e4)
        return scores.softmax(-1) @ value

    found = examine(attend, embed_dim=E, num_heads=1)
    assert found.ok
    assert found.name == "attend"
    assert found.codes == ("finite-fill",)
    assert any(reason.startswith("dropout, ") for reason in found.not_examined)


REFUSED = {
    "raises": (lambda x: 1 / 0, "fails", "ZeroDivisionError"),
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


def test_dead_parameters_and_cut_gradients_are_found():
    class Dead(MultiheadAttention):
        def __init__(self):
            super().__init__(E, H, batch_first=True)
            self.unused = nn.Parameter(torch.randn(2, 2))

    found = report(adapters.torch_like(Dead()))
    assert found.codes[0] == "parameters-without-gradient"
    assert found.findings[0].evidence == "1 of 5: unused"

    ours = module()
    found = report(
        adapters.Adapted(lambda x: ours(x, x, x, is_causal=True)[0].detach(), ours), "causal"
    )
    assert found.codes == ("no-gradient",)


def test_dropout_that_is_never_applied_is_found():
    class Never(MultiheadAttention):
        def attend(self, q, k, v, **options):
            was, self.dropout = self.dropout, 0.0
            try:
                return super().attend(q, k, v, **options)
            finally:
                self.dropout = was

    torch.manual_seed(0)
    found = report(adapters.torch_like(Never(E, H, dropout=0.1)))
    assert found.codes == ("dropout-without-effect",)


def test_nan_that_spreads_is_wrong():
    ours = module()

    def attend(query, key, value, blocked):
        mask = None if blocked is None else blocked.repeat_interleave(H, 0)
        output, _ = ours(query, key, value, attn_mask=mask)
        empty = blocked is not None and bool(blocked.all(-1).any())
        return output * (float("nan") if empty else 1)

    assert "nan-spreads" in report(adapters.Adapted(attend, ours)).codes


def test_short_sequences_only():
    class Short(MultiheadAttention):
        def forward(self, x):
            assert x.size(1) <= 3
            return super().forward(x, x, x, is_causal=True)

    torch.manual_seed(0)
    short = Short(E, H, batch_first=True)
    assert report(short, "causal", max_length=3).ok
    assert not report(short, "causal").ok


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "both"}, ValueError, r"kind \('both'\) must be"),
        ({"num_heads": 5}, ValueError, r"embed_dim \(12\) must be divisible by num_heads \(5\)"),
        ({"embed_dim": 0}, ValueError, r"embed_dim \(0\) must be at least 1"),
        ({"max_length": 1}, ValueError, r"max_length \(1\) must be at least 2"),
        ({"attend": MultiheadAttention}, TypeError, "attend must be a function or a module"),
        ({"attend": None}, TypeError, "attend must be a function or a module"),
    ],
)
def test_arguments_are_checked(options, error, message):
    arguments = {"attend": module(), "embed_dim": E, "num_heads": H, **options}
    with pytest.raises(error, match=message):
        examine(arguments.pop("attend"), **arguments)

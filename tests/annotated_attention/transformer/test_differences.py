"""The page of differences: layers and stacks, and what is the same in spite of reports."""

import contextlib
import warnings
from types import ModuleType

import pytest
import torch
from torch import nn

import annotated_attention
from tests.annotated_attention.multihead.test_differences import listed
from tests.settings import B, E, H, M, N

CAUSAL = torch.ones(N, N, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False, False, True], [False, False, False]])
ALL = torch.ones(B, N, dtype=torch.bool)
FLOATS = torch.linspace(-1, 1, N * N).view(N, N)
torch.manual_seed(0)
X, MEMORY = torch.randn(B, N, E), torch.randn(B, M, E)


def stack(module, **options):
    torch.manual_seed(0)
    options = {"dim_feedforward": 30, "dropout": 0.0, "batch_first": True} | options
    layer = module.TransformerEncoderLayer(E, H, **options)
    return module.TransformerEncoder(layer, 2)


def compared(options, mask):
    """Tell what a call does, of what is known from calls in training."""

    def outcome(module, how):
        made = stack(module)
        known = {"as expected": made(X, mask=mask), "no mask": made(X)}
        made.train(how == "training")
        with torch.set_grad_enabled(how == "training"):
            found = made(X, **options)
        known["NaN"] = torch.full_like(found, torch.nan)
        same = (x for x, y in known.items() if found.allclose(y, atol=1e-5, equal_nan=True))
        return next(same, "something else")

    return outcome


def blocks(module, how):
    calls = []

    class Layer(module.TransformerEncoderLayer):
        def _sa_block(self, *given, **options):
            calls.append(1)
            return super()._sa_block(*given, **options)

    layer = Layer(E, H, 30, batch_first=True).eval()
    with contextlib.nullcontext() if how == "evaluation" else torch.no_grad():
        layer(X)
    return f"{len(calls)} calls"


@torch.no_grad()
def all_padding(module, how):
    return "finite" if stack(module).eval()(X, src_key_padding_mask=ALL).isfinite().all() else "NaN"


@torch.no_grad()
def padded(module, how):
    row = stack(module).eval()(X, src_key_padding_mask=PADDING)[0, 2]
    return "numbers" if row.any() else "zeros"


@torch.no_grad()
def quantized(module, how):
    made = torch.ao.quantization.quantize_dynamic(stack(module).eval(), {nn.Linear})
    made(X)
    return f"{type(made.layers[0].self_attn.out_proj).__module__.split('.')[3]} out_proj"


def custom(module, how):
    encoder = stack(module)
    before = encoder.layers[0].linear1.weight.clone()
    module.Transformer(E, H, 1, 1, 30, custom_encoder=encoder)
    return "kept" if encoder.layers[0].linear1.weight.equal(before) else "drawn"


def narrow(module, how):
    stack(module)(X[..., 1:])


def weights(module, how):
    attention = module.MultiheadAttention(E, H, dropout=0.4, batch_first=True)
    return f"{attention(X, X, X)[1].sum(-1).allclose(torch.ones(B, N))}"


def a_nan(module, how):
    attention, value = module.MultiheadAttention(E, H, batch_first=True), X.clone()
    value[0, 2] = torch.nan
    output, _ = attention(X, X, value, PADDING, need_weights=how == "with weights")
    return f"{output[0].isnan().all()}"


def copies(module, how):
    first, second = stack(module).layers
    return f"{first.linear1.weight.equal(second.linear1.weight)}"


def second(module, how):
    attention, x = module.MultiheadAttention(E, H, batch_first=True), X.clone().requires_grad_()
    output, _ = attention(x, x, x, need_weights=False)
    torch.autograd.grad(output.square().sum(), x, create_graph=True)[0].sum().backward()


def forward(module, how):
    attention = module.MultiheadAttention(E, H, batch_first=True)
    torch.func.jvp(lambda x: attention(x, X, X, need_weights=False)[0], (X,), (X,))


SUBLAYERS = "`_sa_block`, `_ff_block`, `_mha_block` overridden"
DERIVATIVES = "second and forward derivatives, without weights"
HINT, BIAS = compared({"is_causal": True}, CAUSAL), compared({"mask": FLOATS}, FLOATS)

# The row of the page, how the call is made, the call, and what PyTorch's classes and ours do.
CASES = [
    ("`is_causal` alone", "training", HINT, "RuntimeError", "as expected"),
    ("`is_causal` alone", "inference", HINT, "no mask", "as expected"),
    (SUBLAYERS, "evaluation", blocks, "1 calls", "1 calls"),
    (SUBLAYERS, "inference", blocks, "0 calls", "1 calls"),
    ("a float mask in inference", "inference", BIAS, "NaN", "as expected"),
    ("everything is padding, in inference", "", all_padding, "RuntimeError", "finite"),
    ("padded rows in inference", "", padded, "zeros", "numbers"),
    ("`quantize_dynamic`, in inference", "", quantized, "AttributeError", "quantized out_proj"),
    ("a custom stack's matrices", "", custom, "drawn", "kept"),
    ("a bad argument", "", narrow, "AssertionError", "ValueError"),
]
SAME = [
    ("weights that are returned, with dropout", "", weights, "False"),
    ("NaN in a value that is masked", "with weights", a_nan, "True"),
    ("NaN in a value that is masked", "without", a_nan, "True"),
    ("layers of a stack made by copying", "", copies, "True"),
    (DERIVATIVES, "second", second, "RuntimeError"),
    (DERIVATIVES, "forward", forward, "NotImplementedError"),
]
ROWS = CASES + [(*case, case[-1]) for case in SAME]


def outcome(run, module: ModuleType, how: str) -> str:
    with warnings.catch_warnings(action="ignore"):
        try:
            return run(module, how)
        except Exception as error:
            return type(error).__name__


@pytest.mark.parametrize(("where", "how", "run", "theirs", "ours"), ROWS)
def test_each_row_of_the_page_is_so(where, how, run, theirs, ours):
    assert outcome(run, annotated_attention, how) == ours
    if torch.__version__.startswith("2.13"):  # which the page says
        assert outcome(run, nn, how) == theirs


@pytest.mark.parametrize(
    ("heading", "cases"), [("Layers and stacks", CASES), ("What is the same", SAME)]
)
def test_the_page_lists_these_rows_and_no_others(heading, cases):
    assert listed(heading) == [*dict.fromkeys(where for where, *_ in cases)]

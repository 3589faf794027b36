"""The page of the final class: where it differs from PyTorch's, and what the benchmark holds."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, block_future
from annotated_book import measured
from tests.settings import B, E, H

PAGES = Path(__file__).parents[3] / "docs/package"
Kind = type[nn.Module]
KINDS: tuple[Kind, Kind] = (nn.MultiheadAttention, MultiheadAttention)
N, M = 4, 3  # more queries than keys, so that a causal mask blocks something and leaves query 3

random = torch.Generator().manual_seed(9)
QUERY = torch.randn(B, N, E, dtype=torch.float64, generator=random)
KEY = torch.randn(B, M, E, dtype=torch.float64, generator=random)
CROSS, SELF = (QUERY, KEY, KEY), (QUERY, QUERY, QUERY)
FUTURE, SQUARE = block_future(N, M), block_future(N)
OTHER = torch.arange(N * M).view(N, M) == 9  # blocks what the causal mask does not
ALL, ALL_SQUARE = torch.ones(N, M, dtype=torch.bool), torch.ones(N, N, dtype=torch.bool)
PADDING = torch.tensor([[0, -torch.inf, 0], [0, 0, 0]]).double()
HALVES = torch.linspace(-1, 1, N * M).view(N, M).half()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    RAGGED = torch.nested.nested_tensor([QUERY[0], QUERY[1, :2]])


def make(kind: Kind, **options: Any) -> nn.Module:
    """Make a module from a fixed seed, with a bias that shows where zeros went in."""
    torch.manual_seed(3)
    module = kind(E, H, batch_first=True, dtype=torch.float64, **options)
    nn.init.ones_(module.out_proj.bias)
    return module


def references() -> dict[str, Tensor]:
    """Compute outputs that are known, by PyTorch's class with boolean masks and with weights."""
    plain, zero = (make(nn.MultiheadAttention, add_zero_attn=x) for x in (False, True))
    masks = {"no mask": None, "causal": FUTURE, "attn_mask": OTHER, "both": OTHER | FUTURE}
    outputs = {name: plain(*CROSS, attn_mask=mask)[0] for name, mask in masks.items()}
    seen = zero(*CROSS, attn_mask=FUTURE)[0]
    added = torch.zeros(N, M).double().masked_fill(OTHER, -torch.inf)
    return outputs | {
        "the mask, cast": plain(*CROSS, attn_mask=HALVES.double())[0],
        "both kinds": plain(*CROSS, PADDING, attn_mask=added)[0],
        "no mask, self": plain(*SELF)[0],
        "causal, self": plain(*SELF, attn_mask=SQUARE)[0],
        "appended seen": seen,
        "appended hidden": torch.cat([outputs["causal"][:, :3], seen[:, 3:]], 1),
        "zeros": torch.ones(B, N, E).double(),
        "NaN": torch.full((B, N, E), torch.nan).double(),
    }


REFERENCES = references()


def call(inputs: tuple[Tensor, ...], zero: bool = False, **options: Any) -> Callable[..., str]:
    """Make a function that calls a module and says what came out."""

    def outcome(kind: Kind, how: str) -> str:
        module = make(kind, add_zero_attn=zero).train("training" in how)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                with torch.set_grad_enabled("inference" not in how):
                    output, _ = module(*inputs, need_weights="without" not in how, **options)
            except Exception as error:
                return type(error).__name__
        if output.is_nested:
            return "it runs"
        same = (x for x, y in REFERENCES.items() if output.allclose(y, equal_nan=True))
        return next(same, "something else") + ", with a warning" * bool(warned)

    return outcome


def hook(kind: Kind, how: str) -> str:
    module, calls = make(kind), []
    module.out_proj.register_forward_hook(lambda *_: calls.append(1))
    module(*CROSS)
    return "called" if calls else "not called"


def adapter(kind: Kind, how: str) -> str:
    """Put another computation in place of the projection's, as adapters do."""
    module = make(kind)
    module.out_proj.forward = torch.zeros_like
    return "not called" if module(*CROSS)[0].any() else "called"


def row_of_65504(kind: Kind, how: str) -> str:
    """Compare with weights and without."""
    module, mask = make(kind).half(), torch.zeros(N, M).half()
    mask[1] = -65504
    tensors = [x.half() for x in CROSS]
    with_weights, without = (
        module(*tensors, attn_mask=mask, need_weights=x)[0] for x in (True, False)
    )
    return "same" if with_weights.allclose(without, atol=0.01) else "another"


@torch.no_grad()
def in_a_layer(kind: Kind, how: str) -> str:
    layer = nn.TransformerEncoderLayer(E, H, 30, batch_first=True).double().eval()
    layer.self_attn = module = make(kind).eval()
    calls, forward = [], module.forward
    module.forward = lambda *given, **options: calls.append(1) or forward(*given, **options)
    layer(QUERY)
    return f"{module._qkv_same_embed_dim}, {'called' if calls else 'not called'}"


def scripted(kind: Kind, how: str) -> str:
    try:
        torch.jit.script(make(kind))
    except Exception:  # of a kind that depends on what the compiler meets first
        return "refused"
    return "it runs"


EMPTY, CAUSAL = call(CROSS, attn_mask=ALL), call(SELF, is_causal=True)
TWO = call(CROSS, attn_mask=OTHER, is_causal=True)
SHAPE = call(CROSS, attn_mask=OTHER[:, :2], is_causal=True)
APPENDED = call(CROSS, attn_mask=FUTURE, zero=True, is_causal=True)
MIXED, CAST = call((*CROSS, PADDING), attn_mask=OTHER), call(CROSS, attn_mask=HALVES)
NESTED = call((RAGGED, RAGGED, RAGGED))

# The row of the page, how the call is made, the call, and what PyTorch's class and ours do.
CASES = [
    ("a fully masked row", "training", EMPTY, "NaN", "zeros"),
    ("a fully masked row", "training, without weights", EMPTY, "zeros", "zeros"),
    (
        "a fully masked row",
        "inference, without weights",
        call(SELF, attn_mask=ALL_SQUARE),
        "NaN",
        "zeros",
    ),
    ("`is_causal` without a mask", "training", CAUSAL, "RuntimeError", "causal, self"),
    ("`is_causal` without a mask", "inference", CAUSAL, "no mask, self", "causal, self"),
    ("`is_causal` with another mask", "training", TWO, "attn_mask", "both"),
    ("`is_causal` with another mask", "training, without weights", TWO, "causal", "both"),
    ("`is_causal`, mask of bad shape", "training", SHAPE, "RuntimeError", "ValueError"),
    ("`is_causal`, mask of bad shape", "without weights", SHAPE, "causal", "ValueError"),
    ("`is_causal` with appended keys", "training", APPENDED, "appended seen", "appended seen"),
    (
        "`is_causal` with appended keys",
        "without weights",
        APPENDED,
        "appended hidden",
        "appended seen",
    ),
    ("masks of two kinds", "training", MIXED, "both kinds, with a warning", "both kinds"),
    ("masks of two kinds", "without weights", MIXED, "both kinds, with a warning", "both kinds"),
    ("a float mask of another dtype", "training", CAST, "RuntimeError", "the mask, cast"),
    ("a float mask of another dtype", "without weights", CAST, "RuntimeError", "the mask, cast"),
    ("−65504 over a row, in float16", "both", row_of_65504, "another", "same"),
    ("`out_proj`", "a hook", hook, "not called", "called"),
    ("`out_proj`", "an adapter", adapter, "not called", "called"),
    ("`_qkv_same_embed_dim`", "in inference", in_a_layer, "True, not called", "False, called"),
    ("nested tensors, TorchScript", "without weights", NESTED, "AssertionError", "TypeError"),
    ("nested tensors, TorchScript", "inference, without weights", NESTED, "it runs", "TypeError"),
    ("nested tensors, TorchScript", "scripted", scripted, "it runs", "refused"),
    ("a bad argument", "narrow", call((QUERY[..., 1:], KEY, KEY)), "AssertionError", "ValueError"),
    ("a bad argument", "float32", call((QUERY.float(), KEY, KEY)), "RuntimeError", "TypeError"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("where", "how", "run", "theirs", "ours"), CASES)
def test_each_row_of_the_page_is_so(where, how, run, theirs, ours):
    assert [run(kind, how) for kind in KINDS] == [theirs, ours]


def test_the_page_lists_these_rows_and_no_others():
    assert listed("The class") == [*dict.fromkeys(where for where, *_ in CASES)]


def listed(heading: str) -> list[str]:
    """Give what the rows of the table under a heading are about."""
    text = (PAGES / "in-place.md").read_text(encoding="utf-8").split(f"## {heading}\n")[1]
    table = text.split("|---|\n")[1].split("\n\n")[0]
    return re.findall(r"^\| (.*?) \|", table, re.MULTILINE)


def test_a_packed_matrix_starts_with_smaller_values():
    """As the page says: by the root of two, where keys are as wide as queries, or nearly."""
    for kind in KINDS:
        packed = kind(512, 8).in_proj_weight.std()
        apart = kind(512, 8, vdim=500).q_proj_weight.std()
        torch.testing.assert_close(apart / packed, torch.tensor(2.0).sqrt(), rtol=0.01, atol=0)


def test_the_page_names_every_case_that_misses_the_goal():
    text = (PAGES / "line-by-line.md").read_text(encoding="utf-8")
    named = re.findall(r"^- (n = .*)$", text, re.MULTILINE)
    rows = measured.find("final class")
    assert named == [measured.describe(row) for row in rows if measured.misses_goal(row)]

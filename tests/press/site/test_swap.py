"""The page *Before you swap*: its code runs, and its tables are what the classes do."""

import itertools
import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from annotated_attention import MultiheadAttention, masks
from annotated_book import chapters
from press.run import scripts

TEXT = (scripts.ROOT / "docs/package/before-you-swap.md").read_text(encoding="utf-8")
COUNT, FIT, LINES, TAKE = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
PLAIN = chapters.load("short_path").PlainAttention
FUTURE = torch.ones(5, 5, dtype=torch.bool).triu(1)
PADDING = torch.arange(5) >= torch.tensor([[5], [3], [0]])
PAIRS = {"no mask": (), "future": (FUTURE,), "padding": (None, PADDING), "both": (FUTURE, PADDING)}
KINDS = (nn.MultiheadAttention, MultiheadAttention)


def table(corner: str) -> list[list[str]]:
    """Give the cells under a table's heading, without the names of its rows."""
    (rows,) = re.findall(rf"^\| {re.escape(corner)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.M)
    return [[cell.strip() for cell in row.strip("|").split("|")[1:]] for row in rows.splitlines()]


def space() -> dict:
    """Run the page, with *yours* as the short path has it."""
    exec("\n".join((COUNT, FIT, LINES)), found := {"PlainAttention": PLAIN})
    return found


def noting(kind: type[nn.Module], ran: list) -> type[nn.Module]:
    class Noting(kind):
        def forward(self, *given, **options):
            ran.append(kind)
            return super().forward(*given, **options)

    return Noting


def runs(attention: nn.Module, ran: list, *pair: Tensor) -> list[int]:
    """Count as the page does, with masks."""
    layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
    layer.self_attn = attention
    encoder, counts = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), []
    for training, graded in ((True, True), (False, True), (False, False)):
        ran.clear()
        with torch.set_grad_enabled(graded):
            encoder.train(training)(torch.randn(3, 5, 24).double(), *pair)
        counts.append(len(ran))
    return counts


def test_how_often_a_forward_runs(capsys):
    exec(COUNT, {})
    printed = [*map(int, capsys.readouterr().out.split())]
    ran: list[type] = []
    inherited, of_package = (noting(kind, ran)(24, 4, batch_first=True).double() for kind in KINDS)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True).double()
    yours = space()["fit"](theirs, noting(PLAIN, ran))
    yours.in_proj_bias, yours._qkv_same_embed_dim = None, False
    for pair in PAIRS.values():
        found = [runs(each, ran, *pair) for each in (inherited, yours, of_package)]
        assert [[*map(str, row)] for row in zip(*found, strict=True)] == table("runs, of 2")
        assert found[0] == printed
    odd = noting(nn.MultiheadAttention, ran)(24, 3, batch_first=True).double()
    assert runs(odd, ran) == [2, 2, 2], "the fast path wants an even number of heads"


def asked(layer: nn.Module, texts: Tensor) -> list[Tensor]:
    """Give the output under each pair of masks, and a gradient of it."""
    outputs = [layer(texts, *pair) for pair in PAIRS.values()]
    factors = torch.linspace(-1, 1, outputs[0].numel()).double().view(outputs[0].shape)
    slopes = [torch.autograd.grad((y * factors).sum(), texts)[0] for y in outputs]
    return [*outputs, *slopes]


def test_yours_computes_what_pytorchs_layer_computes():
    torch.manual_seed(0)
    page = space()
    texts = torch.randn(3, 5, 24, dtype=torch.float64, requires_grad=True)
    layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    before, before_in_stack = asked(layer, texts), asked(stack, texts)
    layer.self_attn = page["fit"](layer.self_attn, PLAIN)
    torch.testing.assert_close(asked(layer, texts), before)
    with pytest.raises(AttributeError) as stopped:
        layer.eval()(texts)
    assert f"`{stopped.value}`" in " ".join(TEXT.split())
    exec(LINES, {"layer": layer})
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for training in (True, False):
        torch.testing.assert_close(asked(encoder.train(training), texts), before_in_stack)
        torch.testing.assert_close(asked(layer.train(training), texts), before)
    with torch.no_grad():
        found = [layer(texts, *pair) for pair in PAIRS.values()]
    torch.testing.assert_close(found, before[: len(found)])
    refuses(page["fit"], layer, texts[:1])


def refuses(fit, layer: nn.Module, alone: Tensor) -> None:
    """Say that what yours cannot do is refused."""
    number = (FUTURE * 1.0).masked_fill(FUTURE, -math.inf).double()
    for unread in (
        {"key_padding_mask": PADDING[1:2]},  # Booleans: the layer makes numbers of them
        {"attn_mask": FUTURE * -1e9},
        {"is_causal": True},
        {"need_weights": True},
        {"average_attn_weights": True},
        {"attn_mask": number.repeat(4, 1, 1)},
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            layer.self_attn(alone, alone, alone, **unread)
    settings = {"dropout": 0.1, "add_bias_kv": True, "add_zero_attn": True, "kdim": 7}
    for name, value in {**settings, "batch_first": False, "bias": False}.items():
        with pytest.raises(ValueError, match="no dropout"):
            fit(nn.MultiheadAttention(24, 4, **{"batch_first": True, name: value}), PLAIN)


def test_cross_attention_and_parameters_agree():
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
    ours = space()["fit"](theirs, PLAIN)
    query = torch.randn(3, 5, 24, dtype=torch.float64, requires_grad=True)
    key, value = torch.randn(2, 3, 7, 24, dtype=torch.float64).requires_grad_()
    blocked = torch.rand(5, 7) < 0.4, masks.block_padding(torch.tensor([7, 4, 0]), 7)
    added, ends = (torch.zeros(x.shape).double().masked_fill(x, -math.inf) for x in blocked)
    given = {"attn_mask": added, "key_padding_mask": ends, "need_weights": False}
    mine, other = (each(query, key, value, **given)[0] for each in (ours, theirs))
    torch.testing.assert_close(mine, other)
    inputs = [query, key, value, theirs.out_proj.weight]
    linears = ours.w_q, ours.w_k, ours.w_v
    rows = [getattr(linear, kind) for kind in ("weight", "bias") for linear in linears]
    packed = [theirs.in_proj_weight, theirs.in_proj_bias]
    *of_theirs, weight, bias = torch.autograd.grad(other.square().sum(), inputs + packed)
    found = torch.autograd.grad(mine.square().sum(), inputs + rows)
    torch.testing.assert_close([*found[:4]], of_theirs)
    torch.testing.assert_close([torch.cat(found[4:7]), torch.cat(found[7:])], [weight, bias])


def test_the_packages_class_and_yours_agree():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
    texts = torch.randn(3, 5, 24, dtype=torch.float64)
    expected, checkpoint = layer(texts), layer.state_dict()
    for first in (True, False):  # a checkpoint loads into both
        layer.self_attn = MultiheadAttention(24, 4, batch_first=first, dtype=torch.float64)
        layer.load_state_dict(checkpoint)
        assert torch.allclose(layer(texts), expected) == first
    small = PLAIN(24, 4).double()
    linears = small.w_q, small.w_k, small.w_v
    packed = {f"out_proj.{name}": x for name, x in small.w_o.named_parameters()}
    for name in ("weight", "bias"):
        packed[f"in_proj_{name}"] = torch.cat([getattr(linear, name) for linear in linears])
    query = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)
    key, value = torch.randn(2, 2, 5, 24, dtype=torch.float64, requires_grad=True)
    final = MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
    ends = masks.block_padding(torch.tensor([5, 3]), 5)
    how = {"average_attn_weights": False}
    of_final = functional_call(final, packed, (query, key, value, ends), how)
    of_small = small(query, key, value, ends[:, None])
    torch.testing.assert_close(of_final, of_small)
    inputs = [query, key, value, *small.parameters()]
    slopes = [torch.autograd.grad(y.square().sum(), inputs) for y, _ in (of_final, of_small)]
    torch.testing.assert_close(*slopes)


def leaks(fast: bool, need_weights: bool, **given: object) -> str:
    """Say whether the first word's output reacts to the last word, in all modes of a kind."""
    said = set()
    for training, graded in (
        [(False, False)] if fast else itertools.product((True, False), repeat=2)
    ):
        if not fast and not (training or graded):
            continue
        theirs = nn.MultiheadAttention(24, 4, batch_first=True).train(training)
        y = torch.randn(2, 4, 24)
        other = torch.cat([y[:, :3], torch.randn(2, 1, 24)], 1)
        with torch.set_grad_enabled(graded):
            try:
                first, second = (
                    theirs(z, z, z, need_weights=need_weights, **given)[0][:, 0] for z in (y, other)
                )
            except RuntimeError:
                said.add("error")
            else:
                said.add("no" if torch.allclose(first, second) else "yes")
    (answer,) = said
    return answer


def test_what_the_flag_hides():
    torch.manual_seed(0)
    future, free = masks.block_future(4), torch.zeros(4, 4).bool()
    flag = {"is_causal": True}
    calls = [
        {"attn_mask": future},
        flag,
        flag | {"attn_mask": free},
        flag | {"attn_mask": free, "key_padding_mask": torch.zeros(2, 4).bool()},
    ]
    ways = (False, True), (False, False), (True, False)
    assert [[leaks(*way, **call) for way in ways] for call in calls] == table(
        "does the future leak?"
    )
    assert [leaks(True, True, **call) for call in calls] == [leaks(True, False, **c) for c in calls]
    y = torch.randn(2, 4, 24)
    final = MultiheadAttention(24, 4, batch_first=True)
    alone, masked = (final(y, y, y, **how)[0] for how in (flag, {"attn_mask": future}))
    torch.testing.assert_close(alone, masked)
    bare = F.scaled_dot_product_attention(y, y, y, attn_mask=~future)
    torch.testing.assert_close(bare, F.scaled_dot_product_attention(y, y, y, is_causal=True))


def test_a_bare_causal_mask_is_read_by_head_where_n_is_h_and_stops_elsewhere():
    small, key = PLAIN(24, 4), torch.randn(2, 4, 24)
    future = masks.block_future(4)
    weights = small(key, key, key, future)[1]
    for head in range(4):
        assert weights[:, head].eq(0).equal(future[head].expand(2, 4, 4))
    for n in range(1, 7):
        call = torch.ones(2, n, 24), key, key, torch.zeros(n, 4).bool()
        if n in (1, 4):
            small(*call)
        else:
            with pytest.raises(RuntimeError):
                small(*call)


def test_a_row_that_is_blocked_throughout():
    x = torch.randn(3, 5, 24)
    blocked = torch.zeros(5, 5).bool()
    blocked[2] = True
    for kind, training, graded, need_weights in itertools.product(KINDS, *[(True, False)] * 3):
        module = kind(24, 4, batch_first=True).train(training)
        with torch.set_grad_enabled(graded):
            row = module(x, x, x, attn_mask=blocked, need_weights=need_weights)[0][:, 2]
        inference = not (training or graded)
        nan = kind is nn.MultiheadAttention and (need_weights or inference)
        assert row.isnan().all() if nan else row.isfinite().all()
    assert PLAIN(24, 4)(x, x, x, blocked[None])[1][:, :, 2].eq(0).all()


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"batch_first": True},
        {"add_zero_attn": True},
        {"dropout": 0.5},
        {"dtype": torch.float64},
        {"bias": False},
        {"add_bias_kv": True},
        {"kdim": 7, "vdim": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("training", [True, False])
def test_settings_are_taken_over(setting, training):
    exec(TAKE, found := {})
    theirs = nn.MultiheadAttention(24, 4, **setting).train(training)
    ours = found["take_over"](theirs)
    assert type(ours) is MultiheadAttention
    for name in ("embed_dim", "num_heads", "batch_first", "add_zero_attn", "dropout", "training"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, x in theirs.state_dict().items():
        taken = ours.state_dict()[name]
        assert x.equal(taken), name
        assert x.dtype == taken.dtype, name

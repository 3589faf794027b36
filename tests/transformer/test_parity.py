"""Against PyTorch's: outputs and gradients, with the same weights, in training and evaluation."""

import itertools
import warnings

import pytest
import torch
from torch import nn

import annotated_attention as ours
from annotated_attention import block_future, block_padding

B, N, M, H, D = 2, 3, 5, 4, 6  # all different: a swapped axis cannot hide
E, WIDE = H * D, 7
LAYOUTS = ["sequence first", "batch first", "no batch"]
MASKS = ["none", "boolean", "per head", "float", "padding", "causal", "all"]
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "a function": torch.tanh}
NAMES = ["TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"]


def pair(name, *, layout="batch first", dropout=0.0, **settings):
    """Build PyTorch's module and ours, with the same weights, which were loaded both ways."""
    settings = {"dim_feedforward": WIDE, "dtype": torch.float64, **settings}
    settings |= {"dropout": dropout, "batch_first": layout == "batch first"}
    if name == "Transformer":
        settings |= {"num_encoder_layers": 2, "num_decoder_layers": 1}
    torch.manual_seed(0)
    with warnings.catch_warnings(action="ignore"):  # PyTorch says which fast path it cannot take
        theirs = getattr(nn, name)(E, H, **settings)
    mine = getattr(ours, name)(E, H, **settings)
    with torch.no_grad():
        for parameter in mine.parameters():
            parameter.normal_(std=0.4)  # biases and norms, too, must be seen to matter
    assert theirs.load_state_dict(mine.state_dict()) is not None
    mine.load_state_dict(theirs.state_dict())
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in mine.named_parameters()] == names  # optimisers go by the order
    return theirs, mine


def sequences(layout, *lengths):
    torch.manual_seed(1)
    shape = {"sequence first": (-1, B, E), "batch first": (B, -1, E), "no batch": (-1, E)}[layout]
    return [
        torch.randn([n if size == -1 else size for size in shape], dtype=torch.float64)
        .requires_grad_()
        for n in lengths
    ]  # fmt: skip


def attention_mask(kind, layout, n, m):
    """Make a mask over n queries and m keys that leaves key 0 to every query."""
    if kind == "causal":
        return block_future(n, m)
    heads = ((H,) if layout == "no batch" else (B * H,)) if kind == "per head" else ()
    blocked = torch.rand(*heads, n, m) < 0.4
    blocked[..., 0] = False
    if kind in ("float", "all"):
        return torch.randn(n, m, dtype=torch.float64).masked_fill(blocked, -torch.inf)
    return blocked


def padding_mask(kind, layout, m):
    lengths = torch.tensor([2, m])
    blocked = block_padding(lengths[:1] if layout == "no batch" else lengths, m)
    blocked = blocked[0] if layout == "no batch" else blocked
    if kind == "all":  # with a float mask, PyTorch warns of one of another kind
        return torch.zeros(blocked.shape, dtype=torch.float64).masked_fill(blocked, -torch.inf)
    return blocked


def masks(name, kind, layout):
    """Make the keyword arguments of one call: each attention gets masks of its own."""
    torch.manual_seed(2)
    sizes = {"src": (M, M), "tgt": (N, N), "memory": (N, M)}
    parts = {NAMES[0]: ["src"], NAMES[1]: ["tgt", "memory"], NAMES[2]: list(sizes)}[name]
    given = {}
    for part in parts:
        if kind not in ("none", "padding"):
            given[f"{part}_mask"] = attention_mask(kind, layout, *sizes[part])
        if kind in ("padding", "all"):
            given[f"{part}_key_padding_mask"] = padding_mask(kind, layout, sizes[part][1])
    return given


def compare(name, theirs, mine, layout, given, seed=None):
    """Assert that outputs and all gradients are equal."""
    inputs = sequences(layout, *{NAMES[0]: [M], NAMES[1]: [N, M], NAMES[2]: [M, N]}[name])
    found = []
    for module in (theirs, mine):
        torch.manual_seed(seed or 0)
        output = module(*inputs, **given)
        wanted = [*inputs, *module.parameters()]
        found.append((output, *torch.autograd.grad(output.sin().sum(), wanted)))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


EVERY = [  # each mask in each layout and norm; the rest goes round
    (*case, activation, bias, training)
    for case, activation, bias, training in zip(
        itertools.product(NAMES, LAYOUTS, [False, True], MASKS),
        itertools.cycle(ACTIVATIONS),
        itertools.cycle([True, False, True, True, False]),
        itertools.cycle([True, False, True, False, False, True, True, False, True, False, False]),
        strict=False,
    )
]


@pytest.mark.parametrize(
    ("name", "layout", "norm_first", "kind", "activation", "bias", "training"), EVERY
)
def test_same_as_pytorch(name, layout, norm_first, kind, activation, bias, training):
    theirs, mine = pair(
        name, layout=layout, norm_first=norm_first, bias=bias, activation=ACTIVATIONS[activation]
    )
    given = masks(name, kind, layout)
    compare(name, theirs.train(training), mine.train(training), layout, given)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("name", [*NAMES, "TransformerEncoder", "TransformerDecoder"])
def test_starts_as_pytorchs_from_the_same_seed(name, norm_first, bias):
    found = []
    for module in (nn, ours):
        torch.manual_seed(0)
        settings = {"dim_feedforward": WIDE, "norm_first": norm_first, "bias": bias}
        with warnings.catch_warnings(action="ignore"):  # PyTorch says which path it cannot take
            if name.endswith("coder"):
                layer = getattr(module, f"{name}Layer")(E, H, **settings)
                made = getattr(module, name)(layer, 2, nn.LayerNorm(E, bias=bias))
            else:
                made = getattr(module, name)(E, H, **settings)
        found.append((made.state_dict(), torch.rand(())))  # as many numbers drawn, too
    (expected, after), (mine, mine_after) = found
    assert list(mine) == list(expected)
    for key in expected:
        assert mine[key].equal(expected[key]), key
    assert mine_after == after


def test_the_sweep_meets_every_pair_of_settings():
    for first, second in itertools.combinations(range(len(EVERY[0])), 2):
        met = {(case[first], case[second]) for case in EVERY}
        assert len(met) == len({a for a, _ in met}) * len({b for _, b in met})


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_same_with_dropout_from_the_same_seed(name, norm_first):
    # Sequence first: batch first, PyTorch's numbers lie in another order, and so do the zeros.
    layout = "sequence first"
    theirs, mine = pair(name, layout=layout, dropout=0.4, norm_first=norm_first)
    compare(name, theirs, mine, layout, masks(name, "boolean", layout), seed=3)
    inputs = sequences(layout, *([N] if name == NAMES[0] else [N, M]))
    assert not torch.equal(mine(*inputs), mine(*inputs))  # it was on
    assert torch.equal(mine.eval()(*inputs), mine(*inputs))


def test_is_causal_hides_the_future_in_each_attention():
    _, mine = pair("Transformer")
    src, tgt = sequences("batch first", M, N)
    found = mine(src, tgt, src_is_causal=True, tgt_is_causal=True, memory_is_causal=True)
    masked = mine(src, tgt, block_future(M), block_future(N), block_future(N, M))
    torch.testing.assert_close(found, masked)
    for name in ("src", "tgt", "memory"):  # each does something
        assert not torch.allclose(mine(src, tgt, **{f"{name}_is_causal": True}), mine(src, tgt))


def test_is_causal_comes_on_top_of_another_mask():
    _, mine = pair("TransformerEncoderLayer")
    (src,) = sequences("batch first", M)
    blocked = attention_mask("boolean", "batch first", M, M)
    found = mine(src, blocked, is_causal=True)
    torch.testing.assert_close(found, mine(src, blocked | block_future(M)))


@pytest.mark.parametrize("norm", [False, True])
def test_stacks_are_the_same_as_pytorchs(norm):
    norms = [nn.LayerNorm(E, dtype=torch.float64) if norm else None for _ in range(2)]
    tgt, memory = sequences("batch first", N, M)
    for kind, inputs in (("Encoder", (memory,)), ("Decoder", (tgt, memory))):
        layer = pair(f"Transformer{kind}Layer", norm_first=True)
        with warnings.catch_warnings(action="ignore"):
            theirs = getattr(nn, f"Transformer{kind}")(layer[0], 2, norms[0])
        mine = getattr(ours, f"Transformer{kind}")(layer[1], 2, norms[1])
        theirs.load_state_dict(mine.state_dict())
        name = "mask" if kind == "Encoder" else "tgt_mask"
        length = M if kind == "Encoder" else N
        given = {name: block_future(length), name.replace("mask", "is_causal"): True}
        torch.testing.assert_close(mine(*inputs, **given), theirs(*inputs, **given))


def test_same_as_the_fast_path_but_for_padded_rows():
    theirs, mine = pair("Transformer")
    src, _ = sequences("batch first", M, N)
    padding = block_padding(torch.tensor([2, M]), M)
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):  # nested tensors
        stacks = (theirs.eval().encoder, mine.eval().encoder)
        expected, got = (stack(src, src_key_padding_mask=padding) for stack in stacks)
    torch.testing.assert_close(got[~padding], expected[~padding])
    assert not got[padding].eq(0).any()


def test_generates_the_mask_that_pytorch_does():
    expected = nn.Transformer.generate_square_subsequent_mask(N, dtype=torch.float64)
    found = ours.Transformer.generate_square_subsequent_mask(N, dtype=torch.float64)
    torch.testing.assert_close(found, expected)

"""What counts distances wrongly is wrong where the book says, with the right version's weights."""

import pytest
import torch

from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import (
    AlibiBias,
    BucketedBias,
    KVCache,
    RotaryEmbedding,
    StaticCache,
    alibi_slopes,
)

B, N, H, D, C, R, LONGEST = 2, 12, 4, 6, 8, 2, 15
E = H * D
EXACT = {"batch_first": True, "dtype": torch.float64}


def scaled(kind):
    """Make a rotation that was trained on 8 tokens."""
    return RotaryEmbedding(D, scaling={"rope_type": kind, "factor": 2.0}, max_length=8)


def buckets(bidirectional):
    return BucketedBias(H, 8, 20, bidirectional, dtype=torch.float64)


# By mistake and way of making it: the arguments, those of a step, and the first results, when the
# tokens come one by one, that differ from the whole up to there; N if none does.
WAYS = {
    ("cached-keys-not-rescaled", "dynamic"): (lambda: {"rotary": scaled("dynamic")}, {}, 8),
    ("cached-keys-not-rescaled", "linear"): (lambda: {"rotary": scaled("linear")}, {}, N),
    ("distances-restart", "ALiBi"): (lambda: {"position_bias": AlibiBias(H)}, {}, 1),
    ("distances-restart", "past"): (lambda: {"position_bias": buckets(False)}, {}, 1),
    ("distances-restart", "both sides"): (lambda: {"position_bias": buckets(True)}, {}, 1),
    ("rotation-absorbed", "plain"): (lambda: {"latent_dim": C, "rotary_dim": R}, {}, N),
    ("rotation-absorbed", "absorbed"): (
        lambda: {"latent_dim": C, "rotary_dim": R}, {"absorb": True}, 1
    ),
    ("latent-positions-missing", "plain"): (lambda: {"latent_dim": C, "rotary_dim": R}, {}, N),
    ("latent-positions-missing", "absorbed"): (
        lambda: {"latent_dim": C, "rotary_dim": R}, {"absorb": True}, 1
    ),
}  # fmt: skip
CASES = pytest.mark.parametrize(("code", "way"), WAYS)


def made(version, code, way):
    torch.manual_seed(0)
    module = version(E, H, **WAYS[code, way][0](), **EXACT)
    for x in module.parameters():  # a table of buckets starts with zeros
        torch.nn.init.normal_(x, std=0.4)
    return module


def off(module, options, cache, sizes):
    """Say by how much each token in chunks differs from the whole up to the chunk's end."""
    torch.manual_seed(1)
    x, end, found = torch.randn(B, N, E, dtype=torch.float64), 0, []
    with torch.no_grad():
        for part in x.split(sizes, 1):
            end += part.size(1)
            whole = module(x[:, :end])[0][:, -part.size(1) :]
            found += (module(part, cache, **options)[0] - whole).abs().amax((0, 2)).tolist()
    return torch.tensor(found)


@CASES
@pytest.mark.parametrize("static", [False, True], ids=["grows", "static"])
@pytest.mark.parametrize("sizes", [[1] * N, [5, 4, 3], [N]], ids=["one by one", "chunks", "once"])
def test_differs_where_it_should_and_only_there(code, way, static, sizes):
    entry, (_, options, first) = MISTAKES[code], WAYS[code, way]
    widths = (1, C, R) if "latent_dim" in WAYS[code, way][0]() else (H, D, D)
    for version in (entry.of, entry.version):
        cache = KVCache()
        if static:
            cache = StaticCache(B, widths[0], LONGEST, *widths[1:], dtype=torch.float64)
        found = off(made(version, code, way), options, cache, sizes) > 1e-9
        right = version is entry.of or (sizes == [N] and not options)
        if sizes == [1] * N:
            assert found.tolist() == [not right and i >= first for i in range(N)]
        else:
            assert found.any() == (not right and first < N)
            assert not found[0]  # before it nothing is kept; a single key hides any score


@CASES
def test_parameters_and_the_whole_text_are_those_of_the_right_version(code, way):
    right, wrong = (made(x, code, way) for x in (MISTAKES[code].of, MISTAKES[code].version))
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(B, N, E, dtype=torch.float64)
    torch.testing.assert_close(wrong(x), right(x))


@pytest.mark.parametrize(("heads", "differs"), [(1, 0), (2, 0), (4, 0), (6, 1), (12, 1), (24, 1)])
def test_slopes_differ_where_the_heads_are_no_power_of_two(heads, differs):
    entry = MISTAKES["alibi-slopes-by-formula"]
    torch.manual_seed(0)
    right, wrong = (x(E, heads, AlibiBias(heads), **EXACT) for x in (entry.of, entry.version))
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(B, N, E, dtype=torch.float64)
    for options in ({}, {"is_causal": True}, {"need_weights": False}):
        found, expected = (module(x, x, x, **options)[0] for module in (wrong, right))
        assert torch.allclose(found, expected, rtol=0, atol=1e-9) != differs


def test_the_slopes_of_the_formula_are_the_papers():
    """With six heads: 2^(-8/6), 2^(-16/6), ..., 2^-8."""
    bias = MISTAKES["alibi-slopes-by-formula"].version(E, 6, AlibiBias(6)).position_bias
    found = bias(torch.arange(2), torch.arange(2))[:, 1, 0]
    torch.testing.assert_close(-found, torch.tensor([2 ** (-8 * i / 6) for i in range(1, 7)]))
    assert (found + alibi_slopes(6)).abs().max() > 0.4

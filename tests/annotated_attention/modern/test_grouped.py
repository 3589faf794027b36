"""Grouped heads equal the final class with repeated rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_attention import MultiheadAttention
from annotated_attention.modern import GroupedQueryAttention, group_heads
from tests.settings import REPRODUCIBLE, B, Setting, assert_same, random_settings, results

N, M, H, D = 3, 5, 4, 6
E = H * D
SETTINGS = random_settings(
    inputs=["distinct", "self", "key is value"],
    add_bias_kv=[False],
    add_zero_attn=[False],
    dropout=[0.0],
    dtype=[torch.float64],
)


def made(kind=GroupedQueryAttention, *heads, **options):
    torch.random.default_generator.manual_seed(0)
    module = kind(E, H, *heads, **{"dtype": torch.float64, "batch_first": True} | options)
    with torch.no_grad():
        for x in module.parameters():
            x.normal_(0, 0.3)
    return module


def widened(module):
    """Write the same computation as the final class, with its rows of W_K and W_V repeated."""
    g, state = module.num_kv_heads, dict(module.state_dict())
    for name in state.keys() & {"in_proj_weight", "in_proj_bias"}:
        heads = state[name][E:].unflatten(0, (2, g, D))  # keys and values
        wide = heads[:, [i // (H // g) for i in range(H)]].flatten(0, 2)
        state[name] = torch.cat([state[name][:E], wide])
    whole = made(MultiheadAttention, bias="in_proj_bias" in state, batch_first=module.batch_first)
    whole.load_state_dict(state)
    return whole


@settings(REPRODUCIBLE, max_examples=80)
@given(SETTINGS, st.sampled_from([1, 2, H]))
def test_is_the_final_class_with_repeated_rows(setting: Setting, g: int):
    ours = made(GroupedQueryAttention, g, **setting.options())
    whole, query = widened(ours), setting.sequence(N)
    others = setting.inputs == "key is value"
    key = query if setting.inputs == "self" else setting.sequence(M, salt=1)
    value = key if others or setting.inputs == "self" else setting.sequence(M, salt=2)
    m = N if setting.inputs == "self" else M
    call = {"attn_mask": setting.attention_mask(N, m), "key_padding_mask": setting.padding_mask(m)}
    call |= {x: getattr(setting, x) for x in ("need_weights", "average_attn_weights", "is_causal")}
    found, expected = (
        module.train(setting.mode == "training")(query, key, value, **call)
        for module in (ours, whole)
    )
    given_tensors = {"query": query, "key": key, "value": value}
    sources = [
        given_tensors | {"W_O": x.out_proj.weight} if setting.mode != "inference" else {}
        for x in (ours, whole)
    ]
    assert_same(results(found, sources[0]), results(expected, sources[1]))


class Sharper(GroupedQueryAttention):
    """Scores that are doubled, in a method of its own; notes the keys that it is given."""

    def score(self, q, k):
        assert q.size(1) == k.size(1) == H
        return super().score(q, k) * 2

    def attend(self, q, k, v, **options):
        assert (q.size(1), k.size(1), v.size(1)) == (H, 2, 2)
        return super().attend(q, k, v, **options)


@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])
def test_steps_of_ones_own_are_kept(need_weights):
    module, x = made(Sharper, 2), torch.randn(B, N, E, dtype=torch.float64)
    whole = widened(module)
    with torch.no_grad():
        whole.in_proj_weight[:E] *= 2
        whole.in_proj_bias[:E] *= 2
    found = module(x, x, x, need_weights=need_weights)[0]
    torch.testing.assert_close(found, whole(x, x, x)[0])


@pytest.mark.parametrize("bias", [True, False])
def test_grouping_averages_the_heads_of_a_group(bias):
    whole = made(MultiheadAttention, bias=bias, dropout=0.25).eval()
    grouped = group_heads(whole, 2)
    assert (grouped.training, grouped.dropout, grouped.batch_first) == (False, 0.25, True)
    _, k, v = whole.in_proj_weight.unflatten(0, (3, 2, H // 2, D)).unbind()
    expected = torch.cat(
        [whole.in_proj_weight[:E], k.mean(1).flatten(0, 1), v.mean(1).flatten(0, 1)]
    )
    torch.testing.assert_close(grouped.in_proj_weight, torch.nn.Parameter(expected))
    again, at_once = group_heads(grouped, 1), group_heads(whole, 1)
    torch.testing.assert_close(dict(again.state_dict()), dict(at_once.state_dict()))
    found_again = group_heads(widened(grouped), 2)
    torch.testing.assert_close(dict(found_again.state_dict()), dict(grouped.state_dict()))

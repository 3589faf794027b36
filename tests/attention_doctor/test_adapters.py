"""Each adapter turns one convention into the doctor's, and says which masks are left."""

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention
from attention_doctor import adapters, examine
from attention_doctor.adapted import module_of

E, H = 12, 3


def right():
    torch.manual_seed(0)
    return MultiheadAttention(E, H, batch_first=True)


class Masked(nn.Module):
    """Attention whose mask goes through ``to_blocked`` first; so the convention is a setting."""

    def __init__(self, to_blocked, sequence_first=False):
        super().__init__()
        self.inner, self.to_blocked = right(), to_blocked
        self.inner.batch_first = not sequence_first

    def forward(self, query, key, value, mask=None):
        if mask is None:
            return self.inner(query, key, value)[0]
        return self.inner(query, key, value, attn_mask=self.to_blocked(mask))[0]


def for_each(blocked):
    return blocked.repeat_interleave(H, 0)


CASES = {
    "blocked": (Masked(for_each), lambda x: x),
    "allowed": (Masked(lambda mask: for_each(~mask)), adapters.allowed),
    "additive": (Masked(for_each), adapters.additive),
    "for each head": (Masked(lambda mask: for_each(mask[:, 0])), adapters.for_each_head),
    "folded": (Masked(lambda mask: mask), lambda x: adapters.folded(x, H)),
    "sequence first": (Masked(for_each, sequence_first=True), adapters.sequence_first),
    "two at once": (
        Masked(lambda mask: for_each(mask[:, 0] == 0), sequence_first=True),
        lambda x: adapters.sequence_first(adapters.for_each_head(adapters.allowed(x))),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_adapted_it_is_right(case):
    module, adapt = case
    found = examine(adapt(module), embed_dim=E, num_heads=H)
    assert found.ok, str(found)
    assert found.name == "Masked"
    assert found.results["blocked"] == "fine"
    assert found.results["registration"] == "fine"


@pytest.mark.parametrize("name", ["allowed", "sequence first", "for each head"])
def test_not_adapted_it_is_not(name):
    assert not examine(CASES[name][0], embed_dim=E, num_heads=H).ok


def test_masks_that_it_does_not_take_are_not_asked_for():
    def shared(query, key, value, blocked):
        assert blocked is None or blocked.dim() == 2
        return module(query, key, value, attn_mask=blocked)[0]

    def padding(query, key, value, blocked):
        return module(query, key, value, key_padding_mask=blocked)[0]

    module = right()
    by_query = examine(adapters.for_all_samples(shared), embed_dim=E, num_heads=H)
    assert by_query.ok
    assert "padding: it takes no mask that blocks padding" in by_query.not_examined
    by_sample = examine(adapters.for_all_queries(padding), embed_dim=E, num_heads=H)
    assert by_sample.ok
    assert "prefix: it takes no mask that blocks the future" in by_sample.not_examined
    none = adapters.without_mask(lambda query, key, value: module(query, key, value)[0])
    without = examine(none, embed_dim=E, num_heads=H)
    assert without.ok
    assert "meaning, blocked, padding, fully masked rows: it takes no mask" in without.not_examined


def test_keywords_and_a_mask_that_must_be_given():
    module = right()

    def keyword_only(*, q, k, v, mask):
        return module(q, k, v, attn_mask=for_each(mask))

    adapted = adapters.keywords(adapters.Adapted(keyword_only, module), "q", "k", "v", "mask")
    assert not examine(adapted, embed_dim=E, num_heads=H).ok
    found = examine(adapters.always_masked(adapted), embed_dim=E, num_heads=H)
    assert found.ok, str(found)
    assert "right version" in found.agreement


def test_causal_blocks_the_future():
    found = examine(adapters.causal(CASES["blocked"][0]), embed_dim=E, num_heads=H, kind="causal")
    assert found.ok
    assert found.results["future"] == "fine"


@pytest.mark.parametrize("kind", ["cross", "self", "causal"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_like(kind, batch_first):
    module = right()
    module.batch_first = batch_first
    found = examine(adapters.torch_like(module, kind), embed_dim=E, num_heads=H, kind=kind)
    assert found.ok
    assert "right version" in found.agreement
    assert found.name == "MultiheadAttention"


class Silent(nn.Module):
    """PyTorch's arguments; it does not say which layout it takes, and gives no weights."""

    def __init__(self, batch_first):
        super().__init__()
        self.num_heads, self.inner = H, right()
        self.inner.batch_first = batch_first

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        return self.inner(query, key, value, key_padding_mask, attn_mask=attn_mask)[0]


@pytest.mark.parametrize("kind", ["cross", "self", "causal"])
def test_torch_like_can_be_told_the_layout(kind):
    def ok(module, **layout):
        adapted = adapters.torch_like(module, kind, **layout)
        return examine(adapted, embed_dim=E, num_heads=H, kind=kind).ok

    assert ok(Silent(batch_first=True))
    assert ok(Silent(batch_first=True), batch_first=True)
    assert ok(Silent(batch_first=False), batch_first=False)
    assert not ok(Silent(batch_first=True), batch_first=False)


def test_torch_like_uses_both_mask_arguments():
    seen = []

    class Watching(MultiheadAttention):
        def forward(self, *inputs, **options):
            seen.append(frozenset(options))
            return super().forward(*inputs, **options)

    examine(adapters.torch_like(Watching(E, H)), embed_dim=E, num_heads=H)
    assert set(seen) == {frozenset(), frozenset({"attn_mask"}), frozenset({"key_padding_mask"})}


def test_bound_methods_and_modules_are_found():
    module = right()
    assert module_of(module) is module
    assert module_of(module.forward) is module
    assert module_of(adapters.allowed(adapters.sequence_first(module))) is module
    assert module_of(len) is None

"""What attention must do: what does not is called no attention, or is told what it leaves out."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attention_doctor import adapters, examine

E, H = 12, 3


class Attention(nn.Module):
    """Attention in steps; a subclass does one of them in another way."""

    def __init__(self, causal=False):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(E, E) for _ in range(4))
        self.causal = causal

    def heads(self, query, key, value):
        split = lambda x: x.unflatten(-1, (H, -1)).transpose(1, 2)  # noqa: E731
        return split(self.q(query)), split(self.k(key)), split(self.v(value))

    def hidden(self, n, m):
        return torch.ones(n, m, dtype=torch.bool).triu(1) if self.causal else None

    def weigh(self, q, k):
        scores = q @ k.mT / math.sqrt(q.size(-1))
        hidden = self.hidden(*scores.shape[-2:])
        return (scores if hidden is None else scores.masked_fill(hidden, -math.inf)).softmax(-1)

    def mix(self, q, k, v):
        return self.o((self.weigh(q, k) @ v).transpose(1, 2).flatten(2))

    def forward(self, query, key=None, value=None):
        key, value = (query, query) if key is None else (key, value)
        return self.mix(*self.heads(query, key, value))


class Identity(Attention):
    def forward(self, query, key=None, value=None):
        return query


class PerToken(Attention):
    def forward(self, query, key=None, value=None):
        return self.o(self.q(query).relu())


class Mean(Attention):
    def weigh(self, q, k):
        return super().weigh(q * 0, k)


class ByPlace(Attention):
    """The weights are learned numbers, one for each pair of places."""

    def weigh(self, q, k):
        scores = torch.arange(q.size(-2))[:, None] * torch.arange(k.size(-2)).to(q)
        return super().weigh(q * 0, k) * scores.sin().exp()


class HeadsForTokens(Attention):
    """The heads stay behind the tokens."""

    def forward(self, query, key=None, value=None):
        q, k, v = (f(query).unflatten(-1, (H, -1)) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).flatten(2))


class KeysAlone(Attention):
    def weigh(self, q, k):
        return super().weigh(torch.ones_like(q), k)


class QueriesAveraged(Attention):
    def weigh(self, q, k):
        weights = super().weigh(q, k)
        return weights.mean(2, keepdim=True).expand_as(weights)


class SamplesAveraged(Attention):
    def weigh(self, q, k):
        weights = super().weigh(q, k)
        return weights.mean(0, keepdim=True).expand_as(weights)


class QueriesAlone(Attention):
    """The weights are made from each query, as many as there are keys."""

    def weigh(self, q, k):
        places = torch.arange(k.size(-2) * k.size(-1)).to(q).sin()
        return super().weigh(q, places.view(k.shape[-2:]).expand_as(k))


class KeysMixed(Attention):
    def mix(self, q, k, v):
        return super().mix(q, k, k)


class KeyForQuery(Attention):
    def mix(self, q, k, v):
        return super().mix(q, q, v)


class OneHeadsKeys(Attention):
    def mix(self, q, k, v):
        return super().mix(q, k[:, :1], v)


class HeadsAveraged(Attention):
    def weigh(self, q, k):
        weights = super().weigh(q, k)
        return weights.mean(1, keepdim=True).expand_as(weights)


class Inverted(Attention):
    def weigh(self, q, k):
        return super().weigh(q * q.size(-1), k)


class NoMaskInTraining(Attention):
    def hidden(self, n, m):
        return None if self.training else super().hidden(n, m)


class Blind(Attention):
    """Whatever is asked, one key is never seen."""

    def hidden(self, n, m):
        hidden = super().hidden(n, m)
        hidden = torch.zeros(n, m, dtype=torch.bool) if hidden is None else hidden
        return hidden | ((torch.arange(m) == 1) & (torch.arange(n) != 1)[:, None])


def report(version, kind, looked_into=True):
    module = version(kind == "causal")
    if kind == "memory":
        return examine(
            adapters.without_mask(lambda x, context: module(x, context, context)),
            embed_dim=E,
            num_heads=H,
            kind=kind,
            module=module if looked_into else None,
        )
    attend = module if kind == "causal" else adapters.without_mask(module)
    if not looked_into:
        inner = attend
        attend = (
            (lambda x: inner(x))
            if kind == "causal"
            else (adapters.without_mask(lambda *tokens: module(*tokens)))
        )
    return examine(attend, embed_dim=E, num_heads=H, kind=kind)


def wrong(found):
    return {finding.code for finding in found.findings if finding.severity == "wrong"}


@pytest.mark.parametrize("kind", ["cross", "memory", "self", "causal"])
def test_attention_does_it(kind):
    found = report(Attention, kind)
    assert wrong(found) == set()
    asked = ["attention", "training"] + ["visible"] * (kind != "causal")
    assert [found.results[test] for test in asked] == ["fine"] * len(asked)


NONE = [
    (version, kind, looked_into)
    for version in (Identity, PerToken, Mean, ByPlace, HeadsForTokens)
    for kind in ("self", "causal", "cross", "memory")
    for looked_into in (True, False)
    # Its weights, and what is seen inside, tell more: see `NAMED`.
    if not (version is HeadsForTokens and kind in ("self", "causal"))
]


@pytest.mark.parametrize(("version", "kind", "looked_into"), NONE)
def test_what_is_no_attention_is_called_so(version, kind, looked_into):
    found = report(version, kind, looked_into)
    assert "no-attention" in wrong(found)
    assert found.results["attention"] == "wrong"
    (finding,) = (x for x in found.findings if x.code == "no-attention")
    said = {Identity: "the output is the input", Mean: "depend neither on queries nor on keys"}
    assert said.get(version, "") in finding.symptom
    assert finding.evidence


IGNORED = {
    (KeysAlone, "cross"): "queries-ignored",
    (KeysAlone, "memory"): "queries-ignored",
    (KeysAlone, "self"): "queries-ignored",
    (KeysAlone, "causal"): "queries-ignored",
    (QueriesAveraged, "cross"): "queries-ignored",
    (QueriesAveraged, "self"): "queries-ignored",
    (QueriesAveraged, "causal"): "future-leaks",
    (QueriesAlone, "cross"): "keys-ignored",
    (QueriesAlone, "memory"): "keys-ignored",
    (QueriesAlone, "self"): "keys-ignored",
    (QueriesAlone, "causal"): "keys-ignored",
    (KeysMixed, "cross"): "values-ignored",
    (SamplesAveraged, "cross"): "samples-mixed",
    (SamplesAveraged, "self"): "samples-mixed",
    (SamplesAveraged, "causal"): "samples-mixed",
    (Blind, "cross"): "visible-unseen",
    (Blind, "self"): "visible-unseen",
    (Blind, "causal"): "past-unseen",
}


@pytest.mark.parametrize(("version", "kind"), IGNORED, ids=lambda x: getattr(x, "__name__", x))
def test_what_must_matter_and_does_not_is_told_without_weights(version, kind):
    assert IGNORED[version, kind] in wrong(report(version, kind, looked_into=False))


NAMED = {
    HeadsForTokens: "heads-attended-over",
    KeyForQuery: "keys-from-queries",
    KeysMixed: "values-from-keys",
    OneHeadsKeys: "keys-of-one-head",
    HeadsAveraged: "weights-averaged-over-heads",
    Inverted: "scale-inverted",
}


@pytest.mark.parametrize("version", NAMED)
@pytest.mark.parametrize("kind", ["self", "causal"])
def test_what_only_the_weights_tell_is_named(version, kind):
    assert wrong(report(version, kind)) == {NAMED[version]}


class Turned(nn.Module):
    """Keeps outputs from being compared: what is left are the rows without a gradient."""

    def __init__(self, version):
        super().__init__()
        self.inner = version(True)

    def forward(self, x):
        return self.inner(x).tanh()


@pytest.mark.parametrize("version", [KeyForQuery, KeysMixed, OneHeadsKeys])
def test_rows_that_stand_idle_are_found_where_outputs_cannot_be_compared(version):
    found = examine(Turned(version), embed_dim=E, num_heads=H, kind="causal")
    seen = {KeyForQuery: "keys-from-queries", KeysMixed: "values-from-keys"}
    assert wrong(found) == {seen.get(version, "rows-without-gradient")}
    if version is not OneHeadsKeys:
        assert found.findings[0].explains == ("parameters-without-gradient",)
    else:
        assert found.findings[0].evidence == "8 of 12 rows of inner.k.weight, from 4 to 11"


def test_a_mask_that_training_leaves_out_is_found():
    found = report(NoMaskInTraining, "causal")
    assert wrong(found) == {"mask-missing-in-training"}
    assert "10 of 10" not in found.findings[0].evidence  # of each sample
    assert found.version == "right"


def test_a_mask_argument_that_training_leaves_out_is_found():
    class Forgetful(Attention):
        def forward(self, query, key, value, blocked=None):
            self.blocked = None if blocked is None or self.training else blocked[:, None]
            return super().forward(query, key, value)

        def hidden(self, n, m):
            return self.blocked

    found = examine(Forgetful(), embed_dim=E, num_heads=H)
    assert wrong(found) == {"mask-missing-in-training"}


def test_other_differences_of_training_are_a_convention():
    class Normed(Attention):
        def __init__(self, causal):
            super().__init__(causal)
            self.norm = nn.BatchNorm1d(E)

        def mix(self, q, k, v):
            return self.norm(super().mix(q, k, v).mT).mT

    module = Normed(True)
    found = examine(module, embed_dim=E, num_heads=H, kind="causal")
    assert "training-differs" in found.codes
    assert wrong(found) == set()
    assert module.norm.num_batches_tracked == 0


def test_training_that_stays_random_is_not_asked():
    class Noisy(Attention):
        def mix(self, q, k, v):
            noise = torch.rand(()) if self.training else 1
            return super().mix(q, k, v) * noise

    found = report(Noisy, "causal")
    assert "training" not in found.results
    assert any("still random" in reason for reason in found.not_examined)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("kind", ["self", "causal"])
def test_a_window_is_a_convention_and_its_width_is_told(width, kind):
    class Windowed(Attention):
        def hidden(self, n, m):
            distance = torch.arange(n)[:, None] - torch.arange(m)
            behind = distance > width
            return behind | (distance < 0 if self.causal else -distance > width)

    found = report(Windowed, kind)
    assert wrong(found) == set()
    (finding,) = (x for x in found.findings if x.code == "sliding-window")
    assert f"a window of {width + 1 + width * (kind == 'self')}," in finding.symptom


def test_a_future_that_is_always_hidden_is_named_without_weights():
    class Always(Attention):
        def hidden(self, n, m):
            return torch.ones(n, m, dtype=torch.bool).triu(1)

    for kind in ("self", "cross"):
        assert "causal-unasked" in wrong(report(Always, kind, looked_into=False))
    assert wrong(report(Always, "self")) == {"causal-unasked"}


def test_coarse_numbers_are_not_asked_what_the_weights_depend_on():
    module = Attention().to(torch.bfloat16)
    attend = adapters.without_mask(
        lambda x: module(x.to(torch.bfloat16))  # float64 cannot be asked for
    )
    found = examine(attend, embed_dim=E, num_heads=H, kind="self")
    assert "attention" not in found.results


def test_a_token_that_does_not_see_itself_is_no_window():
    class HidesItself(Attention):
        def weigh(self, q, k):
            n = q.size(-2)
            scores = (q @ k.mT).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(), -math.inf)
            return scores.softmax(-1).nan_to_num()

    found = report(HidesItself, "causal", looked_into=False)
    assert "sliding-window" not in found.codes
    assert "causal-hides-itself" in wrong(found)


def test_what_is_no_attention_is_not_told_that_it_does_not_see_its_past():
    found = report(PerToken, "causal", looked_into=False)
    assert wrong(found) == {"no-attention"}
    assert "sliding-window" not in found.codes


def test_training_with_nan_says_nothing_about_training():
    class Empty(Attention):
        """Hides every key from the first query, where there is more than one."""

        def forward(self, query, key, value, blocked=None):
            self.blocked = None if blocked is None else blocked.mT[:, None]
            return super().forward(query, key, value)

        def hidden(self, n, m):
            return self.blocked

    module = Empty()
    found = examine(
        adapters.Adapted(lambda x, blocked: module(x, x, x, blocked), module),
        embed_dim=E,
        num_heads=H,
        kind="self",
    )
    assert found.results["training"] == "fine"
    assert "mask-transposed" in wrong(found)

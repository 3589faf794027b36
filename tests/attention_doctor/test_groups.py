"""Which heads share a key is found by what moves them, whatever stands around them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from annotated_attention.mistakes import MISTAKES
from attention_doctor import adapters, examine

E, H, D = 24, 6, 4


class Grouped(nn.Module):
    """Causal attention in which groups of heads share a key and a value."""

    def __init__(self, repeat, groups=2, names="{}_proj", turned=False, out=True):
        super().__init__()
        torch.manual_seed(0)
        self.repeat, self.r, self.turned = repeat, H // groups, turned
        self.names = [names.format(letter) for letter in "qkv"]
        for name, width in zip(self.names, (H, groups, groups), strict=True):
            setattr(self, name, nn.Linear(E, width * D))
        self.o_proj = nn.Linear(E, E) if out else nn.Identity()

    def forward(self, x):
        q, k, v = (
            getattr(self, name)(x).unflatten(-1, (-1, D)).transpose(1, 2) for name in self.names
        )
        if self.turned:
            angle = torch.arange(x.size(1)).to(x)[:, None]
            q, k = (y * angle.cos() + torch.roll(y, 2, -1) * angle.sin() for y in (q, k))
        k, v = self.repeat(k, self.r), self.repeat(v, self.r)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(heads.transpose(1, 2).flatten(2))


def neighbours(x, r):
    return x.repeat_interleave(r, 1)


def tiles(x, r):
    return x.repeat(1, r, 1, 1)


def report(*arguments, **options):
    module = Grouped(*arguments, **options)
    return examine(module, embed_dim=E, num_heads=H, kind="causal")


@pytest.mark.parametrize("rest", [0, 1])
def test_a_plain_parameter_can_be_the_output_projection(rest):
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("w_q", "w_k", "w_v", "w_o"):
                setattr(self, name, nn.Parameter(nn.init.xavier_uniform_(torch.empty(E, E))))

        def forward(self, x):
            heads = (x @ torch.cat([self.w_q, self.w_k, self.w_v], 1)).unflatten(-1, (3, H, D))
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return heads.transpose(1, 2).flatten(2) @ self.w_o + rest * x

    torch.manual_seed(0)
    found = examine(Plain(), embed_dim=E, num_heads=H, kind="causal")
    assert found.codes == ("residual-inside",) * rest
    assert found.results["residual"] == ("convention" if rest else "fine")
    assert rest or found.agreement.endswith("w_q, w_k, w_v, w_o, by their names")


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("out", [True, False])
def test_heads_that_share_with_neighbours_are_right(groups, turned, out):
    found = report(neighbours, groups, turned=turned, out=out)
    assert found.ok, str(found)
    assert found.codes == ()
    assert found.results["groups"] == "fine"


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("out", [True, False])
def test_tiled_groups_are_named(groups, turned, out):
    found = report(tiles, groups, turned=turned, out=out)
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("groups-tiled", "wrong")
    shared = " and ".join(map(str, range(0, H, groups)))
    assert finding.evidence.startswith(f"k_proj.weight: heads {shared} share the first")
    assert "repeat_interleave" in finding.remedy


def test_a_layout_of_ones_own_is_a_convention():
    """No checkpoint has these names; who trains it and who loads it repeat alike."""
    found = report(tiles, names="to_{}")
    assert found.ok
    assert found.codes == ("groups-tiled",)


def test_groups_that_cannot_be_told_apart_are_not_judged():
    def mixed(x, r):
        return x.repeat_interleave(r, 1)[:, [0, 1, 3, 2, 4, 5]]

    found = report(mixed)
    assert "groups" not in found.results
    assert any("cannot be told apart" in reason for reason in found.not_examined)


def test_everything_is_put_back():
    module = Grouped(tiles)
    before = {name: x.clone() for name, x in module.state_dict().items()}
    examine(module, embed_dim=E, num_heads=H, kind="causal")
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())
    assert all(x.grad is None for x in module.parameters())


def test_heads_of_other_samples_are_no_groups():
    """Each head moves several others there, though every head has a key of its own."""
    module = MISTAKES["heads-of-other-samples"].version(E, H, batch_first=True)

    def attend(x):
        return module(x, x, x, is_causal=True)[0].tanh()  # so that it cannot be compared

    found = examine(adapters.Adapted(attend, module), embed_dim=E, num_heads=H, kind="causal")
    assert "samples-mixed" in found.codes or "heads-of-other-samples" in found.codes
    assert "groups-tiled" not in found.codes
    assert found.results["groups"] == "fine"


@pytest.mark.parametrize("names", ["{}_proj", "to_{}"])
def test_keys_and_values_repeated_in_two_orders_are_wrong_by_any_name(names):
    module = Grouped(neighbours, names=names)
    orders = iter([neighbours, tiles] * 10_000)
    module.repeat = lambda x, r: next(orders)(x, r)
    found = examine(module, embed_dim=E, num_heads=H, kind="causal")
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("groups-tiled", "wrong")
    assert finding.symptom == "keys and values are repeated for different heads"
    assert "v" in finding.evidence.partition(":")[0]

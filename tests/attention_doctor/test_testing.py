"""In a test, what is wrong fails with the report."""

import pytest
import torch
from torch import nn

from annotated_attention.mistakes import MISTAKES
from attention_doctor import adapters, assert_attention

SIZES = {"embed_dim": 12, "num_heads": 3}


def attention(code="", **options):
    torch.manual_seed(0)
    if code:
        return MISTAKES[code].version(12, 3, batch_first=True, **options)
    return nn.MultiheadAttention(12, 3, batch_first=True, **options)


class Allowed(nn.Module):
    """Takes its mask as True = allowed, with an axis for the heads."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x, mask=None, temperature=2.0):
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, -1)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q / temperature * 2, k, v, mask)
        return self.out(heads.transpose(1, 2).flatten(2))


def test_what_is_right_gives_its_report():
    report = assert_attention(attention(), **SIZES)
    assert report.ok
    assert report.version == "right"


@pytest.mark.parametrize("adapt", [lambda module: module, adapters.torch_like])
def test_what_is_wrong_fails_with_the_report(adapt):
    with pytest.raises(AssertionError) as failure:
        assert_attention(adapt(attention("no-scale")), **SIZES)
    text = str(failure.value)
    assert text.startswith("✗ NoScale: 1 wrong")
    assert "wrong: no-scale" in text
    assert "Write `scores = q @ k.mT / math.sqrt(d)`" in " ".join(text.split())


def test_codes_that_do_not_count():
    assert "no-scale" not in assert_attention(
        attention("no-scale"), **SIZES, ignore=["no-scale"]
    ).codes  # fmt: skip
    assert assert_attention(attention("no-scale"), **SIZES, select=["nan-row"]).ok
    with pytest.raises(AssertionError):
        assert_attention(attention("no-scale"), **SIZES, select=["no-scale"])
    with pytest.raises(ValueError, match="there is no code no-such-code; codes: "):
        assert_attention(attention(), **SIZES, ignore=["no-such-code"])


def test_options_are_those_of_the_command_line():
    report = assert_attention(Allowed(), **SIZES, kind="self", mask="allowed")
    assert report.results["blocked"] == "fine"
    with pytest.raises(AssertionError, match="mask-inverted"):
        assert_attention(Allowed(), **SIZES, kind="self", mask="blocked")
    assert assert_attention(attention(), **SIZES, max_length=4).ok
    with pytest.raises(TypeError, match="there is no option maks; options: target, model, kind"):
        assert_attention(attention(), **SIZES, maks="allowed")


def test_further_arguments_of_the_call():
    def scale(temperature):
        report = assert_attention(
            Allowed(), **SIZES, kind="self", mask="allowed", call={"temperature": temperature},
            ignore=["no-scale"],
        )  # fmt: skip
        return report.version

    assert scale(2.0) == "right"
    assert scale(1.5) != "right"


def test_a_reference():
    assert_attention(attention("no-scale"), **SIZES, ignore=["no-scale"])
    with pytest.raises(AssertionError, match="differs-from-reference"):
        assert_attention(attention("no-scale"), **SIZES, ignore=["no-scale"], reference=attention())


def test_what_cannot_be_called_fails():
    with pytest.raises(AssertionError, match="could not be asked"):
        assert_attention(lambda x: 1 / 0, **SIZES, kind="causal")
    with pytest.raises(AssertionError, match=r"has no temprature \(--call\)"):
        assert_attention(Allowed(), **SIZES, kind="self", call={"temprature": 1.0})


def test_sizes_that_do_not_fit_are_no_failure_of_the_attention():
    with pytest.raises(ValueError, match="must be divisible"):
        assert_attention(attention(), embed_dim=12, num_heads=5)

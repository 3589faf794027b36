"""What "Speed" gives its readers to ask PyTorch with: why a call keeps off a path."""

import warnings
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn

from annotated_book import chapters

speed = chapters.load("15_speed")
pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, ""),
        ({"bias": False}, "no reason given"),
        ({"num_heads": 3}, "self.num_heads is not even"),
        ({"batch_first": False}, "batch_first was not True"),
    ],
)
def test_why_not_is_silent_on_the_fast_path_alone(options: dict[str, Any], said: str) -> None:
    sizes = {"embed_dim": 48, "num_heads": 8, "batch_first": True}
    with torch.no_grad():
        assert speed.why_not(nn.MultiheadAttention(**(sizes | options)).eval()) == said


def test_refusal_answers_where_the_kernel_gives_no_reason() -> None:
    q = torch.randn(1, 8, 16, 64)
    learned = torch.zeros(16, 16, requires_grad=True)
    assert speed.refusal(q, q, q) == ""
    assert speed.refusal(q, q, q, attn_mask=learned).startswith("No available kernel")
    assert "dtype" in speed.refusal(q, q, q, attn_mask=torch.ones(16, 16, dtype=torch.long))
    assert speed.refusal(q, q, q, dropout_p=0.1).endswith("do not support non-zero dropout.")
    assert "4 dimensional" in speed.refusal(q[0], q[0], q[0])


def test_refusal_finds_the_reason_of_this_kernel_among_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on_a_gpu(*given: Any, **options: Any) -> None:
        for name in ("Memory efficient", "Flash attention", "cuDNN attention"):
            warnings.warn(f"{name} kernel not used because: (Triggered there)", stacklevel=1)
            warnings.warn(f"{name} wants something else. (Triggered there)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(F, "scaled_dot_product_attention", on_a_gpu)
    q = torch.randn(1, 8, 16, 64)
    assert speed.refusal(q, q, q) == "Flash attention wants something else."


def test_a_llama_calls_the_function_unless_it_is_eager() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=20, num_hidden_layers=1, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()
    assert model.config._attn_implementation == "sdpa"
    for implementation in ("sdpa", "eager"):
        model.set_attn_implementation(implementation)
        function = F.scaled_dot_product_attention
        with mock.patch.object(F, "scaled_dot_product_attention", wraps=function) as asked_for:
            model(torch.tensor([[1, 2, 3]]))
        assert asked_for.called == (implementation == "sdpa")

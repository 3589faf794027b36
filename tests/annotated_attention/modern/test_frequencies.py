"""Scaled rotations are those of ``transformers``, for lengths below, at and beyond the trained."""

import pytest
import torch

from annotated_attention.modern import RotaryEmbedding, rotary_frequencies

E, H, D, TRAINED = 48, 3, 16, 64
SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48},
    "yarn, a ramp of its own": {
        "rope_type": "yarn",
        "factor": 7.0,
        "original_max_position_embeddings": 900,
        "beta_fast": 20,
        "beta_slow": 2,
        "truncate": False,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
    },
    "yarn, a factor of its own": {
        "rope_type": "yarn",
        "factor": 2.5,
        "original_max_position_embeddings": 300,
        "attention_factor": 1.7,
        "truncate": False,
    },
    "yarn, its factor from the lengths": {
        "rope_type": "yarn",
        "original_max_position_embeddings": 16,
    },
    "yarn, no growth": {
        "rope_type": "yarn",
        "factor": 0.5,
        "original_max_position_embeddings": 400,
    },
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
}
EACH = pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS.keys())
BASE = 500.0


def config(scaling, base):
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=E,
        num_attention_heads=H,
        max_position_embeddings=TRAINED,
        rope_parameters={"factor": None, **scaling, "rope_theta": base},
    )


@pytest.mark.parametrize("length", [1, TRAINED - 1, TRAINED, TRAINED + 1, 1000])
@EACH
def test_frequencies_are_theirs(scaling, length):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if scaling["rope_type"] == "default":
        expected, factor = BASE ** (-torch.arange(0, D, 2) / D), 1.0
    else:
        theirs = ROPE_INIT_FUNCTIONS[scaling["rope_type"]]
        expected, factor = theirs(config(scaling, BASE), seq_len=length)
    for given in (length, torch.tensor(length)):
        found, mine = rotary_frequencies(
            D, base=BASE, scaling=scaling, max_length=TRAINED, length=given
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
        assert mine == pytest.approx(factor)


@EACH
def test_dictionaries_of_checkpoints_are_read(scaling):
    """Today's hold the base, and those of long ago have another name for the type."""
    expected = rotary_frequencies(D, base=BASE, scaling=scaling, max_length=TRAINED)
    todays = config(scaling, BASE).rope_parameters
    assert todays["rope_theta"] == BASE
    todays |= {"partial_rotary_factor": 1.0}
    older = {("type" if name == "rope_type" else name): x for name, x in scaling.items()}
    for given, base in ((todays, None), (todays, BASE), (older, BASE)):
        found = rotary_frequencies(D, base=base, scaling=given, max_length=TRAINED)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        rotary = RotaryEmbedding(D, base=base, scaling=given, max_length=TRAINED)
        for length in (TRAINED, 3 * TRAINED):  # the length counts in dynamic scaling
            frequencies, factor = rotary_frequencies(
                D, base=BASE, scaling=scaling, max_length=TRAINED, length=length
            )
            angles = torch.arange(length)[:, None] * frequencies
            found = rotary.angles(torch.arange(length))
            torch.testing.assert_close(found, (angles.cos() * factor, angles.sin() * factor))

"""One strategy of random settings, for parity with PyTorch's classes.

Sizes all differ, so that a swapped axis cannot hide; and the same examples are drawn in every run.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from annotated_attention import block_future

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
REPRODUCIBLE = settings(derandomize=True, database=None, deadline=None)
TOLERANCE = {  # relative, and absolute for numbers about 1
    torch.float64: (1e-9, 1e-11),
    torch.float32: (1e-4, 1e-5),
    torch.bfloat16: (5e-2, 4e-2),
}
CHOICES = {
    "layout": ["batch first", "sequence first", "no batch"],
    "inputs": ["distinct", "self", "key is value", "other widths"],
    "bias": [True, False],
    "add_bias_kv": [False, True],
    "add_zero_attn": [False, True],
    "attn_mask": [None, "boolean", "boolean per head", "float", "float per head"],
    "key_padding_mask": [None, "boolean", "float"],
    "is_causal": [False, True],
    "fully_masked": [False, True],
    "need_weights": [True, False],
    "average_attn_weights": [True, False],
    "dropout": [0.0, 0.4],
    "mode": ["training", "evaluation", "inference"],
    "dtype": [torch.float64],
}


@dataclass(frozen=True)
class Setting:
    """A module and a call of it, by the names of PyTorch's arguments."""

    layout: str
    inputs: str  # what query, key and value have in common
    bias: bool
    add_bias_kv: bool
    add_zero_attn: bool
    attn_mask: str | None  # key 0 is left to every query
    key_padding_mask: str | None  # to every sample
    is_causal: bool
    fully_masked: bool  # but not to query 1 of the one mask, or to the last sample of the other
    need_weights: bool
    average_attn_weights: bool
    dropout: float
    mode: str  # inference is evaluation without gradients
    dtype: torch.dtype
    seed: int

    def options(self) -> dict[str, object]:
        """Give the arguments with which any of PyTorch's modules is made."""
        batch_first = self.layout == "batch first"
        return {
            "bias": self.bias,
            "dropout": self.dropout,
            "batch_first": batch_first,
            "dtype": self.dtype,
        }

    def sequence(self, length: int, width: int = E, salt: int = 0) -> Tensor:
        """Make a sequence in this layout; another one for each salt."""
        batch = {"batch first": (B, length), "sequence first": (length, B), "no batch": (length,)}
        return self._randn(*batch[self.layout], width, salt=salt)

    def attention_mask(self, n: int = N, m: int = M) -> Tensor | None:
        """Make the mask of n queries and m keys, if there is one."""
        if self.attn_mask is None:
            return None
        heads = (H if self.layout == "no batch" else B * H,) if "head" in self.attn_mask else ()
        blocked = self._blocked(*heads, n, m)
        if self.fully_masked:
            blocked[..., 1, :] = True
        return self._form(self.attn_mask, blocked)

    def padding_mask(self, m: int = M) -> Tensor | None:
        """Make the mask of m keys of each sample, if there is one."""
        if self.key_padding_mask is None:
            return None
        blocked = self._blocked(m) if self.layout == "no batch" else self._blocked(B, m)
        if self.fully_masked:
            blocked[-1] = True  # of a batch; one key more without
        return self._form(self.key_padding_mask, blocked)

    def _generator(self, salt: int) -> torch.Generator:
        return torch.Generator().manual_seed(10 * self.seed + salt)

    def _randn(self, *shape: int, salt: int) -> Tensor:
        x = torch.randn(shape, generator=self._generator(salt), dtype=self.dtype)
        return x.requires_grad_(self.mode != "inference")

    def _blocked(self, *shape: int) -> Tensor:
        blocked = torch.rand(shape, generator=self._generator(8)) < 0.4
        blocked[..., 0] = False
        return blocked

    def _form(self, kind: str, blocked: Tensor) -> Tensor:
        if "boolean" in kind:
            return blocked
        added = self._randn(*blocked.shape, salt=9).detach().masked_fill(blocked, -torch.inf)
        return added.requires_grad_(self.mode != "inference")


def random_settings(**choices: list[object]) -> st.SearchStrategy[Setting]:
    """Draw any setting; ``choices`` are fewer, or others, for one that is named."""
    drawn = {name: st.sampled_from(values) for name, values in (CHOICES | choices).items()}
    both = st.builds(Setting, **drawn, seed=st.integers(0, 99))
    # A reference without weights, which has no NaN, drops others.
    return both.filter(lambda setting: not (setting.fully_masked and setting.dropout))


def without_hint(attn_mask: Tensor | None, n: int = N, m: int = M) -> Tensor:
    """Write ``is_causal`` into a mask: PyTorch's class takes it for a hint about the mask."""
    future = block_future(n, m)
    if attn_mask is None:
        return future
    if attn_mask.dtype == torch.bool:
        return attn_mask | future
    return attn_mask.masked_fill(future, -torch.inf)


def results(outputs: Iterable[Tensor | None], sources: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name outputs, and the gradients of all sources with regard to a mixture of them."""
    found = {f"output {i}": x for i, x in enumerate(outputs) if x is not None}
    wanted = {name: x for name, x in sources.items() if x.requires_grad}
    if not wanted:
        return found
    mixtures = [torch.linspace(-1, 2, x.numel(), dtype=x.dtype) for x in found.values()]
    loss = sum((x.flatten() @ mixture) for x, mixture in zip(found.values(), mixtures, strict=True))
    options = {"allow_unused": True, "retain_graph": True}
    gradients = torch.autograd.grad(loss, list(wanted.values()), **options)
    named = zip(wanted, gradients, strict=True)
    return found | {f"gradient of {name}": x for name, x in named if x is not None}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Compare by name, with the tolerance of the dtype; a gradient of None differs from zeros."""
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        rtol, atol = TOLERANCE[want.dtype]
        atol *= max(1.0, float(want.detach().abs().max()))
        torch.testing.assert_close(
            found[name], want, rtol=rtol, atol=atol, msg=f"{name}: {{}}".format
        )

"""Without weights: PyTorch's fused kernel, and nothing as large as the scores."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from annotated_attention import MultiheadAttention

E, H, B = 16, 4, 2
FUSED = "_scaled_dot_product_flash_attention_for_cpu"


class Operations(TorchDispatchMode):
    """Remembers which operations run, and the largest tensor that one of them makes."""

    def __init__(self):
        super().__init__()
        self.size, self.names = 0, []

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        made = operation(*arguments, **(options or {}))
        self.names.append(operation.overloadpacket.__name__)
        for x in tree_iter(made):
            if isinstance(x, torch.Tensor):
                self.size = max(self.size, x.untyped_storage().nbytes())
        return made


def watch(n, batch_first=True, **options):
    """Run forward and backward on a length, and return what was seen."""
    module = MultiheadAttention(E, H, batch_first=batch_first)
    x = torch.randn((B, n, E) if batch_first else (n, B, E), requires_grad=True)
    with Operations() as seen:
        module(x, x, x, **options)[0].sum().backward()
    return seen


def padding(n):
    return torch.arange(n).expand(B, n) >= n // 2


LINEAR = {
    "no mask": lambda n: {},
    "causal": lambda n: {"is_causal": True},
    "padding": lambda n: {"key_padding_mask": padding(n)},
    "float padding": lambda n: {"key_padding_mask": padding(n) * -9.0},
    "sequence first": lambda n: {"batch_first": False, "is_causal": True},
}


@pytest.mark.parametrize("options", LINEAR.values(), ids=LINEAR.keys())
def test_memory_is_linear_without_weights(options):
    seen = [watch(n, need_weights=False, **options(n)) for n in (512, 1024)]
    assert FUSED in seen[0].names
    assert seen[1].size == 2 * seen[0].size


@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_masks_have_no_copy_for_each_head(kind):
    """Both masks together take (b, 1, n, m), and none of it is multiplied by h."""
    n, made = 64, []
    masks = {"attn_mask": torch.ones(n, n).triu(1) > 0, "key_padding_mask": padding(n)}
    if kind == "float":
        masks = {name: mask * -9.0 for name, mask in masks.items()}
    module, x = MultiheadAttention(E, H, batch_first=True), torch.randn(B, n, E)
    module.attend = lambda q, k, v, **options: made.append(options) or (v, None)
    module(x, x, x, **masks)
    (mask,) = (x for x in made[0].values() if isinstance(x, torch.Tensor))
    assert mask.untyped_storage().nbytes() == B * n * n * mask.element_size()

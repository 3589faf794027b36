"""Without weights: PyTorch's fused kernel, and nothing as large as the scores."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from annotated_attention import MultiheadAttention, scaled_dot_product_attention

E, H, B = 16, 4, 2


class Largest(TorchDispatchMode):
    """Remembers which operations run, and the largest tensor that one of them makes."""

    def __init__(self):
        super().__init__()
        self.size, self.names = 0, set()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        made = operation(*arguments, **(options or {}))
        self.names.add(operation.overloadpacket.__name__)
        for x in tree_iter(made):
            if isinstance(x, torch.Tensor):
                self.size = max(self.size, x.untyped_storage().nbytes())
        return made


def watch(module, n, unbatched=False, **options):
    """Run forward and backward on a length, and return what was seen."""
    batch_first = (n, E) if unbatched else (B, n, E)
    x = torch.randn(batch_first if module.batch_first or unbatched else (n, B, E))
    x.requires_grad_()
    with Largest() as seen:
        module(x, x, x, **options)[0].sum().backward()
    return seen


def padding(n):
    return torch.arange(n).expand(B, n) >= n // 2


LINEAR = {
    "no mask": lambda n: {},
    "causal": lambda n: {"is_causal": True},
    "padding": lambda n: {"key_padding_mask": padding(n)},
    "float padding": lambda n: {"key_padding_mask": padding(n) * -9.0},
    "no batch": lambda n: {"unbatched": True},
    "no batch, causal": lambda n: {"unbatched": True, "is_causal": True},
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", LINEAR.values(), ids=LINEAR.keys())
def test_memory_is_linear_without_weights(options, batch_first):
    module = MultiheadAttention(E, H, batch_first=batch_first)
    seen = [watch(module, n, need_weights=False, **options(n)) for n in (512, 1024)]
    assert "_scaled_dot_product_flash_attention_for_cpu" in seen[0].names
    assert "_softmax" not in seen[0].names
    assert seen[1].size == 2 * seen[0].size


@pytest.mark.parametrize("shape", [(8, 4), (3, 8, 4), (2, 3, 8, 4)], ids=str)
def test_fused_kernel_serves_any_number_of_axes_up_to_four(shape):
    x = torch.randn(shape)
    with Largest() as seen:
        scaled_dot_product_attention(x, x, x, need_weights=False)
    assert "_scaled_dot_product_flash_attention_for_cpu" in seen.names


def test_score_size_is_seen_where_weights_are_asked_for():
    module = MultiheadAttention(E, H, batch_first=True)
    seen = watch(module, 512)
    assert seen.size == B * H * 512 * 512 * 4
    assert "_scaled_dot_product_flash_attention_for_cpu" not in seen.names


@pytest.mark.parametrize("kind", ["boolean", "float"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_masks_have_no_copy_for_each_head(kind, need_weights):
    """Both masks together take (b, 1, n, m), and none of it is multiplied by h."""
    n, made = 64, []
    masks = {
        "attn_mask": torch.ones(n, n, dtype=torch.bool).triu(1),
        "key_padding_mask": padding(n),
    }
    if kind == "float":
        masks = {name: mask * -9.0 for name, mask in masks.items()}

    class Watching(MultiheadAttention):
        def attend(self, q, k, v, *, blocked, bias, **options):
            made.append(blocked if bias is None else bias)
            return super().attend(q, k, v, blocked=blocked, bias=bias, **options)

    x = torch.randn(B, n, E)
    Watching(E, H, batch_first=True)(x, x, x, **masks, need_weights=need_weights)
    assert made[0].shape == (B, 1, n, n)
    assert made[0].untyped_storage().nbytes() == B * n * n * made[0].element_size()


def test_one_product_projects_where_query_key_and_value_are_one():
    module = MultiheadAttention(E, H, batch_first=True)
    x = torch.randn(B, 8, E)
    counts = []
    for tensors in ((x, x, x), (x, x + 0, x)):
        with Products() as products:
            module(*tensors, need_weights=False)
        counts.append(products.count)
    assert counts == [2, 4]


class Products(TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        self.count += operation.overloadpacket.__name__ in ("addmm", "mm")
        return operation(*arguments, **(options or {}))

"""Formulas for the cost of attention: parameters, FLOPs and memory.

    python -m annotated_attention.counting --embed-dim 512 --num-heads 8 --length 1024
    python -m annotated_attention.counting --preset gpt2 --batch 8 --bytes 2
    python -m annotated_attention.counting --preset gpt2 --num-kv-heads 4 --cache-bytes 2

The third one lets groups of queries share 4 heads of keys and values, and counts 2 bytes for each
number in the cache.

Letters are the book's: b samples, n queries, m keys, h heads, model width e; and f, the width
inside a feed-forward network. All counts are exact integers, each tested against PyTorch's own:

- **Parameters** are learned numbers; ``numel`` counts them in a tensor.
- **FLOPs** are the multiplications and additions of matrix products, as
  ``torch.utils.flop_counter`` counts them where no fused kernel hides them: 2ndm for (n, d) times
  (d, m). Softmax, norms, activations and sums of tensors are left out, and a mask saves nothing.
  The backward pass takes twice as many: each factor of a product has a gradient, and that is a
  product of the same three sizes.
- **Kept** numbers are stored in the forward pass for the backward pass: all storages that autograd
  saves on a CPU, each counted once, without parameters and integers, without dropout, and with a
  gradient for every input. Times the bytes of one number, this is the memory. The one exception: in
  half precision, the numbers that the fused kernel keeps in place of the weights stay in float32.
"""

from annotated_attention.counting.formulas import (
    attention_flops,
    attention_kept,
    attention_parameters,
    attention_traffic,
    cache_bytes,
    cache_numbers,
    feedforward_flops,
    latent_flops,
    product_flops,
    projection_flops,
    score_flops,
    window_kept,
    window_scores,
)
from annotated_attention.counting.model import PARTS, PRESETS, Model
from annotated_attention.counting.tables import notes, rows, short, table

__all__ = [
    "PARTS",
    "PRESETS",
    "Model",
    "attention_flops",
    "attention_kept",
    "attention_parameters",
    "attention_traffic",
    "cache_bytes",
    "cache_numbers",
    "feedforward_flops",
    "latent_flops",
    "notes",
    "product_flops",
    "projection_flops",
    "rows",
    "score_flops",
    "short",
    "table",
    "window_kept",
    "window_scores",
]

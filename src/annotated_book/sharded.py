"""A language model's heads over several processes, by PyTorch's own tensor parallelism.

``torchrun --standalone --nproc-per-node 2 -m annotated_book.sharded`` splits a small
model and compares it with the whole one.
"""

import copy
import json
import os
from typing import cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from annotated_attention.modern.decoder import DecoderAttention, LanguageModel
from annotated_attention.modern.settings import Settings

SMALL = Settings(
    vocab_size=11,
    embed_dim=24,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    hidden_dim=40,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
)


def shard(model: LanguageModel, mesh: DeviceMesh) -> LanguageModel:
    """Give each process its share of every layer's heads, and of its feed-forward features.

    Args:
        model: changed in place; each process has the same one.
        mesh: the processes, along one axis; their number must divide that of the keys' heads.

    Source: Shoeybi et al. (2019), section 3.
    """
    count, g = mesh.size(), model.settings.num_kv_heads
    if g % count:
        raise ValueError(f"num_kv_heads ({g}) must be divisible by the {count} processes")
    # Some rows of a matrix, and of its bias: some features of every token.
    makes_some = [f"self_attn.{x}_proj" for x in "qkv"] + ["mlp.gate_proj", "mlp.up_proj"]
    # The columns for these features: what comes out is one summand of the whole.
    takes_some = ["self_attn.o_proj", "mlp.down_proj"]
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in makes_some}
    plan |= {name: RowwiseParallel() for name in takes_some}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    for attention in model.modules():
        if isinstance(attention, DecoderAttention):
            attention.num_heads //= count
            attention.num_kv_heads //= count
    return model


def with_bias_in_each(linear: nn.Linear, x: Tensor) -> Tensor:
    """Multiply this process's features by its columns of W, add the bias, sum up: wrong."""
    columns = linear.weight.chunk(dist.get_world_size(), 1)[dist.get_rank()]
    y = F.linear(x, columns, linear.bias)
    dist.all_reduce(y)
    return y


def compare() -> dict[str, object]:
    """Compare a small random model with its shards: what differs, and how often they talk."""
    torch.manual_seed(1)  # in each process
    whole, tokens = LanguageModel(SMALL).double(), torch.randint(11, (2, 7))
    count, rank = dist.get_world_size(), dist.get_rank()
    parts = shard(copy.deepcopy(whole), init_device_mesh("cpu", (count,)))
    for model in (parts, whole):
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    down, of_parts = (
        cast(nn.Linear, model.get_submodule("layers.0.mlp.down_proj")) for model in (whole, parts)
    )
    here, gradient = cast(DTensor, of_parts.weight), cast(DTensor, of_parts.weight.grad)
    expected = cast(Tensor, down.weight.grad)
    with torch.no_grad(), CommDebugMode() as talk:  # last: its hooks stay
        apart = (parts(tokens) - whole(tokens)).abs().max()
    x = torch.randn(5, SMALL.hidden_dim, dtype=torch.float64)
    with torch.no_grad():
        wrong = with_bias_in_each(down, x.chunk(count, 1)[rank]) - down(x)
    return {
        "shape here": list(here.to_local().shape),
        "logits apart": apart.item(),
        "gradients apart": (gradient.full_tensor() - expected).abs().max().item(),
        "exchanges": {str(kind): times for kind, times in talk.get_comm_counts().items()},
        "bias in each, apart": wrong.abs().max().item(),
        "largest bias": down.bias.abs().max().item(),
    }


def main() -> None:
    """Compare, and print what the first process finds."""
    dist.init_process_group("gloo")
    found = compare()
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # at an ordinary end, a thread of PyTorch's may abort one process in ten


if __name__ == "__main__":
    main()

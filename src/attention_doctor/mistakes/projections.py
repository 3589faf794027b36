"""Projections that are read, shared, stored or applied wrongly."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.multihead import MultiheadAttention
from attention_doctor.mistakes._registry import mistake


class _OtherRows(MultiheadAttention):
    """Reads other rows of the packed ``in_proj_weight`` (so all widths must be e)."""

    def _rows(self, rows: Tensor) -> Tensor:
        """Say which row stands where: of W_Q, W_K, W_V, by head, (3, h, d)."""
        raise NotImplementedError

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        weight: Any = self.in_proj_weight
        rows = torch.arange(len(weight), device=weight.device).view(3, self.num_heads, -1)
        rows = self._rows(rows).reshape(3, -1)
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias[rows]
        return tuple(map(F.linear, (query, key, value), weight[rows], biases))


@mistake(
    wrong="k, q, v = in_proj_weight.chunk(3)",
    right="q, k, v = in_proj_weight.chunk(3)",
)
class ChunksInTheWrongOrder(_OtherRows):
    """The packed projection is read as K, Q, V, although it holds Q, K, V.

    Before training all three parts are drawn alike, so nothing fails, and training from scratch
    works as well. With weights that were trained elsewhere, W_K makes the queries and W_Q the keys.
    The shapes agree, so loading such weights raises no error.
    """

    def _rows(self, rows: Tensor) -> Tensor:
        return rows[[1, 0, 2]]


@mistake(
    wrong="q, k, v = qkv.view(b, n, h, 3, d).unbind(3)",
    right="q, k, v = qkv.view(b, n, 3, h, d).unbind(2)",
)
class InterleavedPerHead(_OtherRows):
    """The packed projection is read head by head, although it holds all of Q, then K, then V.

    Some libraries pack (h, 3, d), PyTorch packs (3, h, d), and both have 3e rows. Training from
    scratch works either way. With weights in the other layout, most heads use rows that belong to
    another head or another projection, and loading such weights raises no error.
    """

    def _rows(self, rows: Tensor) -> Tensor:
        return rows.reshape(self.num_heads, 3, -1).transpose(0, 1)


@mistake(
    wrong="W_q = nn.Linear(e, d)  # and k and v, used by every head",
    right="W_q = nn.Linear(e, h * d)  # and k and v",
)
class SharedHeads(_OtherRows):
    """All heads use the projections of the first head.

    Every head then computes the same, so h heads know no more than one. The output has its full
    width, and the model trains, though worse than it could. The rows of the other heads, where
    there are any, never get a gradient.
    """

    def _rows(self, rows: Tensor) -> Tensor:
        return rows[:, :1].expand_as(rows)


@mistake(
    wrong="k = k[:, :1]  # of (b, h, m, d)",
    right="k  # every head scores its own keys",
)
class KeysOfOneHead(_OtherRows):
    """All heads score the keys of the first head, although every head has its own.

    Queries and values still differ, so the heads do different things, and the model trains: this is
    multi-query attention for the keys alone. But rows of W_K are made, stored and loaded for every
    head, and all but the first head's never get a gradient.
    """

    def _rows(self, rows: Tensor) -> Tensor:
        return torch.stack([rows[0], rows[1, :1].expand_as(rows[1]), rows[2]])


@mistake(
    wrong="k = W_q(key)  # or scores = q @ q.mT",
    right="k = W_k(key)",
)
class KeysFromQueries(_OtherRows):
    """The keys are made by the projection of the queries: in self-attention, each query scores all.

    The scores of a sequence are symmetric then, so a token that looks at another is looked at as
    much, and each token scores high with itself. Shapes, weights and masks are all in order. W_K is
    created, saved and loaded, and never gets a gradient.
    """

    def _rows(self, rows: Tensor) -> Tensor:
        return rows[[0, 0, 2]]


@mistake(
    wrong="v = W_k(value)  # or weights @ k",
    right="v = W_v(value)",
)
class ValuesFromKeys(_OtherRows):
    """The values are made by the projection of the keys, so that the keys are mixed.

    What a token offers to be found by and what it hands over are then the same numbers. The model
    trains, with fewer ways to say things. W_V is created, saved and loaded, and never gets a
    gradient; with weights that were trained elsewhere, the output is another one.
    """

    def _rows(self, rows: Tensor) -> Tensor:
        return rows[[0, 1, 1]]


@mistake(
    wrong="attend(q, v, k)",
    right="attend(q, k, v)",
)
class KeysAndValuesSwapped(MultiheadAttention):
    """Keys and values change places: the values are scored, and the keys are mixed.

    Keys and values come from the same tokens and have the same shape, so everything runs. In
    self-attention that is trained from scratch, only two names are wrong. With trained weights, or
    where key and value are different tensors, the module computes something else.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        return super().attend(q, v, k, **options)


class _Unused(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return input


@mistake(
    wrong="return merge_heads(heads)",
    right="return out_proj(merge_heads(heads))",
)
class OutputProjectionMissing(MultiheadAttention):
    """The output projection exists and is never applied.

    The heads' outputs stay side by side, so no feature of the output can combine two heads. Width
    and shape are right, and later layers can make up for much of the loss. The parameters of the
    projection are counted, saved and loaded, but they never get a gradient.
    """

    def __init__(self, *settings: Any, **options: Any) -> None:
        """Create all parameters, and skip the output projection."""
        super().__init__(*settings, **options)
        self.out_proj.__class__ = _Unused


@mistake(
    wrong="return out_proj(out_proj(merge_heads(heads)))",
    right="return out_proj(merge_heads(heads))",
)
class OutputProjectionDoubled(MultiheadAttention):
    """The output projection is applied twice, once inside the attention and once by its caller.

    Two linear maps in a row amount to one, so the model can still learn what it needs, and every
    test that does not know the weights passes. With given weights, the result and its size differ
    from those of the right version.
    """

    def forward(self, *inputs: Any, **options: Any) -> Any:
        output, weights = super().forward(*inputs, **options)
        return self.out_proj(output), weights


@mistake(
    wrong="self.heads = [nn.Linear(e, d) for _ in range(h)]",
    right="self.heads = nn.ModuleList(nn.Linear(e, d) for _ in range(h))",
)
class HeadsInAPlainList(MultiheadAttention):
    """The heads' projections lie in a plain Python list, where a module does not look for them.

    The forward pass is right. But `parameters()` and `state_dict()` leave these projections out, so
    the optimizer never changes them, a checkpoint does not hold them, and `to()` does not move
    them. The other parameters train, and the loss falls.
    """

    def __init__(self, *settings: Any, **options: Any) -> None:
        """Create all parameters, and move the rows of each head into a list."""
        super().__init__(*settings, **options)
        rows: Any = self.in_proj_weight
        self.heads = [nn.Parameter(head) for head in rows.detach().split(self.head_dim)]
        del self.in_proj_weight

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Join the rows of all heads while the call runs."""
        self.__dict__["in_proj_weight"] = torch.cat([*self.heads])  # (3 * e, e)
        try:
            return super().forward(*inputs, **options)
        finally:
            del self.__dict__["in_proj_weight"]

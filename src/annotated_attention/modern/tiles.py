"""Attention in tiles: the scores of a few queries and keys at a time, never all of them at once."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from annotated_attention.checks import check_attention, check_sizes
from annotated_attention.masks import masks_as_bias


def tiled_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    tile: int = 64,
    mask_mod: Callable[..., Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(query keyᵀ · scale) value tile by tile, in memory that is linear in n and m.

    Args:
        query: (..., n, d), one row per query.
        key: (..., m, d), one row per key.
        value: (..., m, d_v), one row per key; its width may differ.
        blocked: boolean, broadcastable to (..., n, m); True means "must not see".
        bias: of ``query``'s dtype, broadcastable to (..., n, m), added to the scaled scores.
        is_causal: also hide key j from query i when j > i; tiles without visible keys are skipped.
        scale: factor on the scores; None means 1 / sqrt(d).
        tile: number of queries, and of keys, in a tile.
        mask_mod: a rule, as ``flex_attention`` takes it: of the numbers of sample, head, query and
            key, which are integers that broadcast, it gives True where the key is visible. Tiles in
            which nothing is are skipped. For query, key and value with axes b and h.

    Returns:
        The output, (..., n, d_v), zero for fully masked rows; and the log-sum-exp of each query's
        scores, (..., n), in float32 or wider, ``-inf`` for fully masked rows.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import tiled_attention
        >>> q, k, v = torch.randn(2, 3, 6), torch.randn(2, 5, 6), torch.randn(2, 5, 7)
        >>> output, _ = tiled_attention(q, k, v, tile=2)
        >>> expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        >>> torch.testing.assert_close(output, expected)

    Source: Dao et al. (2022), section 3.1; Milakov and Gimelshein (2018), algorithm 3.
    """
    check_sizes({"tile": tile})
    batch = check_attention(query, key, value, blocked, bias, 0.0)
    query, key, value = (x.expand(*batch, *x.shape[-2:]) for x in (query, key, value))
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    added = masks_as_bias(blocked, bias, query.dtype)
    if added is not None:  # as a view of all scores, masks of all shapes are cut alike
        added = added.expand(*query.shape[:-1], key.size(-2))
    visible = None if mask_mod is None else _ask(mask_mod, query)
    # Half precision is too coarse for sums over many keys.
    wide = torch.promote_types(query.dtype, torch.float32)
    tensors = (x if x is None else x.to(wide) for x in (query * scale, key, value, added))
    output, lse = _Tiled.apply(*tensors, is_causal, tile, visible)
    return output.to(query.dtype), lse.squeeze(-1)


def merge_parts(outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Merge the results for p parts of the keys into the result for all of them.

    Args:
        outputs: (p, ..., n, d_v), as ``tiled_attention`` returns them.
        lses: (p, ..., n), the log-sum-exp of each query's scores within each part.

    Returns:
        The output, (..., n, d_v), and the log-sum-exp, (..., n), over all keys.
    """
    fully_masked = (lses == -math.inf).all(0)              # (..., n)
    lses = lses.masked_fill(fully_masked, 0)               # (p, ..., n)
    shares = lses.softmax(0).to(outputs.dtype)[..., None]  # (p, ..., n, 1)
    lse = lses.logsumexp(0)                                # (..., n)
    return (shares * outputs).sum(0), lse.masked_fill(fully_masked, -math.inf)


Visible = Callable[[slice, slice], Tensor]  # of rows and columns: which scores are visible


def tiles(
    n: int, m: int, is_causal: bool, tile: int, visible: Visible | None = None
) -> Iterator[tuple[slice, list[slice]]]:
    """Give each tile of queries, with the tiles of keys that it visits."""
    for i in range(0, n, tile):
        rows = slice(i, min(i + tile, n))
        last = min(rows.stop, m) if is_causal else m
        visited = [slice(j, min(j + tile, last)) for j in range(0, last, tile)]
        yield rows, [x for x in visited if visible is None or visible(rows, x).any()]


def _ask(mask_mod: Callable[..., Tensor], query: Tensor) -> Visible:
    """Let a rule be asked for the scores of one tile."""
    if query.dim() != 4:
        raise ValueError(f"mask_mod needs queries with four axes, got {tuple(query.shape)}")
    b, h = (torch.arange(size, device=query.device) for size in query.shape[:2])

    def visible(rows: slice, columns: slice) -> Tensor:
        i, j = (torch.arange(x.start, x.stop, device=query.device) for x in (rows, columns))
        return mask_mod(b[:, None, None, None], h[:, None, None], i[:, None], j)

    return visible


class _Tiled(torch.autograd.Function):
    """Attention that keeps its output and log-sum-exp, and computes the scores a second time."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, added: Tensor | None, *how: Any
    ) -> tuple[Tensor, Tensor]:
        """Visit the tiles, with a running maximum, sum and mix for each query."""
        is_causal, _, visible = how
        output = query.new_empty(*query.shape[:-1], value.size(-1))
        lse = query.new_empty(*query.shape[:-1], 1)
        for rows, visited in tiles(query.size(-2), key.size(-2), *how):
            largest = torch.full_like(lse[..., rows, :], -math.inf)
            total, mixed = torch.zeros_like(largest), torch.zeros_like(output[..., rows, :])
            for columns in visited:
                scores = _scores(query, key, added, is_causal, visible, rows, columns)
                larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
                finite = larger.masked_fill(larger == -math.inf, 0)  # no key was visible so far
                powers, correction = (scores - finite).exp(), (largest - finite).exp()
                total = correction * total + powers.sum(-1, keepdim=True)
                mixed = correction * mixed + powers @ value[..., columns, :]
                largest = larger
            output[..., rows, :] = mixed / total.masked_fill(total == 0, 1)
            lse[..., rows, :] = largest + total.log()
        ctx.how = how
        ctx.save_for_backward(query, key, value, added, output, lse)
        return output, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_output: Tensor, d_lse: Tensor) -> tuple[Tensor | None, ...]:
        """Visit the same tiles; the log-sum-exp gives each tile's weights at once."""
        query, key, value, added, output, lse = ctx.saved_tensors
        is_causal, _, visible = ctx.how
        d_query, d_key, d_value = map(torch.zeros_like, (query, key, value))
        d_added = torch.zeros_like(added) if ctx.needs_input_grad[3] else None
        shift = (d_output * output).sum(-1, keepdim=True) - d_lse  # (..., n, 1)
        finite = lse.masked_fill(lse == -math.inf, 0)              # (..., n, 1)
        for rows, visited in tiles(query.size(-2), key.size(-2), *ctx.how):
            for columns in visited:
                scores = _scores(query, key, added, is_causal, visible, rows, columns)
                weights = (scores - finite[..., rows, :]).exp()
                d_weights = d_output[..., rows, :] @ value[..., columns, :].mT
                d_scores = weights * (d_weights - shift[..., rows, :])
                d_value[..., columns, :] += weights.mT @ d_output[..., rows, :]
                d_query[..., rows, :] += d_scores @ key[..., columns, :]
                d_key[..., columns, :] += d_scores.mT @ query[..., rows, :]
                if d_added is not None:
                    d_added[..., rows, columns] = d_scores
        return d_query, d_key, d_value, d_added, None, None, None


def _scores(
    query: Tensor,
    key: Tensor,
    added: Tensor | None,
    is_causal: bool,
    visible: Visible | None,
    rows: slice,
    columns: slice,
) -> Tensor:
    """Compute the masked scores of one tile, with queries that are scaled."""
    scores = query[..., rows, :] @ key[..., columns, :].mT
    if added is not None:
        scores = scores + added[..., rows, columns]
    if is_causal:
        later = torch.ones_like(scores, dtype=torch.bool).triu(1 + rows.start - columns.start)
        scores = scores.masked_fill(later, -math.inf)
    if visible is not None:
        scores = scores.masked_fill(~visible(rows, columns), -math.inf)
    return scores

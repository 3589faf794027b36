"""Exercises of "Transformer layers": a norm, the decoder's mask, and a pre-LN decoder layer."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    finite_numbers,
    random,
    require_function,
    require_shape,
    require_tensor,
    require_unchanged,
)
from annotated_attention.masks import block_future
from annotated_attention.transformer import TransformerDecoderLayer

# Padding on both sides: behind the end, the causal mask hides it already from all real tokens.
_PADDING = (("00000", "11001"), ("000", "100", "001"))

# The word of the first exercise, and what a layer norm makes of it.
_WORD, _NORMED = (4.0, 0.0, 0.0, 4.0), (1.0, -1.0, -1.0, 1.0)
_WRONG_NORMS = (
    ("that is the word itself: subtract the mean, then divide by the deviation.", _WORD),
    (
        "the mean is gone. Now divide by the deviation, the root of the variance.",
        (2.0, -2.0, -2.0, 2.0),
    ),
    ("you divided by the variance; divide by its root.", (0.5, -0.5, -0.5, 0.5)),
    ("you divided, and the mean is still there: subtract it first.", (2.0, 0.0, 0.0, 2.0)),
    (
        "the variance is the mean of the four squares: divide their sum by 4, not by 3.",
        (0.75**0.5, -(0.75**0.5), -(0.75**0.5), 0.75**0.5),
    ),
    (
        "that is an RMSNorm, which does not subtract the mean; a layer norm does.",
        (2**0.5, 0.0, 0.0, 2**0.5),
    ),
    ("the signs are turned round: subtract the mean from the number.", (-1.0, 1.0, 1.0, -1.0)),
)


@check("norm")
def check_norm(answer: object) -> str:
    """Judge a layer norm of one word, and print the verdict.

    Args:
        answer: the four numbers.
    """
    found = finite_numbers(answer, 4)
    for reason, wrong in _WRONG_NORMS:
        if torch.allclose(found, torch.tensor(wrong, dtype=torch.float64), atol=0.01):
            raise Refused(reason)
    for i, (number, right) in enumerate(zip(found.tolist(), _NORMED, strict=True)):
        if abs(number - right) > 0.01:
            raise Refused(
                f"number {i + 1} is not {number:g}. The mean is 2, and so is the deviation."
            )
    return "right. From (2, 0, 0, 2) the norm would make the same: it undoes a scale."


@check("decoder_mask")
def check_decoder_mask(answer: Callable[..., Any]) -> str:
    """Judge ``decoder_mask(padding)``, and print the verdict.

    Args:
        answer: the reader's function of padding (b, n), which is to return blocked (b, 1, n, n).
    """
    require_function(answer)
    for number, rows in enumerate(_PADDING):
        padding = torch.tensor([[digit == "1" for digit in row] for row in rows])
        with at_sizes(not number, b=len(rows), n=len(rows[0])):
            _judge_mask(answer, padding)
    return "right: (b, 1, n, n), merged by broadcasting, and no copy for each head."


def _judge_mask(answer: Callable[..., Any], padding: Tensor) -> None:
    """Judge the mask for one batch."""
    b, n = padding.shape
    given = padding.clone()
    found = require_tensor("it returns", call("your code", answer, given))
    require_unchanged("padding", given, padding)
    if found.dtype != torch.bool:
        raise Refused(f"it returns {found.dtype}; a mask of booleans is asked for, True = blocked.")
    right = _mask(padding)
    for reason, wrong in _wrong_masks(padding):
        if found.shape == wrong.shape and found.equal(wrong):
            raise Refused(reason)
    require_shape("it returns", found, "(b, 1, n, n)", (b, 1, n, n))
    if not found.equal(right):
        i = (found != right).nonzero()[0].tolist()
        says = "blocked" if found[tuple(i)] else "allowed"
        raise Refused(
            f"in sample {i[0]}, query {i[2]} and key {i[3]}, counted from 0, it says {says}."
        )


def _mask(padding: Tensor) -> Tensor:
    """Block the future and the padding."""
    return block_future(padding.size(1)) | padding[:, None, None, :]


def _wrong_masks(padding: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the mask that it leads to."""
    b, n = padding.shape
    right, future = _mask(padding), block_future(n)
    yield "True means blocked here, and you have True for allowed.", ~right
    yield (
        "it blocks the past instead of the future: triu, not tril.",
        (future.mT | padding[:, None, None, :]),
    )
    yield (
        "it blocks the diagonal, too: a token may see itself.",
        (torch.ones(n, n, dtype=torch.bool).triu() | padding[:, None, None, :]),
    )
    yield (
        "the padding blocks queries instead of keys. Keys are on the last axis.",
        (future | padding[:, None, :, None]),
    )
    yield (
        "it blocks only what both masks block; one is enough: |, not &.",
        (future & padding[:, None, None, :]),
    )
    both = padding[:, None, None, :] | padding[:, None, :, None]
    yield (
        "padded queries are blocked, too. Then every key is blocked for them; what they "
        "compute is not used anyway.",
        future | both,
    )
    alone = future.expand(b, 1, n, n)
    yield "the future is blocked, and the padding is not.", alone
    yield "the future is blocked, and the padding is not.", future
    yield "the padding is blocked, and the future is not.", padding[:, None, None, :]
    yield "the padding is blocked, and the future is not.", right[:, :, -1:].expand(b, 1, n, n)
    reason = "there is no axis for the heads: (b, n, n) does not broadcast to (b, h, n, n)."
    yield reason, right[:, 0]


@check("pre_norm_decoder")
def check_pre_norm_decoder(answer: Callable[..., Any]) -> str:
    """Judge ``pre_norm_decoder(layer, tgt, memory)``, and print the verdict.

    Args:
        answer: the reader's function of a layer's parts, tgt (b, n, e) and memory (b, m, e), which
            is to return (b, n, e).
    """
    require_function(answer)
    for seed, (b, n, m, h, d) in enumerate(((2, 3, 5, 4, 6), (3, 4, 2, 1, 5))):
        with at_sizes(not seed, b=b, n=n, m=m, h=h, d=d):
            _judge_layer(answer, seed, (b, n, m), h, h * d)
    return "right, and so are the gradients: for more keys than queries, and for fewer."


def _judge_layer(
    answer: Callable[..., Any], seed: int, sizes: tuple[int, int, int], h: int, e: int
) -> None:
    """Judge the function at one set of sizes."""
    b, n, m = sizes
    torch.manual_seed(seed)
    layer = TransformerDecoderLayer(
        e, h, 7, 0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    inputs = random(seed, (b, n, e), (b, m, e))
    copies = [x.clone() for x in inputs]
    output = call("your code", answer, layer, *copies)
    for name, now, before in zip(("tgt", "memory"), copies, inputs, strict=True):
        require_unchanged(name, now, before)
    right = layer(*inputs, tgt_is_causal=True)
    compare(output, right, "(b, n, e)", _wrong_layers(layer, *inputs))
    leaves = {name: x.requires_grad_() for name, x in zip(("tgt", "memory"), inputs, strict=True)}
    right = layer(*leaves.values(), tgt_is_causal=True)
    output = compare(call("your code", answer, layer, *leaves.values()), right, "(b, n, e)", ())
    compare_gradients(output, right, leaves | dict(layer.named_parameters()))


def _decode(
    layer: Any,
    tgt: Tensor,
    memory: Tensor,
    *,
    norms: str = "123",
    add_normed: bool = False,
    is_causal: bool = True,
    norm_memory: bool = False,
    across: bool = True,
    bend: bool = True,
    post: bool = False,
) -> Tensor:
    """Compute a decoder layer, right or with one mistake."""

    def back(x: Tensor) -> Tensor:
        return layer.self_attn(x, x, x, is_causal=is_causal)[0]

    def look_across(x: Tensor) -> Tensor:
        key = layer.norm2(memory) if norm_memory else memory
        return layer.multihead_attn(x, key, key)[0]

    def think(x: Tensor) -> Tensor:
        wide = layer.linear1(x)
        return layer.linear2(wide.relu() if bend else wide)

    x = tgt
    for number, sublayer in zip("123", (back, look_across, think), strict=True):
        if number == "2" and not across:
            continue
        norm = getattr(layer, f"norm{number}") if number in norms else lambda x: x
        start = norm(x) if add_normed else x
        x = norm(x + sublayer(x)) if post else start + sublayer(norm(x))
    return x


def _wrong_layers(layer: Any, tgt: Tensor, memory: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the output that it leads to."""

    def wrong(**mistake: Any) -> Tensor:
        return _decode(layer, tgt, memory, **mistake)

    yield "that is post-LN: the norm stands behind the sum.", wrong(post=True)
    yield "words see later ones: self_attn needs is_causal=True.", wrong(is_causal=False)
    yield (
        "you add to what is normalised. The residual goes past the norm: x + sublayer(norm(x)).",
        wrong(add_normed=True),
    )
    for number, what in (("1", "look back"), ("2", "look across"), ("3", "feed-forward network")):
        reason = f"norm{number} is missing in front of the {what}."
        yield reason, wrong(norms="123".replace(number, ""))
    yield "there is no norm at all.", wrong(norms="")
    yield (
        "the memory goes through norm2, too. It comes out of a stack with a norm of its own; norm2 "
        "is for the queries.",
        wrong(norm_memory=True),
    )
    yield "the look across is missing.", wrong(across=False)
    yield "the ReLU between linear1 and linear2 is missing.", wrong(bend=False)

"""Exercises of "Split and stack": whose columns, a silent head, all heads in one matrix."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    random,
    require_function,
    require_unchanged,
    whole_numbers,
)

_COLUMNS = (4, 6, 2)  # h, d, and the index of the head that is asked for


@check("my_columns")
def check_columns(answer: object) -> str:
    """Judge which columns of W_Q belong to a head, and print the verdict.

    Args:
        answer: the first column of the third of 4 heads of width 6, and the first one after it.
    """
    h, d, head = _COLUMNS
    found = whole_numbers("it is", answer, "a pair, start and stop of a slice,", 2)
    right = (head * d, (head + 1) * d)
    if found == right:
        return (
            "right. The head with index i has the slice i * d : (i + 1) * d, here "
            f"{right[0]}:{right[1]}, so each head has {d} columns."
        )
    wrong = {
        ((head - 1) * d, head * d): "that slice is the second head; the third begins after it.",
        (right[0], right[1] - 1): (
            "the first column is right. A slice ends before its second number, so this one leaves "
            f"out column {right[1] - 1}."
        ),
        (right[0] + 1, right[1] + 1): "you count the columns from 1.",
        (right[0] + 1, right[1]): "you count the columns from 1; the first one is column 0.",
        (head * h, (head + 1) * h): (
            f"you take the number of heads ({h}) for the width of a head. Each has {d} columns."
        ),
        (head, head + 1): f"that is one column. A head has {d} of them.",
    }
    if found in wrong:
        raise Refused(wrong[found])
    if found[1] - found[0] != d:
        raise Refused(f"that slice has {found[1] - found[0]} columns; a head has {d} of them.")
    raise Refused(f"the width is right, but the third head does not begin at column {found[0]}.")


# h, d, e. First the width of the model, as in the chapter; then one that is not h * d.
_SILENCE_SIZES = ((4, 6, 24), (3, 5, 7))


@check("silence")
def check_silence(answer: Callable[..., Any]) -> str:
    """Judge ``silence(w_o, head, num_heads)``, and print the verdict.

    Args:
        answer: the reader's function of w_o (h * d, e), a head counted from 0, and h. It is to
            return a copy of w_o with zeros in the rows of that head.
    """
    require_function(answer)
    for seed, (h, d, e) in enumerate(_SILENCE_SIZES):
        (w_o,) = random(seed, (h * d, e))
        # Head 0 comes later: with it, many wrong answers look alike.
        for head in (1, h - 1, 0):
            with at_sizes(not seed and head == 1, head=head, h=h, d=d, e=e):
                _judge_silence(answer, w_o, head, h)
    return (
        "right for every head, and so are the gradients. A head speaks through its own d rows of "
        "W_O and nowhere else."
    )


def _judge_silence(answer: Callable[..., Any], w_o: Tensor, head: int, h: int) -> None:
    """Judge the function for one head."""
    right = _without_rows(w_o, _rows(w_o, head, h))
    copy = w_o.clone()
    output = call("your code", answer, copy, head, h)
    require_unchanged("w_o", copy, w_o)
    compare(output, right, "(h * d, e)", _wrong_silence(w_o, head, h))

    leaf = w_o.clone().requires_grad_()
    right = _without_rows(leaf, _rows(leaf, head, h))
    output = compare(call("your code", answer, leaf, head, h), right, "(h * d, e)", ())
    compare_gradients(output, right, {"w_o": leaf})


def _rows(w_o: Tensor, head: int, h: int) -> slice:
    """Tell which rows of W_O belong to a head."""
    d = w_o.size(0) // h
    return slice(head * d, (head + 1) * d)


def _without_rows(w_o: Tensor, rows: int | slice) -> Tensor:
    """Copy W_O with zeros in these rows."""
    copy = w_o.clone()
    copy[rows] = 0
    return copy


def _wrong_silence(w_o: Tensor, head: int, h: int) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to."""
    rows = _rows(w_o, head, h)
    right = _without_rows(w_o, rows)
    yield "every head still contributes: it is w_o as it was.", w_o
    yield "no head contributes any more: only one is to be silent.", torch.zeros_like(w_o)
    columns = w_o.clone()
    columns[:, rows] = 0
    yield (
        "you zero columns. A column of w_o is one feature of the output, to which all heads "
        "contribute; a head meets rows.",
        columns,
    )
    yield (
        "the other way round: you keep this head and silence the others. Its own rows are to be "
        "zero.",
        w_o - right,
    )
    yield (
        "the rows of the head are gone, so the merged heads no longer fit. Leave them where they "
        "are, filled with zeros.",
        torch.cat([w_o[: rows.start], w_o[rows.stop :]]),
    )
    yield "it is right but transposed.", right.mT
    for reason, others in _wrong_rows(rows, head, h):
        yield reason, _without_rows(w_o, others)


def _wrong_rows(rows: slice, head: int, h: int) -> Iterator[tuple[str, int | slice]]:
    """Yield reasons with the rows that each takes for those of the head."""
    d = rows.stop - rows.start
    own = "head i has rows i * d to (i + 1) * d."
    for other in range(h):
        if other != head:
            reason = f"you silence head {other} in place of head {head}. Counted from 0, {own}"
            yield reason, slice(other * d, (other + 1) * d)
    yield (
        "you zero every h-th row: these are features of all heads. The rows of a head are "
        f"neighbours: {own}",
        slice(head, None, h),
    )
    for row in (head, rows.start):
        yield "you zero a single row; a head has d of them.", row
    for stop in (head * h + h, head * h + d):
        yield (
            "you take num_heads for the height of a block. It is d, the rows of w_o divided by h.",
            slice(head * h, stop),
        )


# h, n, m, d
_PACK_SIZES = ((4, 3, 5, 6), (3, 4, 2, 5))

Heads = list[tuple[Tensor, Tensor, Tensor]]


@check("pack")
def check_pack(answer: Callable[..., Any]) -> str:
    """Judge ``pack(heads)``, and print the verdict.

    Args:
        answer: the reader's function of a list of h triples (w_q, w_k, w_v), each (e, d). It is to
            return what ``nn.MultiheadAttention`` holds as ``in_proj_weight``, (3 * e, e).
    """
    require_function(answer)
    for seed, (h, n, m, d) in enumerate(_PACK_SIZES):
        e = h * d
        query, key, value, *matrices = random(seed, (n, e), (m, e), (m, e), *[(e, d)] * (3 * h))
        with at_sizes(not seed, h=h, d=d, e=e):
            _judge_pack(answer, [query, key, value], [w / e**0.5 for w in matrices])
    return (
        "right. Loaded into nn.MultiheadAttention, it gives what the heads give one by one, and "
        "the same gradient reaches each matrix."
    )


def _judge_pack(answer: Callable[..., Any], inputs: list[Tensor], matrices: list[Tensor]) -> None:
    """Judge the function on 3 * h matrices, first what it returns, then what PyTorch makes of it.

    Args:
        answer: the reader's function.
        inputs: query, key and value.
        matrices: w_q, w_k and w_v of the first head, then of the second, and so on.
    """
    copies = _triples([w.clone() for w in matrices])
    packed = call("your code", answer, copies)
    now = [w for triple in copies for w in (triple if isinstance(triple, tuple) else [triple])]
    require_unchanged("heads", now, matrices)
    right, wrong = _packed(_triples(matrices)), _wrongly_packed(_triples(matrices))
    compare(packed, right, "(3 * e, e)", wrong)

    leaves = [w.clone().requires_grad_() for w in matrices]
    heads = _triples(leaves)
    packed = compare(call("your code", answer, _triples(leaves)), right, "(3 * e, e)", ())
    output = _run_pytorch(packed, len(heads), inputs)
    apart = _run_one_by_one(heads, inputs)
    compare(output, apart, "(n, e)", ())
    names = [f"heads[{i}][{part}]" for i in range(len(heads)) for part in range(3)]
    compare_gradients(output, apart, dict(zip(names, leaves, strict=True)))


def _triples(matrices: list[Tensor]) -> Heads:
    return list(zip(*[iter(matrices)] * 3, strict=True))


def _packed(heads: Heads) -> Tensor:
    """Pack the matrices as PyTorch stores them."""
    return torch.cat([w for part in zip(*heads, strict=True) for w in part], 1).mT


def _run_pytorch(packed: Tensor, h: int, inputs: Sequence[Tensor]) -> Tensor:
    """Run PyTorch's module with ``packed`` as its weight, and with an output that mixes nothing."""
    e = packed.size(1)
    module = nn.MultiheadAttention(e, h, bias=False, dtype=packed.dtype)
    weights = {"in_proj_weight": packed, "out_proj.weight": torch.eye(e, dtype=packed.dtype)}
    output, _ = functional_call(module, weights, tuple(inputs), {"need_weights": False})
    return output


def _run_one_by_one(heads: Heads, inputs: Sequence[Tensor]) -> Tensor:
    """Run each head alone, and put the outputs side by side."""
    query, key, value = inputs
    mixed = [
        scaled_dot_product_attention(query @ w_q, key @ w_k, value @ w_v)[0]
        for w_q, w_k, w_v in heads
    ]
    return torch.cat(mixed, -1)  # (n, e)


def _wrongly_packed(heads: Heads) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to; one reason alone comes before two."""
    choices = itertools.product(_orders(heads), _forms(heads[0][0].size(-1)))
    for order, form in sorted(choices, key=lambda pair: sum(bool(reason) for reason, _ in pair)):
        reasons = [reason for reason, _ in (order, form) if reason]
        if reasons:
            yield " And ".join(reasons), form[1](order[1])


def _orders(heads: Heads) -> Iterator[tuple[str, Tensor]]:
    """Yield wide matrices, (e, 3 * e), each with its reason; the right one without."""
    parts = [torch.cat(part, 1) for part in zip(*heads, strict=True)]  # (e, e)
    yield "", torch.cat(parts, 1)
    yield (
        "it goes head by head (q, k and v of the first, then of the second), but PyTorch cuts it "
        "into thirds: first the queries of all heads, then all keys, then all values.",
        torch.cat([w for triple in heads for w in triple], 1),
    )
    names = ("queries", "keys", "values")
    for order in itertools.permutations(range(3)):
        if order != (0, 1, 2):
            first, second, third = (names[part] for part in order)
            yield (
                f"you pack {first}, then {second}, then {third}. PyTorch reads queries, then "
                "keys, then values.",
                torch.cat([parts[part] for part in order], 1),
            )
    yield (
        "the heads are in reversed order.",
        torch.cat([w for part in zip(*heads[::-1], strict=True) for w in part], 1),
    )
    yield (
        "the features of the heads are interleaved: put whole heads side by side, do not stack "
        "them along the last axis.",
        torch.cat([torch.stack(part, -1).flatten(1) for part in zip(*heads, strict=True)], 1),
    )


_ASIDE = (
    "you concatenate along the wrong axis: heads share the columns of a wide matrix, so (e, d) "
    "matrices go side by side, along axis 1."
)


def _forms(d: int) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    """List what people make of a wide matrix, (e, 3 * e); the right form without a reason."""

    def below(wide: Tensor) -> Tensor:
        """Put the heads below each other, and queries, keys and values side by side."""
        return torch.cat([torch.cat(part.split(d, 1)) for part in wide.chunk(3, 1)], 1)

    return [
        ("", lambda wide: wide.mT),
        (
            "you do not transpose. PyTorch stores what it multiplies by from the right, "
            "transposed: W_Qᵀ, then W_Kᵀ and W_Vᵀ below it.",
            lambda wide: wide,
        ),
        (
            "the shape is right, but W_Q, W_K and W_V stand below each other without being "
            "transposed. Transpose each of them.",
            lambda wide: torch.cat(wide.chunk(3, 1)),
        ),
        (
            "you reshape where a transpose is needed: the shape comes out right, the numbers stand "
            "elsewhere.",
            lambda wide: wide.reshape(-1, wide.size(0)),
        ),
        (
            _ASIDE,
            lambda wide: torch.cat(wide.split(d, 1)),
        ),
        (_ASIDE, below),
        (_ASIDE, lambda wide: below(wide).mT),
        (
            "you put W_Q, W_K and W_V below each other and transpose all of it. Put them side by "
            "side, along axis 1, and transpose then.",
            lambda wide: torch.cat(wide.chunk(3, 1)).mT,
        ),
        (
            "you concatenate along the wrong axis: once transposed, (d, e) matrices go below each "
            "other, along axis 0.",
            lambda wide: torch.cat([w.mT for w in wide.split(d, 1)], 1),
        ),
    ]

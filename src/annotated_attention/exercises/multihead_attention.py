"""Exercises of "Multi-head attention": shapes, a score of one's own, what modules hide."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.attention import scaled_scores
from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    random,
    require_function,
    whole_numbers,
)
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import block_future
from annotated_attention.multihead import MultiheadAttention

# The shapes that are asked for: the right one, what it is made of, and why others are wrong.
_SHAPES: dict[str, tuple[tuple[int, ...], str, dict[tuple[int, ...], str]]] = {
    "the queries of the heads": (
        (2, 3, 7, 4),
        "(b, h, n, d)",
        {
            (7, 3, 2, 4): "7 is the number of queries and 2 the batch: the default is (n, b, e).",
            (
                2,
                7,
                3,
                4,
            ): "the heads still stand behind the tokens: the split moves them before.",
            (7, 2, 3, 4): "that is before the transpose, in the layout that was given.",
            (2, 3, 7, 12): "each head has its share of the 12 features, 12 / 3.",
            (2, 3, 9, 4): "that is the shape of the keys: there are 9 of them, and 7 queries.",
            (6, 7, 4): "the samples and the heads keep an axis each.",
            (2, 4, 7, 3): "there are 3 heads of width 4, and not 4 of width 3.",
        },
    ),
    "the mask, merged": (
        (2, 1, 1, 9),
        "(b, 1, 1, m)",
        {
            (
                2,
                9,
            ): "the mask as it was given lacks an axis for heads and one for queries.",
            (2, 1, 9): "it has no axis for the heads yet, and would meet the scores' axes shifted.",
            (
                2,
                3,
                7,
                9,
            ): "it is broadcast to that, and nothing is copied for heads or queries.",
            (2, 1, 7, 9): "padding is the same for every query, so this axis stays 1.",
            (2, 3, 1, 9): "padding is the same for every head, so this axis stays 1.",
            (2, 9, 1, 1): "the keys are the last axis of the scores, and so of the mask.",
            (2, 1, 9, 1): "the keys are the last axis of the scores, and so of the mask.",
        },
    ),
    "the output": (
        (7, 2, 12),
        "(n, b, e)",
        {
            (2, 7, 12): "it comes in the layout of the query, and batch_first is False by default.",
            (9, 2, 12): "there is a row for each query, not for each key.",
            (2, 3, 7, 4): "those are the heads before they are merged.",
            (7, 2, 4): "all 3 heads stand side by side in it.",
        },
    ),
    "the weights": (
        (2, 7, 9),
        "(b, n, m)",
        {
            (2, 3, 7, 9): "by default you get the mean over the heads.",
            (7, 2, 9): "the weights have the batch first, whatever the layout of the query.",
            (2, 9, 7): "a row belongs to a query and a column to a key.",
            (7, 9): "each of the 2 samples has weights of its own.",
            (2, 7, 7): "a column belongs to a key, and there are 9 of them.",
        },
    ),
}


@check("my_shapes")
def check_shapes(answer: object) -> str:
    """Judge four shapes, and print the verdict.

    Args:
        answer: for each of the four names of the exercise a tuple of whole numbers.
    """
    if not isinstance(answer, Mapping) or set(answer) != set(_SHAPES):
        raise Refused(f"give a dictionary with the keys {', '.join(map(repr, _SHAPES))}.")
    for name, (right, letters, wrong) in _SHAPES.items():
        value = answer[name]
        count = len(value) if isinstance(value, tuple | list) else 0
        found = whole_numbers(f"{name}: it is", value, "a tuple", count)
        if found in wrong:
            raise Refused(f"{name}, {found}: {wrong[found]}")
        if found != right:
            raise Refused(
                f"{name}, {found}: not quite. Its axes are {letters}; look up which of the numbers "
                "2, 3, 4, 7, 9 and 12 each letter is."
            )
    return (
        "right: tokens come and go as (n, b, e), the heads work on (b, h, n, d), and the weights "
        "have the batch first."
    )


_SIZES = ((2, 3, 5, 4, 6), (3, 4, 4, 8, 3), (2, 6, 2, 2, 5))  # b, n, m, h, d


@check("AlibiAttention")
def check_alibi(answer: object) -> str:
    """Judge a subclass of ``MultiheadAttention`` with ALiBi's scores, and print the verdict.

    Args:
        answer: the reader's class.
    """
    require_function(answer)
    if not (isinstance(answer, type) and issubclass(answer, MultiheadAttention)):
        raise Refused("give a class that inherits from MultiheadAttention, the class itself.")
    for number, sizes in enumerate(_SIZES):
        with at_sizes(not number, **dict(zip("bnmhd", sizes, strict=True))):
            _judge_alibi(answer, *sizes)
    return (
        "right, with and without weights, and so are the gradients. It learns nothing, so "
        "PyTorch's parameters still fit."
    )


def _judge_alibi(answer: Callable[..., Any], b: int, n: int, m: int, h: int, d: int) -> None:
    """Judge the class at one size, causal and not."""
    e = h * d
    torch.manual_seed(0)
    plain = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
    mine = call("making it", lambda: answer(e, h, batch_first=True, dtype=torch.float64))
    extra = dict(mine.named_parameters()).keys() - dict(plain.named_parameters()).keys()
    if extra:
        raise Refused(f"ALiBi's slopes are fixed, but {', '.join(sorted(extra))} would be learned.")
    mine.load_state_dict(plain.state_dict(), strict=False)
    query, key, value = random(1, (b, n, e), (b, m, e), (b, m, e))
    for is_causal in (False, True):
        _compare_weights(mine, plain, query, key, is_causal)
        for need_weights in (True, False):
            inputs = {"query": query.clone().requires_grad_(), "key": key.clone().requires_grad_()}
            given = [*inputs.values(), value]
            output, _ = call("your module", _run, mine, *given, is_causal, need_weights)
            right = _attend(plain, given, is_causal, _penalty(h, n, m))
            reason = "the weights are right, but other ones have mixed the values."
            wrong = [(reason, _attend(plain, given, is_causal, None))]
            compare(output, right, "(b, n, e)", wrong)
            compare_gradients(output, right, inputs)


def _run(module: nn.Module, *given: Any) -> Any:
    *inputs, is_causal, need_weights = given
    return module(
        *inputs, is_causal=is_causal, need_weights=need_weights, average_attn_weights=False
    )


def _compare_weights(
    mine: nn.Module, plain: MultiheadAttention, query: Tensor, key: Tensor, is_causal: bool
) -> None:
    """Compare the weights of each head, and name the mistake that leads to other ones."""
    _, weights = call("your module", _run, mine, query, key, key, is_causal, True)
    q, k = _projected(plain, query, key)
    blocked = block_future(q.size(-2), k.size(-2)) if is_causal else None

    def softmax(scores: Tensor) -> Tensor:
        return (scores if blocked is None else scores.masked_fill(blocked, -torch.inf)).softmax(-1)

    scores = scaled_scores(q, k)
    right = softmax(scores - _penalty(*_lengths(q, k)))
    wrong = ((reason, softmax(other)) for reason, other in _wrong_scores(q, k))
    after = (
        "it is added to the weights, after the softmax, so they no longer sum to one. It belongs "
        "to the scores."
    )
    later = [(after, softmax(scores) - _penalty(*_lengths(q, k)))]
    compare(weights, right, "(b, h, n, m)", [*wrong, *later])


def _lengths(q: Tensor, k: Tensor) -> tuple[int, int, int]:
    return q.size(1), q.size(-2), k.size(-2)


def _projected(module: MultiheadAttention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Make the queries and keys of each head."""
    assert module.in_proj_weight is not None
    w_q, w_k, _ = module.in_proj_weight.chunk(3)
    q = split_heads(query @ w_q.mT, module.num_heads)  # (b, h, n, d)
    return q, split_heads(key @ w_k.mT, module.num_heads)


def _attend(
    module: MultiheadAttention, given: list[Tensor], is_causal: bool, penalty: Tensor | None
) -> Tensor:
    """Compute the right output, apart from the class."""
    assert module.in_proj_weight is not None
    query, key, value = given
    q, k = _projected(module, query, key)
    scores = scaled_scores(q, k) if penalty is None else scaled_scores(q, k) - penalty
    if is_causal:
        scores = scores.masked_fill(block_future(q.size(-2), k.size(-2)), -torch.inf)
    v = split_heads(value @ module.in_proj_weight.chunk(3)[2].mT, module.num_heads)
    return module.out_proj(merge_heads(scores.softmax(-1) @ v))


def _slopes(h: int) -> Tensor:
    return torch.tensor([2 ** (-8 * i / h) for i in range(1, h + 1)], dtype=torch.float64)


def _distances(n: int, m: int) -> Tensor:
    """Give i - j: positive where the key stands before the query."""
    return torch.arange(n)[:, None] - torch.arange(m).double()


def _penalty(h: int, n: int, m: int) -> Tensor:
    """Give what is taken off each score."""
    return _slopes(h)[:, None, None] * _distances(n, m).abs()


def _wrong_scores(q: Tensor, k: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the scores that it leads to."""
    h, n, m = _lengths(q, k)
    scores, distance = scaled_scores(q, k), _distances(n, m)
    far, slopes = distance.abs(), _slopes(h)[:, None, None]
    root = q.size(-1) ** 0.5
    yield "not yet: these are the weights of the ordinary score.", scores
    yield (
        "the sign is wrong: the further away a key is, the more it gets. Take the penalty off.",
        scores + slopes * far,
    )
    signed = (
        "the distance has a sign: keys on one side of the query get more, the further away they "
        "are. With a causal mask nobody may see it. Take |i - j|."
    )
    yield signed, scores - slopes * distance
    yield signed, scores + slopes * distance
    yield (
        "only keys before the query lose. Keys behind it are as far away: take |i - j|.",
        scores - slopes * distance.clamp(min=0),
    )
    yield (
        "the penalty is divided by √d, too. Scale the product alone, then take it off.",
        scores - slopes * far / root,
    )
    yield "the product is not scaled: √d is missing.", scores * root - slopes * far
    yield from _wrong_slopes(scores, far, h)


def _wrong_slopes(scores: Tensor, far: Tensor, h: int) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with slopes that are not the paper's."""
    one = "every head has the same slope, so there is one range for all. Head i has 2^(-8 i / h)."
    for slope in (1.0, *_slopes(h).tolist()):
        yield one, scores - slope * far
    numbers = torch.arange(1, h + 1).double()
    candidates = {
        "the slopes are in the reverse order: the first head has the steepest.": _slopes(h).flip(0),
        "the heads are counted from 0: the first slope is 2^(-8 / h), and not 1.": (
            2.0 ** (-8 / h * (numbers - 1))
        ),
        "the slopes are 2^-1, 2^-2 and so on, which is right for 8 heads only: the exponent of "
        "head i is -8 i / h.": 2.0**-numbers,
        "the slopes grow along a line. They halve again and again: 2^(-8 i / h).": numbers / h,
        "the exponent is positive: slopes are below 1.": 2.0 ** (8 / h * numbers),
    }
    for reason, slopes in candidates.items():
        yield reason, scores - slopes[:, None, None] * far


# Settings of PyTorch's module, with what a wrong one is called, the silent ones first.
_MODULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the default settings", {}),
    ("batch_first=True", {"batch_first": True}),
    ("add_zero_attn=True", {"add_zero_attn": True}),
    ("dropout=0.5", {"dropout": 0.5}),
    ("bias=False", {"bias": False}),
    ("add_bias_kv=True", {"add_bias_kv": True}),
    ("kdim=7, vdim=9", {"kdim": 7, "vdim": 9}),
    ("kdim=7", {"kdim": 7}),
    ("dtype=torch.float64", {"dtype": torch.float64}),
)


@check("take_over")
def check_take_over(answer: Callable[..., Any]) -> str:
    """Judge a function that makes our module from PyTorch's, and print the verdict.

    Args:
        answer: the reader's function of an ``nn.MultiheadAttention``.
    """
    require_function(answer)
    for number, (name, options) in enumerate(_MODULES):
        for training in (True, False):
            torch.manual_seed(number)
            theirs = nn.MultiheadAttention(24, 4, **options).train(training)
            for parameter in theirs.parameters():
                nn.init.normal_(parameter, 0, 0.3)
            _judge_taken(answer, theirs, name)
    return (
        f"right, for {len(_MODULES)} kinds of modules, in training and in evaluation. Settings "
        "that no parameter shows, such as batch_first, are the ones to remember."
    )


def _judge_taken(answer: Callable[..., Any], theirs: nn.MultiheadAttention, name: str) -> None:
    """Judge what becomes of one module."""
    before = {key: x.clone() for key, x in theirs.state_dict().items()}
    training = theirs.training
    ours = call(f"your code, with a module that has {name},", answer, theirs)
    if ours is None or ours is ...:
        raise Refused(f"not yet, it returns {ours if ours is None else '...'}.")
    if not isinstance(ours, MultiheadAttention):
        kind = f"an object of type {type(ours).__name__}"
        kind = "PyTorch's own module" if ours is theirs else kind
        raise Refused(f"it returns {kind}; a MultiheadAttention of this package is asked for.")
    if theirs.training != training or any(
        not before[key].equal(x) for key, x in theirs.state_dict().items()
    ):
        raise Refused("it changes PyTorch's module, which whoever calls it may still need.")
    _require_settings(ours, theirs, name)
    state = ours.state_dict()
    if state.keys() != before.keys():
        odd = ", ".join(sorted(state.keys() ^ before.keys()))
        raise Refused(f"with {name}, only one of the two modules has {odd}.")
    for key, x in state.items():
        if x.dtype != before[key].dtype:
            raise Refused(
                f"with {name}, {key} is {before[key].dtype} in PyTorch's and {x.dtype} in yours. "
                "load_state_dict converts in silence."
            )
        if not x.equal(before[key]):
            raise Refused(f"with {name}, {key} has other numbers: load the state_dict.")


def _require_settings(ours: MultiheadAttention, theirs: nn.MultiheadAttention, name: str) -> None:
    """Refuse other settings, each with what it does."""
    silent = {
        "embed_dim": "it would take inputs of another width",
        "num_heads": "every shape fits, and each head has another width",
        "batch_first": "every shape fits, and samples are taken for tokens",
        "add_zero_attn": "every parameter fits, and the key of zeros is missing or too many",
        "dropout": "every parameter fits, and training differs",
        "training": "in evaluation nothing must be dropped, and a new module is training",
    }
    for setting, effect in silent.items():
        found, right = getattr(ours, setting), getattr(theirs, setting)
        if found != right:
            raise Refused(f"with {name}, {setting} is {found} and must be {right}: {effect}.")

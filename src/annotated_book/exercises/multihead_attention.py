"""Exercises of "Multi-head attention": the class, shapes, an own score, what modules hide."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from annotated_attention.attention import scaled_scores
from annotated_attention.multihead import MultiheadAttention
from annotated_book.exercises import short_path
from annotated_book.exercises._exercise import (
    Either,
    Exercise,
    NotYet,
    Refused,
    normal,
    require_class,
)
from annotated_book.exercises._values import entries, whole

Shape = tuple[int, ...]

check_attention = replace(
    short_path.check_attention,
    praise="right: outputs, weights and gradients agree, with a mask and without.",
)

_SHAPES: dict[str, Shape] = {
    "the queries of the heads": (2, 3, 7, 4),
    "the mask, on the axes of the scores": (2, 1, 1, 9),
    "the output": (7, 2, 12),
    "the weights": (2, 7, 9),
}
_LETTERS = ("(b, h, n, d)", "(b, 1, 1, m)", "(n, b, e)", "(b, n, m)")
_WRONG_SHAPES: dict[str, dict[Shape, str]] = {
    "the queries of the heads": {
        (7, 3, 2, 4): "7 is the number of queries and 2 the batch: the default is (n, b, e).",
        (2, 7, 3, 4): "the heads still stand behind the tokens: the split moves them before.",
        (7, 2, 3, 4): "that is before the transpose, in the layout that was given.",
        (2, 3, 7, 12): "each head has its share of the 12 features, 12 / 3.",
        (2, 4, 7, 3): "there are 3 heads of width 4, and not 4 of width 3.",
    },
    "the mask, on the axes of the scores": {
        (2, 9): "the mask as it was given lacks an axis for heads and one for queries.",
        (2, 1, 9): "it has no axis for the heads yet, and would meet the scores' axes shifted.",
        (2, 3, 7, 9): "it is broadcast to that, and nothing is copied for heads or queries.",
        (2, 1, 7, 9): "padding is the same for every query, so this axis stays 1.",
    },
    "the output": {
        (2, 7, 12): "it comes in the layout of the query, and batch_first is False by default.",
        (9, 2, 12): "there is a row for each query, not for each key.",
        (2, 3, 7, 4): "those are the heads before they are merged.",
    },
    "the weights": {
        (2, 3, 7, 9): "by default you get the mean over the heads.",
        (7, 2, 9): "the weights have the batch first, whatever the layout of the query.",
        (2, 9, 7): "a row belongs to a query and a column to a key.",
    },
}


def _four_shapes(answer: object) -> Tensor:
    """Read a shape of at most nine numbers for each name; after its end stands -1."""
    rows = []
    for name, shape in entries(answer, [*_SHAPES]).items():
        count = len(shape) if isinstance(shape, tuple | list) else 0
        read = whole(f"{name}: it is", shape, count, "a tuple of whole numbers")
        rows.append([*read, *[-1] * 9][:9])
    return torch.tensor(rows)


def _which_shape(answer: Any, found: Tensor, right: Tensor) -> str:
    """Say which shape is wrong first, and why."""
    first = int((found != right).any(-1).nonzero()[0])
    name = [*_SHAPES][first]
    shape = tuple(answer[name])
    look_up = (
        f"not quite. Its axes are {_LETTERS[first]}; look up which of the numbers 2, 3, 4, 7, 9 "
        "and 12 each letter is."
    )
    return f"{name}, {shape}: {_WRONG_SHAPES[name].get(shape, look_up)}"


check_shapes = Exercise(
    name="my_shapes",
    right=_SHAPES,
    praise=(
        "right: tokens come and go as (n, b, e), the heads work on (b, h, n, d), and the weights "
        "have the batch first."
    ),
    wrong={},  # each shape has wrong ones of its own
    run=_four_shapes,
    why=_which_shape,
)


def _slopes(h: int) -> Tensor:
    return 2.0 ** (-8 / h * torch.arange(1, h + 1).double())


def _scored(score: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[MultiheadAttention]:
    """Make a class with this score, a function of q, k and i - j."""

    class Attention(MultiheadAttention):
        def score(self, q: Tensor, k: Tensor) -> Tensor:
            n, m = q.size(-2), k.size(-2)
            distance = torch.arange(n)[:, None] - torch.arange(m).double()  # (n, m)
            return score(q, k, distance)

    return Attention


def _alibi(
    penalty: Callable[[Tensor], Tensor] = torch.abs, slopes: Callable[[int], Tensor] = _slopes
) -> type[MultiheadAttention]:
    """Make a class that takes a penalty off, each head by its slope."""
    return _scored(
        lambda q, k, distance: (
            scaled_scores(q, k) - slopes(q.size(1))[:, None, None] * penalty(distance)
        )
    )


def _same_slope(slope: float) -> type[MultiheadAttention]:
    return _alibi(slopes=lambda h: torch.full((h,), slope, dtype=torch.float64))


def _off(q: Tensor, distance: Tensor) -> Tensor:
    return _slopes(q.size(1))[:, None, None] * distance.abs()


def _run_alibi(
    answer: Any, settings: dict[str, Any], matrices: dict[str, Tensor], *inputs: Tensor
) -> Tensor:
    """Make the reader's module, give it the drawn matrices, and run it."""
    require_class(answer, MultiheadAttention)
    e, h = matrices["out_proj.weight"].size(0), settings["num_heads"]
    module = answer(e, h, bias=False, batch_first=True, dtype=torch.float64)
    learned = {name for name, _ in module.named_parameters()} - set(matrices)
    if learned:
        raise Refused(f"ALiBi's slopes are fixed, but {', '.join(learned)} would be learned.")
    options = {name: settings[name] for name in ("is_causal", "need_weights")}
    return functional_call(module, matrices, inputs, options)[0]


def _draw_alibi(
    b: int, n: int, m: int, h: int, d: int, is_causal: bool, need_weights: bool
) -> dict[str, Any]:
    e = h * d
    matrices = {"in_proj_weight": (3 * e, e), "out_proj.weight": (e, e)}
    return {
        "settings": {"num_heads": h, "is_causal": is_causal, "need_weights": need_weights},
        "matrices": {name: x / e**0.5 for name, x in normal(**matrices).items()},
        **normal(query=(b, n, e), key=(b, m, e), value=(b, m, e)),
    }


_ALIBI_SIZES = ("b", "n", "m", "h", "d", "is_causal", "need_weights")

check_alibi = Exercise(
    name="AlibiAttention",
    right=_alibi(),
    praise=(
        "right, with and without weights, and so are the gradients. It learns nothing, so "
        "PyTorch's parameters still fit."
    ),
    wrong={
        "not yet: that is the ordinary score.": MultiheadAttention,
        "the sign is wrong: the further away a key is, the more it gets. Take the penalty off.": (
            _alibi(lambda distance: -distance.abs())
        ),
        "the distance has a sign: keys on one side of the query get more, the further away they "
        "are. With a causal mask nobody may see it. Take |i - j|.": Either(
            [_alibi(lambda distance: distance), _alibi(lambda distance: -distance)]
        ),
        "only keys before the query lose. Keys behind it are as far away: take |i - j|.": (
            _alibi(lambda distance: distance.clamp(min=0))
        ),
        "the product is not scaled: √d is missing.": _scored(
            lambda q, k, distance: q @ k.mT - _off(q, distance)
        ),
        "every head has the same slope, so there is one range for all. Head i has 2^(-8 i / h).": (
            Either([_same_slope(1), _same_slope(1 / 4)])
        ),
        "the slopes are in the reverse order: the first head has the steepest.": (
            _alibi(slopes=lambda h: _slopes(h).flip(0))
        ),
        "the heads are counted from 0: the first slope is 2^(-8 / h), and not 1.": (
            _alibi(slopes=lambda h: _slopes(h) * 2 ** (8 / h))
        ),
        "the slopes are 2^-1, 2^-2 and so on, which is right for 8 heads only: the exponent of "
        "head i is -8 i / h.": _alibi(slopes=lambda h: 0.5 ** torch.arange(1, h + 1).double()),
    },
    run=_run_alibi,
    sizes=[
        dict(zip(_ALIBI_SIZES, sizes, strict=True))
        for sizes in (
            (2, 3, 5, 4, 6, False, True),
            (2, 3, 5, 4, 6, False, False),
            (2, 3, 5, 4, 6, True, True),
            (3, 4, 4, 8, 3, True, False),
            (2, 6, 2, 2, 5, False, True),
        )
    ],
    draw=_draw_alibi,
    shape="(b, n, e)",
)

_SETTINGS = ("embed_dim", "num_heads", "batch_first", "add_zero_attn", "dropout", "training")


def _take_over(*left_out: str) -> Callable[[nn.MultiheadAttention], MultiheadAttention]:
    """Make a function that takes over a module, but for what is left out."""

    def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
        options = {
            "dropout": theirs.dropout,
            "add_zero_attn": theirs.add_zero_attn,
            "batch_first": theirs.batch_first,
            "dtype": theirs.out_proj.weight.dtype,
        }
        ours = MultiheadAttention(
            theirs.embed_dim,
            theirs.num_heads,
            bias=theirs.in_proj_bias is not None,
            add_bias_kv=theirs.bias_k is not None,
            kdim=theirs.kdim,
            vdim=theirs.vdim,
            **{name: value for name, value in options.items() if name not in left_out},
        )
        ours.load_state_dict(theirs.state_dict())
        return ours.train(True if "training" in left_out else theirs.training)

    return take_over


def _settings_and_numbers(answer: Any, theirs: nn.MultiheadAttention) -> Tensor:
    """Give the settings of what becomes of a module, whether its dtype is float64, its numbers."""
    state = theirs.state_dict()
    ours = answer(theirs)
    if ours is None or ours is ...:
        raise NotYet(f"it returns {'...' if ours is ... else None}")
    if not isinstance(ours, MultiheadAttention):
        kind = f"an object of type {type(ours).__name__}"
        kind = "PyTorch's own module" if ours is theirs else kind
        raise Refused(f"it returns {kind}; a MultiheadAttention of this package is asked for.")
    if odd := sorted(state.keys() ^ ours.state_dict().keys()):
        raise Refused(f"only one of the two modules has {', '.join(odd)}.")
    settings = [float(getattr(ours, name)) for name in _SETTINGS]
    numbers = [ours.get_parameter(name).detach() for name in state]
    settings.append(numbers[0].dtype == torch.float64)
    return torch.cat([torch.tensor(settings), *(x.double().flatten() for x in numbers)])


def _which_setting(answer: object, found: Tensor, right: Tensor, theirs: object) -> str:
    """Say which setting differs first, or that it is the numbers."""
    for name, mine, other in zip(_SETTINGS, found.tolist(), right.tolist(), strict=False):
        if mine != other:
            return f"{name} is {mine:g} and must be {other:g}."
    return "the parameters have other numbers: load the state_dict."


def _draw_module(training: bool = False, **options: Any) -> dict[str, nn.Module]:
    theirs = nn.MultiheadAttention(24, 4, **options).train(training)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    return {"theirs": theirs}


check_take_over = Exercise(
    name="take_over",
    right=_take_over(),
    praise=(
        "right, for 9 kinds of modules. Settings that no parameter shows, such as batch_first, are "
        "the ones to remember."
    ),
    wrong={
        "training is always True: in evaluation nothing must be dropped, and a new module is "
        "training.": _take_over("training"),
        "batch_first is lost: every shape fits, and samples are taken for tokens.": (
            _take_over("batch_first")
        ),
        "add_zero_attn is lost: every parameter fits, and the key of zeros is missing.": (
            _take_over("add_zero_attn")
        ),
        "dropout is lost: every parameter fits, and training differs.": _take_over("dropout"),
        "the dtype is lost: load_state_dict converts in silence.": _take_over("dtype"),
    },
    run=_settings_and_numbers,
    # Settings of PyTorch's module, the silent ones first.
    sizes=[
        {},
        {"training": True},
        {"batch_first": True},
        {"add_zero_attn": True},
        {"dropout": 0.5},
        {"dtype": torch.float64},
        {"bias": False},
        {"add_bias_kv": True},
        {"kdim": 7, "vdim": 9},
    ],
    draw=_draw_module,
    why=_which_setting,
)

"""Exercise of "Batches": an attention with its walls across, to mend."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from annotated_attention import merge_heads, split_heads
from annotated_book.exercises._exercise import Exercise, normal

Turn = Callable[[Tensor, int, int], Tensor]


def _attend(turn: Turn, back: Turn) -> Callable[[Tensor, int], Tensor]:
    """Build an attention between two turns of the batch, each given n and b."""

    def attend(y: Tensor, h: int) -> Tensor:
        n, b, _ = y.shape
        heads = split_heads(turn(y, n, b), h)
        return back(merge_heads(F.scaled_dot_product_attention(heads, heads, heads)), n, b)

    return attend


def _transposed(x: Tensor, n: int, b: int) -> Tensor:
    return x.transpose(0, 1)


def _as_it_is(x: Tensor, n: int, b: int) -> Tensor:
    return x


check_mended = Exercise(
    name="mended",
    right=_attend(_transposed, _transposed),
    praise="right, and so are the gradients: no sentence hears another.",
    wrong={
        "the walls still stand across: each sentence hears others. A reshape only cuts the row "
        "in which the words lie.": _attend(
            lambda y, n, b: y.reshape(b, n, -1), lambda z, n, b: z.reshape(n, b, -1)
        ),
        "on the way in it is right. On the way out the reshape gives words what others have "
        "found.": _attend(_transposed, lambda z, n, b: z.reshape(n, b, -1)),
        "on the way out it is right. On the way in the reshape lets sentences hear each "
        "other.": _attend(lambda y, n, b: y.reshape(b, n, -1), _transposed),
        "nobody turns y round, so each word hears its twins in the other sentences, and no word of "
        "its own.": _attend(_as_it_is, _as_it_is),
        "the numbers are right, but batch-first. Turn them round once more on the way "
        "out.": _attend(_transposed, _as_it_is),
        "the heads attend in rooms without walls: all words of all sentences hear each other.": (
            _attend(lambda y, n, b: y.reshape(1, n * b, -1), lambda z, n, b: z.reshape(n, b, -1))
        ),
    },
    sizes=[{"n": 5, "b": 3, "h": 4, "d": 2}, {"n": 4, "b": 2, "h": 3, "d": 5}],
    draw=lambda n, b, h, d: normal(y=(n, b, h * d)) | {"h": h},
    shape="(n, b, h * d)",
)

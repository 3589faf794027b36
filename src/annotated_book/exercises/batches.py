"""Exercise of "Batches": follow a number."""

from torch import Tensor

from annotated_book.exercises._exercise import Exercise
from annotated_book.exercises._values import whole_numbers


def _which_index(answer: object, found: Tensor, right: Tensor) -> str:
    """Name the first axis whose number is wrong."""
    axis = int((found != right).nonzero()[0])
    return (
        "the first number is the sentence, the second of y's three.",
        "the sentence is right. Head 0 has the features 0 to 5: which head has feature 11?",
        "sentence and head are right. The third number is the word, the first of y's three.",
        "all but the last are right. Where in its head, of width 6, does feature 11 stand?",
    )[axis]


check_index = Exercise(
    name="my_index",
    right=(2, 1, 4, 5),
    praise=(
        "right. The sentence comes first, feature 11 is the last of head 1, and the word stays "
        "word 4."
    ),
    wrong={
        "you took the first axis of y for the batch. Sequence-first is (n, b, e).": (4, 1, 2, 5),
        "you cut the features, and moved no axis: that is the place in (n, b, h, d).": (4, 2, 1, 5),
        "the heads stand behind the words: that is the place in (b, n, h, d).": (2, 4, 1, 5),
        "the heads stand in front of the batch: that is the place in (h, b, n, d).": (1, 2, 4, 5),
        "you deal the features out to the heads in turn (head = feature % h). A head has "
        "neighbours: the first d features belong to the first head.": (2, 3, 4, 2),
        "that is where a straight reshape puts it. It mixes words; cut the features first, then "
        "move the axes.": (2, 3, 2, 5),
        "you count the heads from 1. Indices count from 0.": (2, 2, 4, 5),
        "you count everything from 1. Indices count from 0.": (3, 2, 5, 6),
    },
    run=whole_numbers(4, "an index of four"),
    why=_which_index,
)

"""The exercise of "Windows": visible keys by pencil."""

from annotated_book.exercises._exercise import Either, Exercise
from annotated_book.exercises._values import furthest, numbers

_ASKED = ("token 0", "token 2", "token 9", "token 9 with 2 sinks", "the three layers")

check_counts = Exercise(
    name="my_counts",
    right=[1, 3, 4, 6, 10],
    praise="right: a token sees at most 4 keys, its own included, and the sinks besides. Each "
    "layer adds 3 tokens.",
    wrong={
        "the window counts the query's own key: 4 are visible in all, and not 4 before it.": Either(
            [[1, 3, 5, 7, 13], [1, 3, 5, 7, 10]]
        ),
        "a query sees its own key, too, and the window counts it.": Either(
            [[0, 2, 3, 5, 9], [0, 2, 3, 5, 10]]
        ),
        "the sinks are outside the window of token 9, so it sees them besides.": [1, 3, 4, 4, 10],
        "each layer adds w - 1 tokens, not w: the query's own key takes one place.": Either(
            [[1, 3, 4, 6, 12], [1, 3, 4, 6, 13]]
        ),
        "the token itself is seen, too: one more than 3 layers of 3.": [1, 3, 4, 6, 9],
        "at the beginning there are fewer keys than the window holds.": [4, 4, 4, 6, 10],
    },
    run=numbers(5),
    why=lambda answer, found, right: (
        f"look at {_ASKED[furthest(found, right)]} again: "
        f"{found[furthest(found, right)]:g} is not right."
    ),
    close=0,
)

"""Exercise of "Speed": the quartiles of a small race."""

from annotated_book.exercises._exercise import Exercise
from annotated_book.exercises._values import furthest, numbers

_ROUNDS = ((9, 10), (21, 20), (24, 20), (8, 10), (33, 30))
_RATIOS = sorted(ours / theirs for ours, theirs in _ROUNDS)

check_quartiles = Exercise(
    name="quartiles",
    right=_RATIOS[1:4],
    praise="right. The quartiles lie on either side of one: say even, though the median is above.",
    wrong={
        "you divided theirs by ours; divide our time by theirs.": sorted(
            theirs / ours for ours, theirs in _ROUNDS
        )[1:4],
        "those are the smallest and the largest ratio; the quartiles are the second and the "
        "fourth.": _RATIOS[::2],
        "put the ratios in order first: those are the middle rounds, not the middle ratios.": [
            ours / theirs for ours, theirs in _ROUNDS[1:4]
        ],
        "the order is: lower quartile, median, upper quartile.": _RATIOS[3:0:-1],
    },
    run=numbers(3),
    why=lambda answer, found, right: (
        f"the {('lower quartile', 'median', 'upper quartile')[furthest(found, right)]} is not "
        "right. The ratio of the first round is 9 / 10."
    ),
    close=0.005,
)

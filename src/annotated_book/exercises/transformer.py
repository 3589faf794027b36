"""Exercises of "The Transformer": four hands, and writing until the end."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_book.exercises._exercise import Either, Exercise
from annotated_book.exercises._values import furthest, numbers

check_angles = Exercise(
    name="angles",
    right=[20, 2, 0.2, 0.02],
    praise="right: the first clock has gone round three times, the last has hardly moved.",
    wrong={
        "that is position 0, where no clock has turned.": [0, 0, 0, 0],
        "that is how far each clock turns per position; here it has turned 20 times that.": [
            1,
            0.1,
            0.01,
            0.001,
        ],
        "the clocks get slower, not faster: divide by 10, do not multiply.": [20, 200, 2000, 20000],
        "these are sines; the angles themselves are asked for.": [0.9129, 0.9093, 0.1987, 0.02],
        "all clocks turn equally fast; each is to turn ten "
        "times more slowly than the one before.": [
            20,
            20,
            20,
            20,
        ],
        "these are degrees; radians are asked for, and no factor is needed.": [
            1145.9,
            114.59,
            11.459,
            1.1459,
        ],
        "you left out full turns; how far each clock has turned in all is asked for.": [
            1.1504,
            2,
            0.2,
            0.02,
        ],
    },
    run=numbers(4),
    why=lambda answer, found, right: (
        f"clock {(i := furthest(found, right)) + 1} has not turned by that. Divide 20 by {10**i}."
    ),
    close=0.005,
)


_PAD, _START, _END, _WORDS = 0, 1, 2, 11


class _Scripted(nn.Module):
    """A model that writes given sentences; without the padding mask, other ones."""

    def __init__(self, script: Tensor) -> None:
        super().__init__()
        self.script = script  # b sentences of equal length

    def encode(self, src: Tensor) -> Tensor:
        return F.one_hot(src, _WORDS).double()

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        words = self.script[:, : tgt.size(1)]
        given = padding is not None and torch.equal(padding, memory.argmax(-1) == _PAD)
        return F.one_hot(words if given else words % 8 + 3, _WORDS).double()


def _draw_scripted(max_new: int, ends: list[int]) -> dict[str, Any]:
    """Draw a model whose sentences end at these places, and go on behind their ends."""
    script = torch.randint(3, _WORDS, (len(ends), max_new + 1))
    for sentence, end in zip(script, ends, strict=True):
        sentence[end] = _END
    src = torch.randint(3, _WORDS, (len(ends), 5))
    src[1, 3:] = _PAD
    return {"model": _Scripted(script), "src": src, "max_new": max_new}


def _greedy(
    model: Any,
    src: Tensor,
    max_new: int,
    behind: int | None = _PAD,
    until: Any = torch.all,
    hidden: bool = True,
    kept: bool = True,
) -> Tensor:
    """Write until ``until`` says that enough sentences have ended."""
    memory = model.encode(src)
    written = torch.full((len(src), 1), _START)
    ended = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(max_new):
        scores = model.decode(written, memory, src == _PAD if hidden else None)[:, -1]
        following = scores.argmax(-1)
        now = ended | (following == _END)
        if behind is not None:
            following = following.masked_fill(ended if kept else now, behind)
        written, ended = torch.cat([written, following[:, None]], 1), now
        if until(ended):
            break
    return written


check_greedy_until_end = Exercise(
    name="greedy_until_end",
    right=_greedy,
    praise="right: every sentence ends, and no call is made that nobody needs.",
    wrong={
        "it writes on behind end. From there on, a sentence gets only padding.": Either(
            [
                partial(_greedy, behind=None, until=lambda ended: False),
                partial(_greedy, behind=None),
            ]
        ),
        "behind end you write end again; only padding belongs there.": partial(
            _greedy, behind=_END
        ),
        "it stops when the first sentence has ended; the others have not yet.": partial(
            _greedy, until=torch.any
        ),
        "it goes on until max_new, although all sentences have ended before.": partial(
            _greedy, until=lambda ended: False
        ),
        "padding stands in the place of end: hide what follows it, not end itself.": partial(
            _greedy, kept=False
        ),
        "decode gets no padding mask, so it reads padding: src == PAD.": partial(
            _greedy, hidden=False
        ),
        "start is missing in front of what is written.": lambda *given: _greedy(*given)[:, 1:],
    },
    sizes=[{"max_new": 6, "ends": [1, 3, 2]}, {"max_new": 4, "ends": [2, 4]}],
    draw=_draw_scripted,
    shape="(b, n)",
)
